"""Fixtures of several files of tests."""

import pytest

from lance_core.file.read.reader import DataFileReader


@pytest.fixture
def opened(monkeypatch):
    """Paths of the files that were opened."""
    paths, make = [], DataFileReader.__init__

    def counted(self, source, *, path, **named):
        paths.append(path)
        make(self, source, path=path, **named)

    monkeypatch.setattr(DataFileReader, "__init__", counted)
    return paths
