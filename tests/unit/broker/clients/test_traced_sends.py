"""Sends that are traced: which, what their spans say, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gantry_broker.clients import ClientProcessor, parents, traced_sends
from gantry_broker.clients.throttle import Throttle
from gantry_broker.clients.traced_sends import OpenSends
from gantry_broker.store.contract import Refusal
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import HeaderError
from gantry_protocol.frame import FrameDecoder
from gantry_protocol.records import BatchMessage, encode_batch
from gantry_protocol.settings.quotas import parse_quotas
from gantry_protocol.tracing.export import UNFINISHED, SpanExport
from gantry_protocol.tracing.spans import Span
from support.broker_client import Client
from support.group_view import FakeGroup

START_S = 1_700_000_000.0
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"traceparent\x0100-{TRACE}-{SPAN}-01\x02"
NOT_SAMPLED = f"traceparent\x0100-{TRACE}-{SPAN}-00\x02"
V2: dict[str, object] = {
    "a": "pg", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "1", "f": "0",
    "g": "1700000000000", "h": "0", "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip


class Kept(SpanExport):
    """Keeps the spans of each trace."""

    def __init__(self) -> None:
        super().__init__("http://nowhere", {}, "1")
        self.traces: list[list[Span]] = []

    def add(self, spans) -> None:  # type: ignore[no-untyped-def]
        self.traces.append(list(spans))

    @property
    def parts(self) -> dict[str, Span]:
        """The spans of the only trace."""
        (spans,) = self.traces
        return {span.name: span for span in spans}


class Clock:
    """Each look at it takes a nanosecond."""

    ns = 0

    def __call__(self) -> int:
        self.ns += 1
        return self.ns


@pytest.fixture
async def kept() -> Kept:
    return Kept()


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def sends(kept: Kept, clock: Clock) -> OpenSends:
    return OpenSends(kept, 0.0, "broker-a", clock, drawn=lambda: 0.5)


@pytest.fixture
async def processor(group: FakeGroup, sends: OpenSends) -> Iterator[ClientProcessor]:
    made = ClientProcessor(group, clock=lambda: START_S, traced=sends)
    yield made
    made.close()


@pytest.fixture
async def client(processor: ClientProcessor, sends: OpenSends) -> Client:
    return Client(sends.entrance(processor))  # type: ignore[arg-type]  # as the router has it


def send(client: Client, properties: str = SAMPLED, code: int = 310, **changes: object):
    body = changes.pop("body", b"x" * 7)
    assert isinstance(body, bytes)
    return client.ask(code, {**V2, "i": properties, **changes}, body)[1]


async def test_a_send_has_a_span_for_each_of_its_ways(client, group, sends, kept, clock) -> None:
    group.holding = True
    assert send(client) is None
    assert len(sends) == 1
    sends.flushed(group.messages.log.end - 1)
    early_ns = clock.ns
    sends.flushed(group.messages.log.end)
    synced_ns = clock.ns
    sends.flushed(group.messages.log.end)
    group.confirm()
    assert early_ns < synced_ns
    parts = kept.parts
    assert list(parts) == ["SendMessage", "queue", "append", "replicate", "answer"]
    root = parts["SendMessage"]
    assert (root.trace_id, root.parent_id) == (int(TRACE, 16), int(SPAN, 16))
    assert root.start_ns == parts["queue"].start_ns
    assert parts["queue"].end_ns == parts["append"].start_ns
    assert parts["append"].end_ns == synced_ns
    assert parts["append"].start_ns < parts["replicate"].start_ns < early_ns
    assert synced_ns < parts["replicate"].end_ns == parts["answer"].start_ns
    assert parts["answer"].end_ns == root.end_ns
    assert root.error is None
    assert root.attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "SendMessage",
        "messaging.destination.name": "TopicTest",
        "messaging.destination.partition.id": "1",
        "messaging.rocketmq.client_group": "pg",
        "messaging.message.id": root.attributes["messaging.message.id"],
        "messaging.message.body.size": 7,
        "messaging.batch.message_count": 1,
        "network.peer.address": "10.1.1.1",
        "gantry.broker_group": "broker-a",
        "gantry.response_code": 0,
    }
    assert len(sends) == 0


@pytest.mark.parametrize("code", [10, 310])
async def test_the_answer_is_the_same(code, client, group, kept) -> None:
    long = {
        "producerGroup": "pg", "topic": "TopicTest", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "1", "sysFlag": "0", "flag": "0",
        "bornTimestamp": "1700000000000",
    }  # fmt: skip
    answers = []
    for properties in (f"UNIQ_KEY\x01A\x02{SAMPLED}", f"UNIQ_KEY\x01B\x02{NOT_SAMPLED}"):
        header = {**long, "properties": properties} if code == 10 else {**V2, "i": properties}
        answer = client.call(code, header, b"x")
        answers.append((answer.code, answer.remark, sorted(answer.ext), answer.ext["queueId"]))
    assert answers[0] == answers[1]
    assert len(kept.traces) == 1
    assert [one[0].body for one in group.appended] == [b"x", b"x"]


async def test_a_message_keeps_its_traceparent(client, group) -> None:
    send(client)
    assert SAMPLED in group.appended[0][0].properties


@pytest.mark.parametrize(
    ("properties", "ratio", "traced"),
    [
        (SAMPLED, 0.0, True),
        (NOT_SAMPLED, 1.0, False),
        ("", 0.4, False),
        ("", 0.6, True),
        ("traceparent\x01junk\x02", 0.6, True),
    ],
    ids=["its parent is", "its parent is not", "not drawn", "drawn", "a parent that is none"],
)
async def test_who_is_traced(properties, ratio, traced, client, sends, kept) -> None:
    sends.ratio = ratio
    assert send(client, properties).code == 0
    assert len(kept.traces) == int(traced)
    if traced and properties != SAMPLED:
        root = kept.parts["SendMessage"]
        assert root.parent_id == 0
        assert root.trace_id not in (0, int(TRACE, 16))


async def test_traces_without_a_parent_are_different_ones(client, sends, kept) -> None:
    sends.ratio = 1.0
    for _ in range(3):
        send(client, "")
    assert len({spans[0].trace_id for spans in kept.traces}) == 3
    assert len({spans[0].span_id for spans in kept.traces}) == 3


async def test_a_refusal_is_an_error_with_its_code(client, group, kept, sends) -> None:
    group.refusal = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    assert send(client).code == 1
    (root,) = kept.parts.values()
    assert root.error == "in-sync replicas not enough"
    assert root.attributes["gantry.response_code"] == 1
    assert len(sends) == 0


async def test_a_header_that_cannot_be_read_is_an_error(client, kept, sends) -> None:
    with pytest.raises(HeaderError):
        send(client, e="first")
    (root,) = kept.parts.values()
    assert root.error is not None
    assert root.attributes["gantry.response_code"] == HeaderError("").answer_code
    assert len(sends) == 0


async def test_an_illegal_message_came_to_be_stored_and_was_not(client, kept) -> None:
    assert send(client, body=b"").code == 13
    assert list(kept.parts) == ["SendMessage", "queue"]
    assert "body is empty" in (kept.parts["SendMessage"].error or "")


async def test_a_write_that_is_not_confirmed_says_so(client, group, kept) -> None:
    group.holding = True
    send(client)
    group.give_up()
    root = kept.parts["SendMessage"]
    assert root.error == "not confirmed in time"
    assert root.attributes["gantry.response_code"] == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_a_batch_is_one_send(client, kept) -> None:
    batch = encode_batch([BatchMessage(b"m%d" % n, f"UNIQ_KEY\x01{n}\x02") for n in range(3)])
    assert send(client, m="true", code=320, body=batch).code == 0
    assert kept.parts["SendMessage"].attributes["messaging.batch.message_count"] == 3


async def test_the_wait_for_a_topic_is_in_the_queue(client, group, kept, clock) -> None:
    group.holding_topics = True
    assert send(client, b="NewTopic") is None
    waited_ns = clock.ns
    group.release_topics()
    assert kept.parts["queue"].end_ns > waited_ns
    assert kept.parts["SendMessage"].attributes["messaging.destination.name"] == "NewTopic"


async def test_other_requests_are_not_traced(client, sends, kept) -> None:
    sends.ratio = 1.0
    client.ask(35, {"clientID": "nobody"})
    client.ask(31, {"topic": "TopicTest", "queueId": "0"})
    assert kept.traces == []
    assert len(sends) == 0


async def test_the_wait_for_a_quota_is_in_the_queue(group, kept, sends, clock) -> None:
    throttle = Throttle(parse_quotas('{"perTenant": {"sendsPerSecond": 10}}'))
    made = ClientProcessor(group, clock=lambda: START_S, traced=sends, throttle=throttle)
    client = Client(sends.entrance(made))  # type: ignore[arg-type]  # as the router has it
    while not len(throttle):
        send(client)
    held = len(kept.traces)
    assert len(sends) == 1
    clock.ns += 1_000_000
    throttle._serve_due(float("inf"))
    made.close()
    assert len(kept.traces) == held + 1
    queue = {span.name: span for span in kept.traces[-1]}["queue"]
    assert queue.end_ns - queue.start_ns > 1_000_000


async def test_sends_that_nobody_answers_here_are_forgotten(
    client, group, sends, kept, clock, monkeypatch
) -> None:
    group.holding = True
    send(client)
    clock.ns += traced_sends.OPEN_FOR_NS
    send(client)
    assert (len(sends), kept.dropped[UNFINISHED]) == (1, 1)
    monkeypatch.setattr(traced_sends, "OPEN_MAX", 3)
    for _ in range(5):
        send(client)
    assert (len(sends), kept.dropped[UNFINISHED]) == (3, 4)
    sends.close()
    assert (len(sends), kept.dropped[UNFINISHED]) == (0, 7)
    group.confirm()
    assert kept.traces == []


async def test_a_parent_that_a_process_on_the_way_names_is_nearer(client, kept) -> None:
    """In a field that is not stored; where it is none, the message's own counts."""
    other = "b" * 32
    send(client, traceparent=f"00-{other}-{SPAN}-01")
    send(client, NOT_SAMPLED, traceparent=f"00-{other}-{SPAN}-01")
    send(client, SAMPLED, traceparent=f"00-{other}-{SPAN}-00")
    send(client, SAMPLED, traceparent="no parent")
    roots = [f"{spans[0].trace_id:032x}" for spans in kept.traces]
    assert roots == [other, other, TRACE]


