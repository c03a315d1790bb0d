"""Damaged ranges are written anew from another member's log, and with nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from gantry_broker.ha import repair
from gantry_broker.ha.links import ReplicationLinks
from gantry_broker.ha.listener import GroupKey, ReplicaListener
from gantry_broker.ha.repair import NoRangeError, Repairs, TrimmedError, give
from gantry_broker.ha.wire import Caller
from gantry_broker.log import CommitLog, sums
from gantry_broker.log.checked import Damage, DamagedError
from gantry_broker.replica.messages import Range, RangeAsk
from gantry_protocol.quorum_key import NO_KEY
from gantry_protocol.types import Offset
from support import logs
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALLER = Caller("c", "g", "")


@pytest.fixture
def log(tmp_path: Path):
    log = logs.filled(tmp_path / "log", 60)
    yield log
    log.close()


def damage(log: CommitLog, at: int) -> tuple[Damage, bytes]:
    """Flip a bit; what was found, and what the range should be."""
    path, position = log.locate(Offset(at))
    sound = path.read_bytes()
    logs.flip(path, position)
    with pytest.raises(DamagedError) as caught:
        log.compare(at, at + 1)
    found = caught.value.damage
    begin = found.start - int(path.name)
    return found, sound[begin : begin + found.length]


class Master:
    """Gives what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = "there:1"
        self.gives: bytes | Exception = b""
        self.confirmed = Offset(0)
        self.asked: list[tuple[str, int, int]] = []
        monkeypatch.setattr(repair, "fetch", self._fetch)
        monkeypatch.setattr(repair, "RETRY_S", 0.01)

    async def _fetch(self, address: str, start: int, length: int, *_: object) -> bytes:
        self.asked.append((address, start, length))
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    return Master(monkeypatch)


@pytest.fixture
async def repairs(log: CommitLog, master: Master):
    made = Repairs(log, lambda: CALLER, lambda: master.address, confirmed=lambda: master.confirmed)
    made.start()
    yield made
    await made.stop()


async def until(holds) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


async def test_a_damaged_range_is_written_anew(log, master, repairs) -> None:
    found, sound = damage(log, 5_000)
    master.gives = sound
    repairs.wake()
    await until(lambda: repairs.repaired == 1)
    assert master.asked == [("there:1", found.start, found.length)]
    assert log.checks.damage == {}
    assert log.read(Offset(found.start), found.length) == sound
    log.verify()


async def test_only_what_matches_the_sum_is_written(log, master, repairs) -> None:
    found, sound = damage(log, 5_000)
    rotten = found.path.read_bytes()
    for wrong in (sound[:-1] + b"?", sound[:-1], b"", NoRangeError("it is not here")):
        master.gives = wrong
        before = len(master.asked)
        repairs.wake()
        await until(lambda: len(master.asked) > before + 1)  # noqa: B023
        assert repairs.reasons[found.start]
        assert f"log offsets {found.start} to {found.end}: " in repairs.told()
        assert found.path.read_bytes() == rotten
    assert repairs.repaired == 0
    master.gives = sound
    await until(lambda: repairs.repaired == 1)
    assert repairs.reasons == {}
    assert repairs.told() == ""


async def test_a_range_that_never_had_a_sum_is_taken_once_it_is_confirmed(
    log, master, repairs
) -> None:
    start, end = logs.boundaries(log)[10:12]
    sound = log.read(start, end - start)
    entry = next(
        entry
        for entry in sums.covering(sums.sums_path(log.locate(start)[0]), start, end)
        if entry.start <= start
    )
    path, position = log.locate(Offset(entry.start))
    sound = path.read_bytes()[position : position + entry.length]
    logs.flip(path, position + 20)  # of a queue offset, which no record's check covers
    log.mending.unproved = [entry]
    log.mending.doubt("its queues do not go on")
    master.gives, master.confirmed = sound, Offset(entry.end - 1)
    repairs.wake()
    await until(lambda: repairs.told() or repairs.repaired)
    assert "not known to be confirmed" in repairs.told()
    assert master.asked == []
    for wrong in (sound[:-1], b"\1" + sound[1:], sound[::-1]):
        master.gives, master.confirmed = wrong, Offset(entry.end)
        before = len(master.asked)
        await until(lambda: len(master.asked) > before + 1 or repairs.repaired)  # noqa: B023
        assert repairs.repaired == 0
    master.gives = sound
    await until(lambda: repairs.repaired == 1)
    assert log.checks.damage == {}
    assert log.read(Offset(entry.start), entry.length) == sound
    copy = logs.clone(log.directory, log.directory.parent / "again")
    again = CommitLog.open(copy, logs.SEGMENT_BYTES)  # it would refuse damage
    again.verify()
    again.close()


