"""The attribute of a topic that says how many members of a broker group serve its reads.

``3``: three members of each group, the master among them, serve every queue. ``1;7=3``: three
members serve queue 7, and the master alone serves all others. 0, 1 and no attribute mean the same.
"""

from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

READERS = "gantry.readers"
READERS_MAX = 16

_TEXT_CHARS_MAX = 512
_NO_QUEUES: MappingProxyType[int, int] = MappingProxyType({})


class Readers(NamedTuple):
    """The readers of a topic.

    Attributes:
        usual: of a queue that is not named.
        queues: by queue id, where it is another number.
    """

    usual: int = 1
    queues: MappingProxyType[int, int] = _NO_QUEUES

    def of(self, queue_id: int) -> int:
        """The readers of one queue."""
        return self.queues.get(queue_id, self.usual)

    @property
    def most(self) -> int:
        """The readers of the queue that has most."""
        return max(self.usual, *self.queues.values(), 1)


@lru_cache(maxsize=4096)
def parse_readers(text: str) -> Readers:
    """The readers that a value of the attribute stands for; an empty one says nothing.

    Raises:
        ValueError: it does not read; the text says what is allowed.
    """
    if not text:
        return Readers()
    if len(text) > _TEXT_CHARS_MAX:
        raise ValueError(f"at most {_TEXT_CHARS_MAX} characters")
    usual, *rest = text.split(";")
    queues: dict[int, int] = {}
    for item in rest:
        queue, _, count = item.partition("=")
        if _number(queue) in queues:
            raise ValueError(f"queue {queue} once")
        queues[_number(queue)] = _count(count)
    return Readers(_count(usual), MappingProxyType(queues))


def readers_of(attributes: dict[str, str]) -> Readers:
    """The readers of a topic with these attributes; a value that does not read asks for none."""
    text = attributes.get(READERS)
    if text is None:
        return Readers()
    try:
        return parse_readers(text)
    except ValueError:
        return Readers()


def _count(text: str) -> int:
    count = _number(text)
    if count > READERS_MAX:
        raise ValueError(f"0 to {READERS_MAX}")
    return count


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5):
        raise ValueError(f"0 to {READERS_MAX}, and QUEUE=NUMBER for single queues behind a ';'")
    return int(text)
