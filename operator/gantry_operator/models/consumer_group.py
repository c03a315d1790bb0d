"""ConsumerGroup: how a consumer group may consume, in each broker group of a cluster."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, ClassVar, Final

from gantry_protocol.admin_topics import (
    QUEUES_MAX,
    RESET_TOPICS_MAX,
    ConsumerGroupWish,
    OffsetResetWish,
)
from pydantic import Field, field_validator

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.entity import DeletionPolicy, Entity, EntitySpec, EntityStatus
from gantry_operator.models.parts import NOT_NULLABLE

NAME_CHARS_MAX: Final = 255
EARLIEST, LATEST = "Earliest", "Latest"
_MOMENT = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,3})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)


class OffsetReset(Model):
    """A request to go on elsewhere, which is carried out once."""

    request: int = Field(
        ge=1,
        le=2**53 - 1,
        description=(
            "The number of the request, which is carried out once in each queue; give the next one "
            "a higher number. Range 1 to 9007199254740991; no default."
        ),
    )
    to: str = Field(
        pattern=rf"^({EARLIEST}|{LATEST}|{_MOMENT})$",
        description=(
            "Where the group goes on: Earliest, Latest, or behind the messages that were stored "
            "before a moment such as 2026-11-22T10:30:00Z. No default."
        ),
    )
    topics: tuple[Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)], ...] = Field(
        min_length=1,
        max_length=RESET_TOPICS_MAX,
        description="Topics in which it does, in every broker group. At most 16; no default.",
    )

    @field_validator("to")
    @classmethod
    def _must_be_a_moment(cls, value: str) -> str:
        if value not in (EARLIEST, LATEST):
            dt.datetime.fromisoformat(value)
        return value

    @property
    def wish(self) -> OffsetResetWish:
        """The same in the controllers' words."""
        if self.to in (EARLIEST, LATEST):
            timestamp = 0 if self.to == EARLIEST else -1
        else:
            timestamp = max(0, int(dt.datetime.fromisoformat(self.to).timestamp() * 1000))
        return OffsetResetWish(
            request=self.request, timestamp=timestamp, topics=list(dict.fromkeys(self.topics))
        )


class ConsumerGroupSpec(EntitySpec):
    """The wish for the settings of a consumer group."""

    group_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=NAME_CHARS_MAX,
        pattern=r"^[%|a-zA-Z0-9_-]+$",
        description=(
            "Name of the consumer group, where it is not metadata.name, which has no capital "
            "letters and no underlines. At most 255 letters, digits and any of _ - % |. Default "
            "metadata.name; cannot change after creation."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    enabled: bool = Field(
        default=True,
        description="false: nobody consumes as this group. Default true.",
    )
    broadcast: bool = Field(
        default=True,
        description="false: its members may not each be given every message. Default true.",
    )
    retry_queues: int = Field(
        default=1,
        ge=0,
        le=QUEUES_MAX,
        description=(
            "Queues of its retry topic in each broker group; 0: messages that fail are not sent "
            "back. Range 0 to 4096; default 1."
        ),
    )
    max_retries: int = Field(
        default=16,
        ge=-1,
        le=2**31 - 1,
        description=(
            "Times that a message which fails is delivered again before it becomes a dead letter; "
            "clients may ask for another number. Range -1 to 2147483647; default 16."
        ),
    )
    in_order: bool | None = Field(
        default=None,
        description=(
            "true: clients that speak gRPC get the messages of a message group one after the "
            "other; false: as they come. Default: as it is, which at first is false."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    reset_offsets: OffsetReset | None = Field(
        default=None,
        description=(
            "A request to reset the group's offsets, carried out once; default none. What became "
            "of it is in the condition OffsetsReset."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    deletion_policy: DeletionPolicy = Field(
        default="Retain",
        description=(
            "What becomes of the settings when this resource is deleted: Retain keeps them, "
            "Delete deletes them, and the group consumes with the brokers' defaults. Offsets stay "
            "in any case. Default Retain."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.groupName) == has(oldSelf.groupName)"
            " && (!has(self.groupName) || self.groupName == oldSelf.groupName)",
            "groupName is fixed at creation: set it back, and create a new ConsumerGroup for "
            "another name",
        ),
    )

    @property
    def wish(self) -> ConsumerGroupWish:
        """The same in the controllers' words."""
        return ConsumerGroupWish(
            consume_enable=self.enabled,
            consume_broadcast_enable=self.broadcast,
            retry_queue_nums=self.retry_queues,
            retry_max_times=self.max_retries,
            consume_message_orderly=self.in_order,
        )


class OffsetResetStatus(Model):
    """The last request to reset offsets that came to its end."""

    request: int = Field(ge=1, le=2**53 - 1, description="Its number.")
    queues: int = Field(
        ge=0, le=2**31 - 1, description="Queues in which it was carried out, of all its topics."
    )
    refused: str = Field(
        default="",
        max_length=4096,
        description="The reason why it was not carried out everywhere; empty if it was.",
    )


class ConsumerGroupStatus(EntityStatus):
    """The operator's observations."""

    offset_reset: OffsetResetStatus | None = Field(
        default=None, description="The last request to reset offsets that came to its end."
    )


class ConsumerGroup(Entity):
    """The settings of a consumer group, the same in each broker group of a cluster."""

    spec: ConsumerGroupSpec = Field(
        default_factory=ConsumerGroupSpec, description="What the settings are to be like."
    )
    status: ConsumerGroupStatus | None = Field(
        default=None, description="What the operator observes; written by the operator only."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.spec.groupName) || !self.metadata.name.contains('.')",
            "metadata.name is also the consumer group's, which has no dots: set spec.groupName, or "
            "choose another metadata.name",
            lambda group: group.spec.group_name is not None or "." not in group.named,
        ),
    )

    @property
    def named(self) -> str:
        """The consumer group's name."""
        return self.spec.group_name or self.metadata.name
