"""Tracing: queries, turns and tool calls as OpenTelemetry spans and metrics. Opt-in."""

from haptera.ports.telemetry import Span, Telemetry
from haptera.telemetry.open_telemetry import OpenTelemetry

__all__ = ["OpenTelemetry", "Span", "Telemetry"]
