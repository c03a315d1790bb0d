"""The topics of one broker group, as values."""

from collections.abc import Mapping

import msgspec

from gantry_controller.metadata.digest import Parted

DEFAULT_TOPIC = "TBW102"
"""The template that clients ask for before a topic exists."""


class Topic(msgspec.Struct, frozen=True, gc=False):
    """The configuration of one topic on one group (RocketMQ ``TopicConfig``).

    Attributes:
        since: the version of the group's table at which the topic was created; 0 in events, and of
            topics that are older than this field. It tells a topic that was deleted and created
            again from the one that it looks like.
        attributes: upstream's names to values, as ``metadata.attributes`` lets them in.
    """

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0
    order: bool = False
    since: int = 0
    attributes: dict[str, str] = {}


BUILT_IN_TOPICS = {
    DEFAULT_TOPIC: Topic(read_queue_nums=8, write_queue_nums=8, perm=7),
    "RMQ_SYS_TRACE_TOPIC": Topic(read_queue_nums=1, write_queue_nums=1, perm=6),
}
"""Topics that every group has without saying so.

Clients that trace their messages send to the second; of those, only Java creates what it misses.
A group makes it with the first send.
"""


class TopicTable(Parted, frozen=True, array_like=True):
    """The topics of one group.

    Attributes:
        is_partial: the group was adopted, and its master has not said yet which topics its log has.
            What is missing here says nothing then, and nobody may compare a log with it.
    """

    topics: dict[str, Topic] = msgspec.field(default_factory=dict)
    is_partial: bool = False

    @property
    def parts(self) -> Mapping[str, Topic]:
        """The topics."""
        return self.topics
