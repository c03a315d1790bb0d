"""NetworkPolicies: who may open connections to the pods of a group.

Rule protected: what no rule names is closed, so a port that is added later is open to nobody before
somebody says to whom. Only connections to the pods are limited; where the pods may connect to is
the cluster's business. These policies are a second fence: the ports that command something ask for
the quorum's key or the admin token in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders.listeners import own_ports
from gantry_operator.builders.meta import Manifest, owned, sealed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.models import BrokerGroup, ControllerGroup, FrontGroup
    from gantry_operator.models.network import Peer

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The API server puts this label on every namespace."""


def controller_policy(group: ControllerGroup, operator_namespace: str) -> list[Manifest]:
    """The policy of a quorum's pods; none if it is switched off.

    Args:
        group: the quorum.
        operator_namespace: where the operator's own pods are; empty if it runs outside a cluster,
            and then pods of the group's namespace that are labelled as the operator count.
    """
    wish = group.spec.network_policy
    if not wish.enabled:
        return []
    name, component = group.metadata.name, names.CONTROLLER
    own = _pods(names.selector(component, name))
    tools = [_operator(operator_namespace), _tools(), *_peers(wish.tools_from)]
    outside = (names.FIRST_LISTENER_PORT + n for n in range(len(group.spec.clients.listeners)))
    rules = [
        _rule((names.NAMESERVER_PORT, *outside), _peers(wish.clients_from)),
        _rule(
            (names.CONTROLLER_REMOTING_PORT,), [own, *map(_of, (names.BROKER, names.FRONT)), *tools]
        ),
        _rule((names.RAFT_PORT,), [own]),
        _rule((names.CONTROLLER_HTTP_PORT,), [*tools, *_peers(wish.metrics_from)]),
    ]
    policy = owned(group, component, *_KIND, names.controller_statefulset(name))
    return [_sealed(policy, names.selector(component, name), rules)]


def broker_policy(
    group: BrokerGroup, *, fronts: bool = False, shards: int | None = None
) -> list[Manifest]:
    """The policy of a broker group's pods; none if it is switched off.

    With `fronts`, those of the namespace may reach the store and pass clients on. With `shards`,
    clients come in at a range of so many ports, and at one for each listener with its own.
    """
    wish = group.spec.network_policy
    if not wish.enabled:
        return []
    name, component = group.metadata.name, names.BROKER
    own = _pods(names.selector(component, name))
    # Doors and replicas pass clients on to the master, and the controllers knock to see who is
    # there. The door's ports are open without one, too: it may be on its way in or out.
    knocking = _pods(names.selector(names.CONTROLLER, group.spec.controller_ref.name))
    clients = _peers(wish.clients_from)
    passing_on = [_of(names.FRONT)] if fronts else []
    entering = [own, knocking, *passing_on, *clients] if clients else []
    if shards is None:
        outside = (port for own in own_ports(group) for port in (own.entrance, own.behind))
        way_in = _rule((names.BROKER_REMOTING_PORT, names.DOOR_PORT, *outside), entering)
        http = _rule((names.BROKER_HTTP_PORT, names.DOOR_HTTP_PORT), _peers(wish.metrics_from))
    else:
        firsts = (own.entrance for own in own_ports(group, shards))
        way_in = _ports_from((names.FIRST_SHARD_PORT, *firsts), shards, entering)
        http = _rule((names.BROKER_HTTP_PORT,), _peers(wish.metrics_from))
    rules = [
        way_in,
        _rule((names.BROKER_HA_PORT,), [own]),
        *([_rule((names.BROKER_STORE_PORT,), passing_on)] if fronts else ()),
        http,
    ]
    policy = owned(group, component, *_KIND, names.broker_statefulset(name))
    return [_sealed(policy, names.selector(component, name), rules)]


def front_policy(group: FrontGroup) -> list[Manifest]:
    """The policy of the fronts; none if it is switched off."""
    wish = group.spec.network_policy
    if not wish.enabled:
        return []
    name, component = group.metadata.name, names.FRONT
    clients = _ports_from((names.FIRST_FRONT_PORT,), group.spec.ports, _peers(wish.clients_from))
    policy = owned(group, component, *_KIND, names.front_deployment(name))
    rules = [clients, _rule((names.FRONT_HTTP_PORT,), _peers(wish.metrics_from))]
    return [_sealed(policy, names.selector(component, name), rules)]


_KIND = ("networking.k8s.io/v1", "NetworkPolicy")


def _sealed(policy: Manifest, selector: dict[str, str], rules: list[Manifest]) -> Manifest:
    policy["spec"] = {
        "podSelector": {"matchLabels": selector},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    return sealed(policy)


def _rule(ports: tuple[int, ...], peers: list[Manifest]) -> Manifest:
    """Lets these peers reach some ports; without any, everybody."""
    rule: Manifest = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
    return rule | ({"from": peers} if peers else {})


def _ports_from(firsts: tuple[int, ...], count: int, peers: list[Manifest]) -> Manifest:
    """Lets these peers reach ranges of so many ports each."""
    rule = _rule(firsts, peers)
    for entry in rule["ports"]:
        entry["endPort"] = entry["port"] + count - 1
    return rule


def _pods(labels: dict[str, str]) -> Manifest:
    """Pods of the group's own namespace."""
    return {"podSelector": {"matchLabels": labels}}


def _of(component: str) -> Manifest:
    """Pods of a component of the group's own namespace, whatever group they are of."""
    return _pods({names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: component})


def _tools() -> Manifest:
    return _pods({names.LABEL_TOOLS: "true"})


def _operator(namespace: str) -> Manifest:
    pods = _pods({names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: names.OPERATOR})
    if not namespace:
        return pods
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}}} | pods


def _peers(peers: Iterable[Peer]) -> list[Manifest]:
    return [peer.to_peer() for peer in peers]
