"""Power cuts: nothing that was reported flushed is lost, nothing that was never written appears."""

from __future__ import annotations

import asyncio
import random
import shutil
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, LogFailedError, sums
from gantry_broker.log.checkpoint import load
from gantry_broker.log.disk import Disks
from gantry_protocol.errors import CorruptionError
from gantry_protocol.records import BLANK_MAGIC
from gantry_protocol.types import Offset
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import logs
from support.power import Power, power_watch, restore
from support.syncers import FakeSyncer

SEGMENT_BYTES = 1500

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 900)),
        st.tuples(st.just("read"), st.just(0)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("soon"), st.just(0)),
        st.tuples(st.just("turn"), st.just(0)),
        st.tuples(st.just("confirm"), st.integers(0, 100)),
        st.tuples(st.just("cut"), st.integers(0, 100)),
        st.tuples(st.just("reopen"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
    ),
    min_size=1,
    max_size=16,
)


class World:
    """A log and what it has promised."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _, context: None)  # the log stays failed
        self.syncer = FakeSyncer()  # syncs as the power watch does, when its end is taken in
        self.disks = Disks(lambda: self.syncer)
        self._open()
        self.number = 0
        self.bytes = b""  # the log, as it was appended
        self.flushed = 0

    def _open(self) -> None:
        self.log = CommitLog.open(self.directory, SEGMENT_BYTES, disks=self.disks)

    def close(self) -> None:
        self.syncer.let_go()
        self.log.close()
        self.disks.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def note(self) -> tuple[bytes, int]:
        return self.bytes, self.flushed

    def step(self, name: str, value: int) -> None:
        if name in ("turn", "flush", "cut", "reopen", "kill"):
            self.syncer.let_go()
        getattr(self, name)(value)
        self.flushed = self.log.flushed

    def append(self, size: int) -> None:
        """What is about to be written is known before, as the writer thread may look any time."""
        self.number += 1
        offset = self.log.position_for(logs.RECORD_BYTES - 7 + size)
        blank = offset - self.log.end
        if blank:
            self.bytes += (struct.pack(">iI", blank, BLANK_MAGIC)).ljust(blank, b"\0")
        data = logs.record(offset, self.number, body=bytes(1 + i % 251 for i in range(size)))
        self.bytes += data
        self.log.append(data)

    def read(self, _: int) -> None:
        """What somebody was shown may be taken away by a power cut, no more by a kill."""
        assert logs.contents(self.log) == self.bytes
        assert self.log._commit.written == self.log.end

    def flush(self, _: int) -> None:
        self.log.flush()

    def soon(self, _: int) -> None:
        """The kernel has it, and is not done before the loop turns or somebody blocks."""

        async def begin() -> None:
            self.log.flush_soon(lambda _: None)

        self.syncer.is_held = True
        self.loop.run_until_complete(begin())

    def turn(self, _: int) -> None:
        async def settled() -> None:
            while self.log._commit._job is not None:
                await asyncio.sleep(0)

        self.loop.run_until_complete(settled())

    def confirm(self, percent: int) -> None:
        starts = [at for at in logs.boundaries(self.log) if at <= self.log.flushed]
        self.log.raise_confirm_floor(starts[percent * (len(starts) - 1) // 100])

    def cut(self, percent: int) -> None:
        starts = [at for at in logs.boundaries(self.log) if at >= self.log.confirm_floor]
        to = starts[percent * (len(starts) - 1) // 100]
        self.flushed = min(self.flushed, to)
        self.log.truncate(Offset(to))
        self.bytes = self.bytes[: self.log.end]

    def kill(self, _: int) -> None:
        """The process dies, the machine does not: what was written is there, unsynced."""
        written = self.log._commit.written
        self.log._writer.close()
        self.log._segments.close()
        self.log._commit._waiting.clear()  # the loop dies with it
        self.bytes = self.bytes[:written]
        self._open()

    def reopen(self, _: int) -> None:
        self.log.close()
        self._open()


def _check(directory: Path, note: tuple[bytes, int]) -> None:
    appended, flushed = note
    again = CommitLog.open(directory, SEGMENT_BYTES)
    found = logs.contents(again)
    again.verify()
    # What follows must work on whatever was found.
    logs.append(again, 1)
    again.close()
    CommitLog.open(directory, SEGMENT_BYTES).close()
    assert found == appended[: len(found)], "something appeared that was never there"
    assert len(found) >= flushed, "something flushed was lost"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@example(plan=[("append", 1), ("kill", 0), ("append", 1), ("flush", 0)], seed=0)
@given(plan=steps, seed=st.integers(0, 2**32))
def test_a_power_cut_at_any_sync(plan: list[tuple[str, int]], seed: int) -> None:
    chooser = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as temporary,
        pytest.MonkeyPatch.context() as monkeypatch,
        power_watch(Path(temporary) / "disk", monkeypatch) as power,
    ):
        (power.root).mkdir()
        interval_s = chooser.choice([0, 0.5])
        monkeypatch.setattr("gantry_broker.log.disk.CHECKPOINT_INTERVAL_S", interval_s)
        world = World(power.root / "log")
        power.note = world.note
        power.keep_moments = True
        for name, value in plan:
            world.step(name, value)
        power.moments.append(power.freeze())
        moments = chooser.sample(power.moments, min(len(power.moments), 12))
        world.close()
        power.keep_moments = False
        for number, moment in enumerate([*moments, moments[0], moments[-1]]):
            target = restore(moment, Path(temporary) / f"after{number}", chooser)
            if (target / "log").exists():
                _check(target / "log", moment.note)
            else:
                assert moment.note[1] == 0
            shutil.rmtree(target)


def test_the_watch_finds_a_log_that_reports_before_it_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the test: without syncs the property above must not hold."""
    chooser = random.Random(1)
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        world = World(tmp_path / "disk" / "log")
        with monkeypatch.context() as patch:
            patch.setattr("os.fdatasync", lambda descriptor: None)
            world.step("append", 50)
            world.step("flush", 0)
        power.note = world.note
        moment = power.freeze()
        world.close()
        assert world.flushed > 0
        broken = 0
        for number in range(30):
            target = restore(moment, tmp_path / f"after{number}", chooser)
            try:
                _check(target / "log", moment.note)
            except (AssertionError, CorruptionError):
                broken += 1
        assert broken


