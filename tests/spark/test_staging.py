"""Jobs are pickles in an option of a write: only those that this process has signed are looked at."""

import base64
import pickle
import re
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.spark import write_lance
from lance_core.spark.common.signed import signed, signing
from lance_core.spark.functions.merge_lookup import CandidateSource
from lance_core.spark.functions.staging import StagingSource

KEY, OTHER = b"k" * 32, b"o" * 32
RAN = []


class Evil:
    """What runs a function when it is unpickled."""

    def __reduce__(self):
        return RAN.append, ("ran",)


def open_writer(source, options):
    return source(options).writer(StructType([]), overwrite=False)


def open_reader(source, options):
    return source(options).reader(StructType([]))


def plain(job):
    return base64.b64encode(pickle.dumps(job)).decode()


def test_signed_jobs_arrive():
    assert open_writer(signing(StagingSource, KEY), {"job": signed("a job", KEY)}).job == "a job"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        plain(Evil()),
        f".{plain(Evil())}",
        f"{'0' * 64}.{plain(Evil())}",
        f"ü.{plain(Evil())}",
        signed(Evil(), OTHER),
        signed(Evil(), b""),
        signed("a job", KEY).partition(".")[0] + "." + plain(Evil()),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("key", [None, KEY], ids=["unsigned", "signed"])
@pytest.mark.parametrize(("source", "go"), [(StagingSource, open_writer), (CandidateSource, open_reader)])
def test_jobs_of_others_are_not_unpickled(source, go, key, text):
    with pytest.raises(InvalidInputError, match="is internal"):
        go(source if key is None else signing(source, key), {"job": text})
    assert not RAN


def test_processes_that_share_a_session_have_names_of_their_own():
    assert (
        signing(StagingSource, KEY).name() == signing(StagingSource, KEY).name() != signing(StagingSource, OTHER).name()
    )
    assert signing(StagingSource, KEY).name().startswith("lance_staging_")
    assert KEY.hex() not in signing(StagingSource, KEY).name()


def test_every_place_that_unpickles_is_known():
    """A new one needs a decision: who can write what it reads?"""
    pattern = re.compile(
        r"\b(?:pickle|marshal|shelve|dill|cloudpickle|joblib)\.loads?\(|allow_pickle=True|\beval\(|\bexec\("
    )
    root = Path(lance_core.__file__).parents[1]
    found = {
        path.relative_to(root).as_posix(): len(pattern.findall(path.read_text()))
        for package in ("lance_core", "lance_dagster")
        for path in (root / package).rglob("*.py")
        if pattern.search(path.read_text())
    }
    assert found == {
        "lance_core/common/frozen.py": 1,  # compiles an __init__ from the names of fields in our own source
        # arguments in the function that Spark sends, and answers of our own tasks
        "lance_core/spark/functions/distribute.py": 2,
        "lance_core/spark/common/signed.py": 1,  # signed
    }


@pytest.mark.spark
def test_a_session_that_has_written_takes_no_jobs_of_others(spark, uri, tmp_path):
    write_lance(spark.range(3).toDF("x"), uri)
    name = signing(StagingSource).name()
    victim = tmp_path / "ran"

    class Touch:
        def __reduce__(self):
            return Path.touch, (victim,)

    for text in (plain(Touch()), signed(Touch(), OTHER)):
        with pytest.raises(Exception, match="is internal"):
            spark.range(1).write.format(name).mode("append").option("job", text).save()
    assert not victim.exists()
