"""The order in which a replica's work is done: first what others wait for, and a share for each."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from gantry_broker.ha.feeding import BURST_BYTES, CATCH_UP_BYTES_PER_S, FEED_BYTES, Feeder
from gantry_broker.log import DiskFullError
from gantry_broker.log.checked import Damage, DamagedError
from gantry_broker.member import shell as shells
from gantry_broker.member.shell import DISPATCH_BYTES, ReplicaShell
from gantry_broker.replica import StoredState
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.effects import Fate
from gantry_broker.replica.lineage import Lineage
from gantry_broker.replica.master import Batch
from gantry_broker.replica.messages import Ack, Append
from gantry_broker.retention.disk_space import DiskSpace, Watermarks
from gantry_protocol.errors import GantryError
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENTRY = EpochEntry(Epoch(1), Offset(0))
BATCH_BYTES = 256 * 1024


class World:
    """A shell between a scripted core and a store, links and a clock that write down the calls."""

    def __init__(self, directory: Path) -> None:
        self.calls: list[str] = []
        self.effects: list[fx.Effect] = []
        self.dispatched = self.end = Offset(0)
        self.topics = SimpleNamespace(has_readers=False)
        self.lost = ""
        self.in_the_way = None
        self.is_way_free = False
        self.fed: dict[int, int] = {}
        self.serving: object | None = None
        self.tick: Callable[[], None] = lambda: None
        self.log = self
        self.cuts = self.confirm = 0
        self.is_full = False
        self.damaged: list[Damage] = []
        self.events: list[ev.Event] = []
        self.flushed: Callable[[Offset], None] = pytest.fail
        self.master = None
        self.failures: list[BaseException] = []
        self.epoch = Epoch(1)
        self.disk = DiskSpace(directory, Watermarks())
        self.shell = ReplicaShell(
            cast("Any", self),
            cast("Any", self),
            directory,
            cast("Any", self),
            cast("Any", self),
            lambda fate, writes: self.calls.append(f"{fate.name} {writes}"),
            cast("Any", SimpleNamespace(savers=None, ticker=self, disk_space=self.disk)),
            self.failures.append,
        )
        self.shell.start(
            cast("Any", SimpleNamespace(send=self._send, is_congested=lambda _: False))
        )

    def do(self, *effects: fx.Effect) -> None:
        """Let the core want this."""
        self.effects = list(effects)
        self.shell.step(ev.LogTrimmed(Offset(0)))

    def _send(self, link: int, message: Append | Ack) -> None:
        if isinstance(message, Ack):
            self.calls.append("ack")
        else:
            self.fed[link] = self.fed.get(link, 0) + len(message.data)
            self.calls.append(f"feed {link}")

    # The core.

    def step(self, event: ev.Event, _: int) -> list[fx.Effect]:
        self.events.append(event)
        effects, self.effects = self.effects, []
        return effects

    def stream(self, links: int, size: int, behind: tuple[int, ...] = ()) -> None:
        """So much is to be sent on each of so many links, and on those that are behind."""
        waited_for = list(range(1, links + 1))
        self.fed = dict.fromkeys([*waited_for, *behind], 0)
        self.end = Offset(size)
        needs = waited_for, list(behind)
        self.master = cast("Any", SimpleNamespace(links_by_need=lambda: needs))

    def next_batch(self, link: int) -> Batch | None:
        at = Offset(self.fed[link])
        return Batch(at, self.end, BATCH_BYTES, ENTRY) if at < self.end else None

    def sent(self, _: int, batch: Batch, data: bytes) -> Append:
        return Append(Epoch(1), ENTRY, batch.offset, Offset(0), in_sync=True, data=data)

    # The store and its log.

    def append_raw(self, _: Offset, data: bytes) -> None:
        if self.is_full:
            self.is_full = False
            raise DiskFullError("no room")
        self.end = Offset(self.end + len(data))
        self.calls.append("append")

    def read_units(self, offset: Offset, size: int, *, limit: Offset) -> bytes:
        for one in self.damaged:
            if one.start <= offset < one.end:
                raise DamagedError(one)
        return bytes(min(size, limit - offset))

    def flush_soon(self, flushed: Callable[[Offset], None]) -> None:
        self.flushed = flushed
        self.calls.append("flush")

    def dispatch(self, upto: Offset) -> None:
        self.dispatched = upto
        self.calls.append(f"dispatch {upto}")

    def truncate(self, _: Offset) -> None:
        self.calls.append("cut")

    def reset(self, _: Offset) -> None:
        self.calls.append("reset")

    def take_mastership(self) -> None:
        self.calls.append("mastership")

    # The observer and the clock.

    def promoted(self, *_: object) -> None: ...
    def ticked(self) -> None: ...
    def cut_off(self, _: object) -> None:
        self.calls.append("cut off")

    def giving_way(self) -> None:
        self.calls.append("gives way")

    # The controllers.

    def hand_over(self, _: object, done: Callable[[ev.HandOverFinished], None]) -> None:
        done(ev.HandOverFinished(accepted=False))

    def add(self, tick: Callable[[], None]) -> None:
        self.tick = tick

    def remove(self, _: object) -> None: ...


async def turn() -> None:
    """One round of the event loop."""
    await asyncio.sleep(0)


async def test_a_replica_asks_for_the_sync_before_it_dispatches(tmp_path: Path) -> None:
    world = World(tmp_path)
    due = Offset(DISPATCH_BYTES)
    world.do(fx.AppendLog(Offset(0), bytes(due)), fx.ConfirmMoved(due))
    assert world.calls == ["append"]
    await turn()
    assert world.calls == ["append", "flush", f"dispatch {due}"]


async def test_a_replica_acknowledges_before_it_dispatches(tmp_path: Path) -> None:
    world = World(tmp_path)
    due = Offset(DISPATCH_BYTES)
    world.do(fx.ConfirmMoved(due), fx.Send(1, Ack(Epoch(1), due)))
    await turn()
    assert world.calls == ["ack", f"dispatch {due}"]


async def test_a_replica_that_serves_reads_dispatches_in_the_same_turn(tmp_path: Path) -> None:
    """Consumers wait there for what is confirmed."""
    world = World(tmp_path)
    world.topics.has_readers = True
    world.do(fx.ConfirmMoved(Offset(1)))
    await turn()
    assert world.calls == ["dispatch 1"]


async def test_what_is_too_little_to_be_dispatched_at_once_is_at_the_next_tick(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.do(fx.ConfirmMoved(Offset(DISPATCH_BYTES - 1)))
    await turn()
    assert world.calls == []
    world.tick()
    world.tick()
    assert world.calls == [f"dispatch {DISPATCH_BYTES - 1}"]


@pytest.mark.parametrize(
    ("effect", "call"),
    [
        (fx.Promoted(Epoch(2), Offset(9)), "mastership"),
        (fx.CutLog(Offset(9), reset=False), "cut"),
    ],
)
async def test_a_change_of_role_or_log_finds_everything_dispatched(
    effect: fx.Effect, call: str, tmp_path: Path
) -> None:
    world = World(tmp_path)
    world.do(fx.ConfirmMoved(Offset(9)), effect)
    assert world.calls == ["dispatch 9", call]


async def test_a_masters_clients_see_what_is_confirmed_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.serving = world
    world.do(fx.ConfirmMoved(Offset(1), Fate.TOO_FEW, [7]), fx.WritesEnded(Fate.LATE, [8]))
    assert world.calls == ["dispatch 1", "TOO_FEW [7]", "LATE [8]"]


async def test_a_replica_far_behind_gets_a_share_of_each_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    size = 4 * FEED_BYTES
    world.stream(links=2, size=size)
    world.shell.feed()
    assert set(world.fed.values()) == {FEED_BYTES}, "each its share, in one turn"
    for _ in range(3):
        await turn()
    assert set(world.fed.values()) == {size}, "the rest follows without being asked for"


async def test_who_is_behind_comes_after_those_that_producers_wait_for_and_the_sync(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.stream(links=2, size=BATCH_BYTES, behind=(7,))
    world.do(fx.AppendLog(world.end, b""))
    await turn()
    assert world.calls == ["append", "feed 1", "feed 2", "flush", "feed 7"]


async def test_who_is_behind_is_filled_at_a_pace_and_to_the_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    size = 3 * BURST_BYTES
    world.stream(links=1, size=size, behind=(7, 8))
    began_s = asyncio.get_running_loop().time()
    world.shell.feed()
    assert world.fed[8] == 0, "the closest is first"
    for _ in range(30):
        await turn()
    assert world.fed[1] == size, "nobody slows down who is waited for"
    earned = CATCH_UP_BYTES_PER_S * (asyncio.get_running_loop().time() - began_s)
    assert world.fed[7] + world.fed[8] <= BURST_BYTES + earned + BATCH_BYTES
    async with asyncio.timeout(PATIENCE_S):
        while world.fed != {1: size, 7: size, 8: size}:
            await asyncio.sleep(0.005)


async def test_once_its_pace_is_spent_a_copy_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for turns while it may send; then a timer does."""
    now_s = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    world, turns = World(tmp_path), [True]
    world.stream(links=0, size=8 * BURST_BYTES, behind=(7,))
    feeder = Feeder(cast("Any", world), cast("Any", world), lambda: turns.append(True))
    feeder.links = world.shell.links
    for _ in range(100):
        if turns:
            turns.clear()
            feeder.keep_up()
            feeder.fill()
    assert (world.fed[7], turns) == (BURST_BYTES, [])
    feeder.stop()


