"""Services of listeners: the ways into the cluster from outside.

A broker group has one Service over all Ready replicas, any of which leads to the master, and one
for each replica by itself. Shards share them, with a port each, as they do inside: they lead to the
ports of those inside, or to as many that are the listener's own. The name service has one over all
controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gantry_operator import names
from gantry_operator.builders.meta import Manifest, owned, sealed

if TYPE_CHECKING:
    from collections.abc import Collection

    from gantry_operator.models import BrokerGroup, ControllerGroup
    from gantry_operator.models.listeners import ListenerWish


_THROUGH, _DIRECT = "remoting", names.BROKER_REMOTING_PORT
SHARED_PORTS = (_THROUGH, _DIRECT, names.FIRST_SHARD_PORT)
"""Of a pod, for all clients: through its door, if it has one, at the broker itself, and where it
hosts shards, that of the first one."""


def broker_listeners(
    group: BrokerGroup,
    replicas: int,
    *,
    door: bool,
    shared: Collection[str] = (),
    shards: int | None = None,
) -> list[Manifest]:
    """The Services of each listener of a broker group with so many replicas.

    Args:
        group: the wish.
        replicas: see above.
        door: whether pods have doors.
        shared: listeners with TLS of their own that lead to the ports of all clients for now.
        shards: how many groups the pods host; None for one without a number.
    """
    name = group.metadata.name
    made: list[Manifest] = []
    for listener in group.spec.clients.listeners:
        through: str | int
        direct: str | int
        through, direct = _THROUGH, _DIRECT
        own_name: str | None = None
        if listener.tls is not None and listener.name not in shared:
            # By name: pods of before and after a change have their listeners at other ports.
            own_name = listener.name
            through = names.listener_port(listener.name)
            direct = names.direct_port(listener.name) if door else through
        # Any node leads to any Ready replica, so the address of a node outlives the pod on it.
        of_all = {"externalTrafficPolicy": "Cluster", "selector": _traffic(name)}
        ports = _shard_ports(shards, own_name) or [_port(names.BROKER_REMOTING_PORT, through)]
        service = names.listener_service(name, listener.name)
        made.append(_service(group, names.BROKER, service, listener, ports, of_all))
        for ordinal in range(replicas):
            # To the broker itself, not to its door, which leads to the master.
            ports = _shard_ports(shards, own_name) or [_port(names.BROKER_REMOTING_PORT, direct)]
            own = {"externalTrafficPolicy": "Local", "selector": _replica(name, ordinal)}
            service = names.listener_service(name, listener.name, ordinal)
            made.append(_service(group, names.BROKER, service, listener, ports, own))
    return made


def _shard_ports(shards: int | None, listener: str | None) -> list[dict[str, Any]]:
    """A port for each shard; none without shards.

    They lead to the same ports of the pods, or to those of a listener with its own.
    """
    made = []
    for n in range(shards or 0):
        number = names.FIRST_SHARD_PORT + n
        target = number if listener is None else names.shard_listener_port(listener, n)
        made.append(_port(number, target, names.shard_port_name(n)))
    return made


def _port(number: int, target: str | int, name: str = "clients") -> dict[str, Any]:
    return {"name": name, "protocol": "TCP", "port": number, "targetPort": target}


class OwnPort(NamedTuple):
    """The ports of a listener with TLS of its own, at the pods of a broker group.

    Attributes:
        name: of the listener.
        entrance: where clients come in: at the door, or at a broker without one.
        behind: at a broker behind a door.
        of_shards: how many there are from the entrance on, one for each shard; 0 without shards.
    """

    name: str
    entrance: int
    behind: int
    of_shards: int = 0

    def entrances(self) -> tuple[tuple[str, int], ...]:
        """Name and number of each port of a container where clients come in."""
        if not self.of_shards:
            return ((names.listener_port(self.name), self.entrance),)
        return tuple(
            (names.shard_listener_port(self.name, n), self.entrance + n)
            for n in range(self.of_shards)
        )


def own_ports(group: BrokerGroup, shards: int | None = None) -> tuple[OwnPort, ...]:
    """Those of each listener that has any; the others share the ports of all clients."""
    own = [one for one in group.spec.clients.listeners if one.tls is not None]
    if shards is not None:
        firsts = (names.FIRST_SHARD_LISTENER_PORT + n * names.MAX_SHARDS for n in range(len(own)))
        return tuple(
            OwnPort(one.name, first, first, shards) for one, first in zip(own, firsts, strict=True)
        )
    return tuple(
        OwnPort(one.name, names.FIRST_LISTENER_PORT + n, names.FIRST_DIRECT_PORT + n)
        for n, one in enumerate(own)
    )


def name_service_listeners(group: ControllerGroup) -> list[Manifest]:
    """The Service of each listener of a quorum."""
    name = group.metadata.name
    made: list[Manifest] = []
    for listener in group.spec.clients.listeners:
        # By name: pods of before and after a change have their listeners at other ports.
        port = _port(names.NAMESERVER_PORT, names.listener_port(listener.name))
        if listener.type == "NodePort" and listener.node_port is not None:
            port["nodePort"] = listener.node_port
        of_all = {
            "externalTrafficPolicy": "Cluster",
            "selector": names.selector(names.CONTROLLER, name),
        }
        service = names.listener_service(name, listener.name)
        made.append(_service(group, names.CONTROLLER, service, listener, [port], of_all))
    return made


def listener_ports(group: ControllerGroup) -> tuple[tuple[str, int], ...]:
    """The port of each listener at the pods of a quorum."""
    listeners = group.spec.clients.listeners
    numbered = enumerate(listeners, start=names.FIRST_LISTENER_PORT)
    return tuple((names.listener_port(one.name), number) for number, one in numbered)


def _service(
    owner: BrokerGroup | ControllerGroup,
    component: str,
    name: str,
    listener: ListenerWish,
    ports: list[dict[str, Any]],
    spec: dict[str, Any],
) -> Manifest:
    service = owned(owner, component, "v1", "Service", name)
    service["metadata"]["labels"][names.LABEL_LISTENER] = listener.name
    if listener.annotations:
        service["metadata"]["annotations"] = dict(listener.annotations)
    service["spec"] = {"type": listener.type, "ports": ports} | spec
    return sealed(service)


def _traffic(name: str) -> dict[str, str]:
    return names.selector(names.BROKER, name) | {names.LABEL_TRAFFIC: names.TRAFFIC_ON}


def _replica(name: str, ordinal: int) -> dict[str, str]:
    pod = names.pod(names.broker_statefulset(name), ordinal)
    return names.selector(names.BROKER, name) | {names.LABEL_POD_NAME: pod}
