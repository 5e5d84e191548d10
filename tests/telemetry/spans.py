"""What an OpenTelemetry SDK gets of an agent: its spans and metrics, kept in memory."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from haptera.telemetry import OpenTelemetry


class Collected:
    """An SDK that keeps what it gets."""

    def __init__(self, *, content: bool = False) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self._tracers = TracerProvider()
        self._tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self._tracers.get_tracer("test")
        self.telemetry = OpenTelemetry(
            content=content,
            tracer_provider=self._tracers,
            meter_provider=MeterProvider([self._reader]),
        )

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, in the order in which they ended."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def tree(self) -> list[tuple[str, str | None]]:
        """Return each span with its parent's name, in the order in which they began."""
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        ordered = sorted(self.spans, key=lambda span: span.start_time or 0)
        return [
            (span.name, names.get(span.parent.span_id) if span.parent else None) for span in ordered
        ]

    def points(self, metric: str) -> list[tuple[dict[str, Any], HistogramDataPoint]]:
        """Return the data of a metric, by its attributes."""
        data = self._reader.get_metrics_data()
        found = [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]
        points = [point for point in found if isinstance(point, HistogramDataPoint)]
        return [(dict(point.attributes or {}), point) for point in points]


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})
