"""Fixtures for comparisons with pylance."""

import shutil

import pytest


@pytest.fixture(scope="module")
def copy_of(tmp_path_factory):
    """Copy a table that many tests begin with; it is made when the first of them asks for it."""
    made = {}

    def copy(key, make, uri):
        if key not in made:
            made[key] = str(tmp_path_factory.mktemp("made") / "t")
            make(made[key])
        return shutil.copytree(made[key], uri)

    return copy
