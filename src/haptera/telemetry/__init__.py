"""Tracing: queries, turns and tool calls as OpenTelemetry spans and metrics. Opt-in."""

from haptera.telemetry.open_telemetry import OpenTelemetry

__all__ = ["OpenTelemetry"]
