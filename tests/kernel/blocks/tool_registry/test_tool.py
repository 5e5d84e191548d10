"""`@tool`: what a model is told of a plain typed function, and what is refused when it is made."""

import inspect
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import msgspec
import pydantic
import pytest

from haptera import ConfigError, ErrorCode, ToolContext, tool
from haptera.kernel.blocks.tool_registry.tool import AnyTool, Tool, make_tool
from tests.schema_references import references_in


@dataclass
class Place:
    lat: float
    lon: float = 0.0


class Spot(TypedDict):
    name: str


class Size(msgspec.Struct):
    width: int


class Street(pydantic.BaseModel):
    name: str


class Address(pydantic.BaseModel):
    street: Street
    number: int = pydantic.Field(ge=1)


def schema_of(made: AnyTool) -> dict[str, Any]:
    return made.spec.input_schema


def test_a_plain_function_becomes_a_tool_that_can_still_be_called() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    assert isinstance(add, Tool)
    assert (add.name, add.spec.description) == ("add", "Add two numbers.")
    assert schema_of(add) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert add(1, b=4) == 5


def test_rules_and_a_name_can_be_given() -> None:
    @tool(
        name="rm-file",
        description="Remove.",
        approval="ask",
        timeout=30,
        idempotent=True,
        retry=2,
        effect="write",
        input_examples=({"path": "a"},),
    )
    def remove(path: str) -> str:
        return path

    assert (remove.name, remove.spec.description) == ("rm-file", "Remove.")
    assert remove.spec.input_examples == ({"path": "a"},)
    rules = remove.rules
    assert (rules.approval, rules.timeout, rules.effect) == ("ask", 30, "write")
    assert (rules.idempotent, rules.retries) == (True, 2)


def test_without_rules_a_tool_is_free_to_run_and_never_repeated() -> None:
    made = make_tool(lambda: None, {"name": "free"})
    rules = made.rules
    assert (rules.approval, rules.timeout, rules.idempotent, rules.retries) == (
        "never",
        None,
        False,
        0,
    )
    assert rules.effect == "external"


def test_the_docstring_describes_the_tool_and_each_parameter() -> None:
    @tool
    def search(query: str, limit: int = 10) -> str:
        """Search the web.

        Use it for facts that change.

        Args:
            query: what to look for,
                in plain words
            limit (int): how many results

        Returns:
            the results
        """
        return query

    assert search.spec.description == "Search the web.\n\nUse it for facts that change."
    properties = schema_of(search)["properties"]
    assert properties["query"]["description"] == "what to look for, in plain words"
    assert properties["limit"]["description"] == "how many results"


def test_annotated_constraints_of_any_package_reach_the_schema() -> None:
    @tool
    def draw(
        sides: Annotated[int, msgspec.Meta(ge=3)],
        colour: Annotated[str, "a CSS colour"],
        alpha: Annotated[float, pydantic.Field(ge=0, le=1, description="opacity")],
        name: Annotated[str, msgspec.Meta(max_length=5)] = "x",
        style: Literal["dotted", "solid"] = "solid",
    ) -> None:
        """Draw."""

    properties = schema_of(draw)["properties"]
    assert properties["sides"] == {"type": "integer", "minimum": 3}
    assert properties["colour"] == {"type": "string", "description": "a CSS colour"}
    assert properties["alpha"]["minimum"] == 0
    assert properties["alpha"]["maximum"] == 1
    assert properties["alpha"]["description"] == "opacity"
    assert properties["name"]["maxLength"] == 5
    assert properties["style"]["enum"] == ["dotted", "solid"]


def test_structured_parameters_of_every_kind_are_described() -> None:
    @tool
    def visit(place: Place, spot: Spot, size: Size, address: Address) -> None:
        """Go there."""

    schema = schema_of(visit)
    assert set(schema["properties"]) == {"place", "spot", "size", "address"}
    assert references_in(schema) <= {f"#/$defs/{name}" for name in schema["$defs"]}


def test_models_inside_lists_and_models_keep_their_references() -> None:
    @tool
    def deliver(addresses: list[Address], streets: dict[str, Street] | None = None) -> None:
        """Bring it."""

    schema = schema_of(deliver)
    assert "Street" in schema["$defs"]
    assert references_in(schema) <= {f"#/$defs/{name}" for name in schema["$defs"]}
    parsed: Any = deliver.signature.parse({"addresses": [{"street": {"name": "A"}, "number": 1}]})
    assert parsed.addresses == [Address(street=Street(name="A"), number=1)]


