from pathlib import Path

import pytest

from lance_core.spark import register


@pytest.fixture(scope="session")
def spark(new_session):
    # A time zone far from UTC, and not by whole hours.
    session = new_session(**{"shuffle.partitions": "2", "session.timeZone": "America/St_Johns"})
    register(session)
    return session


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "a table")


@pytest.fixture
def data_files(uri):
    """Names of the files in the data folder, whether a version knows them or not."""

    def names():
        folder = Path(uri, "data")
        return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []

    return names