def test_the_floor_is_never_durable_before_the_sums_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a cut fell on a file's end and so left the sums before it as they were."""
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        world = World(tmp_path / "disk" / "log")
        for size in (600, 600, 600, 600):
            world.step("append", size)
        world.log.flush()
        world.log.truncate(Offset(SEGMENT_BYTES))
        world.log.raise_confirm_floor(Offset(SEGMENT_BYTES))
        power.keep_moments = True
        power.note = lambda: (world.bytes[:SEGMENT_BYTES], SEGMENT_BYTES)
        world.close()
        chooser = random.Random(1)
        for number, moment in enumerate(power.moments * 5):
            target = restore(moment, tmp_path / f"after{number}", chooser)
            _check(target / "log", moment.note)


def _check_all(world: World, power: Power, tmp_path: Path) -> None:
    """Whatever a power cut leaves now, nothing flushed is lost."""
    power.note = world.note
    moment = power.freeze()
    chooser = random.Random(1)
    for number in range(20):
        target = restore(moment, tmp_path / f"after{number}", chooser)
        _check(target / "log", moment.note)


def test_after_an_io_error_nothing_is_believed_that_the_disk_has_not_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of the failed sync are clean and still read as written: they are written again."""
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        world = World(tmp_path / "disk" / "log")
        world.step("append", 50)
        world.step("flush", 0)
        world.step("append", 60)
        power.fail_next()
        with pytest.raises(LogFailedError):
            world.step("flush", 0)
        world.step("kill", 0)
        assert world.flushed == len(world.bytes), "recovery vouches for what it found"
        _check_all(world, power, tmp_path)
        world.close()


def test_after_an_io_error_of_the_kernel_nothing_is_believed_that_the_disk_has_not_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        world = World(tmp_path / "disk" / "log")
        world.step("append", 50)
        world.step("flush", 0)
        flushed = world.flushed
        world.step("append", 60)
        world.step("soon", 0)
        power.fail_next()
        world.step("turn", 0)
        assert world.flushed == flushed
        with pytest.raises(LogFailedError):
            world.log.flush()
        world.step("kill", 0)
        assert world.flushed == len(world.bytes), "recovery vouches for what it found"
        _check_all(world, power, tmp_path)
        world.close()


def test_after_an_io_error_in_a_trim_no_checkpoint_rests_on_the_sums_that_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second sync of them would succeed: the kernel tells of a lost write once."""
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        monkeypatch.setattr("gantry_broker.log.disk.CHECKPOINT_INTERVAL_S", 1000)
        world = World(tmp_path / "disk" / "log")
        for size in (600, 700, 800, 900):
            world.step("append", size)
        world.step("flush", 0)
        world.step("confirm", 100)
        power.fail_next(sums.SUFFIX)
        with pytest.raises(LogFailedError):
            world.log.trim(world.log.starts[2])
        world.close()
        assert load(world.directory / "checkpoint").confirm_floor == 0


