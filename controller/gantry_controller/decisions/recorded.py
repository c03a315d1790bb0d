"""A core whose steps are recorded: the one place at which inputs meet it.

Each input is taken as the core takes it; what it was given and what came out are kept in a
``StepRing``. What is kept holds no command (``told``). A stretch begins after a pass, where the
core owes nothing to anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.steps.plain import raised

from gantry_controller.decisions import told
from gantry_controller.decisions.shape import SIZES_MAX, LogShape
from gantry_controller.decisions.state import state_of
from gantry_controller.raft.core import RaftCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_protocol.steps.ring import StepRing
    from gantry_protocol.types import Index, NodeId, Term

    from gantry_controller.raft.config import RaftConfig
    from gantry_controller.raft.digests import DigestPoint
    from gantry_controller.raft.messages import Entry, Message
    from gantry_controller.raft.ready import Ready
    from gantry_controller.raft.snapshot import SnapshotMeta
    from gantry_controller.raft.state import Randomness

_encode = msgspec.json.Encoder().encode


class RecordedChance:
    """A source of chance that notes what it said.

    Attributes:
        inner: where it comes from.
        drawn: since somebody looked; None for nothing.
    """

    __slots__ = ("drawn", "inner")

    def __init__(self, inner: Randomness) -> None:
        self.inner = inner
        self.drawn: list[int] | None = None

    def randrange(self, start: int, stop: int) -> int:
        """A number in [start, stop)."""
        return self._note(self.inner.randrange(start, stop))

    def getrandbits(self, k: int, /) -> int:
        """A number in [0, 2**k)."""
        return self._note(self.inner.getrandbits(k))

    def _note(self, number: int) -> int:
        if self.drawn is None:
            self.drawn = []
        self.drawn.append(number)
        return number


class RecordedCore(RaftCore):
    """A core with a ring.

    Args:
        ring: takes the steps in.
        time: the time of day as text.
        **start: as ``RaftCore`` has it.
    """

    def __init__(
        self,
        config: RaftConfig,
        rng: Randomness,
        *,
        ring: StepRing,
        time: Callable[[], str],
        **start: Any,
    ) -> None:
        chance = RecordedChance(rng)
        super().__init__(config, chance, **start)
        chance.drawn = None
        self._ring = ring
        self._time = time
        self._chance = chance
        self._inside = False
        self._size = 0  # of this pass, besides its steps
        log = self._state.log
        self._shape = LogShape(log.base.index, start.get("entries") or [])

    # ---- inputs ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """See ``RaftCore``."""
        self._made("tick", None, super().tick)

    def leader_lost(self, node: NodeId) -> None:
        """See ``RaftCore``."""
        self._made("leader_lost", node, super().leader_lost, node)

    def connection_changed(self, node: NodeId) -> None:
        """See ``RaftCore``."""
        self._made("connection_changed", node, super().connection_changed, node)

    def say_layout(self, layout: int) -> None:
        """See ``RaftCore``."""
        self._made("say_layout", layout, super().say_layout, layout)

    def propose(self, commands: list[bytes]) -> Index:
        """See ``RaftCore``."""
        sizes = told.sizes_of(commands)
        self._size += told.ARRAY_BYTES + 4 * len(commands)
        index: Index = self._made("propose", sizes, super().propose, commands)
        return index

    def read_index(self, contexts: list[object]) -> None:
        """See ``RaftCore``."""
        self._made("read_index", len(contexts), super().read_index, contexts)

    def read_anywhere(self, contexts: list[object]) -> None:
        """See ``RaftCore``."""
        self._made("read_anywhere", len(contexts), super().read_anywhere, contexts)

    def set_lease(self, *, on: bool) -> Index:
        """See ``RaftCore``."""
        index: Index = self._made("set_lease", on, lambda: RaftCore.set_lease(self, on=on))
        return index

    def barrier(self) -> Index:
        """See ``RaftCore``."""
        index: Index = self._made("barrier", None, super().barrier)
        return index

    def transfer(self, target: NodeId | None) -> NodeId:
        """See ``RaftCore``."""
        node: NodeId = self._made("transfer", target, super().transfer, target)
        return node

    def add_learner(self, node: NodeId, address: str) -> Index:
        """See ``RaftCore``."""
        given = (node, address)
        index: Index = self._made("add_learner", given, super().add_learner, *given)
        return index

    def promote(self, node: NodeId) -> Index:
        """See ``RaftCore``."""
        index: Index = self._made("promote", node, super().promote, node)
        return index

    def remove(self, node: NodeId) -> Index:
        """See ``RaftCore``."""
        index: Index = self._made("remove", node, super().remove, node)
        return index

    def step(self, message: Message) -> None:
        """See ``RaftCore``."""
        try:
            given = told.given_message(message)
        except Exception as error:  # noqa: BLE001 - no decision waits for its own record
            given = None
            self._end(error)
        if type(given) is told.AppendGiven:
            self._size += told.ENTRIES_BYTES + 4 * len(message.entries)  # type: ignore[union-attr]
        self._made("step", given, super().step, message)

    def persisted(self, batch: int) -> None:
        """See ``RaftCore``."""
        self._made("persisted", batch, super().persisted, batch)

    def applied(self, index: Index) -> None:
        """See ``RaftCore``."""
        self._made("applied", index, super().applied, index)

    def compact(self, snapshot: SnapshotMeta, margin_entries: int) -> list[Entry]:
        """See ``RaftCore``."""
        given = (snapshot, margin_entries)
        dropped: list[Entry] = []
        self._made("compact", given, lambda: _count(dropped, RaftCore.compact(self, *given)))
        self._shape.drop(self._state.log.base.index)
        return dropped

    def snapshot_offered(self, index: Index, term: Term) -> bool:
        """See ``RaftCore``."""
        given = (index, term)
        offered: bool = self._made("snapshot_offered", given, super().snapshot_offered, *given)
        return offered

    def install(self, snapshot: SnapshotMeta) -> list[Entry] | None:
        """See ``RaftCore``."""
        void: list[Entry] = []
        again = lambda: _count(void, RaftCore.install(self, snapshot))  # noqa: E731 - short
        if self._made("install", snapshot, again) is None:
            return None
        self._shape = LogShape(self._state.log.base.index, [])
        return void

    def snapshot_delivered(self, node: NodeId, holds: Index) -> None:
        """See ``RaftCore``."""
        given = (node, holds)
        self._made("snapshot_delivered", given, super().snapshot_delivered, *given)

    def digest_taken(self, point: DigestPoint) -> None:
        """See ``RaftCore``."""
        self._made("digest_taken", point, super().digest_taken, point)

    # ---- output ----------------------------------------------------------------------------------

    def ready(self, now_ns: int | None = None) -> Ready:
        """See ``RaftCore``."""
        if self._inside:
            return super().ready(now_ns)
        ready = super().ready(now_ns)  # it asks itself for nothing, and refuses nothing
        try:
            outcome = told.ready_told(ready)
            drawn, self._chance.drawn = self._chance.drawn, None
            self._ring.steps.append(("ready", now_ns, drawn, outcome))
            if ready.entries:
                self._shape.extend(ready.entries)
            size, self._size = self._size + told.size(outcome), 0
            if self._ring.passed(size):
                self._begin()
        except Exception as error:  # noqa: BLE001 - as above
            self._end(error)
        return ready

    def _begin(self) -> None:
        if self._shape.last_index != self.last_index:
            raise AssertionError(f"the log ends at {self.last_index}, not {self._shape.last_index}")
        then = self._shape.now()
        if then.count <= SIZES_MAX:
            self._ring.begin(self._time(), _encode(state_of(self)), then)

    def _made(self, kind: str, given: Any, call: Callable[..., Any], *args: Any) -> Any:
        """The result of an input, which is kept with it."""
        if self._inside:  # the core asks itself, or nothing is recorded any more
            return call(*args)
        self._inside = True
        try:
            result = call(*args)
        except Exception as error:
            self._inside = False
            self._keep(kind, given, raised(error))
            raise
        self._inside = False
        self._keep(kind, given, result)
        return result

    def _keep(self, kind: str, given: Any, outcome: Any) -> None:
        drawn, self._chance.drawn = self._chance.drawn, None
        self._ring.steps.append((kind, given, drawn, outcome))

    def _end(self, error: Exception) -> None:
        """No decision waits for its own record: nothing is recorded from here on."""
        self._inside = True
        self._state.rng = self._chance.inner
        self._ring.end(f"{type(error).__name__}: {error}")


def _count(into: list[Entry], entries: list[Entry] | None) -> int | None:
    """Hands entries on, and tells how many."""
    if entries is None:
        return None
    into += entries
    return len(entries)
