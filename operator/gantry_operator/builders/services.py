"""Services and disruption budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders.meta import Manifest, owned, sealed

if TYPE_CHECKING:
    from gantry_operator.models.base import Resource

Ports = tuple[tuple[str, int], ...]


def headless(owner: Resource, component: str, name: str, ports: Ports) -> Manifest:
    """The Service that gives pods their names.

    It publishes pods that are not Ready: peers have to find each other before any of them can
    become Ready.
    """
    service = owned(owner, component, "v1", "Service", name)
    service["spec"] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": names.selector(component, owner.metadata.name),
        "ports": _ports(ports),
    }
    return sealed(service)


def cluster_ip(
    owner: Resource,
    component: str,
    name: str,
    ports: Ports,
    *,
    by_name: bool = False,
    **labels: str,
) -> Manifest:
    """A Service over the Ready pods of a group that have these labels too (`role`, `traffic`).

    With `by_name` a port leads to the container port of that name, whose number each pod chooses.
    """
    service = owned(owner, component, "v1", "Service", name)
    extra = {f"{names.GROUP}/{label}": text for label, text in labels.items()}
    service["spec"] = {
        "type": "ClusterIP",
        "selector": names.selector(component, owner.metadata.name) | extra,
        "ports": _ports(ports, by_name=by_name),
    }
    return sealed(service)


def disruption_budget(owner: Resource, component: str, name: str) -> Manifest:
    """At most one pod of a group may be evicted at a time.

    With one replica this lets the eviction through: blocking a node drain for ever helps nobody.
    """
    budget = owned(owner, component, "policy/v1", "PodDisruptionBudget", name)
    budget["spec"] = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": names.selector(component, owner.metadata.name)},
    }
    return sealed(budget)


def _ports(ports: Ports, *, by_name: bool = False) -> list[Manifest]:
    return [
        {"name": name, "port": port, "targetPort": name if by_name else port, "protocol": "TCP"}
        for name, port in ports
    ]
