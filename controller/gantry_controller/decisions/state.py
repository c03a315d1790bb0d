"""A core's whole state as plain data, and a core that goes on from there; pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gantry_protocol.steps.plain import NotStepsError, shown
from gantry_protocol.types import Index, NodeId

from gantry_controller.decisions.plain import PLAIN
from gantry_controller.decisions.told import entry_again
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.digests import Digests
from gantry_controller.raft.log import RaftLog
from gantry_controller.raft.ready import Outbox
from gantry_controller.raft.state import Patience, RaftState

if TYPE_CHECKING:
    from array import array

    from gantry_controller.raft.state import Randomness

INFLIGHT_MAX = 65_536
"""No core that ran had more; one from a file would send for as long as it likes."""


def state_of(core: RaftCore) -> dict[str, Any]:
    """Everything that a core's decisions rest on, but for its log's entries."""
    return {
        "config": PLAIN.written(core._state.config),  # noqa: SLF001 - the core has no other reader
        "state": PLAIN.written(core._state),  # noqa: SLF001
        "outbox": PLAIN.written(core._outbox),  # noqa: SLF001
    }


def core_of(
    data: Any, sizes: array[int], runs: list[tuple[int, int]], rng: Randomness, place: str
) -> RaftCore:
    """A core that goes on from a state.

    Args:
        data: see ``state_of``.
        sizes: of the log's entries behind its base.
        runs: index and term where terms change (``shape.LogThen``).
        rng: its chance.
        place: for people.

    Raises:
        NotStepsError: it is none of this version.
    """
    if not isinstance(data, Mapping) or set(data) != {"config", "state", "outbox"}:
        raise NotStepsError(f"{place}: this is no state of a core.")
    config = _typed(PLAIN.read(data["config"], f"{place}.config"), RaftConfig, place)
    state = _typed(PLAIN.read(data["state"], f"{place}.state"), RaftState, place)
    outbox = _typed(PLAIN.read(data["outbox"], f"{place}.outbox"), Outbox, place)
    for part, kind in ((state.patience, Patience), (state.digests, Digests), (state.log, RaftLog)):
        _typed(part, kind, place)
    if config.inflight_max > INFLIGHT_MAX:
        raise NotStepsError(f"{place}: {config.inflight_max} appends cannot be on their way.")
    state.config, state.rng, state.tracer = config, rng, None
    base = state.log.base.index
    terms = _terms(base, len(sizes), runs, place)
    state.log._entries = [  # noqa: SLF001 - as above
        entry_again(Index(base + 1 + number), terms[number], size)
        for number, size in enumerate(sizes)
    ]
    outbox._state = state  # noqa: SLF001 - as above
    core = RaftCore.__new__(RaftCore)
    core._state, core._outbox = state, outbox  # noqa: SLF001 - as above
    return core


def _terms(base: int, count: int, runs: list[tuple[int, int]], place: str) -> list[Any]:
    """The term of each entry."""
    terms: list[Any] = [None] * count
    for number, (index, term) in enumerate(runs):
        end = runs[number + 1][0] if number + 1 < len(runs) else base + 1 + count
        begin, end = max(index - base - 1, 0), min(end - base - 1, count)
        if end > begin:
            terms[begin:end] = [term] * (end - begin)
    if None in terms:
        raise NotStepsError(f"{place}: the terms of some entries are missing.")
    return terms


def _typed(found: Any, kind: type[Any], place: str) -> Any:
    if type(found) is not kind:
        raise NotStepsError(f"{place}: {shown(type(found).__name__)} is no {kind.__name__}.")
    missing = [name for name in _attributes().get(kind, ()) if not hasattr(found, name)]
    if missing or set(PLAIN.names_of(found)) - {*_attributes().get(kind, PLAIN.names_of(found))}:
        raise NotStepsError(
            f"{place}: a {kind.__name__} of another version: use the one that recorded it."
        )
    return found


@functools.cache
def _attributes() -> dict[type[Any], list[str]]:
    """The attributes of objects that list them nowhere."""
    core = RaftCore(RaftConfig(node_id=NodeId(1), voters=(NodeId(1),)), _NoChance())
    state, outbox = core._state, core._outbox  # noqa: SLF001 - as above
    return {
        type(one): PLAIN.names_of(one) for one in (state, outbox, state.patience, state.digests)
    }


class _NoChance:
    """No chance at all."""

    def randrange(self, start: int, stop: int) -> int:
        """Always the first."""
        return start

    def getrandbits(self, k: int, /) -> int:
        """Always nothing."""
        return 0
