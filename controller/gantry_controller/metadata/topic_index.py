"""Look-ups by topic: the groups that have one, and the groups in which one has readers.

Derived from the topic tables. What is asked for readers beyond the members of a group is refused.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec
from gantry_protocol.settings.readers import READERS, readers_of

if TYPE_CHECKING:
    from gantry_controller.metadata.state import BrokerGroup

GroupKey = tuple[str, str]


class _WithAttributes(Protocol):
    @property
    def attributes(self) -> dict[str, str]: ...


Topics = Mapping[str, _WithAttributes]


class TopicIndex(msgspec.Struct):
    """See the module.

    Attributes:
        groups: by topic, the groups that have it, in the order in which they got it.
        readers: by group, the topics that ask for more readers than the master; none is empty.
    """

    groups: dict[str, dict[GroupKey, None]] = {}
    readers: dict[GroupKey, set[str]] = {}

    def changed(
        self, key: GroupKey, old: Topics, new: Topics, added: Collection[str] | None
    ) -> None:
        """The topics of a group are others.

        Args:
            key: of the group.
            old: its topics before.
            new: its topics now.
            added: names among which all are that are new or other; None: some may be gone instead.
        """
        gone = sorted(old.keys() - new.keys()) if added is None else ()
        for topic in gone:
            self.groups[topic].pop(key)
            if not self.groups[topic]:
                del self.groups[topic]
        if added is None:
            added = sorted(new.keys() - old.keys())
        for topic in added:
            self.groups.setdefault(topic, {})[key] = None
        self._note_readers(key, new, (*gone, *added))

    def _note_readers(self, key: GroupKey, topics: Topics, names: Iterable[str]) -> None:
        asking = self.readers.get(key, set())
        for name in names:
            topic = topics.get(name)
            if topic and READERS in topic.attributes and readers_of(topic.attributes).most > 1:
                asking.add(name)
            else:
                asking.discard(name)
        if asking:
            self.readers[key] = asking
        else:
            self.readers.pop(key, None)


def too_many_readers(
    group: "BrokerGroup", modification: str, attributes: dict[str, str]
) -> str | None:
    """The reason why a group cannot have the readers that a change of a topic asks for."""
    declared = 0 if group.declaration is None else group.declaration.replicas
    members = max(len(group.members), declared)
    most = readers_of(attributes).most
    if READERS not in modification or most <= max(members, 1):
        return None
    return (
        f"{most} members are to serve its reads, and {group.name} has {members}; ask for fewer, or"
        " add replicas first"
    )
