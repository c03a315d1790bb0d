"""The answers of PopMessage (200050) and PopLiteMessage (200070): messages with their handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.errors import BodyError
from gantry_protocol.lite import LITE_TOPIC
from gantry_protocol.records.properties import find_property
from gantry_protocol.records.record import decode_records

from gantry_proxy.core.handles import receipt
from gantry_proxy.core.incoming import message_of

if TYPE_CHECKING:
    from gantry_protocol.headers.lite import PopLiteMessageResponseHeader
    from gantry_protocol.headers.pop import PopMessageResponseHeader


def popped(header: PopMessageResponseHeader, body: bytes, broker_name: str) -> list[Any]:
    """The messages of an answer 0.

    Raises:
        BodyError: the answer does not fit together.
        RecordError: a record does not read.
    """
    starts = dict(_queue_and_offset(part) for part in _parts(header.start_offset_info))
    tries = dict(_tries(part) for part in _parts(header.order_count_info))
    made = []
    for record in decode_records(body):
        if record.queue_id not in starts:
            raise BodyError(f"the answer names no start of queue {record.queue_id}")
        handle = receipt(
            starts[record.queue_id],
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            (broker_name, record.queue_id, record.queue_offset, record.physical_offset),
        )
        times = tries.get((record.queue_id, record.queue_offset))
        made.append(message_of(record, handle, None if times is None else times + 1))
    return made


def popped_lite(header: PopLiteMessageResponseHeader, body: bytes, broker_name: str) -> list[Any]:
    """The messages of an answer 0 of PopLiteMessage (200070), which may be of many lite topics.

    Raises:
        RecordError: a record does not read.
    """
    made = []
    for record in decode_records(body):
        place = (broker_name, record.queue_id, record.queue_offset, record.physical_offset)
        handle = receipt(
            record.queue_offset, header.pop_time, header.invisible_time, header.revive_qid, place
        )
        lite = find_property(record.properties.encode(), LITE_TOPIC)
        made.append(message_of(record, f"{handle} {lite}"))
    return made


def _parts(text: str | None) -> list[str]:
    return [part for part in (text or "").split(";") if part]


def _queue_and_offset(part: str) -> tuple[int, int]:
    """Of ``0 QUEUE OFFSET``."""
    try:
        _, queue_id, offset = part.split(" ")
        return int(queue_id), int(offset)
    except ValueError as error:
        raise BodyError(f"{part[:64]!r} is no start of a queue") from error


def _tries(part: str) -> tuple[tuple[int, int], int]:
    """Of ``0 qoQUEUE%OFFSET TIMES``."""
    try:
        _, place, times = part.split(" ")
        queue_id, offset = place.removeprefix("qo").split("%")
        return (int(queue_id), int(offset)), int(times)
    except ValueError as error:
        raise BodyError(f"{part[:64]!r} is no count of tries") from error
