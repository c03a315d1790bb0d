"""Sends that came before: stored once, and what is none is stored."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from gantry_broker.member.repeats import AGAIN
from gantry_broker.member.writes import Answers, steady_ms
from gantry_protocol.records import MessageRecord, decode_records, scan_run
from gantry_protocol.records.batch import BatchMessage, encode_batch
from gantry_protocol.records.properties import encode_properties
from msgspec.structs import replace
from support.broker_cluster import eventually
from support.lone_member import LoneMember, lone_member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gantry_broker.store.contract import Records, SendOutcome

CLIENT, RECONNECTED = ("10.0.0.1", 4000), ("10.0.0.1", 4001)


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[LoneMember]:
    async with lone_member(tmp_path) as made:
        await made.elect(1, members=(1, 2), min_in_sync=2)
        made.hello(2, link=1)
        yield made


def sent(
    key: str = "K", body: bytes = b"body", queue: int = 0, host: Any = CLIENT, **properties: str
) -> MessageRecord:
    """What a send would store."""
    words = {"UNIQ_KEY": key, "TAGS": "a", "MSG_REGION": "DefaultRegion", **properties}
    return MessageRecord(
        topic="orders",
        queue_id=queue,
        body=body,
        properties=encode_properties(words),
        born_host=host,
        store_host=("10.0.0.2", 10911),
    )


class Sends:
    """Sends to a member, and their outcomes: None until there is one."""

    def __init__(self, member: LoneMember) -> None:
        self.member = member
        self.outcomes: list[Any] = []

    def send(self, *records: MessageRecord, run: Any = None, once: int | None = -1) -> None:
        number = len(self.outcomes)
        self.outcomes.append(None)

        def done(outcome: SendOutcome) -> None:
            assert self.outcomes[number] is None, "it is answered once"
            self.outcomes[number] = outcome

        if once == -1:  # another port is another connection
            once = (run.common if run else records[0]).born_host[1]
        self.member.group.writes.append(run or list(records), done, once=once)

    async def confirmed(self) -> None:
        """All that was sent is on the disks of both."""
        await self.member.flushed()
        self.member.ack(1, self.member.end)

    @property
    def codes(self) -> list[int | None]:
        return [None if outcome is None else outcome.code for outcome in self.outcomes]

    def places(self) -> list[list[int]]:
        return [[place.offset for place in outcome.stored] for outcome in self.outcomes]

    def stored(self) -> list[bytes]:
        """The bodies of the topic in the log."""
        store = self.member.group.store
        data = store.log.read_units(store.log.log_start, 1 << 20)
        return [record.body for record in decode_records(data) if record.topic == "orders"]


async def test_a_repeat_by_another_connection_is_answered_by_its_record(
    member: LoneMember,
) -> None:
    sends = Sends(member)
    sends.send(sent())
    await sends.confirmed()
    sends.send(sent(queue=3, host=RECONNECTED))
    assert sends.codes == [0, 0], "what is confirmed is answered at once"
    first, again = sends.outcomes
    assert list(again.stored) == list(first.stored)
    assert [record.body for record in again.found] == [b"body"]
    assert sends.stored() == [b"body"]
    assert member.group.writes.repeats.merged == 1


async def test_a_repeat_of_what_is_under_way_waits_for_it(member: LoneMember) -> None:
    sends = Sends(member)
    sends.send(sent())
    sends.send(sent(queue=1, host=RECONNECTED))
    await member.flushed()
    assert sends.codes == [None, None]
    member.ack(1, member.end)
    assert sends.codes == [0, 0]
    assert sends.places()[0] == sends.places()[1]
    assert sends.stored() == [b"body"]


async def test_a_repeat_is_not_acknowledged_where_too_few_are_in_sync(member: LoneMember) -> None:
    sends = Sends(member)
    sends.send(sent())
    await sends.confirmed()
    member.learn(member.view(1, members=(1,), min_in_sync=2))
    sends.send(sent(host=RECONNECTED))
    assert sends.codes == [0, 12]
    assert sends.places()[1] == []


async def test_the_next_mastership_knows_what_the_last_one_left(member: LoneMember) -> None:
    sends = Sends(member)
    sends.send(sent())
    await member.flushed()
    member.depose(2)
    await member.elect(3, members=(1, 2), min_in_sync=2)
    assert sends.codes == [12]
    end = member.end
    sends.send(sent(queue=2))
    assert member.end == end, "it is there"
    member.hello(2, link=2)
    assert sends.codes == [12, None], "it is not confirmed yet"
    replica = member.core.serving.members[2]
    await eventually(lambda: replica.sent == member.end, "it is sent")
    member.ack(2, member.end)
    assert sends.codes == [12, 0]
    assert sends.stored() == [b"body"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"body": b"BODY"}, id="body"),
        pytest.param({"TAGS": "b"}, id="tags"),
        pytest.param({"KEYS": "b"}, id="keys"),
        pytest.param({"mine": "b"}, id="property"),
        pytest.param({"key": "L"}, id="key"),
        pytest.param({AGAIN: "true"}, id="asked for"),
    ],
)
async def test_another_message_with_one_key_is_another_message(
    member: LoneMember, other: dict[str, Any]
) -> None:
    """Upstream #6919: keys that clients make may be equal."""
    sends = Sends(member)
    sends.send(sent())
    await sends.confirmed()
    sends.send(sent(host=RECONNECTED, **other))
    sends.send(sent(host=RECONNECTED))
    await sends.confirmed()
    assert sends.codes == [0, 0, 0]
    first, second, third = sends.places()
    assert first != second
    assert third == first, "each is found behind the other"


