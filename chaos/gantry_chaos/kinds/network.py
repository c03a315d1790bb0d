"""NetworkChaos with the field names and meanings of Chaos Mesh: partitions, loss, delay.

What it refuses beyond upstream: a partition without a target, which would also cut a pod from its
kubelet, loss or delay without one, since both are injected on the receiving side; pods that share
their node's network, pods without an address, and a source that is its only target.
"""

from __future__ import annotations

import ipaddress
import sys
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gantry_chaos.core import rules
from gantry_chaos.core.actions import Command, DelayDaemon, Injection
from gantry_chaos.core.treatment import Treatment
from gantry_chaos.errors import InjectionError, SelectionError
from gantry_chaos.inject import proof
from gantry_chaos.kinds.chaos import Chaos, Prepared
from gantry_chaos.manifests.model import Model, PodSelector
from gantry_chaos.manifests.units import Duration, Percentage  # noqa: TC001 -- pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gantry_chaos.core.actions import Action
    from gantry_chaos.kinds.chaos import Site
    from gantry_chaos.manifests.selection import Pod

EXTERNAL_TARGETS_MAX = 64
CONNECT_TIMEOUT_S = 1.0
CONNECT_PAIRS_MAX = 2  # each takes a second to fail

Direction = Literal["to", "from", "both"]


class Delay(Model):
    """Each packet waits `latency` ± `jitter`, uniformly, each wait resembling the one before.

    Attributes:
        correlation: how much; 0: not at all.
    """

    latency: Duration
    jitter: Duration = 0.0
    correlation: Percentage = 0.0

    @model_validator(mode="after")
    def _waits_for_something(self) -> Self:
        if self.latency == 0 and self.jitter == 0:
            raise ValueError("a latency of 0 without jitter delays nothing")
        return self


class Loss(Model):
    """Each packet is dropped with probability `loss`."""

    loss: Percentage
    correlation: Percentage = 0.0

    @model_validator(mode="after")
    def _loses_something(self) -> Self:
        if self.loss == 0:
            raise ValueError("a loss of 0 % loses nothing")
        return self


def _address(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no address")
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is no IPv4 address or network; names and ports are not resolved here"
        ) from None


