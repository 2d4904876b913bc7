"""OpenTelemetry spans and metrics of `lance_core.telemetry.Span`; needs the extra ``otel``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.common.unsupported import late_names
from lance_core.errors import UnsupportedError
from lance_core.telemetry import observe

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.telemetry import OnEnd, Span

_INSTALLED: dict[str, Callable[[], None]] = {}


def instrument_lance_metrics(meter_provider: Any = None) -> bool:
    """Report metrics of all operations of this process.

    The instruments are ``lance.operations`` (number), ``lance.operation.duration`` (histogram, seconds),
    ``lance.operation.rows`` and ``lance.operation.bytes``, each with the attributes ``lance.operation`` (its name) and
    ``error.type`` for those that failed. A second call replaces the first.

    Args:
        meter_provider: An ``opentelemetry.metrics.MeterProvider``; the global one if None.

    Returns:
        True.

    Raises:
        UnsupportedError: opentelemetry-api is not installed.
    """
    metrics = _api("metrics")
    meter = (meter_provider or metrics.get_meter_provider()).get_meter("lance_core")
    number = meter.create_counter("lance.operations", description="Operations that ended")
    duration = meter.create_histogram("lance.operation.duration", unit="s", description="Duration of operations")
    rows = meter.create_counter("lance.operation.rows", unit="{row}", description="Rows written or read")
    num_bytes = meter.create_counter("lance.operation.bytes", unit="By", description="Bytes written or read")

    def end(span: Span) -> None:
        attributes = {"lance.operation": span.name}
        if span.error is not None:
            attributes["error.type"] = type(span.error).__name__
        number.add(1, attributes)
        duration.record(span.seconds or 0.0, attributes)
        if span.rows:
            rows.add(span.rows, attributes)
        if span.num_bytes:
            num_bytes.add(span.num_bytes, attributes)

    _install("metrics", lambda _: end)
    return True


def instrument_lance_spans(tracer_provider: Any = None) -> None:
    """Make a span of each operation of this process, such as ``lance.commit``, ``lance.scan`` and ``lance.store.get``.

    Spans nest: the store calls of a commit are its children. Threads of a scan or a compaction begin new traces. A
    second call replaces the first. Not in pylance.

    Args:
        tracer_provider: An ``opentelemetry.trace.TracerProvider``; the global one if None.

    Raises:
        UnsupportedError: opentelemetry-api is not installed.
    """
    trace, context = _api("trace"), _api("context")
    tracer = (tracer_provider or trace.get_tracer_provider()).get_tracer("lance_core")

    def begin(span: Span) -> OnEnd:
        made = tracer.start_span(f"lance.{span.name}")
        token = context.attach(trace.set_span_in_context(made)) if span.is_scoped else None

        def end(span: Span) -> None:
            if token is not None:
                context.detach(token)
            for name, value in _facts(span).items():
                made.set_attribute(name, value)
            if span.error is not None:
                made.record_exception(span.error)
                made.set_status(trace.Status(trace.StatusCode.ERROR, str(span.error)))
            made.end()

        return end

    _install("spans", begin)


def _facts(span: Span) -> dict[str, Any]:
    counts = {"rows": span.rows, "bytes": span.num_bytes, "tasks": span.tasks}
    given = {**span.attributes, **{name: count for name, count in counts.items() if count}}
    return {"lance.uri": span.uri, **{f"lance.{name}": value for name, value in given.items()}}


def _install(name: str, observer: Callable[[Span], OnEnd | None]) -> None:
    if name in _INSTALLED:
        _INSTALLED.pop(name)()
    _INSTALLED[name] = observe(observer)


def _api(name: str) -> Any:
    """Import a module of opentelemetry-api."""
    from importlib import import_module  # noqa: PLC0415 an extra

    try:
        return import_module(f"opentelemetry.{name}")
    except ImportError as error:
        raise UnsupportedError(
            "OpenTelemetry is not installed: pip install 'lance-dagster[otel]', and the SDK and exporter of your choice"
        ) from error


__getattr__ = late_names(__name__)