def model(name: str, /, **fields: Any) -> Any:
    """Make a model of pydantic's; several may have the same name."""
    described: dict[str, Any] = {key: (kind, ...) for key, kind in fields.items()}
    return pydantic.create_model(name, **described)


def fits(made: AnyTool, **arguments: Any) -> bool:
    """Whether arguments fit the schema that a model is told."""
    schema = schema_of(made)
    assert references_in(schema) <= {f"#/$defs/{name}" for name in schema.get("$defs", {})}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(arguments))


def taking(**kinds: Any) -> AnyTool:
    """Make a tool with these parameters."""

    def take(**arguments: Any) -> None:
        """Take it."""

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        for name, kind in kinds.items()
    ]
    take.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    take.__annotations__ = kinds
    return tool(take)


NUMBERED = model("Item", number=int)
NAMED = model("Item", name=str)
A_NUMBER, A_NAME = {"number": 1}, {"name": "a"}


class Item(msgspec.Struct, forbid_unknown_fields=True):
    size: int


class Arguments(msgspec.Struct):
    size: int


def test_types_of_the_same_name_are_described_as_they_are() -> None:
    """Inside models of several parameters, directly and through others of the same name."""
    made = taking(
        order=model("Order", item=NUMBERED),
        invoice=model("Invoice", item=NAMED),
        orders=model("Orders", box=model("Box", item=NUMBERED)),
        invoices=model("Invoices", box=model("Box", item=NAMED)),
        own=Item,
    )
    arguments = {
        "order": {"item": A_NUMBER},
        "invoice": {"item": A_NAME},
        "orders": {"box": {"item": A_NUMBER}},
        "invoices": {"box": {"item": A_NAME}},
        "own": {"size": 1},
    }
    assert fits(made, **arguments)
    made.signature.parse(arguments)
    for one, two in (("order", "invoice"), ("orders", "invoices")):
        assert not fits(made, **arguments | {one: arguments[two]})
        assert not fits(made, **arguments | {two: arguments[one]})
    assert not fits(made, **arguments | {"own": A_NAME})
    # Those that are the same are described once.
    names = {name.partition("_")[0] for name in schema_of(made)["$defs"]}
    assert (names, len(schema_of(made)["$defs"])) == ({"Item", "Box"}, 5)


def test_types_of_the_same_name_may_hold_themselves_and_each_other() -> None:
    def tree(kind: type) -> Any:
        class Node(pydantic.BaseModel):
            value: kind  # type: ignore[valid-type]
            branch: "Branch | None" = None

        class Branch(pydantic.BaseModel):
            nodes: list[Node]

        Node.model_rebuild(_types_namespace={"Branch": Branch})
        return Node

    texts = tree(str)
    made = taking(numbers=tree(int), texts=texts, more=model("More", tree=texts))

    def grown(value: object) -> Any:
        return {"value": value, "branch": {"nodes": [{"value": value}]}}

    assert fits(made, numbers=grown(1), texts=grown("a"), more={"tree": grown("a")})
    assert not fits(made, numbers=grown(1), texts=grown(1), more={"tree": grown("a")})
    assert not fits(made, numbers=grown("a"), texts=grown("a"), more={"tree": grown("a")})
    mixed = {"value": 1, "branch": {"nodes": [{"value": "a"}]}}
    assert not fits(made, numbers=mixed, texts=grown("a"), more={"tree": grown("a")})
    assert sorted(schema_of(made)["$defs"]) == ["Branch", "Branch_2", "Node", "Node_2"]


def test_a_union_that_names_its_members_names_them_by_their_new_names() -> None:
    def either(kind: type) -> Any:
        one = model("One", tag=Literal["one"], value=kind)
        two = model("Two", tag=Literal["two"])
        return Annotated[one | two, pydantic.Field(discriminator="tag")]

    made = taking(numbers=model("A", x=either(int)), texts=model("B", x=either(str)))
    properties = schema_of(made)["properties"]
    assert properties["texts"]["properties"]["x"]["discriminator"]["mapping"] == {
        "one": "#/$defs/One_2",
        "two": "#/$defs/Two",
    }
    assert fits(made, numbers={"x": {"tag": "one", "value": 1}}, texts={"x": {"tag": "two"}})
    assert not fits(made, numbers={"x": {"tag": "two"}}, texts={"x": {"tag": "one", "value": 1}})