async def test_another_topic_flag_or_turn_is_another_message(member: LoneMember) -> None:
    sends = Sends(member)
    plain = sent(host=RECONNECTED)
    sends.send(sent())
    for other in (
        replace(plain, topic="orders2"),
        replace(plain, flag=1),
        replace(plain, sys_flag=1),
        replace(plain, reconsume_times=1),
    ):
        before = member.end
        sends.send(other)
        assert member.end > before
    assert member.group.writes.repeats.merged == 0


async def test_the_order_of_properties_and_what_a_broker_adds_do_not_count(
    member: LoneMember,
) -> None:
    sends = Sends(member)
    sends.send(sent(x="1", y="2", CLUSTER="c"))
    await sends.confirmed()
    sends.send(sent(host=RECONNECTED, y="2", x="1", TRACE_ON="true"))
    assert sends.stored() == [b"body"]


async def test_one_object_sent_twice_is_two_messages(member: LoneMember) -> None:
    """Its key stays; who was answered at once, and goes on by its connection, means it."""
    sends = Sends(member)
    sends.send(sent())
    sends.send(sent(queue=1))  # while the first is under way
    await sends.confirmed()
    sends.send(sent(queue=2))  # who has its answer
    await sends.confirmed()
    assert sends.codes == [0, 0, 0]
    assert len(sends.stored()) == 3