def told(client: Client, traceparent: str, ahead: int = 1) -> None:
    """Somebody who passes its requests on names the span of the one that comes so much later."""
    frame = parents.notice(client.opaque + ahead, traceparent)
    (said,) = FrameDecoder(expect_preamble=False).feed(frame)
    assert said.is_oneway
    parents.note(client.conn, said)


async def test_a_parent_that_is_told_ahead_of_a_send_is_the_nearest(client, kept) -> None:
    other = "b" * 32
    field = f"00-{'c' * 32}-{SPAN}-01"
    told(client, f"00-{other}-{SPAN}-01")
    send(client, SAMPLED, traceparent=field)
    told(client, f"00-{other}-{SPAN}-01")
    send(client, NOT_SAMPLED)
    send(client, SAMPLED)
    roots = [f"{spans[0].trace_id:032x}" for spans in kept.traces]
    assert roots == [other, other, TRACE], "it is for one send"


@pytest.mark.parametrize(
    ("text", "ahead"),
    [
        pytest.param(f"00-{'b' * 32}-{SPAN}-01", 2, id="for another send"),
        pytest.param("no parent", 1, id="none"),
        pytest.param(f"cc-{'b' * 32}-{SPAN}-01-{'x' * 99}", 1, id="longer than is kept"),
    ],
)
async def test_what_is_told_and_names_no_parent_of_a_send_is_forgotten(
    client, kept, text: str, ahead: int
) -> None:
    told(client, text, ahead)
    for _ in range(2):
        send(client, SAMPLED)
    assert [f"{spans[0].trace_id:032x}" for spans in kept.traces] == [TRACE, TRACE]
    assert parents.PARENT not in client.conn.attrs


