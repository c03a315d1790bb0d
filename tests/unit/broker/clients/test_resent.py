"""Sends that an earlier master may have stored: answered by what is there, or stored, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_broker.clients import resent, sent_records
from gantry_broker.clients.processor import ClientProcessor
from gantry_broker.clients.resent import RESENT, Marks
from gantry_broker.store.contract import ReadLimits, Refusal
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import BatchMessage, encode_batch
from gantry_protocol.send_answer import MAY_BE_STORED
from support.patience import PATIENCE_S

from .conftest import FullDisk

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
    client.conn.attrs[RESENT] = Marks([client.opaque + 1])
    return client.call(code, ext, body)


async def again_later(client: Any, ext: dict, body: bytes = b"hello", code: int = 310) -> Any:
    """The same, with an answer that may take turns of the event loop."""
    client.conn.attrs[RESENT] = Marks([client.opaque + 1])
    return await client.answer(code, ext, body)


def stored(group: Any) -> int:
    return sum(map(len, group.appended))


PLACE = ("queueId", "queueOffset", "msgId", "transactionId")


@pytest.mark.parametrize(
    ("more", "queue_id"),
    [
        pytest.param("", 1, id="plain"),
        pytest.param("", -1, id="any queue"),
        pytest.param("_SYS_MSG_PRIORITY_\x013\x02", 1, id="by priority"),
        pytest.param("DELAY\x013\x02", 1, id="delayed"),
        pytest.param("TRAN_MSG\x01true\x02PGROUP\x01pg\x02", 1, id="half"),
    ],
)
@pytest.mark.parametrize("key", [pytest.param("K1", id="key"), pytest.param("", id="no key")])
async def test_a_record_that_is_there_is_answered_and_not_stored_again(
    client, group, more: str, queue_id: int, key: str
) -> None:
    ext = header(key, more=more, queue_id=queue_id)
    first = client.call(310, ext, b"hello")
    count = stored(group)
    answer = again(client, ext)
    assert answer.code == 0
    assert [answer.ext[name] for name in PLACE] == [first.ext[name] for name in PLACE]
    assert stored(group) == count
    assert client.processor.resent.found == 1
    assert RESENT not in client.conn.attrs


@pytest.mark.parametrize("count", [3, 300])
async def test_a_batch_that_is_there_is_answered_in_full(client, group, count: int) -> None:
    body = encode_batch([BatchMessage(b"m%d" % n, f"UNIQ_KEY\x01B{n}\x02") for n in range(count)])
    ext = {**header(key="B"), "m": "true"}
    first = client.call(320, ext, body)
    answer = await again_later(client, ext, body, 320)
    assert answer.ext["msgId"] == first.ext["msgId"]
    assert len(first.ext["msgId"].split(",")) == count
    assert stored(group) == count


@pytest.mark.parametrize("queue_id", [1, -1])
async def test_of_a_batch_whose_end_was_cut_off_the_rest_is_stored(
    client, group, queue_id: int
) -> None:
    messages = [BatchMessage(b"m%d" % n, f"UNIQ_KEY\x01B{n}\x02") for n in range(5)]
    ext = {**header(key="B", queue_id=queue_id), "m": "true"}
    first = client.call(320, ext, encode_batch(messages[:3]))
    queue = int(first.ext["queueId"])
    between = client.call(310, header(key="other", queue_id=queue), b"another one")
    answer = await again_later(client, ext, encode_batch(messages), 320)
    assert (answer.code, stored(group)) == (0, 6)
    ids = answer.ext["msgId"].split(",")
    assert (ids[:3], len(set(ids))) == (first.ext["msgId"].split(","), 5)
    assert between.ext["msgId"] not in ids
    assert [answer.ext[name] for name in ("queueId", "queueOffset")] == [str(queue), "0"]
    whole = await again_later(client, ext, encode_batch(messages), 320)
    assert (whole.ext["msgId"], stored(group)) == (answer.ext["msgId"], 6)
    assert client.processor.resent.completed == 1


async def test_a_batch_whose_rest_cannot_be_stored_may_be_there(client, group) -> None:
    messages = [BatchMessage(b"m%d" % n, f"UNIQ_KEY\x01B{n}\x02") for n in range(5)]
    ext = {**header(key="B"), "m": "true"}
    client.call(320, ext, encode_batch(messages[:3]))
    client.processor.resent._no_room = lambda: Refusal(ResponseCode.SYSTEM_BUSY, "full")
    answer = await again_later(client, ext, encode_batch(messages), 320)
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "full")
    assert answer.ext[MAY_BE_STORED] == "true"
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
async def test_what_is_not_there_is_stored(client, group, ext: dict) -> None:
    client.call(310, header(more="TAGS\x01a\x02"), b"hello")
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
    client.conn.attrs[RESENT] = Marks([client.opaque + 1])
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
    client.conn.attrs[RESENT] = Marks([client.opaque + 1])
    client.ask(310, header(), b"hello")
    client.conn.close()
    client.processor.connection_closed(client.conn)
    group.holding = False
    group.confirm()
    assert stored(group) == 1


NOT_NOW = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "no")


async def test_a_master_that_may_not_write_does_not_vouch_for_what_is_there(
    client, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resent, "WAIT_S", 0.01)
    monkeypatch.setattr(resent, "LOOK_S", 0.001)
    client.call(310, header(), b"hello")
    group.refusal = NOT_NOW
    answer = await again_later(client, header())
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.ext == {MAY_BE_STORED: "true"}


async def test_a_set_that_shrinks_meanwhile_does_not_vouch_for_what_is_there(client, group) -> None:
    """Its last member confirms what it holds, and may be the only one that does."""
    group.holding = True
    client.ask(310, header(), b"hello")
    client.conn.attrs[RESENT] = Marks([client.opaque + 1])
    asked, answer = client.ask(310, header(), b"hello")
    assert answer is None
    group.holding = False
    group.refusal = NOT_NOW
    group.confirm()
    [answer] = [response for to, response in client.conn.replies if to is asked]
    assert (answer.code, answer.ext) == (NOT_NOW.code, {MAY_BE_STORED: "true"})
    assert stored(group) == 1


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "not"])
async def test_a_full_disk_refuses_only_what_is_not_there(client, group, is_there: bool) -> None:
    """Plainly refused, its client would send it to another queue, and it would be there twice."""
    full: list[bool] = []
    client.processor = ClientProcessor(
        group, clock=lambda: group.now_ms / 1000, disk=FullDisk(full)
    )
    if is_there:
        client.call(310, header(), b"hello")
    full.append(True)
    answer = again(client, header())
    assert answer.code == (0 if is_there else ResponseCode.SERVICE_NOT_AVAILABLE)
    assert MAY_BE_STORED not in (answer.ext or {})
    assert stored(group) == int(is_there)
    assert client.call(310, header(key="K2"), b"new").code == ResponseCode.SERVICE_NOT_AVAILABLE
    client.processor.close()


async def test_a_send_waits_until_its_master_may_write(
    client, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, its client would send it to another queue, and what is there be confirmed."""
    monkeypatch.setattr(resent, "LOOK_S", 0.001)
    client.call(310, header(), b"hello")
    group.refusal = NOT_NOW
    client.conn.attrs[RESENT] = Marks({client.opaque + 1})
    asked, _ = client.ask(310, header(), b"hello")
    later, _ = client.ask(310, header(key="K2"), b"later")
    await asyncio.sleep(0.01)
    assert client.conn.replies == [] or client.conn.replies[-1][0] not in (asked, later)
    group.refusal = None
    async with asyncio.timeout(PATIENCE_S):
        while [to for to, _ in client.conn.replies][-2:] != [asked, later]:
            await asyncio.sleep(0.001)
    assert [response.code for _, response in client.conn.replies][-2:] == [0, 0]
    assert stored(group) == 2


