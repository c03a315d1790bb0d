"""Objects of a ControllerGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders import pods, services
from gantry_operator.builders.config import config_map
from gantry_operator.builders.meta import Manifest, owned

if TYPE_CHECKING:
    from gantry_operator.models import ControllerGroup

PORTS = (
    ("remoting", names.CONTROLLER_REMOTING_PORT),
    ("nameserver", names.NAMESERVER_PORT),
    ("raft", names.RAFT_PORT),
    ("http", names.CONTROLLER_HTTP_PORT),
)
REQUESTS = {"cpu": "50m", "memory": "128Mi"}
CLIENT_PORTS = PORTS[:2]
GRACE_PERIOD_S = 10
"""A controller hands nothing over; it only has to close its log."""


def controller_objects(group: ControllerGroup, *, image: str) -> list[Manifest]:
    """All objects of a quorum but its Secret, in the order in which they are applied."""
    name = names.controller_statefulset(group.metadata.name)
    component = names.CONTROLLER
    return [
        _config(group, name),
        services.headless(group, component, name, PORTS),
        services.cluster_ip(
            group, component, names.nameserver_service(group.metadata.name), CLIENT_PORTS
        ),
        services.disruption_budget(group, component, name),
        pods.statefulset(group, _workload(group, image), group.spec.replicas),
    ]


def admin_secret(group: ControllerGroup, token: str) -> Manifest:
    """The Secret with the admin API's bearer token; the caller makes the token up, once.

    The token is no part of what is applied on every reconcile, so it has no hash: it is created
    when it is missing and never written again.
    """
    secret = owned(group, names.CONTROLLER, "v1", "Secret", names.admin_secret(group.metadata.name))
    return secret | {"type": "Opaque", "stringData": {names.TOKEN_KEY: token}}


def _config(group: ControllerGroup, name: str) -> Manifest:
    namespace, replicas = group.metadata.namespace, group.spec.replicas
    service = names.nameserver_service(group.metadata.name)
    return config_map(
        group,
        names.CONTROLLER,
        name,
        group.spec.config,
        controllers=names.controllers(group.metadata.name, replicas, namespace),
        nameserver=f"{service}.{namespace}.svc:{names.NAMESERVER_PORT}",
    )


def _workload(group: ControllerGroup, image: str) -> pods.Workload:
    meta = group.metadata
    return pods.Workload(
        component=names.CONTROLLER,
        statefulset=names.controller_statefulset(meta.name),
        image=group.spec.image or image,
        env=(
            *pods.POD_ENV,
            pods.value("GANTRY_PEERS", names.peers(meta.name, group.spec.replicas, meta.namespace)),
            pods.value("GANTRY_CLUSTER_UID", group.spec.cluster_uid or meta.uid),
            pods.value("GANTRY_ADMIN_TOKEN_FILE", f"{names.ADMIN_DIR}/{names.TOKEN_KEY}"),
        ),
        ports=PORTS,
        http_port=names.CONTROLLER_HTTP_PORT,
        requests=REQUESTS,
        secret=pods.MountedSecret(
            "admin", {"secretName": names.admin_secret(meta.name)}, names.ADMIN_DIR
        ),
        grace_period_s=GRACE_PERIOD_S,
    )
