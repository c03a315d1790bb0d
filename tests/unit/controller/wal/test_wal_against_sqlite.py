"""Differential: our log and SQLite get the same batches and crashes, and must recover alike.

The batches are those of a real core, a follower that is sent entries, cut back, compacted, given
snapshots ahead of its log, and restarted from what was found. A crash may tear the last batch at
any byte, come between a batch and the release of segments that its marker allows, or amid that
release, with any subset of the removals surviving.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.members import Membership
from gantry_controller.raft.messages import Append, EntryKind, make_entry
from gantry_controller.raft.snapshot import SnapshotMeta
from gantry_controller.wal import wal as wal_module
from gantry_controller.wal.format import Write
from gantry_controller.wal.recovery import Recovered
from gantry_controller.wal.wal import Wal
from gantry_protocol.types import Index, NodeId, Term
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sqlite_log import SqliteLog

if TYPE_CHECKING:
    from pathlib import Path

ME, LEADER = NodeId(1), NodeId(2)
MEMBERS = Membership((ME, LEADER, NodeId(3)))
CONFIG = RaftConfig(node_id=ME, voters=MEMBERS.voters)


class PowerCut(Exception):  # noqa: N818 - an event, not an error
    """The machine is gone."""


class Pair:
    """One node with two disks."""

    def __init__(self, root: Path, seed: int, segment_size: int) -> None:
        self.root = root
        self.rng = random.Random(seed)
        self.segment_size = segment_size
        self.crashes = 0
        self.open()

    def open(self) -> None:
        """Recover from both disks, compare, and start the core with what was found."""
        self.ours, found = Wal.open(self.root / "wal", segment_size_bytes=self.segment_size)
        self.reference, expected = SqliteLog.open(self.root / "sqlite")
        assert content(found) == content(expected)
        marker = found.marker
        snapshot = None if marker is None else SnapshotMeta(marker.index, marker.term, MEMBERS)
        self.core = RaftCore(
            CONFIG,
            self.rng,
            hard_state=found.hard_state,
            entries=found.entries,
            snapshot=snapshot,
            base=found.base,
        )
        self.waiting: list[tuple[int, Write]] = []

    def close(self) -> None:
        self.ours.close()
        self.reference.close()

    # ---- what happens to a follower --------------------------------------------------------------

    def follow(self) -> None:
        """A leader, the old one or a new one, sends entries; they may replace the uncommitted."""
        state, log = self.core._state, self.core._state.log
        term = max(state.term, 1) + (self.rng.random() < 0.3)
        prev = self.rng.randint(log.commit_index, log.last_index)
        prev_term = log.term_at(Index(prev)) or 0
        if prev < log.last_index and term == log.last_term:
            prev, prev_term = log.last_index, log.last_term  # one leader has one log
        count = self.rng.randint(0, 5)
        entries = tuple(
            make_entry(
                EntryKind.COMMAND,
                Term(term),
                Index(prev + 1 + place),
                self.rng.randbytes(self.rng.choice([1, 30, 200])),
            )
            for place in range(count)
        )
        commit = self.rng.randint(0, prev + count)
        self.core.step(
            Append(
                LEADER,
                ME,
                Term(term),
                Index(prev),
                Term(prev_term),
                Index(commit),
                0,
                0,
                entries,
            )
        )

    def take(self) -> None:
        """A snapshot of what is applied is durable."""
        meta = self.core.snapshot_meta()
        if meta.index:
            self.core.compact(meta, self.rng.choice([0, 0, 2, 10]))

    def install(self) -> None:
        """A snapshot of another node has come: ahead of the log, inside it, or of no use."""
        log = self.core._state.log
        ahead = self.rng.choice([-1, 0, 1, 2, 20])
        index = Index(max(self.rng.choice([log.commit_index, log.last_index]) + ahead, 1))
        term = Term(max(log.last_term, self.core.term) + self.rng.choice([0, 1]))
        self.core.install(SnapshotMeta(index, max(term, Term(1)), MEMBERS))

    def pass_once(self) -> None:
        """One pass: what is to be written is queued, what is committed is applied."""
        ready = self.core.ready()
        if ready.must_persist:
            assert ready.hard_state is not None
            write = Write(ready.entries, ready.hard_state, ready.markers)
            self.waiting.append((ready.batch, write))
        if ready.committed:
            self.core.applied(ready.committed[-1].index)

    def sync(self) -> None:
        """What waits becomes one batch on both disks."""
        work, self.waiting = self.waiting, []
        if work:
            writes = [write for _, write in work]
            self.ours.append(writes)
            self.reference.append(writes)
            for batch, _ in work:
                self.core.persisted(batch)

    def crash(self, patch: pytest.MonkeyPatch) -> None:
        """The power goes: while nothing is written, amid a batch, or amid the release after it."""
        self.crashes += 1
        writes = [write for _, write in self.waiting]
        if writes:
            torn = self.rng.random() < 0.4
            self._break(patch, torn=torn)
            with contextlib.suppress(PowerCut):
                self.ours.append(writes)
            self.reference.append(writes, fails=torn)
            patch.undo()
        self.close()
        self.open()

    def _break(self, patch: pytest.MonkeyPatch, *, torn: bool) -> None:
        write_durably, remove = wal_module.write_durably, wal_module.remove_segments

        def tear(fd: int, data: bytes, offset: int, ahead: int) -> None:
            cut = self.rng.randrange(len(data))
            write_durably(fd, data[:cut], offset, self.rng.choice((0, ahead)))
            raise PowerCut

        def remove_some(paths: list[Path]) -> None:
            remove([path for path in paths if self.rng.random() < 0.5])
            raise PowerCut

        patch.setattr(wal_module, "remove_segments", remove_some)
        if torn:
            patch.setattr(wal_module, "write_durably", tear)


def content(found: Recovered) -> Any:
    return found.hard_state, found.marker, found.base, found.entries


STEPS = ("follow", "follow", "follow", "pass_once", "pass_once", "sync", "take", "install", "crash")


def drive(pair: Pair, steps: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for step in steps:
            if step == "crash":
                pair.crash(patch)
            else:
                getattr(pair, step)()
        pair.pass_once()
        pair.crash(patch)
    pair.close()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    segment_size=st.sampled_from([300, 700, 4_000, 64_000]),
    steps=st.lists(st.sampled_from(STEPS), max_size=40),
)
def test_equal_after_any_sequence(
    tmp_path_factory: pytest.TempPathFactory, seed: int, segment_size: int, steps: list[str]
) -> None:
    drive(Pair(tmp_path_factory.mktemp("pair"), seed, segment_size), steps)


@pytest.mark.parametrize("seed", range(30))
def test_equal_over_a_long_life(tmp_path: Path, seed: int) -> None:
    """Hundreds of steps: segments come and go, snapshots pile on snapshots."""
    rng = random.Random(seed)
    pair = Pair(tmp_path, seed, rng.choice([300, 700, 2_000]))
    steps = rng.choices(STEPS, weights=(5, 5, 5, 8, 8, 10, 2, 1, 1), k=250)
    drive(pair, steps)
    assert pair.crashes > 1


@pytest.mark.parametrize("seed", range(20))
def test_two_snapshots_right_after_an_installed_one(tmp_path: Path, seed: int) -> None:
    """Their markers may share a batch with the installed one's, or be torn off it."""
    pair = Pair(tmp_path, seed, 400)
    follow_and_apply = ["follow", "pass_once", "sync", "pass_once"]
    story = [*follow_and_apply * 3, "install", "pass_once"]
    tail = ["follow", "pass_once", "take", "pass_once", "take", "pass_once", "crash"]
    drive(pair, [*story, *tail, *follow_and_apply, "install", "take", *tail])
