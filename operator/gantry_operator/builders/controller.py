"""Objects of a ControllerGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders import pods, services
from gantry_operator.builders.config import (
    NEWEST_LIVE_OF_CONTROLLERS,
    config_map,
    live_keys,
    restarting,
)
from gantry_operator.builders.listeners import listener_ports, name_service_listeners
from gantry_operator.builders.meta import Manifest, owned
from gantry_operator.builders.network import controller_policy
from gantry_operator.builders.tls import (
    listener_env,
    listener_files,
    member_env,
    member_files,
    tls_env,
    tls_files,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_operator.models import ControllerGroup

PORTS = (
    ("remoting", names.CONTROLLER_REMOTING_PORT),
    ("nameserver", names.NAMESERVER_PORT),
    ("raft", names.RAFT_PORT),
    ("http", names.CONTROLLER_HTTP_PORT),
)
REQUESTS = {"cpu": "150m", "memory": "128Mi"}
"""Processors by need of haste, not by use: where pods of a node want more than there is, the kernel
shares by these. A controller that starves delays every election, and it uses little otherwise."""
CLIENT_PORTS = PORTS[:2]
CLUSTER_UID = "GANTRY_CLUSTER_UID"
_ALLOWANCE = {False: (), True: (pods.value("GANTRY_ALLOW_UNAUTHENTICATED", "true"),)}
GRACE_PERIOD_S = 10
"""A controller hands nothing over; it only has to close its log."""


def controller_objects(
    group: ControllerGroup,
    *,
    image: str,
    operator_namespace: str = "",
    cluster_uid: str = "",
    claim_size: str = "",
    replicas: int | None = None,
    founders: int | None = None,
    size: int | None = None,
    live: str = NEWEST_LIVE_OF_CONTROLLERS,
) -> list[Manifest]:
    """All objects of a quorum but its Secrets, in the order in which they are applied.

    Args:
        group: the wish.
        image: the default image.
        operator_namespace: where the operator's pods are; see `controller_policy`.
        cluster_uid: the identity of the quorum; by default what the spec gives, else its own uid.
        claim_size: as of brokers.
        replicas: how many pods there are to be now; by default as many as are wished.
        founders: how many of them founded the quorum; by default all.
        size: how many members there may be, which pods are told of when they start; by default as
            many as founded it.
        live: as of brokers.
    """
    replicas = group.spec.replicas if replicas is None else replicas
    founders = replicas if founders is None else founders
    name = names.controller_statefulset(group.metadata.name)
    component = names.CONTROLLER
    return [
        _config(group, name, replicas, None if size == founders else size),
        services.headless(group, component, name, PORTS),
        services.cluster_ip(
            group, component, names.nameserver_service(group.metadata.name), CLIENT_PORTS
        ),
        *name_service_listeners(group),
        services.disruption_budget(group, component, name),
        *controller_policy(group, operator_namespace),
        pods.statefulset(
            group,
            _workload(group, image, cluster_uid, founders, live),
            replicas,
            claim_size,
            **({"live_settings": live} if live else {}),
        ),
    ]


def quorum_secret(group: ControllerGroup, name: str, data: Mapping[str, str]) -> Manifest:
    """A Secret of the quorum: the admin API's bearer token, or the key of the quorum.

    Its content is no part of what is applied on every reconcile, so it has no hash: the caller
    makes it up once, and the Secret is created when it is missing and never written again.

    Args:
        group: the owner.
        name: of the Secret.
        data: content by entry, in base64.
    """
    secret = owned(group, names.CONTROLLER, "v1", "Secret", name)
    return secret | {"type": "Opaque", "data": dict(data)}


def _config(group: ControllerGroup, name: str, replicas: int, size: int | None) -> Manifest:
    namespace, staying = group.metadata.namespace, min(replicas, group.spec.replicas)
    told = {} if size is None else {names.QUORUM_SIZE_KEY: str(size)}
    service = names.nameserver_service(group.metadata.name)
    return config_map(
        group,
        names.CONTROLLER,
        name,
        group.spec.config,
        controllers=names.controllers(group.metadata.name, staying, namespace),
        nameserver=f"{service}.{namespace}.svc:{names.NAMESERVER_PORT}",
        **told,
    )


def _workload(
    group: ControllerGroup, image: str, cluster_uid: str, founders: int, live: str
) -> pods.Workload:
    meta = group.metadata
    uid = cluster_uid or group.spec.cluster_uid or meta.uid
    return pods.Workload(
        component=names.CONTROLLER,
        statefulset=names.controller_statefulset(meta.name),
        image=group.spec.image or image,
        env=(
            *pods.POD_ENV,
            pods.value("GANTRY_PEERS", names.peers(meta.name, founders, meta.namespace)),
            pods.value(CLUSTER_UID, uid),
            pods.value("GANTRY_ADMIN_TOKEN_FILE", f"{names.ADMIN_DIR}/{names.TOKEN_KEY}"),
            pods.QUORUM_KEY_FILE,
            *_ALLOWANCE[group.spec.allow_unauthenticated],
            *_listeners(group),
            *tls_env(group.spec.tls),
            *listener_env(group.spec.clients.listeners),
            *member_env(group.spec.member_tls),
        ),
        ports=(*PORTS, *listener_ports(group)),
        http_port=names.CONTROLLER_HTTP_PORT,
        requests=REQUESTS,
        config=restarting(group.spec.config, live_keys(live, names.CONTROLLER)),
        secrets=(
            pods.secret_files("admin", names.admin_secret(meta.name), names.ADMIN_DIR),
            pods.quorum_key(meta.name),
            *tls_files(group.spec.tls),
            *listener_files(group.spec.clients.listeners),
            *member_files(group.spec.member_tls),
        ),
        grace_period_s=GRACE_PERIOD_S,
    )


def _listeners(group: ControllerGroup) -> tuple[Manifest, ...]:
    ports = zip(group.spec.clients.listeners, listener_ports(group), strict=True)
    text = ",".join(f"{listener.name}={port}" for listener, (_, port) in ports)
    return (pods.value("GANTRY_LISTENERS", text),) if text else ()
