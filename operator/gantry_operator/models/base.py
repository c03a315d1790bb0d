"""Parts common to all resource models: tolerant reading, rules stated once, errors with advice.

A rule is written once and enforced twice: its CEL expression goes into the CRD, so that the API
server refuses a bad resource at once, and its Python twin runs in every reconcile, because a
resource may be older than the rule. Transition rules (`oldSelf`) exist in CEL only; the plan
compares with the live objects instead.

Unknown fields are ignored: a resource written for a newer operator must stay readable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

ConditionStatus = Literal["True", "False", "Unknown"]


class InvalidSpecError(ValueError):
    """A resource breaks its own rules; the text is one sentence per breach, for people."""


class Rule(NamedTuple):
    """One rule about one object of the schema.

    Attributes:
        cel: the expression for `x-kubernetes-validations`; None where its estimated cost would
            exceed the API server's budget.
        message: what is wrong and what to change; the same words in both places.
        holds: the Python twin, called with the parsed model; None for transition rules.
    """

    cel: str | None
    message: str
    holds: Callable[[Any], bool] | None = None


class Model(BaseModel):
    """Frozen, camelCase on the wire, blind to fields it does not know."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Adds the CEL rules, and `{}` as the default of every object that defaults to itself.

        The API server fills in the defaults of an object's fields only where the object is
        present, hence the empty default.
        """
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        validations = [{"rule": r.cel, "message": r.message} for r in cls.rules if r.cel]
        if validations:
            resolved["x-kubernetes-validations"] = validations
        for field in cls.model_fields.values():
            factory = field.default_factory
            if isinstance(factory, type) and issubclass(factory, Model):
                resolved["properties"][field.alias]["default"] = {}
        return schema

    def broken_rules(self) -> list[str]:
        """Messages of the rules, of this object and of those inside, that do not hold."""
        broken = [r.message for r in self.rules if r.holds is not None and not r.holds(self)]
        for name in type(self).model_fields:
            value = getattr(self, name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Model):
                    broken += part.broken_rules()
        return broken

    def to_object(self) -> dict[str, Any]:
        """As the API server stores it: camelCase, without what is not set."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class Metadata(Model):
    """The part of `metadata` that the operator acts on."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default_factory=dict)


class Condition(Model):
    """One observation about the resource, in the standard shape of Kubernetes."""

    type: str = Field(description="Name of the condition; one entry per type.")
    status: ConditionStatus = Field(
        description="True, False, or Unknown when the operator cannot observe it at the moment."
    )
    reason: str = Field(description="Why, as one CamelCase word from the documented list.")
    message: str = Field(description="The same for people: what is so, and what to do about it.")
    last_transition_time: str = Field(
        description="When status last changed.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: int = Field(
        ge=0, description="The metadata.generation of the resource this was concluded from."
    )


def explain(error: ValidationError) -> str:
    """Turns pydantic's list of errors into sentences that name field, value and remedy."""
    sentences = []
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"])
        got = item.get("input")
        shown = f" (got {got!r})" if isinstance(got, str | int | float | bool) else ""
        sentences.append(f"{path}: {item['msg'][0].lower()}{item['msg'][1:]}{shown}; change it")
    return ". ".join(sentences)


class Resource(Model):
    """A custom resource; subclasses add `spec` and `status`."""

    metadata: Metadata

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Self:
        """Reads a resource from the API server.

        Raises:
            InvalidSpecError: a field is out of range or a rule is broken. The resource may be
                older than the schema, so this is an answer to be reported, not an accident.
        """
        try:
            resource = cls.model_validate(body)
        except ValidationError as error:
            raise InvalidSpecError(explain(error)) from error
        broken = resource.broken_rules()
        if broken:
            raise InvalidSpecError(". ".join(broken))
        return resource
