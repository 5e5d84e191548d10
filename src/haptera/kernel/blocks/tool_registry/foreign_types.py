"""Foreign types: hints of other libraries, in the words that msgspec knows.

Constraints inside `Annotated` are read by the names that libraries share, at any depth. Pydantic's
models are recognised by their methods. Where only pydantic can tell types apart (unions of models,
its dataclasses), it is asked. It is never imported here: a program that uses such a type has
imported it. Other unions of objects, which msgspec does not tell apart, are told apart by how well
each of them fits (`object_unions`).
"""

import sys
import types
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from haptera.kernel.blocks.tool_registry.object_unions import best_fit, mirror_of
from haptera.model.json_types import Json, JsonObject

TypeHint: TypeAlias = Any
"""A type hint, which may be any value."""
Parsed: TypeAlias = Any
"""A value of the type that a hint says."""

generic_origin: Callable[[TypeHint], TypeHint] = get_origin
"""`typing.get_origin` for any value: its own overloads are for particular ones."""

_CONSTRAINTS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
"""Keywords whose value has a schema under each name."""
_VALUES = frozenset({"default", "const", "enum", "examples", "example"})
"""Keywords whose value is none, whatever it looks like."""


def understood(hint: TypeHint, note: str | None = None) -> TypeHint:
    """Return a hint as msgspec understands it, with a description if there is none.

    Raises:
        TypeError: when not even pydantic understands it, whose it is.

    """
    if generic_origin(hint) is Annotated:
        bare, *extras = get_args(hint)
        return _annotated(bare, extras, note)
    if hint is object:
        hint = Any
    if note:
        return Annotated[understood(hint), msgspec.Meta(description=note)]
    if _needs_pydantic(hint):
        return _adapted(hint)
    return _told_apart(hint, _with_arguments(hint))


def describe_type(hint: TypeHint) -> tuple[JsonObject, JsonObject]:
    """Return the JSON Schema of an understood hint and the definitions that it refers to.

    Raises:
        TypeError: when it cannot be described.

    """
    (schema,), components = describe_types([hint])
    return schema, components


def describe_types(hints: Iterable[TypeHint]) -> tuple[list[JsonObject], JsonObject]:
    """Return the JSON Schemas of several understood hints, and what they refer to.

    Raises:
        TypeError: when one of them cannot be described.

    """
    schemas, components = msgspec.json.schema_components(
        hints, schema_hook=_schema_of, ref_template="#/$defs/{name}"
    )
    # Those of msgspec keep their names, to which it refers.
    own = tuple(components)
    described = [_lifted(schema, components) for schema in schemas]
    for name in own:
        components[name] = _lifted(components[name], components)
    return described, components


def parse_value(value: object, kind: TypeHint) -> Parsed:
    """Make a value of an understood type from plain JSON values.

    Raises:
        msgspec.ValidationError: naming what does not fit.

    """
    # `str_keys`: all keys of JSON are text, also those of a `dict[int, str]`.
    return msgspec.convert(value, kind, dec_hook=_decode, str_keys=True)


def parse_json(text: str, kind: TypeHint) -> Parsed:
    """Make a value of an understood type from JSON text.

    Raises:
        msgspec.DecodeError: naming what does not fit, or saying that it is no JSON.

    """
    return msgspec.json.decode(text, type=kind, dec_hook=_decode)


def _annotated(bare: TypeHint, extras: Iterable[object], note: str | None) -> TypeHint:
    facts: dict[str, Any] = {"description": note} if note else {}
    known: list[Any] = []
    for extra in extras:
        if isinstance(extra, msgspec.Meta):
            known.append(extra)
        elif isinstance(extra, str):
            facts["description"] = extra
        else:
            facts |= _facts_of(extra)
    constraints = {name: value for name, value in facts.items() if name in _CONSTRAINTS}
    if constraints and _is_optional(bare):
        # A constraint is on the value, not on its absence.
        (value,) = (item for item in get_args(bare) if item is not types.NoneType)
        bare = Annotated[value, msgspec.Meta(**constraints)] | None
        facts = {name: fact for name, fact in facts.items() if name not in constraints}
    if facts:
        known.append(msgspec.Meta(**facts))
    inner = understood(bare)
    return Annotated[(inner, *known)] if known else inner