KEYLESS = header(key="", more="TAGS\x01a\x02")


@pytest.mark.parametrize(
    ("ext", "body"),
    [
        pytest.param(KEYLESS, b"hullo", id="another body"),
        pytest.param({**KEYLESS, "g": str(BORN_MS + 1)}, b"hello", id="another time"),
        pytest.param({**KEYLESS, "i": "TAGS\x01b\x02"}, b"hello", id="other properties"),
        pytest.param({**KEYLESS, "e": "2"}, b"hello", id="another queue"),
    ],
)
async def test_without_a_unique_key_all_that_was_said_has_to_be_the_same(
    client, group, ext: dict, body: bytes
) -> None:
    client.call(310, KEYLESS, b"hello")
    assert (await again_later(client, ext, body)).code == 0
    assert stored(group) == 2


async def test_the_same_words_of_another_client_are_another_message(client, group, connect) -> None:
    other = connect()
    other.conn.peer = "10.1.1.2:5000"
    other.call(310, KEYLESS, b"hello")
    assert (await again_later(client, KEYLESS)).code == 0
    assert stored(group) == 2


@pytest.mark.parametrize("queue_id", [1, -1])
@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_record_without_a_unique_key_answers_one_send_of_three_equal_ones(
    client, group, count: int, queue_id: int
) -> None:
    """Neither again, nor when this very master has stored it for the one before."""
    ext = {**KEYLESS, "e": str(queue_id)}
    for _ in range(count):
        client.call(310, ext, b"hello")
    client.conn.attrs[RESENT] = Marks(range(client.opaque + 1, client.opaque + 4))
    answers = [await client.answer(310, ext, b"hello") for _ in range(3)]
    assert len({answer.ext["msgId"] for answer in answers}) == 3
    assert stored(group) == 3
    assert client.processor.resent.found == count


