"""Objects of a BrokerGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders import pods, services
from gantry_operator.builders.config import (
    NEWEST_LIVE,
    broker_settings,
    config_map,
    live_keys,
    restarting,
)
from gantry_operator.builders.listeners import broker_listeners, own_ports
from gantry_operator.builders.network import broker_policy
from gantry_operator.builders.pipeline import pipeline_objects
from gantry_operator.builders.tier import tier_env, tier_keys
from gantry_operator.builders.tls import (
    listener_env,
    listener_files,
    member_env,
    member_files,
    tls_env,
    tls_files,
)
from gantry_operator.models.known_settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gantry_operator.builders.listeners import OwnPort
    from gantry_operator.builders.meta import Manifest
    from gantry_operator.models import BrokerGroup, ControllerGroup

PORTS = (
    ("remoting", names.BROKER_REMOTING_PORT),
    ("ha", names.BROKER_HA_PORT),
    ("http", names.BROKER_HTTP_PORT),
)
CLIENT_PORTS = PORTS[:1]
"""`remoting` is the port of a pod where clients come in. The Service of the group leads to it by
that name: in a pod with a door it is the door's, in one without, or made before there were doors,
the broker's own. So the Service is right for each pod while one kind replaces the other."""
PORTS_BEHIND_DOOR = (("direct", names.BROKER_REMOTING_PORT), *PORTS[1:])
DOOR_PORTS = (("remoting", names.DOOR_PORT), ("door-http", names.DOOR_HTTP_PORT))
PORTS_OF_ALL_SHARDS = PORTS[1:]
STORE_PORTS = (("store", names.BROKER_STORE_PORT),)
STORE_ENV = (pods.value("GANTRY_STORE_PORT", str(names.BROKER_STORE_PORT)),)
REQUESTS = {"cpu": "250m", "memory": "256Mi"}
DOOR_REQUESTS = {"cpu": "100m", "memory": "96Mi"}
GRACE_PERIOD_S = 30
"""A draining master needs about one second; the rest is for a slow disk."""


def broker_objects(
    group: BrokerGroup,
    controllers: ControllerGroup,
    *,
    image: str,
    replicas: int,
    shards: int | None = None,
    door: bool = True,
    fronts: bool = False,
    knows_fronts: bool = True,
    live: str = NEWEST_LIVE,
    claim_size: str = "",
    addressed: int | None = None,
    shared_listeners: Collection[str] = (),
) -> list[Manifest]:
    """All objects of a broker group, in the order in which they are applied.

    Args:
        group: the wish.
        controllers: the quorum it refers to.
        image: the default image.
        replicas: how many pods there are to be now. It differs from the wish while scaling down,
            which is a decision of the plan and not of the builder.
        shards: how many broker groups the pods host now, likewise; None for one without a number.
        door: whether the image knows doors; without, there are none whatever the wish.
        fronts: whether the cluster has a FrontGroup, so that fronts read and append at the store.
        knows_fronts: whether the image serves fronts; without, they pass everything on to it.
        live: the word for the settings that the image applies while running (`live_keys`); where
            it is empty each restarts pods.
        claim_size: that of a live claim template with less than is wished; else empty.
        addressed: how many controllers pods are told of, which ask those for all others; by default
            as many as are wished.
        shared_listeners: see `broker_listeners`.
    """
    name = names.broker_statefulset(group.metadata.name)
    component = names.BROKER
    if group.spec.hibernated:  # nobody leaves: all of them are to come back
        storage = group.spec.storage.model_copy(update={"when_scaled": "Retain"})
        spec = group.spec.model_copy(update={"storage": storage})
        group = group.model_copy(update={"spec": spec})
    return [
        config_map(group, component, name, broker_settings(group, live=bool(live))),
        services.headless(group, component, name, PORTS if shards is None else PORTS_OF_ALL_SHARDS),
        *_client_services(group, shards),
        *broker_listeners(
            group,
            max(replicas, group.spec.replicas),  # a node port is kept
            door=door and group.spec.has_door,
            shared=shared_listeners,
            shards=shards,
        ),
        services.disruption_budget(group, component, name),
        *pipeline_objects(group, image=image),
        *broker_policy(group, fronts=fronts, shards=shards),
        pods.statefulset(
            group,
            _workload(
                group,
                controllers,
                image,
                door=door and group.spec.has_door,
                store=fronts and knows_fronts,
                shards=shards,
                live=live,
                addressed=addressed or controllers.spec.replicas,
            ),
            replicas,
            claim_size,
            controller_group=group.spec.controller_ref.name,
            **({} if shards is None else {"shards": str(shards)}),
            **({"doors": "known"} if door else {}),
            **({"fronts": "known"} if knows_fronts else {}),
            **({"live_settings": live} if live else {}),
        ),
    ]