def _facts_of(extra: object) -> dict[str, Any]:
    """Read constraints of other libraries by the names they share."""
    facts: dict[str, Any] = {}
    for source in (extra, *getattr(extra, "metadata", ())):
        for name in (*_CONSTRAINTS, "description"):
            value = getattr(source, name, None)
            if value is not None:
                facts[name] = value
    return facts


def _with_arguments(hint: TypeHint) -> TypeHint:
    """Understand what a generic type is made of, too."""
    origin, arguments = generic_origin(hint), get_args(hint)
    # What these hold in brackets are values, and a list of parameters.
    if not arguments or origin in (Literal, Callable):
        return hint
    own = tuple(understood(item) for item in arguments)
    if own == arguments:
        return hint
    # `types.UnionType` cannot be subscripted.
    generic = Union if _is_union(hint) else origin
    return generic[own]


def _is_union(hint: object) -> bool:
    return generic_origin(hint) in (Union, types.UnionType)


def _is_optional(hint: object) -> bool:
    others = [item for item in get_args(hint) if item is not types.NoneType]
    return _is_union(hint) and len(others) == 1


def _is_model(kind: object) -> bool:
    return hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate_json")


def _is_path(kind: object) -> bool:
    return hasattr(kind, "__fspath__")


def _needs_pydantic(hint: TypeHint) -> bool:
    if hasattr(hint, "__is_pydantic_dataclass__"):
        return True
    members = [item for item in get_args(hint) if item is not types.NoneType]
    if not _is_union(hint) or any(isinstance(item, msgspec.StructMeta) for item in members):
        return False  # pydantic knows no structs
    return len(members) > 1 and any(_is_model(item) for item in members)


class _Anything(type):
    """The type of adapted types: what pydantic made of a value counts as one."""

    # msgspec compares what a `dec_hook` returns with the type.
    def __instancecheck__(cls, value: object) -> bool:
        return True


def _adapted(hint: TypeHint) -> TypeHint:
    """Wrap a type that only pydantic can tell apart, so that it looks like one of its models."""
    try:
        adapter = sys.modules["pydantic"].TypeAdapter(hint)
    except Exception as error:  # one of many kinds of pydantic's own
        raise TypeError(f"{hint} cannot be described to a model") from error

    class Adapted(metaclass=_Anything):
        model_json_schema = staticmethod(adapter.json_schema)
        model_validate_json = staticmethod(adapter.validate_json)

    return Adapted


_mirroring: ContextVar[Mapping[type, "_Deferred"]] = ContextVar(
    "haptera_mirroring", default=types.MappingProxyType({})
)
"""The types whose fields are being read; one that comes back to itself is read when it is made."""


class _Deferred:
    """The reader of a type that comes back to itself, once it is made."""

    reader: TypeHint = None

    def reference(self, kind: type) -> TypeHint:
        """Return a type that refers to it."""
        return _reader(
            lambda: ([{"$ref": f"#/$defs/{kind.__name__}"}], {}),
            lambda value: parse_value(value, self.reader),
        )


def _told_apart(written: TypeHint, own: TypeHint) -> TypeHint:
    """Return an understood hint, or a type that reads what msgspec does not tell apart."""
    if _is_union(own) and not _is_known(own):
        members = tuple(zip(get_args(written), get_args(own), strict=True))
        return _reader(
            lambda: describe_types(hint for _, hint in members),
            lambda value: best_fit(value, members, parse_value),
        )
    if isinstance(own, type) and not get_args(own) and not _is_known(own):
        return _mirrored(own)
    return own


def _mirrored(kind: type) -> TypeHint:
    """Return a type that reads one with such a union among its fields, through a mirror."""
    outer = _mirroring.get()
    if kind in outer:
        return outer[kind].reference(kind)
    deferred = _Deferred()
    token = _mirroring.set({**outer, kind: deferred})
    try:
        mirror = mirror_of(kind, understood)
    finally:
        _mirroring.reset(token)
    if mirror is None:
        return kind
    deferred.reader = _reader(
        lambda: describe_types([mirror.struct]),
        lambda value: mirror.restore(parse_value(value, mirror.struct)),
    )
    return deferred.reader


def _is_known(hint: TypeHint) -> bool:
    """Whether msgspec can read a type by itself."""
    try:
        # msgspec can only be asked by trying.
        msgspec.json.Decoder(hint)
    except TypeError:
        return False
    return True


