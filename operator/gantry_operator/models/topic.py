"""Topic: a topic of a cluster, with the same settings in each of its broker groups."""

from __future__ import annotations

import re
from typing import ClassVar, Final, Literal

from gantry_protocol.admin_topics import QUEUES_MAX, TopicWish
from gantry_protocol.settings.priority import MESSAGE_TYPE
from gantry_protocol.settings.readers import READERS, READERS_MAX
from pydantic import Field

from gantry_operator.models.base import Rule
from gantry_operator.models.entity import DeletionPolicy, Entity, EntitySpec, EntityStatus
from gantry_operator.models.parts import NOT_NULLABLE

NAME_CHARS_MAX: Final = 127
RESERVE_TIME: Final = "reserve.time"
READERS_PATTERN: Final = r"^[0-9]{1,2}(;[0-9]{1,4}=[0-9]{1,2})*$"
PERMS: Final = {"ReadWrite": 6, "ReadOnly": 4, "WriteOnly": 2, "None": 0}

_NAME = r"^[a-zA-Z0-9_-][%|a-zA-Z0-9_-]*$"
_is_name = re.compile(_NAME).match


class TopicSpec(EntitySpec):
    """The wish for a topic."""

    topic_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=NAME_CHARS_MAX,
        pattern=_NAME,
        description=(
            "Name of the topic, where it is not metadata.name, which has no capital letters and no "
            "underlines. At most 127 letters, digits and any of _ - % |, the first one neither % "
            "nor |. Default metadata.name; cannot change after creation."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    queues: int = Field(
        default=8,
        ge=1,
        le=QUEUES_MAX,
        description=(
            "Queues of the topic in each broker group that messages are written to. Keys of a "
            "topic with another number of them go to other queues. Range 1 to 4096; default 8."
        ),
    )
    read_queues: int | None = Field(
        default=None,
        ge=1,
        le=QUEUES_MAX,
        description=(
            "Queues in each broker group that are read: more than queues while fewer are written "
            "and the rest is still consumed. Range 1 to 4096; default as many as queues."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    allow_fewer_queues: bool = Field(
        default=False,
        description=(
            "true: fewer queues may be read than the topic has. What is in the others is read by "
            "nobody from then on. Default false: such a change waits."
        ),
    )
    permission: Literal["ReadWrite", "ReadOnly", "WriteOnly", "None"] = Field(
        default="ReadWrite", description="What clients may do with the topic. Default ReadWrite."
    )
    message_type: (
        Literal[
            "Unspecified", "Normal", "Fifo", "Delay", "Transaction", "Priority", "Lite", "Mixed"
        ]
        | None
    ) = Field(
        default=None,
        description=(
            "The kind of messages that 5.x clients send to the topic, upstream's message.type. "
            "Default none: any kind. Priority: POP hands out the most urgent ones first. Lite: it "
            "is the parent of lite topics."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    reserve_time_ms: int | None = Field(
        default=None,
        ge=-1,
        le=2**53,
        description=(
            "Upstream's attribute reserve.time in milliseconds; -1 says the brokers' own. Default: "
            "the topic has none, and its messages stay as long as those of its broker groups."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    readers: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        pattern=READERS_PATTERN,
        description=(
            "How many members of a broker group serve reads, gantry.readers: 3, or 1;7=3 for three "
            "of queue 7 and the master alone of the others. Default none: the master."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    deletion_policy: DeletionPolicy = Field(
        default="Retain",
        description=(
            "What becomes of the topic when this resource is deleted: Retain keeps it with its "
            "messages, Delete deletes both. Default Retain."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.readQueues) || self.readQueues >= self.queues",
            "readQueues must not be less than queues, because what is written to the queues "
            "between them would be read by nobody: raise readQueues or lower queues",
            lambda spec: spec.read_queues is None or spec.read_queues >= spec.queues,
        ),
        Rule(
            "has(self.topicName) == has(oldSelf.topicName)"
            " && (!has(self.topicName) || self.topicName == oldSelf.topicName)",
            "topicName is fixed at creation: set it back, and create a new Topic for another name",
        ),
        Rule(
            None,  # numbers in a text are beyond what CEL compares cheaply
            f"readers may be 0 to {READERS_MAX}: lower it",
            lambda spec: spec.readers is None or _most(spec.readers) <= READERS_MAX,
        ),
    )

    @property
    def wish(self) -> TopicWish:
        """The same in the controllers' words."""
        attributes = {
            MESSAGE_TYPE: None if self.message_type is None else self.message_type.upper(),
            RESERVE_TIME: None if self.reserve_time_ms is None else str(self.reserve_time_ms),
            READERS: self.readers,
        }
        return TopicWish(
            read_queues=self.read_queues or self.queues,
            write_queues=self.queues,
            perm=PERMS[self.permission],
            attributes={name: value for name, value in attributes.items() if value is not None},
            fewer_reads=self.allow_fewer_queues,
        )


def _most(readers: str) -> int:
    usual, *rest = readers.split(";")
    return max(int(usual), *(int(item.partition("=")[2]) for item in rest), 0)


class Topic(Entity):
    """A topic of a cluster, with the same settings in each of its broker groups."""

    spec: TopicSpec = Field(default_factory=TopicSpec, description="What the topic is to be like.")
    status: EntityStatus | None = Field(
        default=None, description="What the operator observes; written by the operator only."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.spec.topicName) || self.metadata.name.matches('^[a-zA-Z0-9_-]+$')"
            f" && self.metadata.name.size() <= {NAME_CHARS_MAX}",
            "metadata.name is also the topic's, which has at most 127 letters, digits, hyphens and "
            "underlines: set spec.topicName, or choose another metadata.name",
            lambda topic: (
                topic.spec.topic_name is not None
                or (len(topic.named) <= NAME_CHARS_MAX and _is_name(topic.named) is not None)
            ),
        ),
    )

    @property
    def named(self) -> str:
        """The topic's name."""
        return self.spec.topic_name or self.metadata.name
