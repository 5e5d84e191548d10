"""Schema targets: the schemas of a request, each in the form that its provider accepts.

`check_schema` decides for one schema: accepted, adapted or refused. Every change and every refusal
is reported. `SchemaAdapter` does this for the requests of one client and remembers the results.
`schema_rules` has what each target accepts.
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import Json, JsonObject
from haptera.model.requests import ModelRequest, OutputSchema
from haptera.model.tools import ToolSpec
from haptera.providers.json_schema import (
    DefinitionMove,
    SchemaRefusedError,
    SchemaRepair,
    subschemas,
)
from haptera.providers.schema_descriptions import add_limit, written_out
from haptera.providers.schema_fitting import SchemaFitting
from haptera.providers.schema_merging import (
    merge_all,
    merge_alternatives,
    merge_apart,
    resolve_root,
    unsaid,
)
from haptera.providers.schema_rules import RULES, SchemaRules
from haptera.providers.wire.protocol import SchemaTarget, SchemaTargets

Purpose: TypeAlias = Literal["arguments", "output"]
"""What a schema is for: the arguments of a tool, or the output of the model."""

_COMBINATORS = ("anyOf", "oneOf", "allOf")
_NOT_AT_ROOT = ("enum", "const", "not")
# A program may make its schemas anew for each query, and each verdict keeps its schema alive.
_CACHE_SIZE = 4_096


class SchemaVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one schema."""

    outcome: Literal["accepted", "adapted", "refused"]
    schema: JsonObject = {}
    """The schema to send; empty if refused."""
    changes: tuple[str, ...] = ()
    """The changes, each with its path in the schema."""
    reason: str = ""
    """Why it was refused, with the path."""
    adds_nulls: bool = False
    """Whether the adapted schema allows nulls that the original does not."""


def check_schema(
    schema: JsonObject, *, target: SchemaTarget, purpose: Purpose = "arguments"
) -> SchemaVerdict:
    """Check whether `target` accepts a schema, and in which form. The argument is not modified."""
    rules = RULES[target]
    try:
        repair = SchemaRepair(schema)
        repaired, changes = repair.repaired(), repair.changes
        move = DefinitionMove(repaired, _definition_tables(rules), schema)
        repaired, changes = move.moved(), [*changes, *move.changes]
        if purpose == "arguments" or rules.output_is_object:
            repaired = _object_at_root(repaired, rules, changes)
        if purpose == "output" and rules.is_closed:
            _refuse_open_object(repaired)
        fitting = SchemaFitting(repaired, rules)
        fitted = fitting.fitted()
        _check_limits(fitted, rules)
    except SchemaRefusedError as error:
        return SchemaVerdict(outcome="refused", reason=str(error))
    every_change = tuple(dict.fromkeys([*changes, *fitting.changes]))
    return SchemaVerdict(
        outcome="adapted" if fitted != schema else "accepted",
        schema=fitted,
        changes=every_change if fitted != schema else (),
        adds_nulls=fitting.adds_nulls,
    )


def _definition_tables(rules: SchemaRules) -> frozenset[str] | None:
    """Return the tables of definitions that a target reads; None for one that follows all paths."""
    if rules.keywords is None:
        return None
    return rules.keywords & {"$defs", "definitions"} or frozenset({"$defs"})


def _object_at_root(schema: JsonObject, rules: SchemaRules, changes: list[str]) -> JsonObject:
    """Rewrite the root as a plain object, the one form that every provider accepts there."""
    whole = dict(schema)
    if "$ref" in whole:
        changes.append(f"the schema: {whole['$ref']!r} written out at the root")
        whole = resolve_root(whole, schema)
    limits_by_keyword: JsonObject = {}
    for keyword in _COMBINATORS:
        if keyword in whole:
            whole, limits_by_keyword[keyword] = _without_combinator(whole, keyword, schema)
            changes.append(f"the schema: {keyword} at the root written as one object")
    whole = _plain_object(whole, changes)
    for keyword, limits in limits_by_keyword.items():
        if limits:
            # Definitions are not sent where references are not understood.
            shown = written_out(limits, schema) if rules.inlines_references else limits
            add_limit(whole, keyword, shown)
    return whole


def _plain_object(whole: JsonObject, changes: list[str]) -> JsonObject:
    """Return a root without combinators as an object with properties; refuse any other."""
    for keyword in _NOT_AT_ROOT:
        if keyword in whole:
            raise SchemaRefusedError("", f"has {keyword} at its root")
    if not whole.keys() - {"$schema", "title", "description", "$defs", "definitions"}:
        whole = {**whole, "type": "object", "properties": {}}
        changes.append("the schema: type 'object' added")
    if whole.get("type") != "object":
        raise SchemaRefusedError("", f"is of type {whole.get('type')!r} and must be an object")
    if "properties" not in whole:
        changes.append("the schema: no properties written as such")
    return {**whole, "properties": whole.get("properties", {})}


def _without_combinator(
    whole: JsonObject, keyword: str, root: JsonObject
) -> tuple[JsonObject, list[JsonObject]]:
    """Return the root without a combinator, and what the combinator says beyond that."""
    parts = [resolve_root(part, root) for part in whole[keyword]]
    rest = {name: value for name, value in whole.items() if name != keyword}
    if keyword == "allOf":
        return merge_apart([rest, *parts], "")
    # Beside properties an alternative is often only a list of what it requires, without a type.
    alternatives = [{"type": "object", **part} if "properties" in rest else part for part in parts]
    merged = merge_alternatives(alternatives)
    limits = unsaid(alternatives, merged)
    # Of one alternative, and of any of which one says nothing more, there is nothing to tell.
    has_limits = len(limits) > 1 or any(limits)
    is_limited = has_limits if keyword == "oneOf" else all(limits)
    return merge_all([rest, merged], ""), limits if is_limited else []


