"""All of pylance's public API is there: it works, or it raises an UnsupportedError that names it.

The names come from pylance's modules, classes and signatures. What is refused stands in
`lance_core.common.unsupported`, what is called otherwise or takes another form in the tables here; each entry of both
must be needed.
"""

import importlib
import inspect
import pkgutil
import re
import types
import typing
from enum import Enum

import lance
import lance.namespace
import pytest

import lance_core
import lance_core.query
from lance_core.common.unsupported import REFUSED, REFUSED_ARGUMENTS, refuse_given
from lance_core.errors import UnsupportedError
from lance_core.fragment import LanceFragment
from lance_core.namespace import DirectoryNamespace, RestNamespace
from lance_core.scanner import LanceScanner, ScannerBuilder

ROWS = {"a": [1, 2, 3]}

# Modules whose names are no API: tests, the native library, lazy imports, types for annotations.
INTERNAL = {
    "lance.conftest",
    "lance.dependencies",
    "lance.lance",
    "lance.types",
    "lance.torch",
    "lance.indices.builder",
}
INTERNAL |= {"lance.indices.ivf", "lance.indices.pq"}

# Names that are no API although they look like it.
NO_NAMES = {"TYPE_CHECKING", "annotations", "LOGGER", "CUDA_REGEX", "BatchUDFCheckpoint.BatchInfo"}
NO_CLASSES = {"CompactionOptions", "BlobFile", "BlobType", "CommitConflictError"}  # of dicts, files, types, errors
NO_MODULES = {"lance.util": {"sanitize_ts", "td_to_micros", "HNSW", "KMeans", "validate_vector_index"}}

# Members that take another form here.
OTHERWISE = {
    "DataFile.create": "LanceFragment.create_from_file makes the fragment of a file",
    "FragmentMetadata.overlays": "data overlays are refused when a version is opened",
    "CleanupExplanation.candidate_file_limit": "all files are told",
    "CleanupExplanation.candidate_files_truncated": "all files are told",
    "CleanupExplanation.referenced_branches": "branches keep the versions that they come from",
    "CleanupExplanation.warnings": "they are logged",
    "CleanupStats.failed_deletes": "a deletion that fails is an error",
}

# Arguments that are named otherwise, or taken by position only.
ARGUMENTS = {
    "CompactionTask.from_json": {"json": "text"},
    "CompactionPlan.from_json": {"json": "text"},
    "RewriteResult.from_json": {"json": "text"},
    "DeletionFile.from_json": {"json": "text"},
    "FragmentSampler.iter_fragments": {"ds": "dataset, as in its subclasses"},
    "DatasetDelta": {"delta": "made by LanceDataset.delta"},
    "LanceStats": {"dataset": "made by LanceDataset.stats"},
    "Branches": {"dataset": "made by LanceDataset.branches"},
    "Tags": {"dataset": "made by LanceDataset.tags"},
    "FragmentSession": {"session": "made by LanceFragment.open_session"},
    "LanceFragment": {"fragment": "made by LanceDataset.get_fragment"},
    "LanceScanner": {"scanner": "made by LanceDataset.scanner", "dataset": "likewise"},
    "SqlQuery": {"query": "made by SqlQueryBuilder.build"},
    "SqlQueryBuilder": {"builder": "made by LanceDataset.sql"},
    "FragmentMetadata": {"overlays": "refused when a version is opened"},
}


def modules():
    found = [module.name for module in pkgutil.walk_packages(lance.__path__, "lance.")]
    public = (name for name in found if not any(part.startswith("_") for part in name.split(".")))
    return sorted(name for name in public if name not in INTERNAL and not name.startswith("lance.torch"))


