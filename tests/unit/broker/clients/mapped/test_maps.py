"""The maps of a cluster, as they are read from controllers, and what a group may do by them."""

from __future__ import annotations

import asyncio
import contextlib

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.mapped import maps
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import reply
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, Segment
from gantry_protocol.types import BrokerId, Epoch
from support.mapped_group import HERE, THERE, TOPIC, MappedGroup, at

AGAIN = MAPPED_QUEUES_MAX
CAME = MappedQueue((Segment(THERE, 0, 0), Segment(HERE, 40, AGAIN)), "", 1)


async def test_a_group_knows_the_maps_once_they_were_read_in_its_mastership(
    mapped: MappedGroup,
) -> None:
    mapped.tell(at(HERE))
    assert not mapped.maps.is_known_to(HERE)
    await mapped.begin()
    assert not mapped.maps.is_known_to(HERE)
    assert not mapped.book.takes(TOPIC, 0)
    mapped.tell(at(HERE))
    assert mapped.maps.is_known_to(HERE)
    assert mapped.book.takes(TOPIC, 0)
    mapped.book.end()
    assert not mapped.maps.is_known_to(HERE)


async def test_an_answer_to_a_question_of_before_counts_for_nobody_new(
    mapped: MappedGroup,
) -> None:
    mapped.maps.join(THERE, lambda topics: None)
    command, done = await mapped.question()
    mapped.book.began(Claim(BrokerId(1), Epoch(1), "i"))
    done(reply(command, body=b'{"index":1,"ended":0}'))
    assert mapped.maps.is_known_to(THERE)
    assert not mapped.maps.is_known_to(HERE)
    mapped.maps.leave(THERE)


async def test_what_is_said_in_part_is_not_all(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE), more=True)
    assert not mapped.maps.is_known_to(HERE)
    mapped.tell(epoch=2)
    assert mapped.maps.is_known_to(HERE)


async def test_a_map_that_is_not_told_again_is_gone(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    mapped.tell(epoch=2, is_all=True, more=True)
    assert mapped.maps.of(TOPIC) is not None, "it may be told next"
    mapped.tell(epoch=3)
    assert mapped.maps.of(TOPIC) is None
    assert not mapped.book.takes(TOPIC, 0)
    mapped.tell(at(HERE), epoch=4, is_all=True)
    assert mapped.maps.of(TOPIC) is not None


async def test_who_cannot_be_asked_is_asked_again_and_nothing_is_forgotten(
    mapped: MappedGroup, monkeypatch
) -> None:
    monkeypatch.setattr(maps, "RETRY_S", 0.001)
    await mapped.begin()
    mapped.tell(at(HERE))
    for outcome in (RequestTimeout("late"), "busy", "odd"):
        command, done = await mapped.question()
        busy = reply(command, ResponseCode.SYSTEM_BUSY)
        odd = reply(command, body=b"{")
        done({"busy": busy, "odd": odd}.get(outcome, outcome))  # type: ignore[arg-type, call-overload]
    await mapped.question()
    assert mapped.book.takes(TOPIC, 0)


async def test_controllers_of_an_older_version_have_no_maps(mapped: MappedGroup) -> None:
    mapped.maps.join(HERE, lambda topics: None)
    command, done = await mapped.question()
    done(reply(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    assert mapped.maps.is_known_to(HERE)
    assert not mapped.book.takes(TOPIC, 0)


async def test_questions_are_asked_once_for_all_that_want_news(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    mapped.controllers.asked.clear()
    for _ in range(50):
        mapped.maps.refresh()
    await asyncio.sleep(2 * maps.REFRESH_GAP_S)
    assert len(mapped.controllers.asked) <= 2


async def test_a_listener_that_fails_does_not_end_the_reading(mapped: MappedGroup) -> None:
    def fails(topics: set[str]) -> None:
        raise RuntimeError("a fault of ours")

    mapped.maps.join(THERE, fails)
    command, done = await mapped.question()
    with contextlib.suppress(RuntimeError):
        done(reply(command, body=b'{"index":1,"ended":0}'))
    await mapped.question()
    mapped.maps.leave(THERE)


async def test_a_queue_that_has_no_message_here_begins_where_its_segment_does(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(CAME)
    assert mapped.maps.first_offset(TOPIC, AGAIN) == 40
    assert mapped.maps.first_offset(TOPIC, 0) == 0
    assert mapped.maps.first_offset("other", AGAIN) == 0


async def test_a_group_takes_messages_for_its_open_segments_only(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(CAME, at(THERE, 1), at(HERE, 2, THERE), at(HERE, 3))
    taken = [
        queue for queue in (0, AGAIN, 1, 2, 3, 4, 3 + AGAIN) if mapped.book.takes(TOPIC, queue)
    ]
    assert taken == [AGAIN, 3]


async def test_what_waited_is_delivered_to_a_queue_that_is_here(mapped: MappedGroup) -> None:
    assert mapped.book.deliverable("plain", 5) == 5
    assert mapped.book.deliverable(TOPIC, 0) is None
    await mapped.begin()
    mapped.tell(CAME, at(THERE, 1), at(HERE, 2, THERE), at(HERE, 3))
    assert mapped.book.deliverable(TOPIC, 3) == 3
    assert {mapped.book.deliverable(TOPIC, queue) for queue in (0, 1, 2)} == {AGAIN, 3}
    mapped.tell(at(THERE), epoch=2)
    assert mapped.book.deliverable(TOPIC, 0) is None