async def test_tracing_may_begin_amid_a_mastership(group, sends, kept) -> None:
    made = ClientProcessor(group, clock=lambda: START_S)
    plain = Client(made)
    group.holding = True
    send(plain)
    made.trace(sends)
    traced = Client(sends.entrance(made))  # type: ignore[arg-type]  # as the router has it
    send(traced)
    sends.flushed(group.messages.log.end)
    group.confirm()
    for client in (plain, traced):
        assert [answer.code for _, answer in client.conn.replies] == [ResponseCode.SUCCESS]
    assert list(kept.parts) == ["SendMessage", "queue", "append", "replicate", "answer"]
    # What seeks sends that have come before stores them by the same sender.
    assert made.resent.sender is made._sender
    sender = made._sender
    made.trace(sends)
    assert made._sender is sender, "once"
    made.close()


async def test_a_sender_that_traces_goes_on_with_the_keys_of_the_one_before(group, sends) -> None:
    made = ClientProcessor(group, clock=lambda: START_S)
    before = made._sender
    made.trace(sends)
    assert made._sender._unique_keys is before._unique_keys, "keys are given once"
    assert made._sender._turn is before._turn
    made.close()


async def test_another_ratio_counts_from_the_next_send_on(client, sends, kept) -> None:
    send(client, "")
    assert kept.traces == []
    sends.ratio = 1.0
    send(client, "")
    assert len(kept.traces) == 1
