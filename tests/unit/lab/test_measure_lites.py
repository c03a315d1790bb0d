"""The parts of the measurement of lite topics that compute: accounts, frames, who takes what."""

from __future__ import annotations

import pytest
from gantry_cli.client.routes import Queue
from gantry_lab.bench import page, suite
from gantry_lab.bench.broker.frames import lite_key, lite_name
from gantry_lab.bench.load import Reply
from gantry_lab.measure import lites
from gantry_lab.measure.lite_clients import (
    NAMES,
    PARENT,
    LiteAccount,
    LiteConsumers,
    LiteMessage,
    LiteSends,
    names_of,
    number_of,
)
from gantry_protocol.codes import RequestCode
from gantry_protocol.frame import FrameDecoder
from gantry_protocol.headers.client import SendMessageRequestHeaderV2
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.lite import LITE_TOPIC, lite_problem
from gantry_protocol.records import MessageRecord, decode_properties
from gantry_protocol.records.properties import UNIQ_KEY

QUEUES = [Queue("group", number, "127.0.0.1:1") for number in range(3)]
DONE = Reply(), memoryview(b"")


def sent(frame: bytearray | None) -> tuple[int, str, str]:
    """The queue, the lite topic and the key of a send."""
    assert frame is not None
    (command,) = FrameDecoder().feed(bytes(frame))
    header = from_ext(SendMessageRequestHeaderV2, command.ext)
    assert (command.code, header.topic) == (RequestCode.SEND_MESSAGE_V2, PARENT)
    properties = decode_properties(header.properties or "")
    return header.queue_id or 0, properties[LITE_TOPIC], properties[UNIQ_KEY]


# ---- what became of each message


def test_lost_is_what_was_acknowledged_and_nobody_got() -> None:
    account = LiteAccount()
    for number in (0, 1, 900):
        account.acknowledged(number)
    account.taken(900, 0)
    account.taken(7, 0)  # its producer has not been answered
    assert (account.sent, account.consumed, account.missing) == (3, 1, 2)
    account.acknowledged(7)
    account.acknowledged(7)
    assert (account.sent, account.consumed, account.missing) == (4, 2, 2)


def test_who_gets_a_message_again_is_told_apart_by_whether_it_was_done() -> None:
    account = LiteAccount()
    account.acknowledged(3)
    account.taken(3, 5)
    account.taken(3, 5)
    assert (account.twice, account.twice_done, account.undone) == (1, 0, 1)
    account.done(3)
    account.done(3)
    assert account.undone == 0
    account.taken(3, 5)
    assert (account.twice, account.twice_done, account.undone) == (2, 1, 0)
    assert (account.sent, account.consumed) == (1, 1)


def test_a_message_that_stands_in_two_records_was_stored_twice() -> None:
    account = LiteAccount()
    account.taken(3, 5)
    account.taken(3, 5)
    assert (account.twice, account.stored_twice) == (1, 0)
    account.taken(3, 6)
    assert (account.twice, account.stored_twice) == (2, 1)


def test_nobody_acknowledges_what_he_has_not_got() -> None:
    with pytest.raises(AssertionError, match="has not got"):
        LiteAccount().done(1)


# ---- who sends


def test_each_number_is_a_lite_topic_and_its_message_under_one_key() -> None:
    account, told = LiteAccount(), []
    work = LiteSends(iter(range(3)), QUEUES, 4, account, told.append)
    found = [sent(work.first(slot)) for slot in range(3)]
    assert found == [(slot, lite_name(slot), lite_key(slot)) for slot in range(3)]
    assert work.first(3) is None, "there are only three"
    assert {len(key) for _, _, key in found} == {32}
    assert [lite_problem(name) for _, name, _ in found] == [None] * 3
    assert work.following(1, *DONE) is None
    assert (account.sent, work.messages) == (1, 1)


def test_a_refused_message_is_sent_again_as_it_was() -> None:
    account = LiteAccount()
    work = LiteSends(iter(range(2)), QUEUES, 1, account)
    assert sent(work.first(0)) == sent(work.first(0)) == (0, lite_name(0), lite_key(0))
    assert sent(work.following(0, *DONE)) == (0, lite_name(1), lite_key(1))
    assert account.sent == 1


def test_the_producer_names_the_lite_topic_and_keeps_the_number() -> None:
    message = LiteMessage(PARENT, lite_key(2**20), b"", lite=lite_name(5))
    properties = decode_properties(message.properties())
    assert (properties[LITE_TOPIC], properties[UNIQ_KEY]) == (lite_name(5), lite_key(2**20))
    record = MessageRecord(topic=PARENT, queue_id=0, body=b"", properties=message.properties())
    assert number_of(record) == 2**20


# ---- who consumes


@pytest.mark.parametrize("topics", [1, NAMES, NAMES + 1, 3 * NAMES - 1])
def test_each_lite_topic_has_one_client(topics: int) -> None:
    clients = LiteConsumers(["127.0.0.1:1"], topics, 1000, LiteAccount()).count
    names = [name for client in range(clients) for name in names_of(client, topics)]
    assert names == [lite_name(number) for number in range(topics)]
    assert max(len(names_of(client, topics)) for client in range(clients)) <= NAMES
    assert names_of(clients, topics) == []


def test_the_first_message_after_a_kill_was_asked_for_after_it() -> None:
    on_its_way = (9.9, 10.1)  # an answer of the one that was killed
    assert lites.first_ms([on_its_way], 10.0) is None
    found = lites.first_ms([on_its_way, (10.2, 10.9), (10.3, 10.5)], 10.0)
    assert found == pytest.approx(500)


# ---- around it


def test_a_step_is_a_thousand() -> None:
    steps: list[int] = []
    told = lites.by_thousands(lambda: steps.append(1))
    found = []
    for more in (999, 1, 500, 2600, 0):
        told(more)
        found.append(len(steps))
    assert found == [0, 1, 1, 4, 4]


def test_the_command_line() -> None:
    assert lites.planned([]) == lites.LiteWish(1_000_000, 3, 20)
    wanted = lites.planned(["300", "--kills", "1", "--invisible-s", "2"])
    assert wanted == lites.LiteWish(300, 1, 2)


def test_every_figure_that_is_said_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    sheet = suite.bench("lites")
    assert sheet in page.SHEETS
    lites.say("first_ms", "ms", 120.4, 80.0, 300.0)
    figures, _ = page.read([capsys.readouterr().out.strip().encode()])
    (row,) = page.table(sheet, figures)[2:]
    assert row[2] == "120 (80 … 300)"
