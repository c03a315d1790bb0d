"""The tier of a group that is gone, from which another one begins, and what came of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.parts import NOT_NULLABLE

Uid = Annotated[str, Field(max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class FromTier(Model):
    """The tier that the group begins from, and goes on in."""

    shard: Uid = Field(
        description="The place under spec.tier.url, as gantry tier ls shows it: a group's uid."
    )
    former_owner: Uid | None = Field(
        default=None,
        description="uid of the group that is gone, if it had begun from this tier. Default shard.",
        json_schema_extra=NOT_NULLABLE,
    )


class Bootstrap(Model):
    """The source of what empty volumes of a new group are filled with."""

    from_tier: FromTier = Field(description="The tier of a group that is gone.")


class BootstrapStatus(Model):
    """The outcome of `spec.bootstrap`."""

    state: Literal["InProgress", "Completed"] = Field(
        description="Completed is final: nothing is read from spec.bootstrap but the place."
    )
    message: str = Field(description="What is waited for, for people.")


BOOTSTRAP_RULES = (
    Rule(
        "has(self.bootstrap) == has(oldSelf.bootstrap)"
        " && (!has(self.bootstrap) || self.bootstrap == oldSelf.bootstrap)",
        "bootstrap is fixed at creation, because the group's messages are at the place that it "
        "names: set it back, and create a new BrokerGroup",
    ),
    Rule(
        "!has(self.bootstrap) || has(self.tier)",
        "bootstrap.fromTier is a place under tier.url: set tier",
        lambda spec: spec.bootstrap is None or spec.tier is not None,
    ),
    Rule(
        "!has(self.bootstrap) || !has(self.shards)",
        "bootstrap.fromTier is the tier of one group, and with shards there are many: remove one",
        lambda spec: spec.bootstrap is None or spec.shards is None,
    ),
)