def _client_services(group: BrokerGroup, shards: int | None) -> list[Manifest]:
    """The Service over all Ready replicas, and the one that follows the master.

    Shards have a port each at the former: any replica passes a connection on to the master of the
    shard whose port it came in at. There is no latter, since no pod is the master of all.
    """
    name, component = group.metadata.name, names.BROKER
    of_all, traffic = names.group_service(name), names.TRAFFIC_ON
    if shards is not None:
        ports = tuple((names.shard_port_name(n), names.FIRST_SHARD_PORT + n) for n in range(shards))
        return [services.cluster_ip(group, component, of_all, ports, traffic=traffic)]
    return [
        services.cluster_ip(group, component, of_all, CLIENT_PORTS, by_name=True, traffic=traffic),
        services.cluster_ip(
            group, component, names.master_service(name), CLIENT_PORTS, role=names.ROLE_MASTER
        ),
    ]


def _workload(
    group: BrokerGroup,
    controllers: ControllerGroup,
    image: str,
    *,
    door: bool,
    store: bool,
    shards: int | None,
    live: str,
    addressed: int,
) -> pods.Workload:
    keys = tier_keys(group.spec.tier)
    image = group.spec.image or image
    addresses = names.controllers(
        controllers.metadata.name, addressed, controllers.metadata.namespace
    )
    of_group = (
        *_hosted(group.metadata.name, shards),
        pods.value("GANTRY_CLUSTER", group.spec.controller_ref.name),
        pods.value("GANTRY_CONTROLLERS", addresses),
    )
    return pods.Workload(
        component=names.BROKER,
        statefulset=names.broker_statefulset(group.metadata.name),
        image=image,
        env=(
            *pods.POD_ENV,
            pods.field("GANTRY_POD_UID", "metadata.uid"),
            *of_group,
            pods.QUORUM_KEY_FILE,
            *(STORE_ENV if store else ()),
            *tier_env(group),
            *tls_env(group.spec.tls),
            *_listeners(group, shards, door=door),
            *member_env(group.spec.member_tls),
            *(() if live else pods.settings(settings_of(group.spec.retention, "retention"))),
        ),
        ports=(
            *_ports(shards, door=door),
            *(STORE_PORTS if store else ()),
            *_listener_ports(group, shards, door=door),
        ),
        http_port=names.BROKER_HTTP_PORT,
        requests=REQUESTS,
        config=restarting(broker_settings(group, live=bool(live)), live_keys(live)),
        secrets=(
            pods.quorum_key(controllers.metadata.name),
            *((keys,) if keys else ()),
            *tls_files(group.spec.tls),
            *listener_files(group.spec.clients.listeners),
            *member_files(group.spec.member_tls),
        ),
        grace_period_s=GRACE_PERIOD_S,
        beside=(_door(group, image, of_group),) if door else (),
        labels={} if shards is None else {names.LABEL_SHARDS: str(shards)},
    )


def _hosted(name: str, shards: int | None) -> tuple[Manifest, ...]:
    """The settings that say which groups a pod hosts, and from which port on."""
    if shards is None:
        return (pods.value("GANTRY_GROUP", name),)
    return (
        pods.value("GANTRY_GROUPS", names.shards(name, shards)),
        pods.value("GANTRY_REMOTING_PORT", str(names.FIRST_SHARD_PORT)),
    )


def _ports(shards: int | None, *, door: bool) -> tuple[tuple[str, int], ...]:
    """Container ports; those of shards inside need no names, and would be up to a hundred."""
    if shards is not None:
        return PORTS_OF_ALL_SHARDS
    return PORTS_BEHIND_DOOR if door else PORTS


def _listener_ports(
    group: BrokerGroup, shards: int | None, *, door: bool
) -> tuple[tuple[str, int], ...]:
    """The broker's, of listeners with TLS of their own; Services lead to them by name."""
    if door:
        return tuple((names.direct_port(own.name), own.behind) for own in own_ports(group))
    return _entrances(own_ports(group, shards))


def _entrances(ports: Iterable[OwnPort]) -> tuple[tuple[str, int], ...]:
    return tuple(port for own in ports for port in own.entrances())


def _listeners(group: BrokerGroup, shards: int | None, *, door: bool) -> tuple[Manifest, ...]:
    """Settings of the broker; with shards they name the port of the first."""
    ports = ((own.name, own.behind if door else own.entrance) for own in own_ports(group, shards))
    return listener_env(group.spec.clients.listeners, ports)


def _door(group: BrokerGroup, image: str, of_group: tuple[Manifest, ...]) -> Manifest:
    """The container that owns the clients' connections.

    It has neither the key of the quorum nor a volume, but for certificates: it asks the controllers
    what everybody may ask, and keeps nothing.
    """
    listeners = group.spec.clients.listeners
    secrets = (*tls_files(group.spec.tls), *listener_files(listeners))
    mounts = [secret.as_mount() for secret in secrets]
    entrances = ((own.name, own.entrance) for own in own_ports(group))
    made = pods.container(
        names.DOOR,
        image=image,
        env=(
            *pods.ADDRESS_ENV,
            *of_group,
            *tls_env(group.spec.tls),
            *listener_env(listeners, entrances),
        ),
        ports=(*DOOR_PORTS, *_entrances(own_ports(group))),
        http_port=names.DOOR_HTTP_PORT,
        resources=pods.resources(group.spec.clients.door.resources, DOOR_REQUESTS),
    )
    return pods.led_on(made | ({"volumeMounts": mounts} if mounts else {}))
