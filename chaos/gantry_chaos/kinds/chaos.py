"""The base of a kind of chaos: one class, the `spec` of a manifest and what follows from it.

A kind reads its fields, says what it does, whom else it concerns, what is to be done and undone,
and how it is proved. Everything else (time line, journal, backends, reports) knows kinds by this
class only; `gantry_chaos.kinds` lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from gantry_chaos.manifests.model import PodSelector
from gantry_chaos.manifests.units import Duration  # noqa: TC001 -- pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gantry_chaos.core.actions import Injection
    from gantry_chaos.inject.proof import Probe
    from gantry_chaos.manifests.selection import Pod


class Site(NamedTuple):
    """The place of a fault.

    Attributes:
        fault: its id.
        sources: the pods that `selector` chose.
        targets: the pods that `towards` chose.
        namespace_of: the network namespace of a pod.
        port: where a pod accepts TCP connections, to prove a fault by; None: nowhere.
        run: makes the fault's rules unlike those of other runs.
        random: decides what is left open.
    """

    fault: str
    sources: Sequence[Pod]
    targets: Sequence[Pod]
    namespace_of: Callable[[Pod], str]
    port: Callable[[Pod], int | None]
    run: str
    random: Random


class Prepared(NamedTuple):
    """The actions of a fault, and the questions that prove that it bit."""

    injection: Injection
    probes: Sequence[Probe]


class Chaos(PodSelector):
    """A kind; its name is that of the class."""

    FIELD: ClassVar[str]
    """Where it stands in a template of a Workflow."""
    STRIKES_ONCE: ClassVar[bool]
    """There is nothing to heal: what was struck comes back by itself."""

    duration: Duration | None = None

    @property
    def towards(self) -> PodSelector | None:
        """Pods that it concerns besides those it strikes; None: none."""
        return None

    def what(self) -> str:
        """The fault in a few words."""
        raise NotImplementedError

    def refused_on_processes(self) -> str:
        """The reason against a cluster of processes, and what to do; empty if there is none."""
        raise NotImplementedError

    def prepare(self, site: Site) -> Prepared:
        """The actions there, and their proof.

        Raises:
            InjectionError: a pod cannot be struck.
            SelectionError: nothing is left to strike.
        """
        raise NotImplementedError