def _reader(
    describe: Callable[[], tuple[list[JsonObject], JsonObject]], read: Callable[[object], object]
) -> TypeHint:
    """Wrap a way to describe and to read a type, so that it looks like a model of pydantic's."""

    def json_schema() -> JsonObject:
        schemas, components = describe()
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        return {**schema, "$defs": components} if components else schema

    class Reader(metaclass=_Anything):
        model_json_schema = staticmethod(json_schema)
        model_validate_json = staticmethod(lambda text: read(msgspec.json.decode(text)))

    return Reader


def _schema_of(kind: TypeHint) -> JsonObject:
    if _is_path(kind):
        return {"type": "string", "format": "path"}
    if not _is_model(kind):
        raise TypeError(f"{kind.__qualname__} cannot be described to a model")
    try:
        schema: JsonObject = kind.model_json_schema()
    except Exception as error:  # the model's own code, or one of many kinds of pydantic's
        message = f"{kind.__qualname__} cannot be described to a model: {type(error).__name__}"
        raise TypeError(message) from error
    return schema


def _decode(kind: TypeHint, value: object) -> object:
    if not _is_path(kind):
        # As JSON text: a strict model takes dates, sets and enums from JSON, but not from plain
        # values.
        return kind.model_validate_json(msgspec.json.encode(value))
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return kind(value)


def _lifted(schema: Json, components: JsonObject) -> Json:
    """Return a schema whose own definitions are moved to the top, where references look."""
    if not isinstance(schema, dict):
        return schema
    if isinstance(definitions := schema.get("$defs"), dict):
        names = _free_names(definitions, components)
        schema = _renamed({key: schema[key] for key in schema if key != "$defs"}, names)
        moved = {names[name]: _renamed(part, names) for name, part in definitions.items()}
        # All of them are there before one is looked into: what is in it must not take their names.
        added = [name for name in moved if name not in components]
        components.update(moved)
        components.update({name: _lifted(components[name], components) for name in added})
    return with_parts(schema, lambda part: _lifted(part, components))


def _free_names(definitions: JsonObject, components: JsonObject) -> dict[str, str]:
    """Return names under which definitions overwrite nothing: two types may be called the same.

    Those of the same content share a name.
    """
    number, clashing = 2, set[str]()
    while True:
        names = {name: f"{name}_{number}" if name in clashing else name for name in definitions}
        taken = {
            name
            for name, own in names.items()
            if own in components and components[own] != _renamed(definitions[name], names)
        }
        if taken - clashing:
            # What refers to another name is another content, so this may go on to what refers here.
            clashing |= taken
        elif taken or len(set(names.values())) < len(names):
            number += 1
        else:
            return names


def _renamed(schema: Json, names: dict[str, str]) -> Json:
    """Return a schema that refers to definitions by other names."""
    if not isinstance(schema, dict):
        return schema
    # A schema inside that brings such a definition along refers to its own.
    inner = {name: names[name] for name in names if name not in schema.get("$defs", {})}
    renamed = with_parts(schema, lambda part: _renamed(part, inner))
    if isinstance(reference := renamed.get("$ref"), str):
        renamed["$ref"] = _reference(reference, inner)
    match renamed.get("discriminator"):
        case {"mapping": dict(mapping), **others}:
            own = {value: _reference(str(name), inner) for value, name in mapping.items()}
            renamed["discriminator"] = {**others, "mapping": own}
    return renamed


def _reference(reference: str, names: dict[str, str]) -> str:
    name, slash, rest = reference.removeprefix("#/$defs/").partition("/")
    if not reference.startswith("#/$defs/") or name not in names:
        return reference
    return f"#/$defs/{names[name]}{slash}{rest}"


def with_parts(schema: JsonObject, change: Callable[[Json], Json]) -> JsonObject:
    """Return a schema with the schemas directly inside it changed; values in it are left alone."""
    changed: JsonObject = {}
    for key, value in schema.items():
        if key in _VALUES:
            changed[key] = value
        elif key in _SCHEMA_MAPS and isinstance(value, dict):
            changed[key] = {name: change(part) for name, part in value.items()}
        elif isinstance(value, list):
            changed[key] = [change(part) for part in value]
        else:
            changed[key] = change(value)
    return changed
