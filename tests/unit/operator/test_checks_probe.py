"""What a probe's figures are called, by tables: the level, the words, and what to do."""

from __future__ import annotations

import math

import pytest
from gantry_operator.support import checks_probe
from gantry_operator.support.findings import Level
from gantry_operator.support.round_trip import Tripped
from gantry_operator.support.sync_figures import SyncFigure
from gantry_protocol.codes import ResponseCode

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL


def of_window(p99_s: float) -> SyncFigure:
    return SyncFigure(p99_s, 812, 812, is_of_window=True)


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        (of_window(0.005), OK, "b-0: the p99 of a sync is at most 5 ms, of 812 in 10 s."),
        (of_window(0.00025), OK, "at most 0.25 ms, of 812"),
        (of_window(0.02), OK, "at most 20 ms"),
        (of_window(0.05), WARN, "at most 50 ms"),
        (of_window(0.5), WARN, "at most 500 ms"),
        (of_window(1.0), FAIL, "at most 1 s"),
        (of_window(math.inf), FAIL, "is above 10 s, of 812"),
        (
            SyncFigure(0.001, 40, 3, is_of_window=False),
            OK,
            "of 40 since it began, as only 3 came in 10 s.",
        ),
        (SyncFigure(None, 0, 0, is_of_window=False), WARN, "b-0: no syncs seen, neither in 10 s"),
    ],
)
def test_syncs(found: SyncFigure, level: Level, words: str) -> None:
    told = checks_probe.syncs("b-0", found, 10.0)
    assert (told.check, told.level) == ("syncs", level)
    assert words in told.message
    assert bool(told.todo) == (level is not OK)


TRIPS: list[tuple[str, Tripped, Level, str, str]] = [
    (
        "quick",
        Tripped(0.007, 0.009, 0.0008),
        OK,
        (
            "orders: 128 bytes through a to topic gantry-probe were acknowledged in 9 ms, of which "
            "7 ms are the way from here and back; it was read 0.8 ms later."
        ),
        "",
    ),
    # a way across the world is not the broker's fault
    ("far", Tripped(1.9, 1.95, 2.0), OK, "acknowledged in 1.95 s", ""),
    ("slow", Tripped(0.1, 0.3, 0.1), WARN, "acknowledged in 300 ms", "a send waits for"),
    ("stuck", Tripped(0.1, 1.2, 0.1), FAIL, "acknowledged in 1.2 s", "a send waits for"),
    (
        "refused",
        Tripped(0.1, code=1, why="in-sync replicas not enough"),
        FAIL,
        "orders acknowledged no message through a: in-sync replicas not enough, code 1.",
        "Producers get the same",
    ),
    (
        "unconfirmed",
        Tripped(0.1, code=ResponseCode.FLUSH_SLAVE_TIMEOUT, why="timeout", stored=True),
        FAIL,
        "code 12. The message may be stored all the same.",
        "Producers get the same",
    ),
    (
        "lost-answer",
        Tripped(0.1, why="b did not answer in time", stored=True),
        FAIL,
        "did not answer in time. The message may be stored",
        "Producers get the same",
    ),
    (
        "a-user-is-needed",
        Tripped(code=ResponseCode.NO_PERMISSION, why="not signed"),
        WARN,
        "orders took no message through a: not signed, code 16.",
        "give --access-key and --secret-key-file",
    ),
    (
        "may-not-read",
        Tripped(0.1, 0.1, None, code=ResponseCode.NO_PERMISSION, why="no rule", stored=True),
        FAIL,
        "but the message cannot be read: no rule.",
        "Sub group gantry-probe",
    ),
    (
        "not-read",
        Tripped(0.1, 0.1, None, why="its queue does not have it 2 s later", stored=True),
        FAIL,
        "but the message cannot be read: its queue",
        "gantry consume gantry-probe",
    ),
    (
        "silent",
        Tripped(why="the connection ended"),
        WARN,
        "orders: a does not answer: the connection ended.",
        "give --tls-ca-file",
    ),
]


@pytest.mark.parametrize(
    ("found", "level", "words", "todo"), [row[1:] for row in TRIPS], ids=[row[0] for row in TRIPS]
)
def test_a_message(found: Tripped, level: Level, words: str, todo: str) -> None:
    told = checks_probe.trip("orders", "a", found)
    assert (told.check, told.level) == ("send", level)
    assert words in told.message
    assert todo in told.todo
    assert bool(todo) == bool(told.todo)