async def test_who_is_no_master_any_more_feeds_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.stream(links=1, size=2 * FEED_BYTES, behind=(7,))
    world.shell.feed()
    world.master = None
    for _ in range(5):
        await turn()
    assert world.fed == {1: FEED_BYTES, 7: FEED_BYTES}


async def test_a_damaged_range_is_not_copied_and_holds_up_nobody_else(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.stream(links=2, size=2 * BATCH_BYTES)
    world.fed[1] = BATCH_BYTES  # it has the damaged range already
    world.damaged = [Damage(tmp_path / "0", 0, 0, 100, 1, "it is not what it was")]
    world.shell.feed()
    await turn()
    assert world.fed == {1: 2 * BATCH_BYTES, 2: 0}
    world.damaged = []
    for _ in range(2):
        world.shell.feed()
        await turn()
    assert world.fed[2] == 2 * BATCH_BYTES, "its link was kept"


async def test_nothing_is_sent_after_the_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.stream(links=0, size=8 * BURST_BYTES, behind=(7,))
    world.shell.feed()
    for _ in range(30):
        await turn()
    world.shell.stop()
    fed = world.fed[7]
    await asyncio.sleep(0.05)
    assert world.fed[7] == fed


async def test_a_sync_that_ends_after_a_cut_speaks_of_the_log_before_it(tmp_path: Path) -> None:
    """What it covered may be cut; the bytes in their place are not on the disk."""
    world = World(tmp_path)
    world.do(fx.AppendLog(Offset(0), b"abc"))
    await turn()
    world.cuts = 1  # the core's count, once the cut is durable
    world.flushed(Offset(3))
    assert world.events[-1] == ev.LogFlushed(Offset(3), cuts=0)


async def test_what_follows_refused_bytes_is_not_written_in_their_place(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.is_full = True
    world.do(fx.AppendLog(Offset(0), b"abc"), fx.AppendLog(Offset(3), b"def"))
    assert (world.calls, world.end) == ([], 0)
    assert [one for one in world.events if isinstance(one, ev.LogRefused)] == [
        ev.LogRefused(Offset(0), "no room")
    ]
    world.tick()
    assert ev.RoomChanged(is_full=True, has_room=False) in world.events, "it is not fed for now"


@pytest.mark.parametrize(("reset", "call"), [(False, "cut"), (True, "reset")])
async def test_the_core_hears_of_the_cut_it_wanted(tmp_path: Path, reset: bool, call: str) -> None:
    world = World(tmp_path)
    world.do(fx.CutLog(Offset(0), reset=reset))
    assert (world.calls, world.events[-1]) == ([call], ev.LogCut())


async def test_who_is_served_hears_of_what_ends_the_service(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(fx.CutOff((), 9_000))
    world.do(fx.DiskFull("nobody can take over", gives_way=False))
    world.do(fx.DiskFull("a member takes over", gives_way=True))
    assert world.calls == ["cut off", "gives way"]


async def test_the_core_hears_of_a_hand_over_that_was_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(fx.HandOver(BrokerId(2), Epoch(1)))
    assert world.events[-1] == ev.HandOverFinished(accepted=False)


async def test_an_error_of_the_rows_ends_the_member_and_what_it_hears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = GantryError("the rows do not read")

    def broken(_: Offset) -> None:
        raise error

    world = World(tmp_path)
    monkeypatch.setattr(world, "dispatch", broken)
    world.do(fx.ConfirmMoved(Offset(10)))
    world.tick()
    assert world.failures == [error]
    heard = len(world.events)
    world.shell.step(ev.Tick())
    world.tick()
    assert (len(world.events), world.failures) == (heard, [error])


async def test_a_member_that_has_ended_hears_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.shell.stop()
    world.shell.step(ev.Tick())
    assert world.events == []


async def test_a_state_without_room_is_saved_later_unless_a_newer_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shells, "SAVE_AGAIN_S", 0)
    world, asked = World(tmp_path), list[Future[None]]()

    def submit(_: object) -> Future[None]:
        asked.append(Future())
        return asked[-1]

    monkeypatch.setattr(world.shell, "_saver", SimpleNamespace(submit=submit))
    older = StoredState(Epoch(1), Lineage(), Offset(0))
    newer = StoredState(Epoch(2), Lineage(), Offset(0))
    full = OSError(errno.ENOSPC, "No space left on device")
    world.do(fx.SaveState(1, older))
    asked[0].set_exception(full)
    for _ in range(5):
        await turn()
    assert len(asked) == 2, "it is asked for again"
    world.do(fx.SaveState(2, newer))
    asked[1].set_exception(full)
    for _ in range(5):
        await turn()
    assert len(asked) == 3, "the newer one says all"
    asked[2].set_result(None)
    for _ in range(5):
        await turn()
    assert world.events[-1] == ev.StateSaved(2)
    assert world.failures == []
