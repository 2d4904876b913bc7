"""Public functions name their arguments: in the source, at runtime and for type checkers."""

import ast
import inspect
from pathlib import Path

import pytest

import lance_core
import lance_dagster
from lance_core.common.signatures import check_options, with_options
from lance_core.methods import writing
from lance_core.optimize import CompactionArguments, DatasetOptimizer
from lance_core.sampler import FullScanSampler
from lance_core.scanner import ScanOptions
from lance_core.write import WriteArguments

ROOT = Path(__file__).parents[2]
INTERNAL = ("_proto", "testing")

# Public functions that take arguments of any name and type, and why.
UNNAMED = {
    "lance_core/scanner.py:LanceScanner.to_pandas": "arguments of pyarrow.Table.to_pandas",
    "lance_core/methods/arrow_dataset.py:ArrowDataset.scanner": "arguments of pyarrow.dataset.Dataset.scanner",
    "lance_core/torch/data.py:get_safe_loader": "arguments of torch.utils.data.DataLoader",
}


def is_public(name):
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def functions():
    """All public functions and methods, with their places."""
    for package in ("lance_core", "lance_dagster"):
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT)
            if not set(place.parts) & set(INTERNAL):
                yield from members(ast.parse(path.read_text()), f"{place}:")


def members(owner, prefix):
    for node in owner.body:
        if isinstance(node, ast.ClassDef) and is_public(node.name):
            yield from members(node, f"{prefix}{node.name}.")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            yield prefix + node.name, node


def type_of(argument):
    return "Any" if argument.annotation is None else ast.unparse(argument.annotation)


def test_public_functions_name_their_arguments():
    unnamed = {
        name
        for name, node in functions()
        for argument in (node.args.vararg, node.args.kwarg)
        if argument is not None and type_of(argument) == "Any"
    }
    assert unnamed == set(UNNAMED)


def is_options(decorator):
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "with_options"


def test_functions_that_unpack_options_show_them_at_runtime():
    hidden = set()
    for name, node in functions():
        if node.args.kwarg is not None and type_of(node.args.kwarg).startswith("Unpack["):
            options = type_of(node.args.kwarg).removeprefix("Unpack[").removesuffix("]")
            shown = [ast.unparse(one.args[0]) for one in node.decorator_list if is_options(one)]
            if options not in [one.strip("'").rpartition(":")[2] for one in shown]:
                hidden.add(name)
    assert hidden == set()


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (lance_core.LanceDataset.scanner, ScanOptions),
        (lance_core.LanceDataset.to_table, ScanOptions),
        (lance_core.LanceDataset.to_batches, ScanOptions),
        (lance_core.LanceDataset.to_pandas, ScanOptions),
        (lance_core.LanceDataset.to_reader, ScanOptions),
        (lance_core.LanceDataset.head, ScanOptions),
        (lance_core.LanceFragment.scanner, ScanOptions),
        (lance_core.LanceFragment.to_batches, ScanOptions),
        (FullScanSampler.__call__, ScanOptions),
        (lance_core.LanceDataset.insert, WriteArguments),
        (lance_core.write_dataset, WriteArguments),
        (DatasetOptimizer.compact_files, CompactionArguments),
        (lance_dagster.LanceResource.compact, CompactionArguments),
        (lance_dagster.LanceResource.write, WriteArguments),
    ],
    ids=lambda one: one.__qualname__,
)
def test_signatures_name_all_options(function, options):
    shown = inspect.signature(function).parameters
    assert set(options.__annotations__) <= set(shown)
    assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in shown.values())


def test_insert_shows_the_types_and_defaults_of_write_dataset():
    shown, expected = (inspect.signature(one).parameters for one in (writing.insert, lance_core.write_dataset))
    assert set(WriteArguments.__annotations__) == set(expected) - {"data_obj", "uri", "mode"}
    for name in WriteArguments.__annotations__:
        assert (name, shown[name].default) == (name, expected[name].default)
        assert (name, shown[name].annotation) == (name, expected[name].annotation)


def test_methods_of_an_object_do_not_show_the_object(tmp_path):
    table = lance_core.write_dataset({"a": [1]}, tmp_path / "t")
    assert next(iter(inspect.signature(table.to_table).parameters)) == "columns"


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.scanner(nonsense=1),
        lambda table: table.to_table(nonsense=1),
        lambda table: table.head(1, nonsense=1),
        lambda table: table.get_fragments()[0].to_table(nonsense=1),
        lambda table: table.insert({"a": [1]}, nonsense=1),
        lambda table: table.commit_batch(table, [], nonsense=1),
        lambda table: table.cleanup_old_versions(nonsense=1),
        lambda table: table.optimize.compact_files(nonsense=1),
        lambda table: table.optimize.materialize_deletions(nonsense=1),
    ],
)
def test_unknown_keyword_is_a_type_error_that_names_it(tmp_path, call):
    table = lance_core.write_dataset({"a": [1]}, tmp_path / "t")
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        call(table)
    assert table.version == table.latest_version == 1


def test_with_options_returns_the_function_itself():
    def read(columns, **options):
        return columns, options

    decorated = with_options(ScanOptions)(read)
    assert decorated is read
    assert decorated(1, batch_size=2) == (1, {"batch_size": 2})
    assert list(inspect.signature(decorated).parameters) == ["columns", *ScanOptions.__annotations__]
    check_options("read", ScanOptions, {"batch_size": 2})
    with pytest.raises(TypeError, match=r"read\(\) got an unexpected keyword argument 'nonsense'"):
        check_options("read", ScanOptions, {"nonsense": 2})