class NetworkChaos(Chaos):
    """Packets between the selected pods (the source) and `target`.

    `direction` is seen from the source: `to` strikes packets that it sends, `from` those it gets.
    """

    FIELD: ClassVar[str] = "networkChaos"
    STRIKES_ONCE: ClassVar[bool] = False

    action: Literal["partition", "loss", "delay"]
    direction: Direction = "to"
    target: PodSelector | None = None
    external_targets: Annotated[
        list[Annotated[str, BeforeValidator(_address)]], Field(max_length=EXTERNAL_TARGETS_MAX)
    ] = Field(default=[])
    delay: Delay | None = None
    loss: Loss | None = None

    @model_validator(mode="after")
    def _fields_of_the_action(self) -> Self:
        for name, given in (("delay", self.delay), ("loss", self.loss)):
            if given is not None and self.action != name:
                raise ValueError(f"action {self.action} takes no field {name}")
            if given is None and self.action == name:
                raise ValueError(f"action {name} needs the field {name}")
        if self.action != "partition" and self.external_targets:
            raise ValueError(
                f"action {self.action} takes no externalTargets here: "
                "it is injected where packets arrive, and that is not a pod"
            )
        if self.target is None and not self.external_targets:
            raise ValueError(
                f"action {self.action} needs a target here: without one the pod would also be "
                "cut off from its kubelet's probes"
            )
        return self

    @property
    def towards(self) -> PodSelector | None:
        """See `Chaos`."""
        return self.target

    def what(self) -> str:
        """See `Chaos`."""
        detail = ""
        if self.loss is not None:
            detail = f" {self.loss.loss:.0%}"
        if self.delay is not None:
            latency_ms, jitter_ms = self.delay.latency * 1000, self.delay.jitter * 1000
            detail = f" {latency_ms:.0f} ms ± {jitter_ms:.0f} ms"
        return f"{self.action}{detail}, {self.direction}"

    def refused_on_processes(self) -> str:
        """See `Chaos`."""
        return (
            f"is a NetworkChaos ({self.action}), but pods of gantry local share one network: run "
            "it on kind with make chaos."
        )

    def prepare(self, site: Site) -> Prepared:
        """See `Chaos`; daemons listen before packets are queued."""
        both = (*site.sources, *site.targets)
        inside = {pod.uid: site.namespace_of(pod) for pod in both}
        sets = self.rule_sets(site, inside)
        probes = self._probes(site, sets, inside)
        actions: list[Action] = []
        treatment, seed = self._treatment(), site.random.getrandbits(32)
        for item in sets:
            if treatment is not None and item.table == "mangle":
                queue = rules.queue_number(item.tag)
                actions.append(DelayDaemon(item.netns, queue, treatment, seed))
        actions += [command for item in sets for command in item.inject()]
        undo = tuple(part for item in sets for part in item.undo())
        struck = tuple(pod.id for pod in site.sources)
        return Prepared(Injection(struck, tuple(actions), undo), probes)

    def rule_sets(self, site: Site, inside: Mapping[str, str]) -> list[rules.RuleSet]:
        """The packet filter rules.

        Args:
            site: whom they strike.
            inside: the network namespace of each pod, by uid.

        Raises:
            InjectionError: a pod cannot be struck.
            SelectionError: nothing is left to strike.
        """
        fault_tag = rules.tag(site.run, site.fault)
        struck = rules.flows(
            [_endpoint(pod, inside) for pod in site.sources],
            [_endpoint(pod, inside) for pod in site.targets]
            + [rules.Endpoint(address) for address in self.external_targets],
            self.direction,
        )
        if not struck:
            raise SelectionError(
                f"{site.fault} strikes nothing: its selector and its target chose the same single "
                f"pod {site.sources[0].id}."
            )
        match self.action:
            case "partition":
                return rules.partition(fault_tag, struck)
            case "loss" if self.loss is not None and not self.loss.correlation:
                return rules.loss(fault_tag, struck, self.loss.loss)
            case _:
                return rules.queued(fault_tag, struck, rules.queue_number(fault_tag))

    def _treatment(self) -> Treatment | None:
        if self.delay is not None:
            delay = self.delay
            return Treatment(delay.latency, delay.jitter, delay.correlation)
        if self.loss is not None:
            return Treatment(loss=self.loss.loss, loss_correlation=self.loss.correlation)
        return None

    def _probes(
        self, site: Site, sets: Sequence[rules.RuleSet], inside: Mapping[str, str]
    ) -> list[proof.Probe]:
        pairs = [
            (source, target, port)
            for source in site.sources
            for target in site.targets
            if source.uid != target.uid and (port := site.port(target)) is not None
        ]
        attempts = tuple(
            connect_command(inside[source.uid], target.ip, port)
            for source, target, port in pairs[:CONNECT_PAIRS_MAX]
        )
        probes: list[proof.Probe] = []
        if attempts and self.action == "partition":
            probes.append(proof.Connects(attempts, "failure"))
        if attempts and self.delay is not None:
            probes.append(proof.Connects(attempts, "delay", self.delay.latency))
        dice = self.loss.loss if self.loss and not self.loss.correlation else None
        # Last, since the attempts to connect are packets, too.
        return [*probes, proof.Counters(tuple(item.counters() for item in sets), dice)]


def connect_command(netns: str, address: str, port: int) -> Command:
    """One attempt to connect from inside a namespace."""
    module = (sys.executable, "-m", "gantry_chaos.inject.connect")
    return Command((*module, address, str(port), str(CONNECT_TIMEOUT_S)), netns)


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