@pytest.mark.parametrize(
    ("newer", "is_found"),
    [pytest.param(100, True, id="in reach"), pytest.param(128, False, id="beyond")],
)
@pytest.mark.parametrize("queue_id", [1, -1])
async def test_newer_records_are_looked_at_up_to_a_bound(
    client, group, monkeypatch, newer: int, is_found: bool, queue_id: int
) -> None:
    """Other topics' are none, and neither are other queues', if the client has named one."""
    monkeypatch.setattr(sent_records, "RECORDS_MAX", 128)
    client.call(310, {**KEYLESS, "e": "1"}, b"hello")
    for number in range(newer):
        client.call(310, header(f"N{number}", queue_id=1), b"newer")
    assert (await again_later(client, {**KEYLESS, "e": str(queue_id)})).code == 0
    assert client.processor.resent.found == is_found


@pytest.mark.parametrize("most", [500, 5000])
async def test_large_records_are_read_in_pieces_up_to_a_bound(
    client, group, monkeypatch, most: int
) -> None:
    monkeypatch.setattr(sent_records, "BYTES_MAX", most)
    monkeypatch.setattr(sent_records, "_BLOCK", ReadLimits(max_count=4, max_bytes=300))
    client.call(310, KEYLESS, b"hello")
    for number in range(10):
        client.call(310, header(f"N{number}", queue_id=1), b"newer")
    assert (await again_later(client, KEYLESS)).code == 0
    assert client.processor.resent.found == (most == 5000)


async def test_a_delayed_message_for_any_queue_is_found(client, group) -> None:
    ext = {**KEYLESS, "e": "-1", "i": "DELAY\x013\x02"}
    client.call(310, ext, b"hello")
    assert (await again_later(client, ext)).code == 0
    assert client.processor.resent.found == 1


async def test_a_timer_is_found_when_there_is_less_time_left(client, group, monkeypatch) -> None:
    """The first master had it wait for another step than this one would."""
    for key in ("", "K1"):
        more = f"TIMER_DELIVER_MS\x01{group.now_ms + 60_000}\x02"
        ext = header(key, more=more)
        first = client.call(310, ext, b"hello")
        monkeypatch.setattr(client.processor._sender, "_clock", lambda: group.now_ms / 1000 + 20)
        answer = await again_later(client, ext)
        assert (answer.code, answer.ext["msgId"]) == (0, first.ext["msgId"])
        if key:
            assert answer.ext["recallHandle"] == first.ext["recallHandle"]
        monkeypatch.undo()
    assert client.processor.resent.found == 2


async def test_a_timer_is_found_when_its_moment_is_over(client, group, monkeypatch) -> None:
    """It may wait still, or be delivered by now."""
    for key, delay_ms in (("K1", 60_000), ("K2", -1)):
        more = f"TIMER_DELIVER_MS\x01{group.now_ms + delay_ms}\x02"
        first = client.call(310, header(key, more=more), b"hello")
        monkeypatch.setattr(client.processor._sender, "_clock", lambda: group.now_ms / 1000 + 120)
        answer = await again_later(client, header(key, more=more))
        assert (answer.code, answer.ext["msgId"]) == (0, first.ext["msgId"])
        assert "recallHandle" not in answer.ext
        monkeypatch.undo()
    assert client.processor.resent.found == 2


@pytest.mark.parametrize(
    ("late_ms", "is_found"),
    [
        pytest.param(sent_records.CLOCKS_MS - 1, True, id="a clock that is ahead"),
        pytest.param(sent_records.CLOCKS_MS + 1, False, id="too far"),
        pytest.param(-resent.WINDOW_MS + 1000, True, id="long ago"),
        pytest.param(-resent.WINDOW_MS - 1000, False, id="too long ago"),
    ],
)
async def test_a_record_is_found_if_it_was_stored_soon_after_its_birth(
    client, group, late_ms: int, is_found: bool
) -> None:
    """Births are of the client's clock: one that is wrong by more costs a second copy."""
    ext = {**KEYLESS, "g": str(group.now_ms + 1 + max(late_ms, 0))}
    client.call(310, ext, b"hello")
    group.now_ms -= min(late_ms, 0)
    assert (await again_later(client, ext)).code == 0
    assert client.processor.resent.found == is_found


async def test_what_is_much_older_than_the_message_is_not_read(client, group, monkeypatch) -> None:
    """A full queue of yesterday costs a send that is not there one read."""
    for number in range(100):
        client.call(310, header(f"N{number}"), b"old")
    group.now_ms += sent_records.CLOCKS_MS + 1000
    reads = []
    read = group.store.read
    monkeypatch.setattr(group.store, "read", lambda *args: (reads.append(args), read(*args)))
    ext = {**KEYLESS, "g": str(group.now_ms)}
    assert (await again_later(client, ext)).code == 0
    assert len(reads) == 1
