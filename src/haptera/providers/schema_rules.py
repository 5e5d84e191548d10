"""Schema rules: which JSON Schema each provider accepts, as data.

`schema_fitting` rewrites a schema by one row of `RULES`.
"""

import msgspec

from haptera.providers.wire.protocol import SchemaTarget


class SchemaRules(msgspec.Struct, frozen=True, kw_only=True):
    """What one target accepts."""

    keywords: frozenset[str] | None = None
    """None: all of JSON Schema. A limit in any other keyword is written into the description."""
    formats: dict[str, frozenset[str]] | None = None
    """By type; None: any format."""
    is_closed: bool = False
    """Every object must have `additionalProperties: false`."""
    requires_all_properties: bool = False
    """Every property must be required; an optional one becomes nullable."""
    inlines_references: bool = False
    """References are not supported; their targets are written out."""
    allows_recursion: bool = True
    references_stand_alone: bool = False
    """No other keyword may stand beside `$ref`."""
    requires_types: bool = False
    """Every schema must have a type, and every array `items`."""
    uses_nullable: bool = False
    """`nullable` replaces the type `null`, and a schema has a single type."""
    drops_empty: bool = False
    """Empty `properties` and `required` are left out, because they are refused."""
    drops: frozenset[str] = frozenset()
    """Keywords that are left out without being written into the description."""
    enum_types: frozenset[str] | None = None
    """The types that values in an enum may have; None: any. Others are in the description."""
    scalar_enums_only: bool = False
    property_names: str | None = None
    output_is_object: bool = False
    """The root of an output schema must be an object, like that of arguments."""
    max_properties: int | None = None
    max_levels: int | None = None
    max_enum_values: int | None = None
    max_optional: int | None = None
    max_unions: int | None = None


_ANNOTATIONS = frozenset({"title", "description"})
_SHAPE = frozenset({"type", "properties", "required", "items", "enum", "anyOf"})
_REFERENCES = frozenset({"$ref", "$defs", "definitions"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_STRICT_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)

# What the providers document for their APIs, the numbers included.
RULES: dict[SchemaTarget, SchemaRules] = {
    "any": SchemaRules(),
    "openai": SchemaRules(output_is_object=True),
    # For models without output schemas, the output is the arguments of a tool.
    "anthropic": SchemaRules(property_names=r"[a-zA-Z0-9_.-]{1,64}", output_is_object=True),
    "openai_strict": SchemaRules(
        keywords=_ANNOTATIONS
        | _SHAPE
        | _REFERENCES
        | _NUMBERS
        | {"const", "pattern", "format", "minItems", "maxItems", "additionalProperties"},
        formats={"string": _STRICT_FORMATS},
        is_closed=True,
        requires_all_properties=True,
        references_stand_alone=True,
        requires_types=True,
        output_is_object=True,
        max_properties=5000,
        max_levels=10,
        max_enum_values=1000,
    ),
    "anthropic_strict": SchemaRules(
        keywords=_ANNOTATIONS
        | _SHAPE
        | _REFERENCES
        | {"const", "default", "allOf", "format", "pattern", "additionalProperties"},
        formats={"string": _STRICT_FORMATS | {"uri"}},
        is_closed=True,
        allows_recursion=False,
        scalar_enums_only=True,
        property_names=r"[a-zA-Z0-9_.-]{1,64}",
        max_optional=24,
        max_unions=16,
    ),
    # The fields for a subset of OpenAPI's schemas, all that models before 2.5 have.
    "gemini": SchemaRules(
        keywords=_ANNOTATIONS
        | _SHAPE
        | {"format", "nullable", "minItems", "maxItems", "minimum", "maximum"}
        | {"minLength", "maxLength", "pattern", "minProperties", "maxProperties"}
        | {"propertyOrdering"},
        formats={
            "string": frozenset({"date-time", "enum"}),
            "integer": frozenset({"int32", "int64"}),
            "number": frozenset({"float", "double"}),
        },
        inlines_references=True,
        allows_recursion=False,
        requires_types=True,
        uses_nullable=True,
        drops_empty=True,
        drops=frozenset({"default"}),
        enum_types=frozenset({"string"}),
    ),
    # The fields for JSON Schema. They accept any keyword, and follow these.
    "gemini_json_schema": SchemaRules(
        keywords=_ANNOTATIONS
        | _SHAPE
        | {"$id", "$anchor", "$ref", "$defs", "additionalProperties", "propertyOrdering"}
        | {"format", "prefixItems", "minItems", "maxItems", "minimum", "maximum"},
        references_stand_alone=True,
        enum_types=frozenset({"string", "integer", "number"}),
    ),
}
