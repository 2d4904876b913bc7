import pytest


@pytest.fixture(scope="module", autouse=True)
def example_lake(tmp_path_factory):
    """The example's tables and files in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        lake = tmp_path_factory.mktemp("lake")
        patch.setenv("EXAMPLE_LAKE", str(lake))
        yield lake


@pytest.fixture(scope="module")
def spark(new_session):
    return new_session(**{"shuffle.partitions": "2", "session.timeZone": "UTC"})
