"""Pulls below the local log: what clients are answered, when, and how often."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.tier import waits
from gantry_broker.tier.core.locate import Gone, Queue
from gantry_broker.tier.core.reading import Answer, Local, Messages, Trouble, Wanted
from gantry_protocol.codes import RequestCode
from gantry_protocol.records import decode_records, encode_record
from msgspec.structs import replace
from support import stores
from support.group_view import FakeGroup
from support.patience import PATIENCE_S

from .conftest import PULL


class FakeTier:
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.answer: Answer = Trouble("not yet")
        self.asked: list[tuple[Queue, Wanted, Local]] = []
        self.hold: asyncio.Event | None = None
        self.begins = 0

    async def read(self, queue: Queue, wanted: Wanted, local: Local) -> Answer:
        self.asked.append((queue, wanted, local))
        if self.hold is not None:
            await self.hold.wait()
        return self.answer

    def since(self, queue: Queue, timestamp: int, local: Local) -> int | None:
        return 1

    def earliest(self, queue: Queue) -> int | None:
        return 77

    def first(self, queue: Queue, offset: int, local: Local) -> int:
        assert local.minimum == 4
        return max(offset, self.begins)


PULL_SECOND = {**PULL, "queueOffset": 1, "suspendTimeoutMillis": 15_000}


@pytest.fixture
def tier(group: FakeGroup) -> FakeTier:
    """A queue with offsets 0 to 5, of which the local log has 4 and 5."""
    for number in range(6):
        stores.put(group.messages, stores.message("TopicTest", 0, b"%d" % number))
    stores.confirm(group.messages)
    group.messages.tiered = True
    group.messages._queues.trim(("TopicTest", 0), 4)
    group.tier = FakeTier()
    return group.tier


@pytest.fixture
async def processor(group: FakeGroup, tier: FakeTier, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waits, "PAUSE_S", 0.02)
    made = ClientProcessor(group, clock=lambda: 1_700_000_000.0)
    yield made
    made.close()


async def answered(client, **changes: object):
    """The answer to a pull that is not answered at once."""
    asked, at_once = client.ask(11, {**PULL_SECOND, **changes})
    assert at_once is None
    async with asyncio.timeout(PATIENCE_S):
        while not (found := [got for to, got in client.conn.replies if to is asked]):
            await asyncio.sleep(0.001)
    assert len(found) == 1
    assert found[0].opaque == asked.opaque
    return found[0]


async def test_found_in_the_tier(client, tier) -> None:
    tier.answer = Messages(b"records", 2, 3)
    answer = await answered(client)
    assert (answer.code, answer.remark, answer.body) == (0, "FOUND", b"records")
    assert answer.ext == {
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "6",
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    ((queue, wanted, local),) = tier.asked
    assert (queue, wanted.offset, wanted.max_count) == (Queue("TopicTest", 0), 1, 32)
    assert local.minimum == 4


@pytest.mark.parametrize(
    ("said", "code", "following", "remark"),
    [
        pytest.param(Messages(b"", 0, 3), 20, 3, "NO_MATCHED_MESSAGE", id="nothing matches"),
        pytest.param(Gone(4), 21, 4, "OFFSET_TOO_SMALL", id="gone"),
        pytest.param(Trouble("the store is down"), 20, 1, "the store is down", id="store trouble"),
        pytest.param(Trouble("x at byte 9", lasting=True), 1, None, "x at byte 9", id="damage"),
    ],
)
async def test_what_a_client_is_told(client, tier, said, code, following, remark) -> None:
    tier.answer = said
    answer = await answered(client)
    assert (answer.code, answer.remark, answer.body) == (code, remark, b"")
    numbers = ("nextBeginOffset", "minOffset", "maxOffset")
    told = None if answer.ext is None else [answer.ext[one] for one in numbers]
    assert told == (None if following is None else [str(following), "0", "6"])


async def test_what_comes_from_the_tier_passes_the_filter_too(client, tier) -> None:
    filtered = {"expressionType": "SQL92", "subscription": "v > 2"}
    record = stores.message("TopicTest", 0, b"-", properties="v\x012\x02")
    tier.answer = Messages(encode_record(replace(record, queue_offset=1)), 1, 2)
    answer = await answered(client, **filtered)
    assert (answer.code, answer.ext["nextBeginOffset"], answer.body) == (20, "2", b"")
    assert [wanted.max_count for _, wanted, _ in tier.asked] == [32, 800], "further at once"
    body = encode_record(replace(record, queue_offset=1, properties="v\x013\x02"))
    tier.answer = Messages(body, 1, 2)
    answer = await answered(client, **filtered)
    assert (answer.code, answer.ext["nextBeginOffset"], answer.body) == (0, "2", body)


async def test_the_border_is_crossed_without_gap_or_double(client, tier) -> None:
    tier.answer = Messages(b"", 3, 4)
    following = int((await answered(client)).ext["nextBeginOffset"])
    local = client.call(11, {**PULL_SECOND, "queueOffset": following})
    assert [record.body for record in decode_records(local.body)] == [b"4", b"5"]
    assert len(tier.asked) == 1


async def test_a_slow_tier_is_answered_at_the_deadline(
    client, tier, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "DEADLINE_S", 0.02)
    tier.hold = asyncio.Event()
    answer = await answered(client)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "1")
    assert "did not answer within" in answer.remark
    await asyncio.sleep(0)
    assert (group.local.waits.timed_out, len(group.local.waits)) == (1, 0)


async def test_too_many_are_refused_as_busy(
    client, tier, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "WAITING_MAX", 2)
    tier.hold = asyncio.Event()
    for _ in range(2):
        assert client.ask(11, PULL_SECOND)[1] is None
    assert client.call(11, PULL_SECOND).code == 2
    assert group.local.waits.refused == 1
    tier.hold.set()
    async with asyncio.timeout(PATIENCE_S):
        while len(group.local.waits):
            await asyncio.sleep(0.001)
    assert len(client.conn.replies) == 3


async def test_the_end_of_the_mastership_sends_everybody_back(client, tier, group) -> None:
    tier.answer = Messages(b"late", 1, 2)
    tier.hold = asyncio.Event()
    asked, _ = client.ask(11, PULL_SECOND)
    group.local.end()
    ((to, answer),) = client.conn.replies
    assert to is asked
    assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "1")
    tier.hold.set()
    await asyncio.sleep(0.01)
    assert len(client.conn.replies) == 1


async def test_a_client_that_is_gone_is_not_answered(client, tier) -> None:
    tier.hold = asyncio.Event()
    client.ask(11, PULL_SECOND)
    client.conn.closed = True
    tier.hold.set()
    await asyncio.sleep(0.05)
    assert client.conn.replies == []


async def test_the_minimum_is_the_tiers(client, group, tier) -> None:
    ext = {"topic": "TopicTest", "queueId": 0}
    assert client.call(RequestCode.GET_MIN_OFFSET, ext).ext == {"offset": "0"}
    group.messages.tiered = False
    assert client.call(RequestCode.GET_MIN_OFFSET, ext).ext == {"offset": "4"}


@pytest.mark.parametrize("begins", [2, 4])
async def test_what_was_removed_from_the_tier_is_not_promised(client, tier, begins: int) -> None:
    ext = {"topic": "TopicTest", "queueId": 0}
    tier.begins = begins
    assert client.call(RequestCode.GET_MIN_OFFSET, ext).ext == {"offset": str(begins)}
    tier.answer = Gone(begins)
    answer = await answered(client)
    assert (answer.code, answer.ext["minOffset"]) == (21, str(begins))
    found = client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, ext).ext
    assert (found == {"timestamp": "77"}) == (begins < 4), "the tier's, or of what is here"


async def test_a_time_before_the_local_log_is_looked_for_in_the_tier(client, group, tier) -> None:
    ext = {"topic": "TopicTest", "queueId": 0, "timestamp": 5}
    assert client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext).ext == {"offset": "1"}
    ext["timestamp"] = 1 << 50
    assert client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext).ext == {"offset": "6"}


async def test_the_time_of_the_earliest_message_is_the_tiers(client, group, tier) -> None:
    ext = {"topic": "TopicTest", "queueId": 0}
    assert client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, ext).ext == {"timestamp": "77"}
    group.messages.tiered = False
    assert client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, ext).ext["timestamp"] != "77"


async def test_without_a_tier_an_offset_below_the_log_has_moved(client, group, tier) -> None:
    group.messages.tiered = False
    answer = client.call(11, PULL_SECOND)
    assert (answer.code, answer.ext["nextBeginOffset"], answer.ext["minOffset"]) == (21, "4", "4")
