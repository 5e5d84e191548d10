"""Fits the schemas of a request to whom it goes to: each once, however many turns it is sent in."""

import msgspec
from msgspec.structs import replace

from holdfast.providers.schema_rules import SchemaTarget, SchemaTargets
from holdfast.providers.schemas import Purpose, SchemaVerdict, check_schema
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.requests import ModelRequest, OutputSchema
from holdfast.vocabulary.tools import ToolSpec

_MOST_KEPT = 4_096


class _Kept(msgspec.Struct, frozen=True):
    """A verdict with the schema it is of, whose identity can then not pass to another one."""

    schema: JsonObject
    verdict: SchemaVerdict


class SchemaFit:
    """Fits one request after another for one client.

    Owns what it has made of schemas so far. Does not own what a receiver takes (`schema_rules`).
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, SchemaTarget, Purpose], _Kept] = {}
        self._tools: tuple[tuple[ToolSpec, ...], SchemaTarget, tuple[ToolSpec, ...]] = (
            (),
            "any",
            (),
        )

    def fit(self, request: ModelRequest, targets: SchemaTargets) -> ModelRequest:
        """Return the request with schemas that the receiver takes; the same one if all are fine.

        Raises:
            ConfigError: CONFIG_INVALID naming the tool or the answer, and what is wrong with it.

        """
        tools = self._fitted_tools(request.tools, targets.arguments)
        output = request.output_schema and self._fitted_output(request.output_schema, targets)
        if tools is request.tools and output is request.output_schema:
            return request
        return replace(request, tools=tools, output_schema=output)

    def _fitted_tools(
        self, tools: tuple[ToolSpec, ...], target: SchemaTarget
    ) -> tuple[ToolSpec, ...]:
        given, fitted_for, fitted = self._tools
        if given is tools and fitted_for == target:
            return fitted
        fitted = tuple(self._fitted_tool(tool, target) for tool in tools)
        if all(one is other for one, other in zip(fitted, tools, strict=True)):
            fitted = tools
        self._tools = (tools, target, fitted)
        return fitted

    def _fitted_tool(self, tool: ToolSpec, target: SchemaTarget) -> ToolSpec:
        verdict = self._verdict(tool.input_schema, target, "arguments")
        if verdict.outcome == "refused":
            raise _refused(tool.name, verdict)
        is_fine = verdict.outcome == "accepted"
        return tool if is_fine else replace(tool, input_schema=verdict.schema)

    def _fitted_output(self, output: OutputSchema, targets: SchemaTargets) -> OutputSchema:
        """Return the answer's schema for the strictest receiver that takes it."""
        verdict = SchemaVerdict(outcome="refused")
        for target in targets.output:
            verdict = self._verdict(output.schema, target, "output")
            # Nulls that were added would have to be taken out of the answer again.
            if verdict.outcome != "refused" and not verdict.adds_nulls:
                is_strict = target.endswith("_strict")
                is_same = verdict.outcome == "accepted" and is_strict == output.is_strict
                schema = output.schema if verdict.outcome == "accepted" else verdict.schema
                return output if is_same else replace(output, schema=schema, is_strict=is_strict)
        raise _refused(output.name, verdict)

    def _verdict(self, schema: JsonObject, target: SchemaTarget, purpose: Purpose) -> SchemaVerdict:
        key = (id(schema), target, purpose)
        kept = self._kept.get(key)
        if kept is None or kept.schema is not schema:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = _Kept(schema, check_schema(schema, target=target, purpose=purpose))
            self._kept[key] = kept
        return kept.verdict


def _refused(name: str, verdict: SchemaVerdict) -> ConfigError:
    return ConfigError(
        ErrorCode.CONFIG_INVALID, f"the schema of {name!r} cannot be sent: {verdict.reason}"
    )
