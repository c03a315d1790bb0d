"""Replica cores whose steps are recorded, and the same steps taken once more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import support.replicas
from gantry_broker.decisions.recorded import RecordedReplica
from gantry_broker.decisions.replay import REPLICA
from gantry_broker.replica import DEFAULT_LIMITS
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Append, Range
from gantry_protocol.steps.files import StepsRead, steps_of
from gantry_protocol.steps.ring import StepRing
from gantry_protocol.types import Epoch, EpochEntry, Offset
from support.replicas import Group
from support.steps_again import differences, file_of_rings

AT = "2026-11-30T00:00:00+00:00"
CORE = "gantry_broker.replica"
SECRET = b"db-password=hunter2-in-a-message"

BUGS = {
    "confirm waits for all": (
        f"{CORE}.master:Mastership.advance",
        "for broker_id in self.counted - {self.me}:",
        "for broker_id in frozenset():",
    ),
    "heartbeats": (
        f"{CORE}.master:Mastership.tick",
        "now_ms - member.sent_ms >= self._limits.heartbeat_ms",
        "now_ms - member.sent_ms > self._limits.heartbeat_ms",
    ),
    "acknowledges what is flushed": (
        f"{CORE}.following:Following._acknowledge",
        "flushed_end=self._log.flushed,",
        "flushed_end=self._log.end,",
    ),
    "cut where logs part": (
        f"{CORE}.handshake:_common_end",
        "point = min(common, hello.end, mine.end)",
        "point = min(hello.end, mine.end)",
    ),
    "late members leave": (
        f"{CORE}.syncset:Member.fell_behind",
        "return self._is_gone(now_ms, limits)",
        "return False",
    ),
    "epochs never fall": (
        f"{CORE}.core:ReplicaCore._learn",
        "if known is not None and known.same_mastership(view):",
        "if False:",
    ),
    "window of a batch": (
        f"{CORE}.master:Mastership.next_batch",
        "limit = self._log.end if boundary is None else min(boundary, self._log.end)",
        "limit = Offset(self._log.end - 1)",
    ),
}
"""Where a bug is planted, what stands there, and what is put there."""


@contextlib.contextmanager
def recorded_replicas(bytes_max: int = 1 << 30) -> Iterator[list[StepRing]]:
    """Every core that a story makes inside is recorded; these are the rings."""
    made: list[StepRing] = []

    def core(**start: Any) -> RecordedReplica:
        made.append(StepRing(bytes_max))
        return RecordedReplica(ring=made[-1], time=lambda: AT, **start)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support.replicas, "ReplicaCore", core)
        yield made


def file_of(*rings: StepRing) -> bytes:
    return file_of_rings(REPLICA, {f"orders-{n}": one for n, one in enumerate(rings)}, "orders-0")


def again(*rings: StepRing) -> StepsRead:
    """Raises AssertionError: a step is another one when it is taken from a file."""
    assert [ring.ended for ring in rings] == [""] * len(rings)
    recording = steps_of(file_of(*rings), "file")
    assert sum(len(one.steps) for one in recording.stretches) == sum(r.entries for r in rings)
    found = differences(recording, REPLICA)
    assert found == [], found[0]
    return recording


def a_life(group: Group, incarnation: str = "another") -> None:
    """Elections, writes, lost and slow members, cuts, full and silent disks, damage, departures."""
    group.elect(1)
    for number in range(30):
        group.write(1, b"%d" % number + SECRET)
    group.tick(400)
    group.nodes[2].core.confirm_news()
    group.nodes[1].core.confirm_news()
    _lose_one(group, incarnation)
    group[2].flushing = False
    group.write(1, b"not on all disks")
    group.tick(600)
    group[2].flushing = True
    group[2].flush()
    group.run()
    group[1].flushing = False
    group.write(1, b"late" + SECRET)
    group.tick(4000)
    group[1].flushing = True
    group[1].flush()
    group.unreachable.add(1)
    group.cut_links(1)
    group.write(1, b"nobody else has this" + SECRET)
    group.elect(2)
    group.unreachable.discard(1)
    group.write(2, SECRET)
    group.tick(1000)
    _meet_disks(group)
    group[2].step(ev.DrainRequested())
    group.tick(200)
    group[2].step(ev.HandOverFinished(accepted=False))
    group.tick(400)
    group[3].step(ev.DrainRequested())
    group.tick(2000)
    group.elect(1, {1, 3})
    group.write(1, b"last")
    group[1].core.stopped()


def _lose_one(group: Group, incarnation: str) -> None:
    group.unreachable.add(3)
    group.cut_links(3)
    group.tick(600)
    group.accept(group[1])
    group.write(1, b"two of us" + SECRET)
    group.unreachable.discard(3)
    group.tick(1000)
    group.accept(group[1])
    group.restart(3, incarnation)
    group.tell(1, [3])
    group.tick(DEFAULT_LIMITS.lag_ms)
    group.deaf.update({1, 2, 3})
    group.stopped.update({2, 3})
    group.tick(3000)
    group.deaf.clear()
    group.release(2)
    group.release(3)
    group.tick(400)


def _meet_disks(group: Group) -> None:
    group[2].step(ev.LogDamaged(Offset(3)))
    group.tick(100)
    group[2].step(ev.HandOverFinished(accepted=False))
    group[2].step(ev.RoomChanged(is_full=True, has_room=False))
    group[3].step(ev.RoomChanged(is_full=False, has_room=True))
    group.tick(600)
    group[2].step(ev.RoomChanged(is_full=False, has_room=True))
    group.tick(200)
    group[2].trim(10)
    group[3].step(ev.LogRefused(group[3].core.log.end, "the disk is full"))
    group.tick(2000)
    group[2].step(ev.ProposalFinished(99, ev.Refused("an older one")))
    group[2].step(ev.LinkRefused(77, "it acknowledges a part of a record"))
    group[3].step(ev.ViewLearned(group.view(2, {1, 2})))
    entry = EpochEntry(Epoch(2), Offset(0))
    group[2].step(ev.Received(78, Append(Epoch(2), entry, Offset(0), Offset(0), True, SECRET)))
    group[2].step(ev.Received(79, Range(Offset(0), SECRET)))
    assert group[2].core.epoch == Epoch(2)