async def test_what_the_master_has_trimmed_is_told_of(log, master, monkeypatch) -> None:
    told: list[tuple[Damage, int]] = []
    repairs = Repairs(
        log, lambda: CALLER, lambda: "there:1", trimmed=lambda *what: told.append(what)
    )
    found, _ = damage(log, 5_000)
    master.gives = TrimmedError("there:1", Offset(found.end - 1))  # a part of it is there
    repairs.start()
    await until(lambda: len(master.asked) > 1)
    assert told == []
    master.gives = TrimmedError("there:1", Offset(found.end))
    await until(lambda: bool(told))
    assert told[0] == (found, found.end)
    await repairs.stop()


async def test_without_a_master_it_waits_for_one(log, master, repairs) -> None:
    master.address = ""
    _, master.gives = damage(log, 5_000)
    repairs.wake()
    await asyncio.sleep(0.05)
    assert master.asked == []
    await until(lambda: "no master to ask" in repairs.told())
    master.address = "elsewhere:1"
    await until(lambda: repairs.repaired == 1)


async def test_what_was_cut_meanwhile_is_left_alone(log, master, repairs) -> None:
    found, sound = damage(log, 15_000)
    log.truncate(Offset(found.start))
    before = logs.contents(log)
    assert not log.mending.overwrite(found, sound)
    assert log.end == found.start
    assert logs.contents(log) == before


class Giver:
    """What a member gives to who asks it."""

    address = ""
    gives: Callable[[RangeAsk], Range]

    def __call__(self, ask: RangeAsk) -> Range:
        return self.gives(ask)


@pytest.fixture
async def member():
    """A member that can be asked at its address."""
    giver = Giver()
    links = ReplicationLinks(lambda: CALLER, lambda _: None, lambda: None, give=giver)
    listener = ReplicaListener()
    listener.add(GroupKey(CALLER.cluster, CALLER.group), links)
    port = await listener.start("127.0.0.1", 0)
    giver.address = f"127.0.0.1:{port}"
    yield giver
    await listener.stop()
    await links.stop()


async def test_a_long_range_comes_in_parts(member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "RANGE_BYTES", 4)
    member.gives = lambda ask: Range(ask.start, bytes(range(ask.start, ask.start + ask.length)))
    assert await repair.fetch(member.address, 10, 11, CALLER, NO_KEY) == bytes(range(10, 21))


@pytest.mark.parametrize(
    ("start", "data"),
    [
        pytest.param(11, b"1234", id="of another place"),
        pytest.param(10, b"123", id="fewer"),
        pytest.param(10, b"12345", id="more"),
    ],
)
async def test_bytes_of_another_range_are_not_taken(member, start: int, data: bytes) -> None:
    member.gives = lambda _: Range(Offset(start), data)
    with pytest.raises(NoRangeError, match="other bytes"):
        await repair.fetch(member.address, 10, 4, CALLER, NO_KEY)


def test_what_is_given_is_confirmed_and_was_compared(log: CommitLog) -> None:
    sound = logs.contents(log)
    confirm = Offset(12_000)
    for start, length in ((0, 100), (100, 9_000), (4_000, 8_000)):
        assert give(log, RangeAsk(Offset(start), length), confirm) == Range(
            Offset(start), sound[start : start + length]
        )
    for start, length in ((11_999, 2), (13_000, 10), (0, repair.RANGE_BYTES + 1)):
        refused = give(log, RangeAsk(Offset(start), length), confirm)
        assert (refused.data, "confirmed here is [0, 12000)" in refused.reason) == (b"", True)
    begin = log.starts[1]
    log.raise_confirm_floor(confirm)
    log.trim(begin)
    for start, said in ((0, begin), (begin - 1, begin), (confirm, confirm)):
        refused = give(log, RangeAsk(Offset(start), 10), confirm)
        assert (refused.start, refused.data) == (said, b"")
    log.checks.forget(0, log.end)
    damage(log, 5_000)
    assert "damaged here, too" in give(log, RangeAsk(Offset(4_900), 200), confirm).reason
