"""Names of the package are imported when they are asked for, and tools that look for them find all."""

import subprocess
import sys

import pytest
from dagster.components.core.package_entry import get_package_objects_in_module

import lance_dagster

SCRIPT = """
import sys
import lance_dagster
heavy = [name for name in ("dagster", "pyarrow", "numpy", "lance_core") if name in sys.modules]
assert not heavy, heavy
from lance_dagster import LanceIOManager, build_lance_checks
assert LanceIOManager.__name__ == "LanceIOManager"
"""


def test_importing_the_package_loads_nothing_heavy():
    done = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


LIGHT = """
import sys
from lance_dagster import *
lake = {"io_manager": LanceIOManager(root="lake", spark=SparkSessionResource()), "lance": LanceResource(root="lake")}
heavy = [name for name in ("numpy", "pyarrow", "google.protobuf", "lance_core.dataset") if name in sys.modules]
assert not heavy, heavy
"""


def test_definitions_are_loaded_without_numpy_and_arrow():
    """They take longer to import than all of the package, and each process of a code location imports it."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_all_names_are_there_and_listed():
    assert set(lance_dagster.__all__) == set(lance_dagster._MODULE_OF)
    assert set(lance_dagster.__all__) <= set(dir(lance_dagster))
    for name in lance_dagster.__all__:
        assert getattr(lance_dagster, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'LanceIoManager'"):
        _ = lance_dagster.LanceIoManager


def test_components_are_discovered():
    names = {name for name, _ in get_package_objects_in_module(lance_dagster)}
    assert {name for name in lance_dagster.__all__ if name.endswith("Component")} <= names
