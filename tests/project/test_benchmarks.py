"""Figures in the READMEs are those of the published results; nobody types them."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.encoding.codecs import general

HERE = Path(__file__).parents[2] / "benchmarks"
NUM_ROWS = 50


@pytest.fixture(name="report")
def load_report(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import report  # noqa: PLC0415 - found from here only

    yield report
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(HERE)):
            del sys.modules[name]


@pytest.mark.usefixtures("report")
def test_every_goal_has_a_figure():
    rows = [goal.row for goal in sys.modules["goals"].GOALS if goal.row]
    assert sorted(set(rows)) == list(range(1, NUM_ROWS + 1))
    assert rows == sorted(rows)


@pytest.mark.usefixtures("report")
def test_shapes_are_compared_with_files_that_hold_the_same_columns():
    figures, shapes, engines = (sys.modules[name] for name in ("figures", "shapes", "engines"))
    for name, (make, *_) in shapes.SHAPES.items():
        table = make(10)
        versions = [engine.removeprefix("pylance-") for engine in figures.of_shape(name, "scan").engines - {"core-2.2"}]
        assert versions
        assert {engines.storable(table, version).num_columns for version in versions} == {table.num_columns}, name


def test_other_shapes_are_judged_beside_files_like_theirs_too(report):
    spent = {
        "core-2.2": [3, 3],
        "pylance-2.0": [1, 1],
        "pylance-2.1": [2, 2],
        "pylance-2.2": [6, 6],
        "core-2.0": [0.5, 1],
    }
    results = {**results_of({}), "data": {name: {"rows": 7, "scan": spent} for name in ("orders", "sparse maps")}}
    found = {one["work"]: one["found"] for one in report.table(results) if one["row"] == 46 and one["found"]}
    assert found == {
        "scan of other shapes, worst": 3,
        "the same, beside files of like size: scan": 1.5,
        "the same, 2.0 beside 2.0: scan": 0.5,
    }
    first, second = report.shapes_text(results).split("Beside the cheaper of versions 2.1 and 2.2:")
    second, third = second.split("Files of version 2.0 of both, plain values:")
    assert "| orders | 7 |  |  | 3.00 |" in first
    assert "| orders | 7 |  |  | 1.50 |" in second
    assert "| sparse maps | 7 |  |  | 0.50 |" in first
    assert "| orders | 7 |  |  | 0.50 |" in third
    assert "sparse maps" not in third


def results_of(values):
    """As a run leaves them; the bytes of taxi stand for all works."""
    measured = {"rows": 7, "bytes": values}
    machine = {"python": "3", "cores": 2, "load": 0.0}
    return {"machine": machine, "seconds": 60, "data": {"taxi": measured}, "singles": {}}


@pytest.mark.parametrize(("ours", "verdict"), [(20, "aim"), (40, "must"), (57, "in the slack"), (58, "MISSED")])
def test_verdicts(report, ours, verdict):
    found = report.table(results_of({"core-2.2": ours, "pylance-2.1": 100}))
    (row,) = [one for one in found if one["row"] == 13]
    assert (row["verdict"], row["found"]) == (verdict, ours / 100)
    others = {one["verdict"] for one in found if one["row"] != 13}
    assert others == {"not measured", "exact test"}
    assert all(one["anchor"] for one in found)


def test_publishing_replaces_what_is_between_the_marks(report, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PUBLISHED", tmp_path / "published")
    monkeypatch.setattr(report, "README", {tmp_path / "R.md": ("goals", "codecs"), tmp_path / "none.md": ("summary",)})
    first, last = report.MARKS
    stale = f"{first}\nstale figures\n{last}\n"
    (tmp_path / "R.md").write_text(f"before\n{stale}between\n{stale}after\n")
    (tmp_path / "none.md").write_text("no marks")
    results = results_of({"core-2.2": 40, "pylance-2.1": 100})
    results["goals"] = report.table(results)
    for _ in range(2):
        report.publish(results)
        text = (tmp_path / "R.md").read_text()
        assert text.startswith(f"before\n{first}\n")
        assert text.endswith(f"\n{last}\nafter\n")
        assert report.parts_of(text) == [report.goals_text(results), report.codecs_text(results)]
        assert f"\n{last}\nbetween\n{first}\n" in text
        assert "| 0.4 |" in text
        assert "stale" not in text
    assert (tmp_path / "none.md").read_text() == "no marks"
    assert json.loads((tmp_path / "published" / "results.json").read_text()) == json.loads(json.dumps(results))


def test_what_is_measured_anew_replaces_its_like_only(report):
    before = {**results_of({"core-2.2": 40, "pylance-2.1": 100}), "seconds": 9, "scale": 1}
    data = {"text": {"take 100": {"core-2.2": [1, 2], "pylance-2.1": [3, 4]}}, "wide": {"rows": 7}}
    results = {**before, "data": data, "singles": {"open": {"lance_core": [1, 1]}}, "seconds": 2}
    found = report.renewed(before, results)
    assert set(found["data"]) == {*before["data"], "text", "wide"}
    for name, works in before["data"].items():
        assert found["data"][name] == {**works, **data.get(name, {})}
    assert found["singles"] == {**before["singles"], "open": {"lance_core": [1, 1]}}
    assert found["seconds"] == 11
    assert found["goals"] == report.table(found)
    with pytest.raises(ValueError, match="of the data"):
        report.renewed(before, {**before, "scale": before["scale"] / 2})


def test_bytes_of_engines_that_were_not_asked_again_stay(report):
    before = {**results_of({"core-2.2": 40, "core-2.1": 50}), "seconds": 9, "scale": 1}
    data = {"taxi": {"bytes": {"core-2.2": 30}, "stream": {"core-2.2": [1, 1]}}}
    found = report.renewed(before, {**before, "data": data, "seconds": 1})
    assert found["data"]["taxi"]["bytes"] == {"core-2.2": 30, "core-2.1": 50}


def test_queries_in_spark_are_judged_one_by_one_and_by_their_mean(report):
    assert report.spark_text({}) == "Not measured yet."
    works = {
        "q1": {"cpu": 1.0, "wall": 1.0, "seconds": 2.0},
        "count(*)": {"cpu": 1.1, "wall": 0.5, "seconds": 0.1},
        "q2": {"cpu": 4.0, "wall": 1.0, "seconds": 1.5},
    }
    run = {"scale": 0.5, "rounds": 3, "pyspark": "4.3.0", "cores": 2, "load": 0.12, "seconds": 481}
    text = report.spark_text({"spark_sql": {**run, "works": works, "megabytes": 300.4}})
    assert text.splitlines() == [
        "Scale 0.5, 3 rounds, pyspark 4.3.0; 2 cores, load 0.1 at the start; 8 minutes.",
        "",
        "| | target | CPU / Parquet | wall / Parquet | reached | Parquet, s of CPU |",
        "|---|---:|---:|---:|---|---:|",
        "| q1 | 1.8 | 1.00 | 1.00 | target | 2.00 |",
        "| q2 | 1.8 | 4.00 | 1.00 | **missed** | 1.50 |",
        "| queries, geometric mean | 1.3 | 2.00 | 1.00 | **missed** |  |",
        "| count(*) | 1 | 1.10 | 0.50 | close | 0.10 |",
        "| memory of a task that writes images | 256 MB | 300 MB | | **missed** | |",
    ]


def test_a_small_run(tmp_path):
    command = [sys.executable, str(HERE / "run.py"), "--scale", "0.001", "--rounds", "1", "--parts", "data"]
    command += ["--data", "nested", "--engines", "core-2.2", "pylance-2.2", "--works", "write", "scan", "requests"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    measured = {one["work"]: one for one in found["goals"] if one["verdict"] not in {"not measured", "exact test"}}
    assert set(measured) == {"bytes of nested", "requests beside pylance, worst"}
    sizes = found["data"]["nested"]["bytes"]
    assert measured["bytes of nested"]["found"] == pytest.approx(sizes["core-2.2"] / sizes["pylance-2.2"], abs=1e-4)
    for engine in ("core-2.2", "pylance-2.2"):
        assert all(seconds > 0 for seconds in found["data"]["nested"]["scan"][engine])
    assert (tmp_path / "results.svg").read_text().startswith("<svg")


def test_two_checkouts_are_compared(tmp_path):
    """A copy of the package beside the package: all rows of ours, and of nobody else."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "lance_core").symlink_to(HERE.parent / "lance_core")
    command = [sys.executable, str(HERE / "run.py"), "--compare", str(tmp_path / "old"), "--scale", "0.001"]
    command += ["--rounds", "1", "--parts", "data", "--data", "nested", "--works", "scan", "take 1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    lines = {line[:60].strip(): line for line in done.stdout.splitlines() if line.startswith("nested, ")}
    assert set(lines) == {"nested, bytes", "nested, scan", "nested, take 1"}
    assert "1.000 (1.00-1.00)" in lines["nested, bytes"]
    assert "of 3 rows are slower" in done.stdout
    assert done.returncode == ("\n0 of 3 rows" not in done.stdout)  # of calls that short some may be


def test_works_that_are_not_called_in_turns_are_not_compared(tmp_path):
    command = [sys.executable, str(HERE / "run.py"), "--compare", str(tmp_path), "--works", "scan", "peak stream"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("--compare calls works in turns, but not: peak stream\n")


@pytest.mark.usefixtures("report")
def test_rows_of_two_checkouts_are_judged_by_all_pairs():
    import checkouts  # noqa: PLC0415 - found from here only

    results = {"text": {"rows": 5, "scan": {"core-2.2": [2, 3], "pylance-2.2": [1, 1]}, "open": {"lance_core": 4}}}
    assert dict(checkouts.figures_of(results, ())) == {"text, scan, core-2.2": (2, 3), "text, open, lance_core": (4,)}
    judged = [(1.2, 1.1, 1.3), (1.2, 0.9, 1.3), (1.04, 1.01, 1.1), (0.9, 0.8, 0.97), (0.9, 0.8, 1.2)]
    found = [checkouts.verdict({"ratios": [ratios]}) for ratios in judged]
    assert found == ["SLOWER", "slower?", "", "faster", "faster?"]
    named = [{"name": "scan", "old": 1, "ratios": [ratios]} for ratios in judged]
    assert checkouts.print_rows(named) == 1


def test_growth_is_judged_by_the_last_size_beside_the_first(report):
    def spent(first, last, memory):
        return [[first, first, 1.0], [first, first, 1.0], [last, last, memory]]

    works = {
        "write": {"lance_core": spent(10, 11, 40), "pylance": spent(20, 30, 50)},
        "stream": {"lance_core": spent(10, 15, 70), "pylance": spent(20, 20, 60), "Parquet": spent(5, 5, 5)},
        "compact": {"lance_core": spent(10, 10, 300), "pylance": spent(20, 20, 60)},
    }
    growth = {"load": 0.1, "seconds": 60, "kinds": {"taxi": {"rows": 4_000_000, "works": works}}}
    found = {row["row"]: row for row in report.table({**results_of({}), "growth": growth}) if row["row"] in {47, 48}}
    assert (found[47]["found"], found[47]["anchor"]) == (1.5, "taxi, stream: the smallest size")
    assert found[48]["work"].startswith("memory of compactions")
    memory = [row["found"] for row in report.table({**results_of({}), "growth": growth}) if row["row"] == 48]
    assert memory == [70, 300]
    assert "| taxi | 40,000,000 | stream | 15 | 1.50 | 1.00 | 1.00 | 0.75 | 70 | 60 |" in report.growth_text(
        {"growth": growth}
    )
    assert report.curves({"growth": growth}).count("<polyline ") == 2 * (2 + 3 + 2)


@pytest.mark.usefixtures("report")
@pytest.mark.parametrize(("long_s", "num_calls"), [(0, 2), (60, 3)])
def test_growth_is_measured_by_a_second_call_however_long_the_first_took(monkeypatch, long_s, num_calls):
    import growth  # noqa: PLC0415 - found from here only

    monkeypatch.setattr(growth, "_LONG_S", long_s)
    done: list[str] = []
    cpu, wall, memory = growth.spend(lambda: done.append("call"), lambda: done.append("before"))
    assert done == ["call", *["before", "call"] * (num_calls - 1)]
    assert min(cpu, wall, memory) >= 0


def test_what_is_published_is_what_was_measured(report):
    results = json.loads((report.PUBLISHED / "results.json").read_text())
    assert results["goals"] == report.table(results)
    assert (report.PUBLISHED / "bars.svg").read_text() == report.bars(results)
    if "growth" in results:
        assert (report.PUBLISHED / "growth.svg").read_text() == report.curves(results)
    found = {path: report.parts_of(path.read_text()) for path in report.README}
    for path, parts in report.README.items():
        assert found[path] == [report.PARTS[part](results) for part in parts]


def test_every_row_beyond_its_target_is_explained(report):
    results = json.loads((report.PUBLISHED / "results.json").read_text())
    beyond = {row["row"] for row in results["goals"] if row["verdict"] in ("in the slack", "MISSED")}
    assert beyond <= report.REASONS.keys()
    explained = (HERE / "explained.md").read_text()
    assert [anchor for anchor in report.REASONS.values() if explained.count(f'<a id="{anchor}"></a>') != 1] == []
    for row in results["goals"]:
        if row["verdict"] == "MISSED":
            assert f"**missed**, [why](explained.md#{report.REASONS[row['row']]})" in report.goals_text(results)


@pytest.mark.usefixtures("report")
def test_kernels_are_noted_once_and_repeated_alone(tmp_path):
    import floors  # noqa: PLC0415 - found from here only

    lines = pa.table(
        {"line": [f"2024-01-01 00:00:{number % 60:02} INFO request {number} done" for number in range(20_000)]}
    )
    table = lance_core.write_dataset(lines, tmp_path)
    unchanged = general._decode_lz4
    with floors.noted() as calls:
        assert table.to_table() == lines
    assert general._decode_lz4 is unchanged
    kinds = [call[0] for call in calls]
    assert kinds.count("codecs") == 1
    assert set(kinds) <= floors.KERNELS.keys()
    found = floors.alone_of(calls, 1)
    assert found.keys() == floors.KERNELS.keys()
    assert found["codecs"] > 0