async def test_who_waited_for_long_repeats_what_it_sent(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same connection, as clients in Go do: one that comes late, and one never answered."""
    sends, late_ms = Sends(member), 0
    writes = member.group.writes
    monkeypatch.setattr(writes, "_wall", lambda: time.time() + late_ms / 1000)
    monkeypatch.setattr(writes, "_steady", lambda: steady_ms() + late_ms)
    sends.send(sent())
    late_ms = 1_100
    sends.send(sent(queue=1))
    await sends.confirmed()
    late_ms = 2_200
    sends.send(sent(queue=2))
    assert sends.codes == [0, 0, 0]
    assert sends.stored() == [b"body"]


async def test_who_was_refused_repeats_what_is_stored_all_the_same(member: LoneMember) -> None:
    """12 for what was confirmed while too few were in sync; the same client tries again soon."""
    sends = Sends(member)
    sends.send(sent())
    await member.flushed()
    member.learn(member.view(1, members=(1,), min_in_sync=2))
    assert sends.codes == [12]
    member.learn(member.view(1, members=(1, 2), min_in_sync=2))
    sends.send(sent(queue=1))
    assert sends.codes == [12, 0]
    assert sends.stored() == [b"body"]


async def test_what_a_proxy_repeats_is_a_repeat(member: LoneMember) -> None:
    sends = Sends(member)
    words = {"__BORNHOST": "h", "BORN_TIMESTAMP": "1"}
    sends.send(sent(**words))
    await sends.confirmed()
    sends.send(sent(**{**words, "BORN_TIMESTAMP": "2"}))
    assert sends.stored() == [b"body"]


@pytest.mark.parametrize(
    ("age_ms", "by_client_ms", "count"),
    [
        pytest.param(59_000, 59_000, 1, id="within it"),
        pytest.param(300_000, 3_000, 1, id="the store's clock was set"),
        pytest.param(3_000, 300_000, 1, id="the client's was"),
        pytest.param(61_000, 61_000, 2, id="too old"),
        pytest.param(601_000, 0, 2, id="its client names no time"),
    ],
)
async def test_nothing_older_than_the_window_is_merged(
    member: LoneMember,
    monkeypatch: pytest.MonkeyPatch,
    age_ms: int,
    by_client_ms: int,
    count: int,
) -> None:
    sends, writes = Sends(member), member.group.writes
    sends.send(sent())
    await sends.confirmed()
    monkeypatch.setattr(writes, "_wall", lambda: time.time() + age_ms / 1000)
    monkeypatch.setattr(writes, "_steady", lambda: steady_ms() + age_ms)
    sends.send(replace(sent(host=RECONNECTED), born_timestamp=by_client_ms))
    assert len(sends.stored()) == count


def batch(count: int, host: Any, queue: int = 0) -> Records:
    messages = [BatchMessage(b"m%d" % n, f"UNIQ_KEY\x01B{n}\x02") for n in range(count)]
    run = scan_run(encode_batch(messages), replace(sent(host=host, queue=queue), properties=""))
    assert run is not None
    return run


async def test_a_batch_is_stored_once_and_what_was_cut_off_is_completed(
    member: LoneMember,
) -> None:
    sends = Sends(member)
    sends.send(run=batch(3, CLIENT))
    await sends.confirmed()
    sends.send(run=batch(3, RECONNECTED))
    assert sends.places()[0] == sends.places()[1]
    sends.send(run=batch(5, RECONNECTED, queue=2))
    assert sends.codes == [0, 0, None], "the rest is not confirmed yet"
    await sends.confirmed()
    assert sends.codes == [0, 0, 0]
    assert sends.places()[2][:3] == sends.places()[0]
    queues = [(place.queue_id, place.queue_offset) for place in sends.outcomes[2].stored]
    assert queues == [(0, number) for number in range(5)], "all of it is in one queue"
    assert sends.stored() == [b"m0", b"m1", b"m2", b"m3", b"m4"]


async def test_one_message_that_a_batch_holds_twice_is_there_twice(member: LoneMember) -> None:
    sends = Sends(member)
    body = encode_batch([BatchMessage(b"x", "UNIQ_KEY\x01S\x02")] * 2)
    common = replace(sent(host=RECONNECTED), properties="")
    for _ in range(2):
        sends.send(run=scan_run(body, common))
        await sends.confirmed()
        common = replace(common, born_host=CLIENT)
    assert sends.stored() == [b"x", b"x"]
    assert sends.places()[0] == sends.places()[1]


async def test_clients_of_a_front_share_its_connection(member: LoneMember) -> None:
    sends, front = Sends(member), 7
    sends.send(sent("A"), sent("B", host=RECONNECTED), once=front)
    await sends.confirmed()
    sends.send(sent("C"), sent("A", host=RECONNECTED), sent("B"), once=front)
    await sends.confirmed()
    assert sends.codes == [0, 0]
    assert len(sends.stored()) == 3
    assert sends.places()[1][1:] == sends.places()[0]
    sends.send(sent("C"), once=front)
    assert len(sends.stored()) == 4, "the client itself was answered"


async def test_whoever_passes_on_for_many_repeats_what_it_says_again(member: LoneMember) -> None:
    sends = Sends(member)
    for _ in range(2):
        sends.send(sent(), once=0)
    await sends.confirmed()
    assert (sends.codes, sends.stored()) == ([0, 0], [b"body"])


async def test_what_the_broker_writes_itself_is_never_merged(member: LoneMember) -> None:
    sends = Sends(member)
    for _ in range(2):
        sends.send(sent(host=RECONNECTED), once=None)
    await sends.confirmed()
    assert len(sends.stored()) == 2


def test_what_was_not_answered_lies_in_no_stretch() -> None:
    answers = Answers()
    assert answers.at(0) is None
    answers.add(100, 200, 1_000)
    answers.add(200, 300, 1_100)
    assert [answers.at(at) for at in (99, 100, 250, 300)] == [None, 1_100, 1_100, None]
    answers.refused()  # what stands up to 400
    answers.add(400, 500, 1_200)
    answers.add(500, 600, 9_000)
    assert [answers.at(at) for at in (299, 399, 400, 550)] == [1_100, None, 1_200, 9_000]