@pytest.mark.parametrize("kind", [Arguments, model("Holder", held=model("Arguments", size=int))])
def test_a_type_may_be_called_as_the_arguments_of_a_tool_are(kind: Any) -> None:
    made = taking(given=kind)
    schema = schema_of(made)
    assert (schema["type"], list(schema["properties"])) == ("object", ["given"])
    held = {"size": 1}
    assert fits(made, given=held if kind is Arguments else {"held": held})
    assert not fits(made, given={"size": "a"} if kind is Arguments else {"held": {}})


def test_names_and_values_that_look_like_definitions_stay_as_they_are() -> None:
    class Schema(pydantic.BaseModel):
        definitions: dict[str, Any] = pydantic.Field(alias="$defs", default={"$defs": {"Item": 1}})
        item: NAMED  # type: ignore[valid-type]

    made = taking(order=model("Order", item=NUMBERED), schema=Schema)
    described = schema_of(made)["properties"]["schema"]["properties"]
    assert described["$defs"]["default"] == {"$defs": {"Item": 1}}
    assert described["item"] == {"$ref": "#/$defs/Item_2"}


def test_the_context_is_not_shown_to_the_model() -> None:
    @tool
    def watch(path: str, context: ToolContext) -> None:
        """Watch."""

    assert list(schema_of(watch)["properties"]) == ["path"]
    assert watch.signature.context_parameter == "context"


def test_mutable_defaults_are_made_anew_for_each_call() -> None:
    @tool
    def collect(items: list[str] = []) -> None:  # noqa: B006 - what is tested
        """Collect."""

    first: Any = collect.signature.parse({})
    second: Any = collect.signature.parse({})
    first.items.append("x")
    assert second.items == []


@pytest.mark.parametrize(
    "name", ["", "has space", "dots.no", "ünïcode", "a" * 129, "semi;colon", "line\n"]
)
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    def function() -> None:
        """Do it."""

    function.__name__ = name
    with pytest.raises(ConfigError) as caught:
        tool(function)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize("name", ["a", "A-1_b", "a" * 128])
def test_a_name_that_every_provider_takes_is_kept(name: str) -> None:
    assert make_tool(lambda: None, {"name": name}).name == name


def plain() -> None:
    """Do it."""


def variadic(*paths: str) -> None:
    """Take any number."""


def keywords(**paths: str) -> None:
    """Take any names."""


def unnamed(path: str, /) -> None:
    """Take it by its place."""


def opaque(path: complex) -> None:
    """Take what JSON cannot hold."""


def foreign(lock: pytest.Item) -> None:
    """Take what no schema can describe."""


@pytest.mark.parametrize("function", [variadic, keywords, unnamed, opaque, foreign])
def test_a_parameter_that_cannot_be_described_is_refused_when_the_tool_is_made(
    function: Any,
) -> None:
    with pytest.raises(ConfigError, match=function.__name__) as caught:
        tool(function)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize(
    "options",
    [
        {"approval": "always"},
        {"approval": True},
        {"effect": "delete"},
        {"timeout": "soon"},
        {"retry": 2},
        {"retry": 2, "idempotent": False},
        {"idempotent": "yes"},
        {"timeout": -1},
        {"retry": -1, "idempotent": True},
        {"description": 7},
        {"input_examples": "x=1"},
    ],
    ids=str,
)
def test_a_rule_that_makes_no_sense_is_refused_and_not_ignored(options: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        tool(**options)(plain)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_a_tool_can_be_given_other_rules() -> None:
    first = tool(name="first", approval="ask")(plain)
    second = tool(name="second", timeout=0)(first)
    assert (second.name, second.rules.approval) == ("second", "never")
    assert second.function is first.function


def test_a_misspelt_rule_is_refused_and_not_ignored() -> None:
    options: Any = {"aproval": "ask"}
    with pytest.raises(TypeError, match="aproval"):
        tool(**options)(variadic)
