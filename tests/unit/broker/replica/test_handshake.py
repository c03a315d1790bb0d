"""Handshake: where a replica cuts its log, and when it refuses to (H8)."""

from __future__ import annotations

import pytest
from gantry_broker.replica.handshake import answer_hello, lineage_after, refuse_truncate
from gantry_broker.replica.lineage import LineageError
from gantry_broker.replica.messages import Hello, Truncate
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset
from support.replicas import entries, facts, lineage

Pairs = list[tuple[int, int]]


def hello(pairs: Pairs, end: int, start: int = 0) -> Hello:
    return Hello(
        epoch=Epoch(9),
        broker_id=BrokerId(2),
        incarnation="x",
        log_start=Offset(start),
        end=Offset(end),
        lineage=entries(*pairs),
    )


@pytest.mark.parametrize(
    ("replica", "master", "point", "entry", "reset"),
    [
        pytest.param(hello([], 0), facts((9, 0), end=80), 0, (9, 0), False, id="empty"),
        pytest.param(hello([(1, 0)], 50), facts((1, 0), (9, 50), end=50), 50, (9, 50), False,
                     id="in step: the new epoch comes with the answer"),
        pytest.param(hello([(1, 0)], 70), facts((1, 0), (9, 50), end=90), 50, (9, 50), False,
                     id="longer tail of the common epoch"),
        pytest.param(hello([(1, 0)], 30), facts((1, 0), (9, 50), end=90), 30, (1, 0), False,
                     id="behind: the stream goes on in the old epoch"),
        pytest.param(hello([(1, 0), (2, 40)], 60), facts((1, 0), (9, 50), end=90), 40, (1, 0),
                     False, id="diverged in an epoch the master never had"),
        pytest.param(hello([(2, 0)], 60), facts((1, 0), (9, 50), end=90), 0, (1, 0), False,
                     id="nothing in common"),
        pytest.param(hello([(2, 0)], 60), facts((1, 0), (9, 50), end=90, start=40), 40, (1, 0),
                     True, id="nothing in common, old bytes are gone"),
        pytest.param(hello([(1, 0)], 20), facts((1, 0), (9, 50), end=90, start=40), 40, (1, 0),
                     True, id="too far behind"),
        pytest.param(hello([], 0), facts((1, 0), (9, 50), end=90, start=60), 60, (9, 50), True,
                     id="empty, and the log does not start at 0"),
        pytest.param(hello([(1, 0), (2, 40)], 80, 80),
                     facts((1, 0), (2, 40), (9, 60), end=90, start=60), 80, (9, 60), True,
                     id="empty, with the lineage of the log that it threw away"),
        pytest.param(hello([(1, 0), (2, 40)], 80, 80),
                     facts((1, 0), (2, 40), (9, 60), end=90, start=85), 85, (9, 60), True,
                     id="the same, and the log begins later"),
        pytest.param(hello([(9, 60)], 80, 80), facts((1, 0), (9, 60), end=90, start=60), 80,
                     (9, 60), False, id="empty, with a lineage that is right"),
        pytest.param(hello([(2, 30)], 60, 30), facts((1, 0), (9, 20), end=25), 0, (1, 0), True,
                     id="its whole log lies beyond ours"),
    ],
)  # fmt: skip
def test_the_master_names_the_last_common_point(
    replica: Hello, master: object, point: int, entry: tuple[int, int], reset: bool
) -> None:
    answer = answer_hello(replica, master, Epoch(9), "m")  # type: ignore[arg-type]  # facts()
    assert answer == Truncate(
        epoch=Epoch(9),
        incarnation="m",
        point=Offset(point),
        entry=EpochEntry(Epoch(entry[0]), Offset(entry[1])),
        reset=reset,
    )


@pytest.mark.parametrize(
    ("replica", "words"),
    [
        pytest.param(hello([(10, 0)], 5), "reaches epoch 10, ours is 9", id="newer lineage"),
        pytest.param(hello([(2, 5), (1, 9)], 20), "damaged", id="falling epochs"),
        pytest.param(hello([], 5, 9), "starts at 9 and ends at 5", id="ends before it starts"),
        pytest.param(hello([], -1, -1), "starts at -1", id="negative"),
    ],
)
def test_the_master_refuses_what_cannot_be(replica: Hello, words: str) -> None:
    answer = answer_hello(replica, facts((1, 0), (9, 50), end=90), Epoch(9), "m")
    assert isinstance(answer, str)
    assert words in answer


def truncate(point: int, entry: tuple[int, int], *, reset: bool = False) -> Truncate:
    return Truncate(
        epoch=Epoch(9),
        incarnation="m",
        point=Offset(point),
        entry=EpochEntry(Epoch(entry[0]), Offset(entry[1])),
        reset=reset,
    )


@pytest.mark.parametrize(
    ("message", "words"),
    [
        pytest.param(truncate(40, (9, 40)), None, id="at confirm"),
        pytest.param(truncate(39, (9, 39)), "below the confirm offset 40", id="below confirm"),
        pytest.param(truncate(0, (9, 0), reset=True), "below the confirm", id="reset"),
        pytest.param(truncate(61, (9, 61)), "outside the log [0, 60)", id="beyond the end"),
        pytest.param(truncate(90, (9, 80), reset=True), None, id="reset ahead"),
    ],
)
def test_a_replica_never_cuts_below_confirm(message: Truncate, words: str | None) -> None:
    wrong = refuse_truncate(message, facts((1, 0), end=60, confirm=40))
    assert wrong is None if words is None else words in (wrong or "")


def test_the_lineage_after_a_cut_covers_the_next_byte() -> None:
    mine = facts((1, 0), (2, 40), end=60)
    assert lineage_after(truncate(40, (1, 0)), mine) == lineage((1, 0))
    assert lineage_after(truncate(40, (9, 40)), mine) == lineage((1, 0), (9, 40))
    assert lineage_after(truncate(60, (9, 60)), mine) == lineage((1, 0), (2, 40), (9, 60))
    assert lineage_after(truncate(90, (8, 70), reset=True), mine) == lineage((8, 70))
    with pytest.raises(LineageError):
        lineage_after(truncate(60, (1, 50)), mine)
