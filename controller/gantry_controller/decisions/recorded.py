"""A core whose steps are recorded: the one place at which inputs meet it.

Each input is taken as the core takes it; what it was given and what came out are kept in a
``StepRing``. What is kept holds no command (``told``). A stretch begins after a pass, where the
core owes nothing to anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.decisions import told
from gantry_controller.decisions.shape import SIZES_MAX, LogShape
from gantry_controller.decisions.state import state_of
from gantry_controller.raft.core import RaftCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_controller.decisions.ring import StepRing
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
        drawn: since somebody looked; None for nothing.
    """

    __slots__ = ("_inner", "drawn")

    def __init__(self, inner: Randomness) -> None:
        self._inner = inner
        self.drawn: list[int] | None = None

    def randrange(self, start: int, stop: int) -> int:
        """A number in [start, stop)."""
        return self._note(self._inner.randrange(start, stop))

    def getrandbits(self, k: int, /) -> int:
        """A number in [0, 2**k)."""
        return self._note(self._inner.getrandbits(k))

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
        self._made("step", told.given_message(message), super().step, message)

    def persisted(self, batch: int) -> None:
        """See ``RaftCore``."""
        self._made("persisted", batch, super().persisted, batch)

    def applied(self, index: Index) -> None:
        """See ``RaftCore``."""
        self._made("applied", index, super().applied, index)

    def compact(self, snapshot: SnapshotMeta, margin_entries: int) -> list[Entry]:
        """See ``RaftCore``."""
        given = (snapshot, margin_entries)
        dropped: list[Entry] = self._made("compact", given, super().compact, *given)
        self._shape.drop(self._state.log.base.index)
        return dropped

    def snapshot_offered(self, index: Index, term: Term) -> bool:
        """See ``RaftCore``."""
        given = (index, term)
        offered: bool = self._made("snapshot_offered", given, super().snapshot_offered, *given)
        return offered

    def install(self, snapshot: SnapshotMeta) -> list[Entry] | None:
        """See ``RaftCore``."""
        void: list[Entry] | None = self._made("install", snapshot, super().install, snapshot)
        if void is not None:
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
        ready: Ready = self._made("ready", now_ns, super().ready, now_ns)
        if self._ring.ended:
            return ready
        try:
            self._shape.extend(ready.entries)
            if self._ring.wants_state:
                self._begin()
        except Exception as error:  # noqa: BLE001 - no decision waits for its own record
            self._ring.end(_why(error))
        return ready

    def _begin(self) -> None:
        if self._shape.last_index != self.last_index:
            raise AssertionError(f"the log ends at {self.last_index}, not {self._shape.last_index}")
        then = self._shape.now()
        if then.count <= SIZES_MAX:
            self._ring.begin(self._time(), _encode(state_of(self)), then)

    def _made(self, kind: str, given: Any, call: Callable[..., Any], *args: Any) -> Any:
        if self._inside:  # the core asks itself
            return call(*args)
        if self._ring.ended:
            self._chance.drawn = None
            return call(*args)
        self._inside = True
        try:
            result = call(*args)
        except Exception as error:
            self._note(kind, given, told.raised(error))
            raise
        finally:
            self._inside = False
        self._note(kind, given, result)
        return result

    def _note(self, kind: str, given: Any, result: Any) -> None:
        try:
            if kind == "ready" and type(result) is not told.Raised:
                outcome = told.ready_told(result)
            else:
                outcome = told.result_told(result)
            drawn, self._chance.drawn = self._chance.drawn, None
            self._ring.add((kind, given, drawn, outcome), told.cost(given, outcome))
        except Exception as error:  # noqa: BLE001 - as above
            self._ring.end(_why(error))


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
