"""The command line: what each command prints, for people and as JSON, and its exit codes."""

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.cli import reference
from lance_core.cli.main import COMMANDS, main, parser

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
TIMES = pa.array(["2026-01-01"] * 30).cast(pa.timestamp("us"))
ROWS = pa.table({"id": range(30), "name": ["a\x1b[31m", "b", None] * 10, "at": TIMES})


@pytest.fixture
def uri(tmp_path):
    """Three fragments, five versions, a tag, a column added, a row updated and one deleted."""
    uri = str(tmp_path / "t.lance")
    table = lance_core.write_dataset(ROWS, uri, max_rows_per_file=10, enable_stable_row_ids=True)
    table.update({"name": "'z'"}, where="id = 2")
    table.delete("id = 1")
    table.tags.create("good", 2)
    table.add_columns({"twice": "id * 2"})
    return uri


@pytest.fixture
def run(capsys):
    def run(*words, code=0):
        assert main([*map(str, words)]) == code
        return capsys.readouterr().out

    return run


@pytest.fixture
def run_json(run):
    def run_json(*words, code=0):
        return json.loads(run(*words, "--json", code=code))

    return run_json


def test_schema(run, run_json, uri):
    assert run_json("schema", uri, "--version", "1")[0] == {
        "id": 0, "field": "id", "type": "int64", "nullable": True
    }  # fmt: skip
    assert run("schema", uri).splitlines()[-1].split() == ["3", "twice", "int64", "true"]


def test_stats(run, run_json, uri):
    document = run_json("stats", uri)
    assert (document["num_rows"], document["num_deleted_rows"], document["num_fragments"]) == (29, 2, 4)
    assert {column["field"] for column in document["columns"]} <= {"id", "name", "at", "twice"}
    assert "num_rows                29" in run("stats", uri)


def test_history(run, run_json, uri):
    newest, *_, oldest = run_json("history", uri)
    assert (newest["version"], newest["operation"], newest["rows"]) == (4, "Merge", 29)
    assert (oldest["version"], oldest["operation"], oldest["fragments"]) == (1, "Overwrite", 3)
    assert dt.datetime.fromisoformat(newest["timestamp"]).tzinfo is not None
    assert [entry["tags"] for entry in run_json("history", uri, "--limit", 3)] == [[], [], ["good"]]
    assert len(run("history", uri, "--limit", 2).splitlines()) == 3


def test_tags(run, run_json, uri):
    assert run("tag", uri, "now") == "now names version 4\n"
    assert {entry["tag"]: entry["version"] for entry in run_json("tags", uri)} == {"good": 2, "now": 4}
    run("tag", uri, "now", "--version", "good", code=2)
    assert run_json("tag", uri, "now", "--version", "good", "--move") == {"tag": "now", "version": 2}
    run("untag", uri, "now")
    assert list(lance_core.dataset(uri).tags.list()) == ["good"]


def test_branches_and_indices(run, run_json, uri):
    assert run("branches", uri) == "none\n"
    table = lance_core.dataset(uri)
    table.create_branch("trial")
    assert run_json("branches", uri) == [{"branch": "trial", "parent_branch": None, "parent_version": 4}]
    table.create_scalar_index("id", "ZONEMAP")
    table.insert(pa.table({"id": [99]}))
    (index,) = run_json("indices", uri)
    assert (index["index"], index["type"], index["rows"], index["uncovered_rows"]) == ("id_idx", "ZoneMap", 29, 1)


def test_diff(run, run_json, uri):
    document = run_json("diff", uri, 1, "good")
    assert document["numbers"]["num_fragments"] == [3, 4]
    assert (document["fragments_added"], document["fragments_changed"], document["fields_added"]) == ([3], [0], [])
    lance_core.dataset(uri).alter_columns({"path": "name", "name": "title"})
    document = run_json("diff", uri, 1)
    assert document["fields_added"] == ["twice"]
    assert document["fields_changed"] == ["name string -> title string"]
    assert run_json("diff", uri, 1, 3, "--changed-rows")["rows"] == {"inserted": 0, "updated": 1, "deleted": 1}
    assert "rows deleted: 1" in run("diff", uri, 1, 3, "--changed-rows")


def test_rows(run, uri):
    lines = run("head", uri, "--rows", 3, "--columns", "id,name", "--filter", "id > 2").splitlines()
    assert [line.split() for line in lines] == [["id", "name"], ["3", "a\\x1b[31m"], ["4", "b"], ["5", "null"]]
    rows = [json.loads(line) for line in run("query", uri, "SELECT id, at FROM dataset", "--json").splitlines()]
    assert len(rows) == 29
    assert rows[0] == {"id": 0, "at": "2026-01-01T00:00:00"}
    assert run("sample", uri, "--rows", 4) == run("sample", uri, "--rows", 4)
    assert len(run("sample", uri, "--rows", 400).splitlines()) == 30
    assert run("query", uri, "SELECT count(*) AS n FROM dataset", "--version", "1").split() == ["n", "30"]


