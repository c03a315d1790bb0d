"""The cluster of a chaos run: its pods, a way to strike them, and a load to watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from gantry_chaos.checkers.verdicts import Verdict
    from gantry_chaos.core.timeline import Timeline
    from gantry_chaos.history.observations import Observation
    from gantry_chaos.history.records import Batch
    from gantry_chaos.manifests.selection import Pod
    from gantry_chaos.plan.engine import Backend

    from gantry_lab.soak.views import Count, SoakState

TOPIC_PREFIX = "chaos"


class HistoryRecorder(Protocol):
    """The keeper of a history."""

    async def batch(self, after: int) -> Batch:
        """The records of the history from number `after` on."""
        ...


class LoadClient(HistoryRecorder, Protocol):
    """A load that runs, and keeps a history."""

    async def state(self) -> SoakState:
        """Everything at this moment."""
        ...

    async def pause(self, patience_s: float) -> Count:
        """Stop sending and read everything; see `Soak.pause`."""
        ...


class ChaosStage(Protocol):
    """A cluster with one broker group that is watched.

    Attributes:
        kind: `local` or `kind`.
        namespace: of the group, and of objects in manifests that name none.
        group: its name.
        kubectl: the command to heal with; empty where nothing has to be healed.
        names: of all pods that were ever seen, by uid.
    """

    kind: str
    namespace: str
    group: str
    kubectl: tuple[str, ...]
    names: dict[str, str]

    def check(self, timeline: Timeline) -> None:
        """Refuse what cannot be played here."""
        ...

    def pods(self) -> Sequence[Pod]:
        """All pods as they are now; called from the engine's thread."""
        ...

    def backend(self, run: str) -> Backend:
        """Injects; `run` makes its rules unlike those of others."""
        ...

    def client(self, topic: str) -> AbstractAsyncContextManager[LoadClient]:
        """Start a load on a topic of its own; it ends with the context."""
        ...

    async def tier(self, client: LoadClient, seen: Sequence[Observation]) -> Verdict | None:
        """The group's uploads against what is known of it; None: it has no tier.

        `seen` is what was observed during the run, the masters among it.
        """
        ...
