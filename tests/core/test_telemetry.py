"""Spans, hooks, loggers and progress bars: what lance_core tells of its work."""

import logging
import os
import pty
import re
import subprocess
import sys
import termios
import types
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core import telemetry
from lance_core.errors import CommitConflictError, UnsupportedError
from lance_core.otel import instrument_lance_metrics, instrument_lance_spans

ROWS = pa.table({"id": list(range(100))})


@pytest.fixture
def spans():
    seen = []
    stop = telemetry.on_end(seen.append)
    yield seen
    stop()


def small_files(path, number=4):
    for _ in range(number):
        lance_core.write_dataset(ROWS, path, mode="append")
    return lance_core.dataset(path)


def test_a_write_and_its_commit_are_told_with_rows_and_version(tmp_path, spans):
    lance_core.write_dataset(ROWS, tmp_path / "t.lance")
    write, commit = spans
    assert (write.name, write.rows, write.num_bytes) == ("write", 100, ROWS.nbytes)
    assert commit.name == "commit"
    assert commit.attributes == {"operation": "Overwrite", "version": 1, "attempts": 1}
    assert commit.seconds > 0


def test_a_compaction_tells_its_tasks(tmp_path, spans):
    table = small_files(str(tmp_path / "t.lance"))
    spans.clear()
    table.optimize.compact_files()
    compact = next(span for span in spans if span.name == "compact")
    assert (compact.tasks, compact.total_tasks, compact.rows) == (1, 1, 400)


def test_a_scan_tells_rows_and_a_total(tmp_path, spans):
    table = lance_core.write_dataset(ROWS, tmp_path / "t.lance")
    spans.clear()
    table.to_table()
    table.to_table(filter="id < 10")
    assert [(span.name, span.rows, span.total_rows) for span in spans] == [("scan", 100, 100), ("scan", 10, None)]


def test_a_lost_commit_is_told_with_its_error(tmp_path, spans):
    path = str(tmp_path / "t.lance")
    stale = lance_core.write_dataset(ROWS, path)
    lance_core.write_dataset(ROWS, path, mode="overwrite")
    spans.clear()
    with pytest.raises(CommitConflictError):
        lance_core.LanceDataset.commit(
            path, lance_core.LanceOperation.Delete([], [0], "true"), read_version=stale.version
        )
    assert isinstance(spans[-1].error, CommitConflictError)


def test_an_observer_that_fails_changes_nothing(tmp_path, caplog):
    def fail(_):
        raise ValueError

    stop = telemetry.observe(fail)
    try:
        assert lance_core.write_dataset(ROWS, tmp_path / "t.lance").version == 1
    finally:
        stop()
    assert "observer" in caplog.text


def test_commits_and_clean_ups_are_logged(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG, logger="lance_core"):
        table = small_files(str(tmp_path / "t.lance"), 2)
        table.tags.create("kept", 1)
        table.cleanup_old_versions(retain_versions=1, error_if_tagged_old_versions=False)
    texts = {name: [one.getMessage() for one in caplog.records if one.name == name] for name in telemetry.LOGGERS}
    assert "version 2 of" in texts["lance_core.commit"][-1]
    assert any("stays: tag" in text or "kept" in text for text in texts["lance_core.cleanup"])
    assert any("0 versions" in text for text in texts["lance_core.cleanup"])
    assert {one.name for one in caplog.records} <= telemetry.LOGGERS.keys()


def test_all_loggers_are_documented():
    texts = [path.read_text() for path in Path(lance_core.__file__).parent.rglob("*.py")]
    names = {name.strip('"') for text in texts for name in re.findall(r"getLogger\(([^)]+)\)", text)}
    assert names == telemetry.LOGGERS.keys() | {"lance_core"}


def test_slow_store_calls_are_warnings(caplog, monkeypatch):
    monkeypatch.setenv(telemetry.SLOW_CALL_VARIABLE, "0")
    with telemetry.StoreCall("store.put", "s3://bucket/key"):
        pass
    assert "slow: put of s3://bucket/key" in caplog.text


class _Tracer:
    """Keeps spans, as opentelemetry-sdk would."""

    def __init__(self):
        self.spans = []

    def get_tracer(self, *_args, **_options):
        return self

    def start_span(self, name, **_options):
        trace = pytest.importorskip("opentelemetry.trace")
        span = trace.NonRecordingSpan(trace.INVALID_SPAN_CONTEXT)
        span.parent = getattr(trace.get_current_span(), "name", None)
        span.name, span.attributes, span.errors = name, {}, []
        span.set_attribute = span.attributes.__setitem__
        span.record_exception = span.errors.append
        span.set_status = span.end = lambda *_: None
        self.spans.append(span)
        return span


def test_spans_reach_opentelemetry_and_nest(tmp_path):
    pytest.importorskip("opentelemetry")
    tracer = _Tracer()
    instrument_lance_spans(tracer)
    try:
        with telemetry.Span("compact", "t"):
            lance_core.write_dataset(ROWS, tmp_path / "t.lance")
    finally:
        telemetry._OBSERVERS.clear()
    assert [(span.name, span.parent) for span in tracer.spans] == [
        ("lance.compact", None),
        ("lance.write", "lance.compact"),
        ("lance.commit", "lance.compact"),
    ]
    assert tracer.spans[1].attributes["lance.rows"] == 100
    assert tracer.spans[2].attributes["lance.version"] == 1


def test_metrics_reach_opentelemetry(tmp_path):
    pytest.importorskip("opentelemetry")
    added = []

    def instrument(name, **_options):
        note = lambda value, attributes: added.append((name, value, attributes["lance.operation"]))  # noqa: E731
        return types.SimpleNamespace(add=note, record=note)

    meter = types.SimpleNamespace(create_counter=instrument, create_histogram=instrument)
    assert instrument_lance_metrics(types.SimpleNamespace(get_meter=lambda *_: meter))
    try:
        lance_core.write_dataset(ROWS, tmp_path / "t.lance")
    finally:
        telemetry._OBSERVERS.clear()
    assert ("lance.operations", 1, "commit") in added
    assert ("lance.operation.rows", 100, "write") in added


def test_opentelemetry_that_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(UnsupportedError, match=r"lance-dagster\[otel\]"):
        instrument_lance_spans()


@pytest.mark.parametrize(("wish", "shown"), [(None, True), ("0", False)])
def test_a_write_on_a_terminal_has_a_bar(tmp_path, wish, shown):
    code = (
        "import lance_core, pyarrow as pa\n"
        "from lance_core import telemetry; telemetry._BAR_DELAY_S = 0\n"
        "batches = (pa.record_batch({'id': [n] * 1000}) for n in range(5))\n"
        "schema = pa.schema({'id': pa.int64()})\n"
        f"lance_core.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), {str(tmp_path / 't')!r})\n"
    )
    own, other = pty.openpty()
    termios.tcsetwinsize(other, (24, 80))
    environment = {name: value for name, value in os.environ.items() if name != telemetry.PROGRESS_VARIABLE}
    environment |= {} if wish is None else {telemetry.PROGRESS_VARIABLE: wish}
    subprocess.run([sys.executable, "-c", code], stdin=other, stderr=other, check=True, env=environment)
    os.close(other)
    text = b""
    try:
        while chunk := os.read(own, 4096):
            text += chunk
    except OSError:  # all is read
        pass
    os.close(own)
    assert (b"write" in text) == shown
