"""MessageUser: a user of a cluster, whose secret is in a Secret, and the rules for it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from gantry_protocol.access.rules import (
    RULES_MAX,
    SOURCES_MAX,
    USER_CHARS_MAX,
    AccessError,
    make_rule,
    user_problem,
)
from gantry_protocol.access.rules import (
    Rule as AccessRule,
)
from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.entity import DeletionPolicy, Entity, EntitySpec, EntityStatus
from gantry_operator.models.parts import NOT_NULLABLE

SECRET_KEY: Final = "secretKey"  # noqa: S105 -- the name of a key, not a secret
ACCESS_KEY: Final = "accessKey"
_PATTERN = r"[%|a-zA-Z0-9_.@-]{1,255}"
_RESOURCE = rf"^(\*|(Topic|Group|Cluster):(\*|{_PATTERN}\*?))$"
Action = Literal["All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"]
Source = Annotated[str, Field(min_length=2, max_length=64, pattern=r"^[0-9a-fA-F:.]+(/[0-9]+)?$")]


class SecretRef(Model):
    """A Secret in the same namespace that holds the user's secret key."""

    name: str = Field(
        min_length=1,
        max_length=253,
        description="Name of the Secret. No default; it is looked at once a minute.",
    )
    key: str = Field(
        default=SECRET_KEY,
        min_length=1,
        max_length=253,
        pattern=r"^[-._a-zA-Z0-9]+$",
        description=("Key in it: 8 to 128 printable characters without spaces. Default secretKey."),
    )


class UserRule(Model):
    """The right of a user to do something with a resource, or the lack of it."""

    resource: str = Field(
        min_length=1,
        max_length=264,
        pattern=_RESOURCE,
        description=(
            "Topic:NAME, Group:NAME or Cluster:NAME, with * at the end for a prefix, or * for "
            "everything. No default."
        ),
    )
    actions: tuple[Action, ...] = Field(
        min_length=1,
        max_length=8,
        description=("All, or some of Pub, Sub, Create, Update, Delete, Get and List. No default."),
    )
    sources: tuple[Source, ...] = Field(
        default=(),
        max_length=SOURCES_MAX,
        description="IP addresses or networks from which it counts. At most 16; default all.",
    )
    decision: Literal["Allow", "Deny"] = Field(
        default="Allow", description="Whether that is allowed or denied. Default Allow."
    )
    policy: Literal["Custom", "Default"] = Field(
        default="Custom",
        description="Default: it counts where no rule of the type Custom fits. Default Custom.",
    )

    @property
    def rule(self) -> AccessRule:
        """The same in the controllers' words.

        Raises:
            AccessError: some part cannot be.
        """
        return make_rule(self.resource, self.actions, self.sources, self.decision, self.policy)


class MessageUserSpec(EntitySpec):
    """The wish for a user."""

    user_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=USER_CHARS_MAX,
        pattern=r"^[A-Za-z0-9_.@-]+$",
        description=(
            "Name of the user, its access key, where that is not metadata.name. At most 64 "
            "letters, digits and any of _ . @ -. Default metadata.name; cannot change after "
            "creation."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    type: Literal["Normal", "Super"] = Field(
        default="Normal",
        description="Super may do everything, whatever its rules say. Default Normal.",
    )
    disabled: bool = Field(
        default=False,
        description="true: the user keeps its rules and may do nothing. Default false.",
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "The Secret that holds the user's secret key. Default none: the operator makes one, "
            "named after the resource with -user behind it, that goes with it."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    rules_: tuple[UserRule, ...] = Field(
        default=(),
        alias="rules",
        max_length=RULES_MAX,
        description="What the user may do; one for each resource and policy. Default nothing.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["resource", "policy"],
        },
    )
    deletion_policy: DeletionPolicy = Field(
        default="Delete",
        description=(
            "What becomes of the user when this resource is deleted: Delete deletes it, so its "
            "secret opens nothing any more, Retain keeps it. Default Delete."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.userName) == has(oldSelf.userName)"
            " && (!has(self.userName) || self.userName == oldSelf.userName)",
            "userName is fixed at creation: set it back, and create a new MessageUser for another "
            "name",
        ),
        Rule(
            None,  # networks are beyond CEL
            "rules[].sources must be IP addresses or networks, as 10.0.0.0/8: correct them",
            lambda spec: _readable(spec.rules_),
        ),
        Rule(
            None,  # the API server sees to it by the list's keys
            "rules must have one entry for each resource and policy: join those of one",
            lambda spec: (
                len({(rule.policy, rule.resource) for rule in spec.rules_}) == len(spec.rules_)
            ),
        ),
    )


def _readable(rules: tuple[UserRule, ...]) -> bool:
    try:
        return all(rule.rule for rule in rules)
    except AccessError:
        return False


class MessageUserStatus(EntityStatus):
    """The operator's observations."""

    secret: str | None = Field(
        default=None, description="Name of the Secret that holds the user's secret key."
    )


class MessageUser(Entity):
    """A user of a cluster, whose secret key is in a Secret, and the rules for it."""

    spec: MessageUserSpec = Field(
        default_factory=MessageUserSpec, description="What the user is to be like."
    )
    status: MessageUserStatus | None = Field(
        default=None, description="What the operator observes; written by the operator only."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"has(self.spec.userName) || self.metadata.name.size() <= {USER_CHARS_MAX}",
            "metadata.name is also the user's, which has at most 64 characters: set spec.userName, "
            "or choose another metadata.name",
            lambda user: user.spec.user_name is not None or len(user.named) <= USER_CHARS_MAX,
        ),
        Rule(
            "(has(self.spec.userName) ? self.spec.userName : self.metadata.name) != 'gantry'",
            "the user gantry stands for the quorum's key: take another name",
            lambda user: user.named != "gantry",
        ),
        Rule(
            None,  # by patterns and the rules above
            "the user's name cannot be one: choose another",
            lambda user: user_problem(user.named) is None,
        ),
    )

    @property
    def named(self) -> str:
        """The user's name."""
        return self.spec.user_name or self.metadata.name
