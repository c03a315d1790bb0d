"""A batch send as the records it becomes: one run of bytes, without an object per message.

The messages of a batch share topic, queue, hosts and times, so their records differ in a few
numbers, the body and the properties. ``scan_run`` looks at every length once and at the text of all
properties together; ``RecordRun.encode`` writes all records in one pass when their place is known.

What is refused: more messages than are allowed, before the rest is looked at. A batch in which
anything is odd or needs a rule of its own gives no run, and whoever asked goes the long way through
``split_batch``, which says what is wrong with it.
"""

import struct
import sys
from collections.abc import Collection, Iterator
from zlib import crc32

import msgspec
from msgspec.structs import replace

from gantry_protocol.errors import RecordError
from gantry_protocol.records.batch import too_many
from gantry_protocol.records.layout import FIXED, HOST_FAMILIES, pack_host
from gantry_protocol.records.record import MessageRecord, families_of, topic_part

_HEAD = struct.Struct(">12xii")  # of a message: flag, body size; see ``batch``
_HEAD_BYTES = _HEAD.size
_SIZE = struct.Struct(">h")
_BETWEEN = b"\0"  # the properties of two messages; no properties have it in them

# Of a record: size, magic, CRC, queue id, flag, queue offset, physical offset, what all records of
# a run have in common (from the system flag on), body size; by the size of that common part.
_COMMON_AT, _BODY_SIZE_BYTES = 36, 4
_RECORD = {
    size: struct.Struct(f">iIIiiqq{size}si")
    for size in {fixed.size - _COMMON_AT - _BODY_SIZE_BYTES for fixed in FIXED.values()}
}

# Flag, where the body begins, where it ends and the properties with their size begin, their end.
_Place = tuple[int, int, int, int]


class RecordRun(msgspec.Struct, frozen=True):
    """Records of one queue that are appended together.

    Iterating makes a ``MessageRecord`` of each, for whoever cannot take a run.

    Attributes:
        common: what all have in common; its body, properties and flag mean nothing.
        messages: the body of the batch send that holds them.
        places: where each message stands in it.
        sizes: of the records, bytes.
        properties: of all messages, as they are encoded, with a zero byte between two.
    """

    common: MessageRecord
    messages: bytes
    places: list[_Place]
    sizes: list[int]
    properties: bytes

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[MessageRecord]:
        for flag, start, end, stop in self.places:
            properties = str(self.messages[end + _SIZE.size : stop], "utf-8")
            body = self.messages[start:end]
            yield replace(self.common, body=body, properties=properties, flag=flag)

    def encode(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
        """All records, as they stand from ``physical_offset`` on.

        Args:
            queue_offset: of the first; the others follow.
            physical_offset: of the first byte in the log.
            store_timestamp: of all, ms.

        Raises:
            RecordError: a number does not fit its field.
        """
        common = self.common
        magic, topic = topic_part(common.topic)
        born, store = pack_host(common.born_host), pack_host(common.store_host)
        families = families_of(born, store)
        try:
            head = FIXED[families].pack(
                0, 0, 0, common.queue_id, 0, queue_offset, physical_offset,
                (common.sys_flag & ~HOST_FAMILIES) | families, common.born_timestamp, born,
                store_timestamp, store,
                common.reconsume_times, common.prepared_transaction_offset, 0,
            )  # fmt: skip
        except struct.error as error:
            raise RecordError(f"A number does not fit the record: {error}.") from error
        same = head[_COMMON_AT:-_BODY_SIZE_BYTES]
        pack, messages, queue_id = _RECORD[len(same)].pack, self.messages, common.queue_id
        parts: list[bytes] = []
        number, at = queue_offset, physical_offset
        for (flag, start, end, stop), size in zip(self.places, self.sizes, strict=True):
            body = messages[start:end]
            crc = crc32(body) & 0x7FFFFFFF
            parts += (
                pack(size, magic, crc, queue_id, flag, number, at, same, end - start),
                body,
                topic,
                messages[end:stop],
            )
            number += 1
            at += size
        return b"".join(parts)


def scan_run(
    messages: bytes,
    common: MessageRecord,
    special: Collection[bytes] = (),
    messages_max: int = sys.maxsize,
) -> RecordRun | None:
    """The records of a batch send; None when one of its messages has to be looked at by itself.

    Args:
        messages: the body of the batch send.
        common: topic, queue, times, hosts and system flag of all.
        special: names of properties that have rules of their own, or what they begin with.
        messages_max: how many a batch may hold.

    Raises:
        RecordError: there are more, or no record has such a topic or such hosts.
    """
    places = _places(messages, messages_max)
    if not places or "\0" in common.topic:
        return None
    properties = _BETWEEN.join([messages[end + _SIZE.size : stop] for _, _, end, stop in places])
    if not _is_plain(properties, len(places), special):
        return None
    _, topic = topic_part(common.topic)
    families = families_of(pack_host(common.born_host), pack_host(common.store_host))
    around = FIXED[families].size + len(topic)
    sizes = [around + stop - start for _, start, _, stop in places]
    return RecordRun(common, messages, places, sizes, properties)


def _places(messages: bytes, messages_max: int) -> list[_Place] | None:
    """Where the messages stand; None when one has no body, or a length leads out."""
    places: list[_Place] = []
    at, limit = 0, len(messages)
    unpack_head, unpack_size, size_bytes = _HEAD.unpack_from, _SIZE.unpack_from, _SIZE.size
    while at + _HEAD_BYTES <= limit:
        flag, body_size = unpack_head(messages, at)
        start = at + _HEAD_BYTES
        end = start + body_size
        if body_size <= 0 or end + size_bytes > limit:
            return None
        (properties_size,) = unpack_size(messages, end)
        at = end + size_bytes + properties_size
        if properties_size < 0 or at > limit:
            return None
        if len(places) == messages_max:
            raise too_many(messages_max)
        places.append((flag, start, end, at))
    return places if at == limit else None


def _is_plain(properties: bytes, count: int, special: Collection[bytes]) -> bool:
    """Whether those of ``count`` messages are text without a zero byte and without a special name.

    They are looked at together: what stands between two is no part of any character.
    """
    if properties.count(_BETWEEN) != count - 1 or any(name in properties for name in special):
        return False
    try:
        properties.decode()
    except UnicodeDecodeError:
        return False
    return True