def _refuse_open_object(schema: JsonObject) -> None:
    """Refuse an output schema for any object: once closed, it would allow no property at all."""
    is_named = bool(schema.get("properties")) or schema.get("additionalProperties") is False
    if schema.get("type") == "object" and not is_named:
        raise SchemaRefusedError(
            "", "accepts any object, but the provider needs every property to be named"
        )


class _Counts:
    """The numbers that providers limit, for one schema."""

    def __init__(self) -> None:
        self.properties = 0
        self.optional = 0
        self.unions = 0
        self.enum_values = 0
        self.levels = 0

    def count(self, schema: Json, level: int = 1) -> None:
        if not isinstance(schema, dict):
            return
        properties = schema.get("properties", {})
        self.properties += len(properties)
        self.optional += len(properties.keys() - set(schema.get("required", ())))
        self.unions += "anyOf" in schema or isinstance(schema.get("type"), list)
        self.enum_values += len(schema.get("enum", ()))
        if properties:
            self.levels = max(self.levels, level)
        for _, _, inner in subschemas(schema):
            self.count(inner, level + bool(properties))


def _check_limits(schema: JsonObject, rules: SchemaRules) -> None:
    counts = _Counts()
    counts.count(schema)
    limits = (
        (counts.properties, rules.max_properties, "properties"),
        (counts.levels, rules.max_levels, "levels of objects"),
        (counts.enum_values, rules.max_enum_values, "values in enums"),
        (counts.optional, rules.max_optional, "properties that may be left out"),
        (counts.unions, rules.max_unions, "values of several types"),
    )
    for count, most, what in limits:
        if most is not None and count > most:
            raise SchemaRefusedError(
                "", f"has {count} {what}, but the provider accepts at most {most}"
            )


# Requests


class _CachedVerdict(msgspec.Struct, frozen=True):
    """A verdict and its schema. Holding the schema keeps its identity from being used again."""

    schema: JsonObject
    verdict: SchemaVerdict


class SchemaAdapter:
    """Adapts the schemas of one client's requests; each schema is checked once.

    Owns the cached verdicts. Does not own the rules (`RULES`).
    """

    def __init__(self) -> None:
        self._verdicts: dict[tuple[int, SchemaTarget, Purpose], _CachedVerdict] = {}
        self._tools: tuple[tuple[ToolSpec, ...], SchemaTarget, tuple[ToolSpec, ...]] = (
            (),
            "any",
            (),
        )

    def adapt(self, request: ModelRequest, targets: SchemaTargets) -> ModelRequest:
        """Return the request with schemas that its targets accept; unchanged if all are accepted.

        Raises:
            ConfigError: CONFIG_INVALID naming the tool or output type, and the reason.

        """
        tools = self._adapted_tools(request.tools, targets.arguments)
        output = request.output_schema and self._adapted_output(request.output_schema, targets)
        if tools is request.tools and output is request.output_schema:
            return request
        return replace(request, tools=tools, output_schema=output)

    def _adapted_tools(
        self, tools: tuple[ToolSpec, ...], target: SchemaTarget
    ) -> tuple[ToolSpec, ...]:
        # The tools of a session are one tuple for all its requests, so the last result is found by
        # identity.
        originals, fitted_for, fitted = self._tools
        if originals is tools and fitted_for == target:
            return fitted
        fitted = tuple(self._adapted_tool(tool, target) for tool in tools)
        if all(one is other for one, other in zip(fitted, tools, strict=True)):
            fitted = tools
        self._tools = (tools, target, fitted)
        return fitted

    def _adapted_tool(self, tool: ToolSpec, target: SchemaTarget) -> ToolSpec:
        verdict = self._verdict(tool.input_schema, target, "arguments")
        if verdict.outcome == "refused":
            raise _refused(tool.name, verdict)
        is_fine = verdict.outcome == "accepted"
        return tool if is_fine else replace(tool, input_schema=verdict.schema)

    def _adapted_output(self, output: OutputSchema, targets: SchemaTargets) -> OutputSchema:
        """Return the output schema for the strictest target that accepts it."""
        verdict = SchemaVerdict(outcome="refused")
        for target in targets.output:
            verdict = self._verdict(output.schema, target, "output")
            # Added nulls would have to be removed from the output again.
            if verdict.outcome != "refused" and not verdict.adds_nulls:
                is_strict = target.endswith("_strict") or target == "gemini"
                is_same = verdict.outcome == "accepted" and is_strict == output.is_strict
                schema = output.schema if verdict.outcome == "accepted" else verdict.schema
                return output if is_same else replace(output, schema=schema, is_strict=is_strict)
        raise _refused(output.name, verdict)

    def _verdict(self, schema: JsonObject, target: SchemaTarget, purpose: Purpose) -> SchemaVerdict:
        key = (id(schema), target, purpose)
        cached = self._verdicts.get(key)
        if cached is None or cached.schema is not schema:
            if len(self._verdicts) >= _CACHE_SIZE:
                self._verdicts.clear()
            cached = _CachedVerdict(schema, check_schema(schema, target=target, purpose=purpose))
            self._verdicts[key] = cached
        return cached.verdict


def _refused(name: str, verdict: SchemaVerdict) -> ConfigError:
    return ConfigError(
        ErrorCode.CONFIG_INVALID, f"the schema of {name!r} cannot be sent: {verdict.reason}"
    )
