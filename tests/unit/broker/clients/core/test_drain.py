"""What a drain waits for, in words, and when a group may refuse what is new."""

import pytest
from gantry_broker.clients.core.drain import (
    INNER_PRODUCER,
    SENTENCE_MAX,
    DrainReport,
    OffsetLeft,
    Remains,
    Unread,
    judge,
    may_close,
)

NOTHING = Remains(is_closed=True, is_whole=True, unread=[], parked=0, transactions=0)


@pytest.mark.parametrize(
    ("seen", "waits_for"),
    [
        (NOTHING, ""),
        (NOTHING._replace(is_whole=False), "not all that is stored is confirmed yet"),
        (NOTHING._replace(parked=3), "3 delayed messages wait for their time"),
        (
            NOTHING._replace(parked=3, transactions=2),
            "2 open transactions wait for their producers to end them",
        ),
        (
            NOTHING._replace(transactions=2, unread=[Unread("billing", "orders", 40, 2)]),
            "40 messages of orders wait for consumer group billing, which has 2 members",
        ),
        (
            NOTHING._replace(
                unread=[
                    Unread("a", "t", 900, 1),
                    Unread("billing", "orders", 40, 0),
                    Unread("c", "t", 7, 0),
                ]
            ),
            (
                "40 messages of orders wait for consumer group billing, which has no member: start "
                "one, or delete the consumer group; 2 more wait as well"
            ),
        ),
        (
            NOTHING._replace(
                transactions=2, offsets=[OffsetLeft("a", "t", ""), OffsetLeft("b", "t", "east")]
            ),
            (
                "broker group east is to be told how far consumer group b has read t; "
                "1 more offsets wait as well"
            ),
        ),
        (
            NOTHING._replace(offsets=[OffsetLeft("a", "t", "")]),
            "queues of t, which consumer group a reads, move",
        ),
        (
            NOTHING._replace(is_closed=False, unread=[Unread("a", "t", 1, 1)]),
            "new messages are still taken, until every client has asked for routes",
        ),
    ],
    ids=[
        "nothing",
        "unconfirmed",
        "parked",
        "open",
        "unread",
        "nobody there",
        "offsets",
        "moves",
        "not closed",
    ],
)
def test_a_drain_is_done_or_says_what_it_waits_for(seen: Remains, waits_for: str) -> None:
    report = judge(seen)
    assert report.waits_for == waits_for
    assert report.done is (waits_for == "")
    assert report.unread == sum(item.messages for item in seen.unread)
    assert (report.parked, report.transactions) == (seen.parked, seen.transactions)


def test_a_sentence_fits_into_a_heartbeat() -> None:
    unread = [Unread("g" * 255, "t" * 127, 1, 0)]
    assert len(judge(NOTHING._replace(unread=unread)).waits_for) == SENTENCE_MAX
    assert judge(NOTHING) == DrainReport(done=True)


@pytest.mark.parametrize(
    ("waited_s", "quiet_s", "producers", "may"),
    [
        (60.0, 0.0, ["p"], True),
        (59.9, 59.9, ["p"], False),
        (59.9, 1.9, [], False),
        (2.0, 2.0, [], True),
        (2.0, 2.0, [INNER_PRODUCER], True),
        (2.0, 2.0, [INNER_PRODUCER, "p"], False),
    ],
)
def test_a_group_closes_once_clients_had_time_or_nobody_sends(
    waited_s: float, quiet_s: float, producers: list[str], may: bool
) -> None:
    found = may_close(waited_s=waited_s, grace_s=60.0, quiet_s=quiet_s, producers=producers)
    assert found is may
