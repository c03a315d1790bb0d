"""A send that came before: the answer is that of the message that is there."""

from __future__ import annotations

import pytest
from gantry_broker.member.repeats import Repeats
from gantry_protocol.recall import RecallHandle
from gantry_protocol.records import BatchMessage, decode_properties, encode_batch
from gantry_protocol.records.properties import SCHEDULE_TOPIC
from support.broker_client import Client
from support.group_view import FakeGroup

START_S = 1_700_000_000.0


class Jumping:
    """A clock that is set."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return START_S + self.ahead_s


V2: dict[str, object] = {
    "a": "pg", "b": "TopicTest", "c": "TBW102", "d": "4", "f": "0", "g": "1700000000000",
    "h": "0", "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
KEY = "UNIQ_KEY\x01K\x02"


@pytest.fixture(autouse=True)
def _once(group: FakeGroup) -> None:
    group.repeats = Repeats(group.messages)


def send(client, queue: int = 0, body: bytes = b"x", code: int = 310, **changes: object):
    return client.call(code, {**V2, "e": str(queue), "i": KEY, **changes}, body)


def bodies(group: FakeGroup, topic: str = "TopicTest") -> list[bytes]:
    return [one.body for records in group.appended for one in records if one.topic == topic]


def test_the_answer_names_the_queue_where_it_is(connect, group) -> None:
    first = send(connect(), queue=1)
    again = send(connect(), queue=3)
    assert again.code == 0
    for name in ("queueId", "queueOffset", "msgId", "transactionId"):
        assert again.ext[name] == first.ext[name]
    assert again.ext["queueId"] == "1"
    assert bodies(group) == [b"x"]


def test_a_repeat_counts_as_no_new_message(connect, group, processor) -> None:
    for _ in range(3):
        send(connect())
    assert processor.traffic.take()[0] == {"TopicTest": 1}


def test_a_queue_left_to_the_broker(connect, group) -> None:
    answers = [send(connect(), queue=-1) for _ in range(3)]
    assert len({answer.ext["queueId"] for answer in answers}) == 1
    assert bodies(group) == [b"x"]


def test_a_batch_is_answered_with_all_its_places(connect, group) -> None:
    batch = encode_batch([BatchMessage(b"m%d" % n, f"UNIQ_KEY\x01{n}\x02") for n in range(3)])
    first, again = (
        send(connect(), queue, batch, m="true", i="UNIQ_KEY\x01B\x02") for queue in (0, 2)
    )
    assert again.ext["msgId"].split(",") == first.ext["msgId"].split(",")
    assert again.ext["queueId"] == "0"
    assert bodies(group) == [b"m0", b"m1", b"m2"]


def test_a_delayed_message_waits_once(connect, group) -> None:
    first, again = (send(connect(), queue, i=f"DELAY\x013\x02{KEY}") for queue in (0, 2))
    assert (first.code, again.code) == (0, 0)
    assert (again.ext["queueId"], again.ext["msgId"]) == ("2", first.ext["msgId"])
    assert bodies(group, SCHEDULE_TOPIC) == [b"x"]
    send(connect(), i=f"DELAY\x014\x02{KEY}")
    assert len(bodies(group, SCHEDULE_TOPIC)) == 2, "another delay is another message"


@pytest.mark.parametrize(
    "when", ["TIMER_DELAY_MS\x015000\x02", "TIMER_DELIVER_MS\x011700000900000\x02"]
)
async def test_a_timer_waits_once_and_can_be_taken_back(serve, group, when: str) -> None:
    clock = Jumping()
    processor = serve(clock)
    first = send(Client(processor), i=when + KEY)
    clock.ahead_s = 0.7
    again = send(Client(processor), queue=1, i=when + KEY)
    (parked,) = [one for records in group.appended for one in records]
    due_ms = int(decode_properties(parked.properties)["TIMER_OUT_MS"])
    handle = RecallHandle.unpack(again.ext["recallHandle"])
    assert (handle.due_ms, handle.unique_key) == (due_ms, "K")
    assert again.ext["recallHandle"] == first.ext["recallHandle"]


def test_what_a_consumer_gives_back_is_stored_each_time(connect, group) -> None:
    for _ in range(2):
        send(connect(), b="%RETRY%g", j="1")
        send(connect(), b="%RETRY%g", j="1", i=f"DELAY\x013\x02{KEY}")
    assert len(bodies(group, "%RETRY%g")) == 2
    assert len(bodies(group, SCHEDULE_TOPIC)) == 2


async def test_a_half_message_is_stored_each_time(connect, group) -> None:
    """The first one may have been ended meanwhile, and nothing would end in its place."""
    half = f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02{KEY}"
    places = {send(connect(), i=half, f="4").ext["msgId"] for _ in range(2)}
    assert len(places) == 2