def public_names(module):
    """The names that a module of pylance offers: those that it lists, else those that it defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    names = [name for name in vars(module) if not name.startswith("_") and name not in NO_NAMES]
    return [
        name
        for name in names
        if not isinstance(vars(module)[name], types.ModuleType)
        and (getattr(vars(module)[name], "__module__", None) or module.__name__) == module.__name__
    ]


def is_refused(find):
    """Whether asking for something, or calling it, raises an UnsupportedError; the error."""
    try:
        find()()
    except UnsupportedError as error:
        return str(error)
    except Exception:  # noqa: BLE001 it is there, and wants arguments
        return None
    return None


def test_modules_are_there_or_refused_by_name():
    for name in modules():
        ours = "lance_core" + name.removeprefix("lance")
        if ours in REFUSED:
            assert ours.count(".") == 1
            message = re.escape(f"{ours} is not supported: {REFUSED[ours]}")
            with pytest.raises(UnsupportedError, match=message):
                getattr(lance_core, ours.rpartition(".")[2])
            with pytest.raises(ImportError, match=message):
                importlib.import_module(ours)
        else:
            importlib.import_module(ours)


def cases():
    for name in ["lance", *modules()]:
        ours = "lance_core" + name.removeprefix("lance")
        if ours not in REFUSED:
            yield from ((name, ours, member) for member in public_names(importlib.import_module(name)))


@pytest.mark.parametrize(("ours", "name"), sorted({case[1:] for case in cases()}))
def test_names_of_modules_are_there_or_refused_by_name(ours, name):
    path = f"{ours}.{name}"
    if path in REFUSED:
        message = is_refused(lambda: getattr(importlib.import_module(ours), name))
        assert message is not None
        assert name in message
    else:
        assert getattr(importlib.import_module(ours), name) is not None


def pair_of(theirs, ours, name):
    """What both have by a name; another test tells what is missing."""
    return getattr(importlib.import_module(theirs), name), getattr(importlib.import_module(ours), name, None)


def classes():
    """Classes that both have, by name."""
    found = {}
    for theirs, ours, name in cases():
        if f"{ours}.{name}" not in REFUSED and name not in NO_CLASSES:
            pair = pair_of(theirs, ours, name)
            if all(map(inspect.isclass, pair)) and not typing.is_typeddict(pair[0]):
                found[name] = pair
    return found


@pytest.mark.parametrize("name", sorted(classes()))
def test_members_are_there_or_refused_by_name(name):
    theirs, ours = classes()[name]
    inherited = set(dir(Exception)) | set(dir(dict)) | set(dir(str))
    for member in sorted(one for one in dir(theirs) if not one.startswith("_") and one not in inherited):
        path = f"{name}.{member}"
        if path in OTHERWISE:
            continue
        is_field = member in getattr(ours, "__annotations__", {})
        assert hasattr(ours, member) or is_field, path
        found = None if is_field else inspect.getattr_static(ours, member)
        if isinstance(found, property):
            found = found.fget
        message = is_refused(lambda found=found: found) if path in REFUSED else None
        assert (path in REFUSED) == (message is not None), path
        assert message is None or path in message


def parameters(function):
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return {one.name: one for one in found if one.name not in {"self", "cls", "_args", "_kwargs"}}


def functions():
    for theirs, ours, name in cases():
        if f"{ours}.{name}" in REFUSED:
            continue
        pair = pair_of(theirs, ours, name)
        if inspect.isfunction(pair[0]) and pair[1] is not None:
            yield name, *pair
    for name, (theirs, ours) in classes().items():
        yield name, theirs, ours
        for member in sorted(set(dir(theirs)) & set(dir(ours))):
            if not member.startswith("_") and f"{name}.{member}" not in REFUSED and callable(getattr(theirs, member)):
                yield f"{name}.{member}", getattr(theirs, member), getattr(ours, member)


FUNCTIONS = {name: (theirs, ours) for name, theirs, ours in functions()}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_arguments_are_there(name):
    theirs, ours = FUNCTIONS[name]
    expected, found = parameters(theirs), parameters(ours)
    if expected is None or found is None:
        return
    expected = {one: kind for one, kind in expected.items() if not one.startswith("_")}
    variable = {one.name for one in expected.values() if one.kind in {one.VAR_KEYWORD, one.VAR_POSITIONAL}}
    lacking = set(expected) - variable - set(found)
    assert lacking == set(ARGUMENTS.get(name, {})), name


# Made by name only, or by lance_core; the order of their arguments is their own.
OTHER_ORDER = {"DataFile", "DeletionFile", "SqlQuery"}

# Defaults that differ from those of pylance, and why.
OTHER_DEFAULTS = {
    "uri": "pylance needs none for a table of a catalog",
    "max_retries": "None: as often as the time allows",
    "conflict_retries": "None: as often as the time allows",
    "retry_timeout": "None: as long as commits may take",
    "column_indices": "DataFile is made by lance_core",
    "file_major_version": "DataFile is made by lance_core",
    "file_minor_version": "DataFile is made by lance_core",
    "file_size_bytes": "DataFile is made by lance_core",
    "snapshot": "LanceScanner is made by LanceDataset.scanner",
}
# Defaults of LanceDataset.scanner, which fragments share; they mean the same.
SAME_MEANING = {
    ("with_row_id", False, None),
    ("with_row_address", False, None),
    ("batch_readahead", 16, None),
}


def by_position(function):
    """Names of what can be given by position, without the object."""
    found = [one for one in parameters(function).values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    names = [one.name for one in found]
    is_method = str(getattr(function, "__module__", "")).startswith("lance_core.methods") and names[:1] in (
        ["dataset"],
        ["fragment"],
    )
    return names[1:] if is_method else names


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(ARGUMENTS) - OTHER_ORDER))
def test_arguments_stand_in_the_order_of_pylance(name):
    theirs, ours = FUNCTIONS[name]
    if parameters(theirs) is None or parameters(ours) is None:
        return
    expected = by_position(theirs)
    assert by_position(ours)[: len(expected)] == expected


def plain(default):
    """A default as a value: factories of collections make empty ones."""
    if isinstance(default, Enum):
        return default.value
    return () if "factory" in str(default) or default in ([], {}) else default


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_arguments_have_the_defaults_of_pylance(name):
    theirs, ours = FUNCTIONS[name]
    expected, found = parameters(theirs) or {}, parameters(ours) or {}
    for one in set(expected) & set(found) - set(OTHER_DEFAULTS):
        default, shown = plain(expected[one].default), plain(found[one].default)
        is_optional_here = default is inspect.Parameter.empty
        is_unset = "MISSING" in str(shown)
        assert is_optional_here or is_unset or default == shown or (one, default, shown) in SAME_MEANING, (one, shown)


def test_tables_name_only_what_is_missing():
    for path in OTHERWISE:
        owner, _, member = path.partition(".")
        theirs, ours = classes()[owner]
        assert member in {*dir(theirs), *theirs.__annotations__} if hasattr(theirs, "__annotations__") else dir(theirs)
        assert not hasattr(ours, member), path
    assert set(ARGUMENTS) <= set(FUNCTIONS)


@pytest.fixture
def table(tmp_path):
    return lance_core.write_dataset(ROWS, tmp_path / "t")


def asking(table, place, owner, given):
    """Call what an argument belongs to."""
    calls = {
        "dataset": lambda: lance_core.dataset(place, **given),
        "write_dataset": lambda: lance_core.write_dataset(ROWS, place, mode="append", **given),
        "write_fragments": lambda: lance_core.write_fragments(ROWS, place, **given),
        "LanceDataset": lambda: lance_core.LanceDataset(place, **given),
        "LanceDataset.commit": lambda: table.commit(
            table, lance_core.LanceOperation.Append([]), read_version=1, **given
        ),
        "LanceDataset.create_index": lambda: table.create_index("a", "IVF_FLAT", **given),
        "LanceDataset.create_scalar_index": lambda: table.create_scalar_index("a", "ZONEMAP", **given),
        "LanceDataset.read_blob_ranges": lambda: table.read_blob_ranges("a", [], **given),
        "LanceDataset.scanner": lambda: table.scanner(**given),
        "LanceDataset.to_table": lambda: table.to_table(**given),
        "LanceDataset.to_batches": lambda: table.to_batches(**given),
        "LanceDataset.to_pandas": lambda: table.to_pandas(**given),
        "LanceDataset.shallow_clone": lambda: table.shallow_clone(place + "s", **given),
        "LanceDataset.deep_clone": lambda: table.deep_clone(place + "d", **given),
        "LanceDataset.cleanup_old_versions": lambda: table.cleanup_old_versions(**given),
        "LanceDataset.explain_cleanup_old_versions": lambda: table.explain_cleanup_old_versions(**given),
        "MatchQuery": lambda: lance_core.query.MatchQuery("a", "a", **given),
        "PhraseQuery": lambda: lance_core.query.PhraseQuery("a", "a", **given),
        "LanceFragment.create": lambda: LanceFragment.create(place, ROWS, **given),
        "DirectoryNamespace": lambda: DirectoryNamespace(root=place, **given),
        "RestNamespace": lambda: RestNamespace(uri=place, **given),
        "LanceFileReader": lambda: lance_core.file.LanceFileReader(place + "/x", **given),
        "LanceFileWriter": lambda: lance_core.file.LanceFileWriter(place + "/x", **given),
        "DatasetOptimizer.compact_files": lambda: table.optimize.compact_files(**given),
    }
    return calls[owner]()


REFUSED_SOMEWHERE = sorted(
    (name, argument)
    for name, (theirs, ours) in FUNCTIONS.items()
    for argument in set(parameters(theirs) or ()) & set(REFUSED_ARGUMENTS)
    if argument in (parameters(ours) or {})
    if not (name in {"dataset", "write_dataset"} and argument in {"namespace_client", "table_id"})
)


@pytest.mark.parametrize(("owner", "argument"), REFUSED_SOMEWHERE)
def test_arguments_that_are_refused_raise_an_error_that_names_them(table, owner, argument):
    with pytest.raises(UnsupportedError, match=argument):
        asking(table, table.uri, owner, {argument: "given"})
    assert lance_core.dataset(table.uri).version == 1


def test_every_refused_argument_is_one_of_pylance():
    assert {argument for _, argument in REFUSED_SOMEWHERE} == set(REFUSED_ARGUMENTS)


def test_every_refused_name_is_one_of_pylance():
    for path in REFUSED:
        owner, _, name = path.rpartition(".")
        if owner.startswith("lance_core"):
            place = owner.replace("lance_core", "lance", 1)
            if f"{place}.{name}" in {*modules(), "lance.io"} or name.startswith("torch.") or place == "lance.torch":
                continue
            names = {*dir(importlib.import_module(place))}
            if place == "lance.indices":
                names |= {"IndexConfig", "IndicesBuilder", "IvfModel", "PqModel"}
        else:
            places = [importlib.import_module("lance.dataset"), lance, lance.namespace]
            names = {*dir(next(getattr(place, owner) for place in places if hasattr(place, owner)))}
        assert name in names, path


def test_refused_arguments_may_be_given_as_none_or_false():
    refuse_given("f", index_segments=None, disable_scoring_autoprojection=False)
    refuse_given("f", max_files=1000, external_blob_mode="reference", document_granularity="row")
    with pytest.raises(UnsupportedError, match="argument 'max_files' of f"):
        refuse_given("f", max_files=10)
    with pytest.raises(UnsupportedError, match="argument 'index_segments' of f"):
        refuse_given("f", index_segments={})


def test_builder_reaches_what_is_refused(table):
    for member in [one for one in dir(ScannerBuilder) if f"ScannerBuilder.{one}" in REFUSED]:
        with pytest.raises(UnsupportedError, match=member):
            getattr(ScannerBuilder(table), member)("a", 1)
    with pytest.raises(UnsupportedError, match=r"LanceScanner\.take"):
        table.scanner().take([0])
    assert isinstance(table.scanner(), LanceScanner)
    with pytest.raises(UnsupportedError, match="DataOverlay"):
        lance_core.LanceOperation.DataOverlay([])


def test_arguments_by_position_mean_what_they_mean_in_pylance(table):
    theirs = lance.dataset(table.uri)
    by_position = (["a"], "a > 1", None, None, None, 1)
    sizes = [[batch.num_rows for batch in one.to_batches(*by_position)] for one in (table, theirs)]
    assert sizes[0] == sizes[1] == [1, 1]
    fragments = table.get_fragments(), theirs.get_fragments()
    with_ids = (None, None, 1, 1, True, True)
    places = [one[0].to_table(*with_ids).to_pydict() for one in fragments]
    assert places[0] == places[1] == {"a": [2], "_rowid": [1], "_rowaddr": [1]}
