"""Changes, streamed: GET /v1/watch.

A watcher first gets every group that changed after the index it knows, then each change as it is
applied, and a heartbeat line every second; before that, again, the groups of which a member came,
went, began to drain or fares otherwise with its tier, which no log entry tells. What waits for a
slow reader is one entry per group, the newest: it may miss a step, never the outcome, and memory is
bounded by the number of groups. One that does not read at all is dropped; it may come back with its
index. What concerns all groups at once is put in order and handed out in turns of the loop.

Each heartbeat vouches for the lines before it: it is sent after a linearizable read, so a leader
that has been deposed without knowing it falls silent, and its watchers' connections end.
"""

import asyncio
from collections.abc import Callable

from gantry_controller.metadata.events import Event
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, GroupKey
from gantry_controller.turns import BITS, TurnGate, TurnQueue, Work, sorted_in_turns, step

WATCHERS_MAX = 64
HEARTBEAT_S = 1.0
CONFIRM_WITHIN_S = 2.5


class Watcher:
    """One reader's place in the stream."""

    def __init__(self, gate: TurnGate, owed: Work[list[BrokerGroup]]) -> None:
        """``owed``: what its reader is owed before anything else, in order of change."""
        self._gate = gate
        self._owed: Work[list[BrokerGroup]] | None = owed
        self._groups: dict[GroupKey, BrokerGroup] = {}  # in the order of their last change
        self._heartbeat: int | None = None
        self._news = asyncio.Event()
        self.ended = False

    def add(self, group: BrokerGroup) -> None:
        """A group changed; an older change of it that still waits is forgotten."""
        self._groups.pop(group.key, None)
        self._groups[group.key] = group
        self._news.set()

    def beat(self, index: int) -> None:
        """Everything up to ``index`` has been given."""
        self._heartbeat = index
        self._news.set()

    def end(self) -> None:
        """There will be nothing more."""
        self.ended = True
        self._news.set()

    async def next(self) -> tuple[list[BrokerGroup], int | None]:
        """News: groups in order of change, then perhaps the index of a heartbeat."""
        await self._news.wait()
        owed: list[BrokerGroup] = []
        if self._owed is not None:
            owed = await self._gate.all(self._owed)
            self._owed = None
        self._news.clear()
        groups, self._groups = [*owed, *self._groups.values()], {}
        heartbeat, self._heartbeat = self._heartbeat, None
        return groups, heartbeat


class WatchHub:
    """All watchers of one node.

    Args:
        machine: the applied state.
        read: begins a linearizable read.
        liveness_changes: groups of which a member came, went, began to drain or fares otherwise
            with its tier since it was asked.
    """

    def __init__(
        self,
        machine: MetadataStateMachine,
        read: Callable[[Callable[[Exception | None], None]], None],
        liveness_changes: Callable[[], set[GroupKey]],
    ) -> None:
        self.watchers: dict[Watcher, None] = {}  # in the order in which they came
        self.gate = TurnGate()
        self.dropped = 0
        self.refused = 0
        self._machine = machine
        self._read = read
        self._liveness_changes = liveness_changes
        self._timer: asyncio.TimerHandle | None = None
        self._confirm_by_s: float | None = None
        self._round = 0
        self._spread = TurnQueue()
        machine.add_listener(self._applied)
        machine.add_restore_listener(self.end_all)

    @property
    def full(self) -> bool:
        """Whether there is no place for another watcher."""
        return len(self.watchers) >= WATCHERS_MAX

    def start(self) -> None:
        """Begins to send heartbeats."""
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._tick)

    def stop(self) -> None:
        """Ends every stream."""
        if self._timer is not None:
            self._timer.cancel()
        self.end_all()

    def open(self, since: int) -> Watcher:
        """A new watcher that is owed every change after ``since``.

        An index from the future belongs to another history; its owner is owed everything.
        """
        state = self._machine.state
        known = since if since <= state.index else 0
        watcher = Watcher(self.gate, _changed_after(known, list(state.groups.values())))
        watcher.beat(state.index)
        self.watchers[watcher] = None
        return watcher

    def close(self, watcher: Watcher) -> None:
        """The reader is gone."""
        self.watchers.pop(watcher, None)

    def role_changed(self, *, leading: bool) -> None:
        """Only a leader's word is linearizable."""
        if not leading:
            self.end_all()

    def end_all(self) -> None:
        """Ends every stream; the readers find the leader."""
        for watcher in self.watchers:
            watcher.end()
        self.watchers.clear()

    def _applied(self, _event: Event, result: Result) -> None:
        if result.group is not None:
            for watcher in self.watchers:
                watcher.add(result.group)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEARTBEAT_S, self._tick)
        if self._confirm_by_s is not None:
            if loop.time() > self._confirm_by_s:
                self._confirm_by_s = None
                self.end_all()
            return
        if self.watchers:
            self._confirm_by_s = loop.time() + CONFIRM_WITHIN_S
            self._round += 1
            asked = self._round
            self._read(lambda error: self._confirmed(asked, error))

    def _confirmed(self, asked: int, error: Exception | None) -> None:
        if asked != self._round:
            return
        if error is not None:
            self._confirm_by_s = None
            self.end_all()
            return
        telling = self._tell(self._machine.state.index)
        if step(telling) is None:
            self._spread.add(lambda: step(telling) is not None)

    def _tell(self, index: int) -> Work[None]:
        """Of liveness, then the heartbeat; the next round begins when this one is through."""
        keys = yield from sorted_in_turns(self._liveness_changes())
        for place, key in enumerate(keys, start=1):
            if place % BITS == 0:
                yield
            group = self._machine.group(*key)
            if group is not None:
                for watcher in self.watchers:
                    watcher.add(group)
        self._confirm_by_s = None
        for watcher in self.watchers:
            watcher.beat(index)


def _changed_after(index: int, groups: list[BrokerGroup]) -> Work[list[BrokerGroup]]:
    """Those of ``groups`` that changed after ``index``, in order; all that live for 0."""
    changed: list[BrokerGroup] = []
    for start in range(0, len(groups), 16 * BITS):
        if start:
            yield
        changed += [
            group
            for group in groups[start : start + 16 * BITS]
            if group.changed_index > index and (index or not group.removed)
        ]
    return (yield from sorted_in_turns(changed, lambda item: (item.changed_index, item.key)))