def test_after_an_io_error_sums_are_not_believed_that_the_disk_has_not_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        world = World(tmp_path / "disk" / "log")
        for size in (50, 60):
            world.step("append", size)
            world.step("flush", 0)
        world.step("confirm", 100)
        power.fail_next(sums.SUFFIX)
        world.step("reopen", 0)
        world.step("confirm", 100)
        world.close()
        _check_all(world, power, tmp_path)


def test_after_an_io_error_no_file_goes_before_the_start_of_a_trim_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start that a failed sync left is read as written: an older one would miss the files."""
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        world = World(tmp_path / "disk" / "log")
        for size in (600, 700, 800, 900):
            world.step("append", size)
        world.step("flush", 0)
        world.step("confirm", 100)
        world.step("reopen", 0)
        to = world.log.starts[2]
        power.fail_next("checkpoint")
        with pytest.raises(LogFailedError):
            world.log.trim(to)
        world.step("kill", 0)
        assert world.log.starts[0] == to, "the next process finishes the trim"
        moment = power.freeze()
        chooser = random.Random(1)
        for number in range(20):
            target = restore(moment, tmp_path / f"after{number}", chooser)
            again = CommitLog.open(target / "log", SEGMENT_BYTES)
            assert (again.log_start, again.end) == (to, len(world.bytes))
            again.verify()
            again.close()
        world.close()


@pytest.mark.parametrize("is_reset", [False, True], ids=["cut", "reset"])
def test_a_power_cut_at_any_sync_of_a_cut_ends_in_the_cut_or_leaves_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reset: bool
) -> None:
    """What was cut never comes back, over several files (upstream's #10666)."""
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        world = World(tmp_path / "disk" / "log")
        for size in (400, 500, 700, 800, 300):
            world.step("append", size)
        world.log.flush()
        whole = world.bytes
        to = Offset(9_000) if is_reset else logs.boundaries(world.log)[1]
        assert len(list(world.log.directory.glob("0*.sums"))) > 2
        after = b"" if is_reset else whole[:to]
        power.keep_moments = True
        power.note = lambda: False
        if is_reset:
            world.log.reset(to)
        else:
            world.log.truncate(to)
        power.note = lambda: True
        power.moments.append(power.freeze())
        chooser = random.Random(1)
        for number, moment in enumerate(power.moments * 6):
            target = restore(moment, tmp_path / f"after{number}", chooser)
            again = CommitLog.open(target / "log", SEGMENT_BYTES)
            assert logs.contents(again) == after or (not moment.note and again.end == len(whole))
            assert again.end in (to, len(whole))
            again.verify()
            again.close()
        world.close()


@pytest.mark.parametrize("is_reset", [False, True], ids=["cut", "reset"])
@pytest.mark.parametrize("spared", range(4), ids=lambda count: f"after {count} syncs")
def test_an_io_error_in_a_cut_leaves_what_the_next_start_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spared: int, is_reset: bool
) -> None:
    (tmp_path / "disk").mkdir()
    with power_watch(tmp_path / "disk", monkeypatch) as power:
        world = World(tmp_path / "disk" / "log")
        for size in (400, 500, 700, 800):
            world.step("append", size)
        world.step("flush", 0)
        to = Offset(9_000) if is_reset else logs.boundaries(world.log)[1]
        power.fail_next(after=spared)
        with suppress(LogFailedError):  # a reset has fewer syncs
            world.log.reset(to) if is_reset else world.log.truncate(to)
        power.fail_next("nothing")
        world.step("kill", 0)
        moment, found = power.freeze(), world.log.end
        chooser = random.Random(1)
        for number in range(8):
            target = restore(moment, tmp_path / f"after{number}", chooser)
            again = CommitLog.open(target / "log", SEGMENT_BYTES)
            assert again.end == found
            again.verify()
            again.close()
        world.close()
