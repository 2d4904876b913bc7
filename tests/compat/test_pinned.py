"""Versions that lance_core's readers keep, and pylance's clean-up."""

from datetime import timedelta

import lance
import pyarrow as pa
import pytest

import lance_core

OLD, NEW = pa.table({"a": range(100)}), pa.table({"a": range(5)})
ALL = {"older_than": timedelta(0), "delete_unverified": True}


def test_clean_ups_of_pylance_spare_what_is_pinned(tmp_path):
    reader = lance.write_dataset(OLD, tmp_path / "t") and lance_core.dataset(tmp_path / "t")
    newest = lance.write_dataset(NEW, tmp_path / "t", mode="overwrite")
    with reader.pinned():
        with pytest.raises(OSError, match="tagged"):
            newest.cleanup_old_versions(**ALL)
        assert newest.cleanup_old_versions(**ALL, error_if_tagged_old_versions=False).old_versions == 0
        assert reader.to_table() == lance.dataset(tmp_path / "t", version=1).to_table() == OLD
        assert lance.dataset(tmp_path / "t").tags.list()  # it is a tag like others to pylance
    assert newest.cleanup_old_versions(**ALL).old_versions == 1
    assert newest.to_table() == NEW
