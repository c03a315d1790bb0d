"""Faults on kind: chosen among the cluster's pods, injected from the machine that runs its nodes.

What it refuses: a fault whose targets' processes are not on this machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.core.actions import DelayDaemon
from gantry_chaos.errors import InjectionError
from gantry_chaos.inject import processes, proof
from gantry_chaos.kinds.chaos import Site
from gantry_chaos.plan import targets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gantry_chaos.core.actions import Action, Injection, Undo
    from gantry_chaos.core.timeline import Fault
    from gantry_chaos.inject.shell import Shell
    from gantry_chaos.manifests.selection import Pod

CONNECT_ATTEMPTS = 3


class _Active(msgspec.Struct):
    """What is remembered of a fault between its injection and its heal."""

    probes: Sequence[proof.Probe]
    before: dict[str, str]  # identity by name, for `Replaced`
    connected: list[proof.Attempt]  # before the fault, for `Connects`
    namespaces: set[str]  # with daemons


class KindBackend:
    """Injects on the machine whose processes are the cluster's.

    Args:
        pods: all pods as they are now, with the labels that the controllers' word adds.
        port: where a pod accepts TCP connections, to prove a fault by; None: nowhere.
        run: name of the run; makes its rules unlike those of others.
        shell: runs what is decided.
        namespace_of: the network namespace of a pod.
    """

    def __init__(
        self,
        pods: Callable[[], Sequence[Pod]],
        port: Callable[[Pod], int | None],
        run: str,
        shell: Shell,
        namespace_of: Callable[[Pod], str] | None = None,
    ) -> None:
        self._pods = pods
        self._port = port
        self._run = run
        self._shell = shell
        self._namespace_of = namespace_of or pod_namespace
        self._active: dict[str, _Active] = {}

    def perform(self, action: Action) -> None:
        """See `Executor`."""
        self._shell.perform(action)

    def undo(self, part: Undo) -> None:
        """See `Executor`."""
        self._shell.undo(part)

    def prepare(self, fault: Fault, random: Random) -> Injection:
        """Choose targets, measure what is to be compared, say what is to be done.

        Raises:
            SelectionError: nobody matches.
            InjectionError: a pod cannot be struck.
        """
        pods = self._pods()
        chosen = targets.sources(fault, pods, random)
        site = Site(
            fault.id,
            chosen,
            targets.targets(fault, pods, random),
            self._namespace_of,
            self._port,
            self._run,
            random,
        )
        injection, probes = fault.spec.prepare(site)
        daemons = {action.netns for action in injection.actions if isinstance(action, DelayDaemon)}
        before = identities(pods)
        self._active[fault.id] = _Active(probes, before, self._connect(probes), daemons)
        return injection

    def prove(self, fault: Fault) -> str:
        """Whether the fault bit, asked right before its heal; for one that strikes once, too."""
        active = self._active[fault.id]
        verdicts: list[str] = []
        for probe in active.probes:
            match probe:
                case proof.Counters(commands=commands):
                    texts = [self._shell.run(command) for command in commands]
                    verdicts.append(proof.counters_verdict(probe, texts))
                case proof.Connects():
                    during = self._connect([probe])
                    verdicts.append(proof.connects_verdict(probe, active.connected, during))
                case proof.Replaced():
                    after = identities(self._pods())
                    verdicts.append(proof.replaced_verdict(probe, active.before, after))
        return " ".join(filter(None, verdicts))

    def ended(self, fault: Fault) -> str:
        """End the fault's daemons; whether everything connects again."""
        active = self._active.pop(fault.id)
        for netns in active.namespaces:
            self._shell.stop_daemons(netns)
        return proof.healed_verdict(self._connect(active.probes))

    def _connect(self, probes: Sequence[proof.Probe]) -> list[proof.Attempt]:
        return [
            proof.attempt(self._shell.run(command))
            for probe in probes
            if isinstance(probe, proof.Connects)
            for command in probe.commands
            for _ in range(CONNECT_ATTEMPTS if probe.expect == "delay" else 1)
        ]


def identities(pods: Sequence[Pod]) -> dict[str, str]:
    """Uids of pods and ids of containers, by `namespace/pod` and `namespace/pod/container`."""
    found = {pod.id: pod.uid for pod in pods}
    for pod in pods:
        found |= {f"{pod.id}/{container.name}": container.id for container in pod.containers}
    return found


def pod_namespace(pod: Pod) -> str:
    """The network namespace of a pod by the first process of one of its containers.

    Raises:
        InjectionError: it runs no container, not on this machine, or in this machine's network.
    """
    if not pod.containers:
        raise InjectionError(f"Pod {pod.id} runs no container at the moment.")
    everybody = processes.all_processes()
    pid = processes.first_process(pod.containers[0].id, everybody)
    netns = processes.network_namespace(pid)
    if netns == processes.network_namespace(os.getpid()):
        raise InjectionError(f"Pod {pod.id} uses this machine's own network: rules would cut it.")
    return netns
