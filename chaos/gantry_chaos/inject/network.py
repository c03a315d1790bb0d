"""A NetworkChaos with its chosen pods, as an injection. Pure.

What it refuses: pods that share their node's network, pods without an address, and a fault whose
source and target are the same single pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_chaos.core import rules
from gantry_chaos.core.actions import DelayDaemon, Injection
from gantry_chaos.core.treatment import Treatment
from gantry_chaos.errors import InjectionError, SelectionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gantry_chaos.core.actions import Action
    from gantry_chaos.core.timeline import Fault
    from gantry_chaos.manifests.model import NetworkChaosSpec
    from gantry_chaos.manifests.selection import Pod


def rule_sets(
    fault: Fault,
    spec: NetworkChaosSpec,
    sources: Sequence[Pod],
    targets: Sequence[Pod],
    namespaces: Mapping[str, str],
    run: str,
) -> list[rules.RuleSet]:
    """The packet filter rules of a fault.

    Args:
        fault: for its name.
        spec: what is done.
        sources: the pods that `selector` chose.
        targets: the pods that `target` chose.
        namespaces: the network namespace of each pod, by uid.
        run: makes the fault's tag unlike that of other runs.

    Raises:
        InjectionError: a pod cannot be struck.
        SelectionError: nothing is left to strike.
    """
    fault_tag = rules.tag(run, fault.id)
    struck = rules.flows(
        [_endpoint(pod, namespaces) for pod in sources],
        [_endpoint(pod, namespaces) for pod in targets]
        + [rules.Endpoint(address) for address in spec.external_targets],
        spec.direction,
    )
    if not struck:
        raise SelectionError(
            f"{fault.id} strikes nothing: its selector and its target chose the same single pod "
            f"{sources[0].id}."
        )
    match spec.action:
        case "partition":
            return rules.partition(fault_tag, struck)
        case "loss" if spec.loss is not None and not spec.loss.correlation:
            return rules.loss(fault_tag, struck, spec.loss.loss)
        case _:
            return rules.queued(fault_tag, struck, rules.queue_number(fault_tag))


def injection(
    spec: NetworkChaosSpec,
    sets: Sequence[rules.RuleSet],
    sources: Sequence[Pod],
    seed: int,
) -> Injection:
    """Actions and undo for the rules of a fault; daemons listen before packets are queued."""
    actions: list[Action] = []
    treatment = _treatment(spec)
    for one in sets:
        if treatment is not None and one.table == "mangle":
            queue = rules.queue_number(one.tag)
            actions.append(DelayDaemon(one.netns, queue, treatment, seed))
    actions += [command for one in sets for command in one.inject()]
    undo = tuple(part for one in sets for part in one.undo())
    return Injection(tuple(pod.id for pod in sources), tuple(actions), undo)


def _treatment(spec: NetworkChaosSpec) -> Treatment | None:
    if spec.delay is not None:
        delay = spec.delay
        return Treatment(delay.latency, delay.jitter, delay.correlation)
    if spec.loss is not None:
        return Treatment(loss=spec.loss.loss, loss_correlation=spec.loss.correlation)
    return None


def _endpoint(pod: Pod, namespaces: Mapping[str, str]) -> rules.Endpoint:
    if pod.host_network:
        raise InjectionError(
            f"Pod {pod.id} uses its node's network: rules there would strike the whole node."
        )
    netns = namespaces.get(pod.uid)
    if not pod.ip or netns is None:
        raise InjectionError(f"Pod {pod.id} has no address or runs no process at the moment.")
    if ":" in pod.ip:
        raise InjectionError(f"Pod {pod.id} has the IPv6 address {pod.ip}; rules are for IPv4.")
    return rules.Endpoint(f"{pod.ip}/32", netns)
