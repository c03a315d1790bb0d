"""Faults on kind: chosen among the cluster's pods, injected from the machine that runs its nodes.

What it refuses: a fault whose targets' processes are not on this machine.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.core.actions import Command, DeletePod, Injection, KillContainer
from gantry_chaos.errors import InjectionError
from gantry_chaos.inject import network, processes, proof
from gantry_chaos.manifests.model import NetworkChaosSpec, PodChaosSpec
from gantry_chaos.plan import targets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gantry_chaos.core import rules
    from gantry_chaos.core.actions import Action, Undo
    from gantry_chaos.core.timeline import Fault
    from gantry_chaos.inject.shell import Shell
    from gantry_chaos.manifests.selection import Pod

CONNECT_TIMEOUT_S = 1.0
CONNECT_ATTEMPTS = 3
CONNECT_PAIRS_MAX = 2  # each takes a second to fail


class _Active(msgspec.Struct):
    """What is remembered of a fault between its injection and its heal."""

    probes: list[proof.Probe]
    before: dict[str, str]  # identity by name, for `Replaced`
    connected: list[proof.Attempt]  # before the fault, for `Connects`
    namespaces: set[str] = msgspec.field(default_factory=set)


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
        if isinstance(fault.spec, PodChaosSpec):
            injection, names = pod_injection(fault.spec, chosen)
            self._active[fault.id] = _Active([proof.Replaced(names)], identities(pods), [])
            return injection
        others = targets.targets(fault, pods, random)
        inside = {pod.uid: self._namespace_of(pod) for pod in (*chosen, *others)}
        sets = network.rule_sets(fault, fault.spec, chosen, others, inside, self._run)
        probes = self._network_probes(fault.spec, sets, chosen, others, inside)
        connected = self._connect(probes)
        spaces = {one.netns for one in sets}
        self._active[fault.id] = _Active(probes, {}, connected, spaces)
        return network.injection(fault.spec, sets, chosen, random.getrandbits(32))

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

    def _network_probes(
        self,
        spec: NetworkChaosSpec,
        sets: Sequence[rules.RuleSet],
        sources: Sequence[Pod],
        others: Sequence[Pod],
        inside: dict[str, str],
    ) -> list[proof.Probe]:
        pairs = [
            (source, target, port)
            for source in sources
            for target in others
            if source.uid != target.uid and (port := self._port(target)) is not None
        ]
        attempts = tuple(
            connect_command(inside[source.uid], target.ip, port)
            for source, target, port in pairs[:CONNECT_PAIRS_MAX]
        )
        probes: list[proof.Probe] = []
        if attempts and spec.action == "partition":
            probes.append(proof.Connects(attempts, "failure"))
        if attempts and spec.delay is not None:
            probes.append(proof.Connects(attempts, "delay", spec.delay.latency))
        dice = spec.loss.loss if spec.loss and not spec.loss.correlation else None
        # Last, since the attempts to connect are packets, too.
        return [*probes, proof.Counters(tuple(one.counters() for one in sets), dice)]

    def _connect(self, probes: Sequence[proof.Probe]) -> list[proof.Attempt]:
        return [
            proof.attempt(self._shell.run(command))
            for probe in probes
            if isinstance(probe, proof.Connects)
            for command in probe.commands
            for _ in range(CONNECT_ATTEMPTS if probe.expect == "delay" else 1)
        ]


def pod_injection(spec: PodChaosSpec, chosen: Sequence[Pod]) -> tuple[Injection, tuple[str, ...]]:
    """A PodChaos with its chosen pods, and the names whose identity must change.

    Raises:
        InjectionError: a pod has no running container of a given name.
    """
    actions: list[Action] = []
    names: list[str] = []
    for pod in chosen:
        if spec.action == "pod-kill":
            actions.append(DeletePod(pod.namespace, pod.name, pod.uid, spec.grace_period))
            names.append(pod.id)
            continue
        running = {container.name: container.id for container in pod.containers}
        for name in spec.container_names:
            if name not in running:
                have = ", ".join(sorted(running)) or "none"
                raise InjectionError(f"Pod {pod.id} runs no container {name!r}; it runs {have}.")
            actions.append(KillContainer(pod.namespace, pod.name, name, running[name]))
            names.append(f"{pod.id}/{name}")
    return Injection(tuple(pod.id for pod in chosen), tuple(actions)), tuple(names)


def identities(pods: Sequence[Pod]) -> dict[str, str]:
    """Uids of pods and ids of containers, by `namespace/pod` and `namespace/pod/container`."""
    found = {pod.id: pod.uid for pod in pods}
    for pod in pods:
        found |= {f"{pod.id}/{container.name}": container.id for container in pod.containers}
    return found


def connect_command(netns: str, address: str, port: int) -> Command:
    """One attempt to connect from inside a namespace."""
    module = (sys.executable, "-m", "gantry_chaos.inject.connect")
    return Command((*module, address, str(port), str(CONNECT_TIMEOUT_S)), netns)


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
