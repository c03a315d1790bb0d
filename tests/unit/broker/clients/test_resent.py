"""Sends that an earlier master may have stored: answered by what is there, or stored, once."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.clients import resent
from gantry_broker.clients.resent import RESENT
from gantry_broker.store.contract import Refusal
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import BatchMessage, encode_batch

BORN_MS = 1_700_000_000_000


def header(key: str = "K1", born_ms: int = BORN_MS, queue_id: int = 1, more: str = "") -> dict:
    properties = f"UNIQ_KEY\x01{key}\x02{more}" if key else more
    return {
        "a": "pg",
        "b": "TopicTest",
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(born_ms),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }


@pytest.fixture(autouse=True)
def same_clock(client: Any, group: Any) -> None:
    client.processor.resent._clock = lambda: group.now_ms / 1000


def again(client: Any, ext: dict, body: bytes = b"hello", code: int = 310) -> Any:
    """The send as the way through gives it to the next master."""
    client.conn.attrs[RESENT] = {client.opaque + 1}
    return client.call(code, ext, body)


def stored(group: Any) -> int:
    return sum(map(len, group.appended))


PLACE = ("queueId", "queueOffset", "msgId", "transactionId")


@pytest.mark.parametrize(
    ("more", "queue_id"),
    [
        pytest.param("", 1, id="plain"),
        pytest.param("", -1, id="any queue"),
        pytest.param("DELAY\x013\x02", 1, id="delayed"),
        pytest.param("TRAN_MSG\x01true\x02PGROUP\x01pg\x02", 1, id="half"),
    ],
)
async def test_a_record_that_is_there_is_answered_and_not_stored_again(
    client, group, more: str, queue_id: int
) -> None:
    first = client.call(310, header(more=more, queue_id=queue_id), b"hello")
    count = stored(group)
    answer = again(client, header(more=more, queue_id=queue_id))
    assert answer.code == 0
    assert {name: answer.ext[name] for name in PLACE} == {name: first.ext[name] for name in PLACE}
    assert stored(group) == count
    assert client.processor.resent.found == 1
    assert RESENT not in client.conn.attrs


def test_a_batch_that_is_there_is_answered_in_full(client, group) -> None:
    body = encode_batch([BatchMessage(b"m%d" % n, f"UNIQ_KEY\x01B{n}\x02") for n in range(3)])
    ext = {**header(key="B"), "m": "true"}
    first = client.call(320, ext, body)
    answer = again(client, ext, body, 320)
    assert answer.ext["msgId"] == first.ext["msgId"]
    assert len(first.ext["msgId"].split(",")) == 3
    assert stored(group) == 3


@pytest.mark.parametrize(
    "ext",
    [
        pytest.param(header(key="K2"), id="another message"),
        pytest.param(header(born_ms=BORN_MS + 1), id="the client sends it again of its own accord"),
        pytest.param(header(queue_id=2), id="another queue"),
        pytest.param(header(key=""), id="no unique key"),
    ],
)
def test_what_is_not_there_is_stored(client, group, ext: dict) -> None:
    client.call(310, header(), b"hello")
    assert again(client, ext).code == 0
    assert stored(group) == 2


def test_without_the_mark_the_same_message_is_stored_as_often_as_it_is_sent(client, group) -> None:
    for _ in range(2):
        assert client.call(310, header(), b"hello").code == 0
    assert stored(group) == 2


def test_a_record_beyond_the_window_is_another_one(client, group) -> None:
    client.call(310, header(), b"hello")
    group.now_ms += resent.WINDOW_MS + 1000
    assert again(client, header()).code == 0
    assert stored(group) == 2


async def test_what_the_last_master_left_unconfirmed_is_waited_for_in_order(client, group) -> None:
    """And what the client says next waits behind it."""
    group.holding = True
    _, unanswered = client.ask(310, header(), b"hello")
    assert unanswered is None
    client.conn.attrs[RESENT] = {client.opaque + 1}
    asked, answer = client.ask(310, header(), b"hello")
    later, _ = client.ask(310, header(key="K2"), b"later")
    assert answer is None
    assert stored(group) == 1
    group.holding = False
    group.confirm()
    replies = {id(to): response for to, response in client.conn.replies}
    assert replies[id(asked)].code == 0
    assert stored(group) == 2
    assert replies[id(later)].ext["queueOffset"] == "1"


async def test_a_send_whose_connection_ends_while_it_is_looked_for_is_not_stored(
    client, group
) -> None:
    """It comes again on the next connection, and would be stored by both."""
    group.holding = True
    client.ask(310, header(key="K2"), b"of somebody else")
    client.conn.attrs[RESENT] = {client.opaque + 1}
    client.ask(310, header(), b"hello")
    client.conn.close()
    client.processor.connection_closed(client.conn)
    group.holding = False
    group.confirm()
    assert stored(group) == 1


def test_a_master_that_may_not_write_does_not_vouch_for_what_is_there(client, group) -> None:
    client.call(310, header(), b"hello")
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "no")
    assert again(client, header()).code == ResponseCode.SERVICE_NOT_AVAILABLE
