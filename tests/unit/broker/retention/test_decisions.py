"""What may go of a log without a tier, and what keeps it: one case per term of the rule."""

from __future__ import annotations

import msgspec
import pytest
from gantry_broker.retention.core.rules import (
    Facts,
    Keep,
    Need,
    RetentionBounds,
    Trim,
    WriteState,
    bounded_file_bytes,
    decide,
)
from gantry_protocol.types import Offset

STARTS = tuple(Offset(start) for start in (0, 100, 200, 300, 400))
FACTS = Facts(
    kept=RetentionBounds(hours=72.0, bytes=150),
    starts=STARTS,
    log_start=Offset(0),
    end=Offset(480),
    confirm=Offset(470),
    whole_from=Offset(440),
    expired_to=Offset(0),
    writes=True,
)
NO_BYTES = RetentionBounds(hours=72.0)


def facts(**changes: object) -> Facts:
    return msgspec.structs.replace(FACTS, **changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, Trim(Offset(300)), id="150 of 470, in whole files"),
        pytest.param({"expired_to": Offset(400)}, Trim(Offset(400)), id="age goes further"),
        pytest.param(
            {"kept": RetentionBounds(bytes=1)}, Trim(Offset(400)), id="never what is written"
        ),
        pytest.param({"confirm": Offset(255)}, Trim(Offset(100)), id="by what is confirmed"),
        pytest.param(
            {"confirm": Offset(255), "expired_to": Offset(400)}, Trim(Offset(200)), id="confirmed"
        ),
        pytest.param(
            {"confirm": Offset(255), "expired_to": Offset(400), "needed": [Need(Offset(450), "x")]},
            Trim(Offset(200)),
            id="confirmed, though nobody needs it",
        ),
        pytest.param(
            {"needed": [Need(Offset(250), "x"), Need(Offset(320), "y")]},
            Trim(Offset(200)),
            id="needed",
        ),
        pytest.param({"copied": [Need(Offset(199), "x")]}, Trim(Offset(100)), id="copied"),
        pytest.param({"whole_from": Offset(180)}, Trim(Offset(100)), id="the state is older"),
        pytest.param({"whole_from": Offset(99)}, WriteState(), id="the state is too old"),
        pytest.param({"whole_from": None}, WriteState(), id="no state"),
        pytest.param(
            {"kept": NO_BYTES, "disk_is_full": True}, Trim(Offset(100)), id="a full disk: one file"
        ),
        pytest.param(
            {"kept": NO_BYTES, "disk_is_full": True, "copied": [Need(Offset(7), "x")]},
            Trim(Offset(100)),
            id="who is not in the set does not keep a full disk full",
        ),
        pytest.param(
            {"kept": NO_BYTES, "disk_fills": True, "whole_from": Offset(399)},
            WriteState(),
            id="a state ahead of time",
        ),
    ],
)
def test_the_log_is_trimmed_to_the_least_of_all(
    changes: dict[str, object], expected: object
) -> None:
    assert decide(facts(**changes)) == expected


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        pytest.param({"kept": RetentionBounds()}, "", id="no retention"),
        pytest.param({"kept": RetentionBounds(bytes=400)}, "", id="not that much yet"),
        pytest.param({"kept": NO_BYTES, "disk_fills": True}, "", id="the state is there"),
        pytest.param(
            {"kept": RetentionBounds(gives_way=False), "disk_is_full": True, "disk_fills": True},
            "",
            id="no",
        ),
        pytest.param({"needed": [Need(Offset(7), "member 3")]}, "member 3 needs", id="needed"),
        pytest.param({"copied": [Need(Offset(7), "replica")]}, "replica needs", id="copied"),
        pytest.param(
            {"kept": NO_BYTES, "disk_is_full": True, "needed": [Need(Offset(7), "a message")]},
            "a message needs the log from 7 on",
            id="a full disk does not break promises",
        ),
        pytest.param(
            {"confirm": Offset(99), "expired_to": Offset(400)}, "confirmed up to 99", id="confirm"
        ),
        pytest.param(
            {"kept": NO_BYTES, "disk_is_full": True, "starts": STARTS[:1]},
            "is the file that is written",
            id="one file",
        ),
        pytest.param(
            {"kept": NO_BYTES, "disk_is_full": True, "starts": ()}, "is written", id="empty"
        ),
        pytest.param({"whole_from": None, "writes": False}, "master", id="a replica writes none"),
        pytest.param(
            {"whole_from": None, "state_bytes": 50, "state_end": Offset(300)},
            "grown",
            id="a state as long as the log",
        ),
    ],
)
def test_otherwise_it_is_kept_and_says_why(changes: dict[str, object], word: str) -> None:
    decision = decide(facts(**changes))
    assert isinstance(decision, Keep)
    assert word in decision.reason
    assert bool(decision.reason) == bool(word)


@pytest.mark.parametrize(
    ("wanted", "disk", "log", "expected"),
    [
        (1 << 30, 1 << 40, None, 1 << 30),
        (1 << 30, 160 << 20, None, 10 << 20),
        (1 << 30, 1 << 40, 400 << 20, 100 << 20),
        (1 << 30, 1 << 20, 1 << 10, 1 << 16),
        (1 << 10, 1 << 20, 1 << 10, 1 << 10),
    ],
)
def test_files_are_small_enough_to_go(
    wanted: int, disk: int, log: int | None, expected: int
) -> None:
    assert bounded_file_bytes(wanted, disk, log, 1 << 16) == expected
