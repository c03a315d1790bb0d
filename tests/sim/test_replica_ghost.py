"""What the ghost of a broker group takes for a lost acknowledgement, and what it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gantry_protocol.types import Epoch, EpochEntry, Offset
from sim.kernel.world import Violation
from sim.replica_disk import SIZE, record
from sim.replica_ghost import Ghost
from sim.replica_tables import Content, number_of

POSITION = Content(is_position=True, queue=0, value=0)
MESSAGE = Content(is_position=False, queue=0, value=0)


def log_of(*written: tuple[int, Content]) -> bytes:
    """Records by the epoch that wrote them."""
    return b"".join(
        record(epoch, number_of(at, content), at * SIZE)
        for at, (epoch, content) in enumerate(written)
    )


def master(epoch: int, end: int) -> Any:
    """The core of one that begins ``epoch`` at ``end``."""
    start = EpochEntry(Epoch(epoch), Offset(end))
    return SimpleNamespace(
        epoch=epoch, log=SimpleNamespace(end=end, lineage=SimpleNamespace(last=start))
    )


@pytest.fixture
def ghost() -> Ghost:
    """Epoch 1 has acknowledged a position of a consumer, epoch 3 a message behind it."""
    made = Ghost()
    made.confirm(log_of((1, POSITION), (3, MESSAGE)))
    made.acknowledge("a", 1, SIZE)
    made.promoted("b", master(3, SIZE), made.history[:SIZE])
    made.acknowledge("b", 3, 2 * SIZE)
    return made


def test_who_comes_late_need_not_know_what_came_after_its_epoch(ghost: Ghost) -> None:
    ghost.promoted("c", master(2, SIZE), log_of((1, POSITION)))


@pytest.mark.parametrize("log", [b"", log_of((2, MESSAGE))], ids=["nothing", "something else"])
def test_who_comes_late_has_what_was_acknowledged_before_its_epoch(
    ghost: Ghost, log: bytes
) -> None:
    with pytest.raises(Violation, match="ack: c was promoted without"):
        ghost.promoted("c", master(2, len(log)), log)


def test_the_next_master_has_what_all_before_it_have_acknowledged(ghost: Ghost) -> None:
    with pytest.raises(Violation, match="ack: c was promoted without"):
        ghost.promoted("c", master(4, SIZE), ghost.history[:SIZE])
    ghost.promoted("c", master(4, 2 * SIZE), ghost.history)


def test_an_answer_that_comes_after_a_later_promotion_counts_as_well(ghost: Ghost) -> None:
    """The older master acknowledges what the later one does not have."""
    with pytest.raises(Violation, match="ack: a acknowledges 32 in epoch 1, epoch 3 began at 16"):
        ghost.acknowledge("a", 1, 2 * SIZE)
    ghost.acknowledge("a", 1, SIZE)
