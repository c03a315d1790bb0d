"""A master gives queues away: when it says where they end, and to whom that counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from gantry_broker.clients.mapped import sealing
from gantry_protocol.bodies.queue_maps import QueueEnds
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.queue_map import GAP, MAPPED_QUEUES_MAX, MappedQueue, QueueMap, Segment
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Index
from support.mapped_group import HERE, THERE, TOPIC, MappedGroup, at

AGAIN = MAPPED_QUEUES_MAX
RETRY_S = sealing.RETRY_S
SEAL = RequestCode.GANTRY_SEAL_QUEUES


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "RETRY_S", 0.01)


def ends(command: RemotingCommand) -> dict[int, int]:
    return msgspec.json.decode(command.body, type=QueueEnds).ends


def append(mapped: MappedGroup, queue_id: int) -> None:
    mapped.group.append([MessageRecord(topic=TOPIC, queue_id=queue_id, body=b"x")], lambda _: None)


async def nothing_is_said(mapped: MappedGroup) -> None:
    await asyncio.sleep(4 * sealing.LOOK_S)
    asked = [command.code for command, _ in mapped.controllers.asked]
    assert RequestCode.GANTRY_SEAL_QUEUES not in asked


async def test_an_end_is_told_once_all_before_it_is_confirmed(mapped: MappedGroup) -> None:
    await mapped.begin(epoch=7)
    mapped.tell(at(HERE), at(HERE, 1), at(THERE, 2))
    append(mapped, 0)
    mapped.group.holding = True
    append(mapped, 0)
    mapped.tell(at(HERE, 0, THERE), at(HERE, 1), at(THERE, 2, HERE), epoch=2)
    await nothing_is_said(mapped)
    mapped.group.confirm()
    command, _ = await mapped.seal()
    assert ends(command) == {0: 2}
    assert command.ext is not None
    names = ("clusterName", "brokerName", "brokerId", "masterEpoch", "incarnation", "topic")
    named = (*names, "mapEpoch")
    assert [command.ext[name] for name in named] == [
        mapped.group.cluster,
        HERE,
        "1",
        "7",
        "i",
        TOPIC,
        "2",
    ]


async def test_one_queue_does_not_wait_for_another(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE), at(HERE, 1))
    mapped.group.holding = True
    append(mapped, 0)
    mapped.tell(at(HERE, 0, THERE), at(HERE, 1, THERE), epoch=2)
    command, _ = await mapped.seal()
    assert ends(command) == {1: 0}


async def test_a_segment_that_was_given_up_is_ended_once_its_group_is_back(
    mapped: MappedGroup,
) -> None:
    """Even while its queue is elsewhere, and it is about to move on there."""
    gone = MappedQueue((Segment(HERE, 0, 0), Segment(THERE, GAP, AGAIN)), "", 1)
    await mapped.begin()
    mapped.tell(at(HERE), at(HERE, 1))
    append(mapped, 0)
    append(mapped, 0)
    mapped.tell(gone, at(HERE, 1), epoch=2)
    command, _ = await mapped.seal()
    assert ends(command) == {0: 2}
    told = MappedQueue((Segment(HERE, 0, 0), Segment("", 2, -1), Segment(THERE, GAP, AGAIN)), "", 1)
    mapped.tell(told, at(HERE, 1), epoch=3)
    mapped.controllers.asked.clear()
    await nothing_is_said(mapped)


async def test_an_empty_segment_ends_where_it_began(mapped: MappedGroup) -> None:
    came = MappedQueue((Segment(THERE, 0, 0), Segment(HERE, 40, AGAIN)), THERE, 1)
    await mapped.begin()
    mapped.tell(came)
    command, _ = await mapped.seal()
    assert ends(command) == {0: 40}


async def test_it_is_told_again_until_the_map_says_so(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE, 0, THERE))
    for outcome in (RequestTimeout("late"), None):
        command, done = await mapped.seal()
        done(outcome or reply(command, ResponseCode.SYSTEM_BUSY, "no leader"))
    command, done = await mapped.seal()
    mapped.controllers.asked.clear()
    done(reply(command))
    await mapped.question()  # for the news of it
    again, _ = await mapped.seal()
    assert ends(again) == {0: 0}
    mapped.tell(MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 0, AGAIN)), "", 1), epoch=2)
    mapped.controllers.asked.clear()
    await nothing_is_said(mapped)


async def test_a_move_that_is_taken_back_ends_nothing(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    mapped.group.holding = True
    append(mapped, 0)
    mapped.tell(at(HERE, 0, THERE), epoch=2)
    mapped.tell(at(HERE), epoch=3)
    mapped.group.confirm()
    await nothing_is_said(mapped)


async def test_who_is_master_no_more_says_nothing(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    mapped.group.holding = True
    append(mapped, 0)
    mapped.tell(at(HERE, 0, THERE), epoch=2)
    mapped.book.end()
    mapped.group.confirm()
    await nothing_is_said(mapped)
    await mapped.begin(epoch=8)
    await nothing_is_said(mapped)  # before it has read the maps
    mapped.tell(at(HERE, 0, THERE), epoch=2)
    command, _ = await mapped.seal()
    assert command.ext is not None
    assert (ends(command), command.ext["masterEpoch"]) == ({0: 1}, "8")


@pytest.mark.looptime
async def test_topics_that_move_at_once_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends to each wait until its end is told, and news of those that were told is to come."""
    monkeypatch.setattr(sealing, "RETRY_S", RETRY_S)
    mapped = MappedGroup(tmp_path)  # in the test: fixtures run on the real clock
    await mapped.begin()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    topics = {f"t{number:02}" for number in range(20)}
    moving = QueueMap(2, Index(2), (at(HERE, 0, THERE),))
    mapped.tell(epoch=2, maps=dict.fromkeys(topics, moving))
    told: list[str] = []
    most = 0
    while len(told) < 20:
        await asyncio.sleep(0.01)  # until the controllers have written it down
        some = [item for item in mapped.controllers.asked if item[0].code == SEAL]
        most = max(most, len(some))
        for item in some:
            mapped.controllers.asked.remove(item)
            command, done = item
            told.append((command.ext or {})["topic"])
            done(reply(command))
    assert (set(told), loop.time() - began_s < 0.3) == (topics, True)
    assert most <= sealing.UNDER_WAY_MAX
    await asyncio.sleep(RETRY_S / 2)
    assert SEAL not in [command.code for command, _ in mapped.controllers.asked], "no repeats yet"
    mapped.close()


async def test_what_is_left_of_a_topic_is_told_with_the_news(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a queue whose messages were not confirmed, when the other one has moved."""
    monkeypatch.setattr(sealing, "RETRY_S", 3600.0)
    await mapped.begin()
    mapped.tell(at(HERE), at(HERE, 1))
    mapped.group.holding = True
    append(mapped, 0)
    mapped.tell(at(HERE, 0, THERE), at(HERE, 1, THERE), epoch=2)
    command, done = await mapped.seal()
    assert ends(command) == {1: 0}
    done(reply(command))
    mapped.group.confirm()
    gone = MappedQueue((Segment(HERE, 0, 1), Segment(THERE, 0, AGAIN + 1)), "", 1)
    mapped.tell(at(HERE, 0, THERE), gone, epoch=3)
    command, _ = await mapped.seal()
    assert ends(command) == {0: 1}
