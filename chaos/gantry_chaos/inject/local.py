"""Faults on a cluster of processes (`gantry local`): what can be done there, and what cannot.

Pods are processes on loopback addresses in this machine's own network namespace, and a connecting
process does not bind to its pod's address. So packets do not say which pod sent them, and faults of
the network are refused: what they would strike is not what the manifest says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gantry_chaos.core.actions import DeletePod, KillContainer
from gantry_chaos.errors import InjectionError, UnsupportedFaultError
from gantry_chaos.inject import proof
from gantry_chaos.inject.kind import identities
from gantry_chaos.kinds.chaos import Site
from gantry_chaos.plan import targets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gantry_chaos.core.actions import Action, Injection, Undo
    from gantry_chaos.core.timeline import Fault, Timeline
    from gantry_chaos.manifests.selection import Pod


class Processes(Protocol):
    """The verbs of a cluster of processes."""

    def kill(self, pod: str) -> None:
        """SIGKILL the process of a pod, behind the kubelet's back."""
        ...

    def delete(self, pod: str) -> None:
        """Delete a pod: its process is asked to stop, then replaced."""
        ...


def check(timeline: Timeline) -> None:
    """Refuse a time line that cannot be played on processes, before anything is done.

    Raises:
        UnsupportedFaultError: naming the first such fault and what to do.
    """
    for fault in timeline.faults:
        if why := fault.spec.refused_on_processes():
            raise UnsupportedFaultError(f"{fault.id} {why}")


class LocalBackend:
    """Injects into a cluster of processes.

    Args:
        pods: all pods as they are now.
        cluster: kills and deletes them.
    """

    def __init__(self, pods: Callable[[], Sequence[Pod]], cluster: Processes) -> None:
        self._pods = pods
        self._cluster = cluster
        self._active: dict[str, tuple[proof.Replaced, dict[str, str]]] = {}

    def prepare(self, fault: Fault, random: Random) -> Injection:
        """Choose targets; see `check` for what is refused."""
        assert not fault.spec.refused_on_processes(), "check refuses it"
        pods = self._pods()
        chosen = targets.sources(fault, pods, random)
        site = Site(fault.id, chosen, (), _nowhere, lambda _: None, "", random)
        injection, (probe,) = fault.spec.prepare(site)
        assert isinstance(probe, proof.Replaced), "a fault on processes replaces them"
        self._active[fault.id] = (probe, identities(pods))
        return injection

    def perform(self, action: Action) -> None:
        """Kill or delete."""
        match action:
            case KillContainer(pod=pod):
                self._cluster.kill(pod)
            case DeletePod(name=pod):
                self._cluster.delete(pod)
            case _:
                raise InjectionError(f"{type(action).__name__} is not possible on processes.")

    def undo(self, part: Undo) -> None:
        """Nothing that is done to processes has to be undone."""
        raise AssertionError(part)

    def prove(self, fault: Fault) -> str:
        """Whether every target is another process now."""
        probe, before = self._active[fault.id]
        return proof.replaced_verdict(probe, before, identities(self._pods()))

    def ended(self, fault: Fault) -> str:
        """Forget the fault."""
        self._active.pop(fault.id)
        return ""


def _nowhere(pod: Pod) -> str:
    raise InjectionError(f"Pod {pod.id} has no network of its own.")
