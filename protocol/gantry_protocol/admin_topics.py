"""The admin API's bodies about topics and consumer groups of a cluster.

One answer tells of all groups of the cluster: what is the same everywhere is written once. So ten
thousand topics in many groups are a few pages, and who knows the ``stamp`` of what was read last
is told in a line that nothing has changed.
"""

from typing import Annotated

from pydantic import Field

from gantry_protocol.admin_bodies import AdminRequest, AdminView

PAGE_MAX = 1_000
"""Topics or consumer groups of one page."""
ATTRIBUTES_MAX = 16
QUEUES_MAX = 4096
NAME_CHARS_MAX = 255
RESET_TOPICS_MAX = 16
"""Topics of one reset of offsets."""


class TopicWish(AdminRequest):
    """PUT /v1/clusters/{cluster}/topics/{topic}: what a topic is to be like in every group.

    Attributes:
        attributes: all that it is to have, upstream's names to values; others are removed.
        fewer_reads: fewer queues to read are meant. What is in those that are left out is read by
            nobody, so without this a smaller number is refused.
    """

    read_queues: Annotated[int, Field(ge=1, le=QUEUES_MAX)]
    write_queues: Annotated[int, Field(ge=1, le=QUEUES_MAX)]
    perm: Annotated[int, Field(ge=0, le=7)] = 6
    attributes: dict[str, str] = Field(default_factory=dict, max_length=ATTRIBUTES_MAX)
    fewer_reads: bool = False


class TopicVariant(AdminView):
    """A topic as some groups have it; ``groups`` is empty where all of the cluster have it so."""

    groups: list[str] = Field(default_factory=list)
    read_queues: int
    write_queues: int
    perm: int
    order: bool = False
    attributes: dict[str, str] = Field(default_factory=dict)


class TopicView(AdminView):
    """A topic in all groups of a cluster.

    Attributes:
        mapped: it has a queue map, and is changed as a whole by that.
        variants: none where no group has it.
    """

    name: str
    mapped: bool = False
    variants: list[TopicVariant] = Field(default_factory=list)


class TopicList(AdminView):
    """GET /v1/clusters/{cluster}/topics: a page, in the order of names.

    Attributes:
        stamp: changes whenever a topic of the cluster does.
        unchanged: it is the stamp that was asked with, and nothing else is told.
        groups: that clients are sent to.
        unheard: those of them whose masters have not said yet which topics their logs have.
        new: those of them that never had a master; with the first one they take over what the
            others have.
        more: there are topics behind the last one of the page; ask with ``after`` it.
    """

    stamp: str
    unchanged: bool = False
    groups: list[str] = Field(default_factory=list)
    unheard: list[str] = Field(default_factory=list)
    new: list[str] = Field(default_factory=list)
    topics: list[TopicView] = Field(default_factory=list)
    more: bool = False


class ConsumerGroupWish(AdminRequest):
    """PUT /v1/clusters/{cluster}/consumer-groups/{group}: how a group may consume, everywhere.

    Settings that are not named here, or None, stay as they are; see ``SubscriptionGroupConfig``.
    """

    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Annotated[int, Field(ge=0, le=QUEUES_MAX)] = 1
    retry_max_times: Annotated[int, Field(ge=-1, le=2**31 - 1)] = 16
    consume_message_orderly: bool | None = None

    def to_json(self) -> str:
        """The wire form; controllers of an older version are told what they know."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


class ConsumerGroupVariant(AdminView):
    """The settings of a consumer group as some broker groups have them, or all (``groups`` [])."""

    groups: list[str] = Field(default_factory=list)
    consume_enable: bool
    consume_broadcast_enable: bool
    retry_queue_nums: int
    retry_max_times: int
    consume_message_orderly: bool = False


class ConsumerGroupView(AdminView):
    """The settings of a consumer group in all broker groups of a cluster."""

    name: str
    variants: list[ConsumerGroupVariant] = Field(default_factory=list)


class ConsumerGroupList(AdminView):
    """GET /v1/clusters/{cluster}/consumer-groups: a page of settings, as a ``TopicList`` is."""

    stamp: str
    unchanged: bool = False
    groups: list[str] = Field(default_factory=list)
    new: list[str] = Field(default_factory=list)
    consumer_groups: list[ConsumerGroupView] = Field(default_factory=list)
    more: bool = False


class OffsetResetWish(AdminRequest):
    """POST /v1/clusters/{cluster}/consumer-groups/{group}/resets: where a group is to go on.

    Attributes:
        request: a number that rises; each queue carries each request out once, however often it is
            made, and none that comes behind a later one.
        timestamp: messages stored from then on, in ms since 1970; -1 is the end, 0 the beginning.
        topics: of which the offsets are reset, in every broker group that has them.
    """

    request: Annotated[int, Field(ge=1, le=2**53 - 1)]
    timestamp: Annotated[int, Field(ge=-1, le=2**53 - 1)]
    topics: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]],
        Field(min_length=1, max_length=RESET_TOPICS_MAX),
    ]


class OffsetResetView(AdminView):
    """The outcome of a request to reset offsets.

    Attributes:
        request: as it was made.
        queues: in which it is carried out, now or before.
        waiting: where it is not yet, and why; making it again goes on there. Some of many.
        refused: why it will not be carried out; empty while it may.
    """

    request: int
    queues: int = 0
    waiting: list[str] = Field(default_factory=list)
    refused: str = ""
