"""Keys of a storage service stay out of whatever is printed. Pickles of datasets carry them: workers need them."""

import ast
import pickle
import re
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core

CANARY = "wJalrXUtnFEMI/K7MDENG"
HOLDERS = {"storage_options", "base_store_params"}


@pytest.fixture
def dataset(tmp_path):
    options = {"aws_secret_access_key": CANARY}
    return lance_core.write_dataset(
        pa.table({"a": [1]}), tmp_path / "t", storage_options=options, base_store_params={"s3://other": options}
    )


def test_what_is_printed_shows_no_keys(dataset):
    (fragment,) = dataset.get_fragments()
    shown = [dataset, dataset.snapshot, dataset.snapshot.store, fragment, dataset.scanner(), dataset.tags]
    assert not any(CANARY in text for one in shown for text in (repr(one), str(one)))
    assert "settings" in repr(dataset.snapshot.store)


@pytest.mark.slow
def test_no_class_shows_its_options():
    """A dataclass shows all fields unless told otherwise, and tracebacks, logs and failed tests show what it shows."""
    fields = [
        (path.name, field)
        for path in Path(lance_core.__file__).parent.rglob("*.py")
        if any(holder in (text := path.read_text()) for holder in HOLDERS)
        for kind in ast.walk(ast.parse(text))
        if isinstance(kind, ast.ClassDef)
        and re.search("dataclass|frozen", " ".join(map(ast.unparse, kind.decorator_list)))
        for field in kind.body
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) in HOLDERS
    ]
    assert len(fields) >= 5
    assert not [(name, ast.unparse(field)) for name, field in fields if "repr=False" not in ast.unparse(field)]


def test_pickles_carry_options_and_the_table_does_not(dataset):
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 our own
    assert again.storage_options == {"aws_secret_access_key": CANARY}
    stored = b"".join(path.read_bytes() for path in Path(dataset.uri).rglob("*") if path.is_file())
    assert CANARY.encode() not in stored