def test_long_results_are_cut_for_people_only(run, tmp_path):
    lance_core.write_dataset(pa.table({"id": range(1_002)}), tmp_path / "t")
    assert run("head", tmp_path / "t", "--rows", 1_002).endswith("... and 2 more rows; --json prints all\n")
    assert len(run("head", tmp_path / "t", "--rows", 1_002, "--json").splitlines()) == 1_002


def test_values_that_json_does_not_have(run_json, tmp_path):
    values = {"nan": float("nan"), "inf": float("-inf"), "raw": b"\x00\xff", "took": dt.timedelta(seconds=90)}
    lance_core.write_dataset(pa.table({name: [value] for name, value in values.items()}), tmp_path / "t")
    assert run_json("head", tmp_path / "t") == {"nan": "NaN", "inf": "-Infinity", "raw": "AP8=", "took": 90.0}


def test_compact(run, run_json, uri):
    assert run_json("compact", uri, "--dry-run") == {"version": 4, "fragments": [[0, 1, 2, 3]]}
    assert lance_core.dataset(uri).version == 4
    assert run("compact", uri) == "version 5: 4 fragments became 1\n"
    assert run("compact", uri) == "nothing to do\n"
    assert lance_core.dataset(uri).version == 5


def test_cleanup_keeps_tagged_versions(run, run_json, uri):
    planned = run_json("cleanup", uri, "--older-than", "0s", "--dry-run")
    assert planned["old_versions"] == 2
    assert all(file["path"] in run("cleanup", uri, "--older-than", "0s", "--dry-run") for file in planned["files"])
    assert run_json("cleanup", uri, "--older-than", "14d")["old_versions"] == 0
    assert run_json("cleanup", uri, "--older-than", "0s")["old_versions"] == 2
    assert [entry["version"] for entry in lance_core.dataset(uri).versions()] == [2, 4]


def test_restore_and_copy(run, run_json, uri, tmp_path):
    assert run("restore", uri, "good") == "version 5 is as version 2\n"
    assert lance_core.dataset(uri).count_rows() == 30
    for words in ((), ("--shallow",)):
        target = tmp_path / f"copy{len(words)}"
        assert run_json("copy", uri, target, "--version", "4", *words)["uri"] == str(target)
        assert lance_core.dataset(target).to_table() == lance_core.dataset(uri, version=4).to_table()


def test_repair_plans_and_repairs(run, run_json, uri):
    assert run("repair", uri) == "nothing to do\n"
    next(Path(uri, "data").glob(lance_core.dataset(uri).get_fragment(0).metadata.files[0].path)).unlink()
    plan = run_json("repair", uri, "--dry-run", code=1)
    assert (plan["rows_lost"], plan["steps"][0]["target"]) == (8, "fragment 0")
    assert "8 rows are lost: all of fragment 0" in run("repair", uri, "--dry-run", code=1)
    run("repair", uri, code=2)
    assert run_json("repair", uri, "--allow-loss")["done"] == {"fragment 0": "removed"}
    assert lance_core.dataset(uri).count_rows() == 21


def test_verify_tells_by_its_exit_code(run_json, uri):
    assert run_json("verify", uri, "--level", "full")["is_ok"]
    data_file = next(Path(uri, "data").iterdir())
    data_file.unlink()
    document = run_json("verify", uri, code=1)
    assert data_file.name in json.dumps(document["problems"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("history", "{}/none"), "DatasetNotFoundError"),
        (("head", "{}", "--version", "9"), "there is no version 9"),
        (("head", "{}", "--version", "none"), "RefNotFoundError"),
        (("head", "{}", "--columns", "nmae"), "nmae"),
        (("query", "{}", "SELECT nmae FROM dataset"), "nmae"),
        (("describe", "{}", "--json"), "history"),
        (("untag", "{}", "none"), "RefNotFoundError"),
        (("copy", "{}", "{}"), "DatasetAlreadyExistsError"),
    ],
)
def test_what_fails_says_so_and_exits_with_2(uri, capsys, words, message):
    assert main([word.format(uri) for word in words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert not printed.out


@pytest.mark.parametrize("words", [("cleanup", "t", "--older-than", "1y"), ("head", "t", "--rows", "0"), ("no",), ()])
def test_wrong_words_are_refused(capsys, words):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "usage: lance-core" in capsys.readouterr().err


def test_a_reader_that_has_enough_is_no_error(uri):
    words = [sys.executable, "-m", "lance_core", "head", uri, "--rows", "29"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait()


def test_completion_knows_all_commands(run):
    script = run("completion", "bash")
    assert all(command.name in script for command in COMMANDS)


def test_the_reference_page_is_fresh():
    hint = "python -m lance_core.cli.reference > docs/command-line.md"
    assert PAGE.read_text(encoding="utf-8") == reference.page(), hint


def test_every_command_has_help(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            parser().parse_args([command.name, "--help"])
        assert stopped.value.code == 0
        assert command.arguments[0].help.split()[0] in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"lance-core {lance_core.__version__}\n"
