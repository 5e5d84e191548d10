"""Which JSON Schema each kind of receiver takes, as data."""

from typing import Literal, TypeAlias

import msgspec

SchemaTarget: TypeAlias = Literal[
    "openai", "openai_strict", "anthropic", "anthropic_strict", "gemini", "any"
]
"""Who is to read a schema; `_strict` where answers are held to it token by token."""


class SchemaTargets(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads the schemas of one model's requests."""

    arguments: SchemaTarget = "any"
    output: tuple[SchemaTarget, ...] = ("any",)
    """The strictest first; the first that takes a schema gets it."""


ANNOTATIONS = frozenset({"title", "description"})
_SHAPE = frozenset({"type", "properties", "required", "items", "enum", "anyOf"})
_REFERENCES = frozenset({"$ref", "$defs", "definitions"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_STRICT_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)


class SchemaRules(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of receiver takes."""

    keywords: frozenset[str] | None = None
    """None takes all of JSON Schema; what is not taken is said in the description instead."""
    formats: dict[str, frozenset[str]] | None = None
    """By type; None takes any format."""
    is_closed: bool = False
    """Every object must refuse properties that it does not name."""
    needs_all: bool = False
    """Every property must be required; one that may be left out becomes nullable."""
    inlines: bool = False
    """References are not understood."""
    takes_recursion: bool = True
    reference_stands_alone: bool = False
    """Nothing may stand beside a reference."""
    needs_types: bool = False
    """Every value must have a type, every list must say of what."""
    writes_nullable: bool = False
    """`null` is said by `nullable`, and one schema has one type."""
    string_enums_only: bool = False
    scalar_enums_only: bool = False
    property_names: str | None = None
    output_is_object: bool = False
    """An answer, too, and not only arguments, must be an object."""
    most_properties: int | None = None
    most_levels: int | None = None
    most_enum_values: int | None = None
    most_optional: int | None = None
    most_unions: int | None = None


RULES: dict[SchemaTarget, SchemaRules] = {
    "any": SchemaRules(),
    "openai": SchemaRules(output_is_object=True),
    # Where answers are not held to a schema, a tool stands for the answer.
    "anthropic": SchemaRules(property_names=r"[a-zA-Z0-9_.-]{1,64}", output_is_object=True),
    "openai_strict": SchemaRules(
        keywords=ANNOTATIONS
        | _SHAPE
        | _REFERENCES
        | _NUMBERS
        | {"const", "pattern", "format", "minItems", "maxItems", "additionalProperties"},
        formats={"string": _STRICT_FORMATS},
        is_closed=True,
        needs_all=True,
        reference_stands_alone=True,
        needs_types=True,
        output_is_object=True,
        most_properties=5000,
        most_levels=10,
        most_enum_values=1000,
    ),
    "anthropic_strict": SchemaRules(
        keywords=ANNOTATIONS
        | _SHAPE
        | _REFERENCES
        | {"const", "default", "allOf", "format", "pattern", "additionalProperties"},
        formats={"string": _STRICT_FORMATS | {"uri"}},
        is_closed=True,
        takes_recursion=False,
        scalar_enums_only=True,
        property_names=r"[a-zA-Z0-9_.-]{1,64}",
        most_optional=24,
        most_unions=16,
    ),
    "gemini": SchemaRules(
        keywords=ANNOTATIONS
        | _SHAPE
        | {"format", "nullable", "minItems", "maxItems", "minimum", "maximum"}
        | {"minLength", "maxLength", "pattern", "minProperties", "maxProperties"}
        | {"propertyOrdering", "default", "example"},
        formats={
            "string": frozenset({"date-time", "enum"}),
            "integer": frozenset({"int32", "int64"}),
            "number": frozenset({"float", "double"}),
        },
        inlines=True,
        takes_recursion=False,
        needs_types=True,
        writes_nullable=True,
        string_enums_only=True,
    ),
}
