"""Objects of a FrontGroup: a Deployment, since a front has nothing that the next one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders import pods, services
from gantry_operator.builders.meta import Manifest, owned, sealed
from gantry_operator.builders.network import front_policy
from gantry_operator.builders.tier import front_tier_env, tier_keys
from gantry_operator.builders.tls import member_env, member_files, tls_env, tls_files

if TYPE_CHECKING:
    from gantry_operator.models import ControllerGroup, FrontGroup

REQUESTS = {"cpu": "250m", "memory": "128Mi"}
REQUESTS_WITH_TIER = {"cpu": "250m", "memory": "512Mi"}
"""Runs of tiers in memory and on their way take up to 224 MiB, and indexes come on top."""
GRACE_PERIOD_S = 30
"""A front answers what is under way before it ends, which takes as long as a send may take."""
PORTS_VARIABLE = "GANTRY_PORTS"
BY_SPEC = "spec"
BY_AUTOSCALER = "autoscaler"


def front_objects(
    group: FrontGroup, controllers: ControllerGroup, *, image: str, addressed: int | None = None
) -> list[Manifest]:
    """All objects of a front group, in the order in which they are applied.

    Args:
        group: the wish.
        controllers: the quorum of the cluster.
        image: the default image.
        addressed: as of brokers.
    """
    addressed = addressed or controllers.spec.replicas
    name = names.front_deployment(group.metadata.name)
    return [
        _service(group, name),
        services.disruption_budget(group, names.FRONT, name),
        *front_policy(group),
        _deployment(group, controllers, name, group.spec.image or image, addressed),
        *([_autoscaler(group, name)] if group.spec.autoscaling.enabled else ()),
    ]


def first_client_port(group: FrontGroup) -> int:
    """The port of the first broker group at the address that clients are given."""
    service = group.spec.service
    return service.first_node_port if service.type == "NodePort" else names.FIRST_FRONT_PORT


def _ports(group: FrontGroup) -> tuple[tuple[str, int], ...]:
    return tuple((f"group-{n}", names.FIRST_FRONT_PORT + n) for n in range(group.spec.ports))


def _service(group: FrontGroup, name: str) -> Manifest:
    wish = group.spec.service
    service = owned(group, names.FRONT, "v1", "Service", name)
    if wish.annotations:
        service["metadata"]["annotations"] = dict(wish.annotations)
    ports: list[Manifest] = [
        {"name": port_name, "port": port, "targetPort": port, "protocol": "TCP"}
        for port_name, port in _ports(group)
    ]
    if (
        wish.type == "NodePort"
    ):  # each at its place, since clients are led to the first plus an index
        for index, port in enumerate(ports):
            port["nodePort"] = wish.first_node_port + index
    service["spec"] = {
        "type": wish.type,
        "selector": names.selector(names.FRONT, group.metadata.name),
        "ports": ports,
    }
    return sealed(service)


def _deployment(
    group: FrontGroup, controllers: ControllerGroup, name: str, image: str, addressed: int
) -> Manifest:
    """The pods: a new one is Ready before an old one ends.

    Without `replicas` where an autoscaler sets them: an apply that named them would undo it.
    """
    by_spec = not group.spec.autoscaling.enabled
    deployment = owned(group, names.FRONT, "apps/v1", "Deployment", name)
    deployment["metadata"]["annotations"] = {
        names.ANNOTATION_REPLICAS: BY_SPEC if by_spec else BY_AUTOSCALER
    }
    bucket = tier_keys(group.spec.tier)
    secrets = [
        pods.quorum_key(controllers.metadata.name),
        *((bucket,) if bucket else ()),
        *tls_files(group.spec.tls),
        *member_files(group.spec.member_tls),
    ]
    deployment["spec"] = {
        **({"replicas": group.spec.replicas} if by_spec else {}),
        "revisionHistoryLimit": 3,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        },
        "selector": {"matchLabels": names.selector(names.FRONT, group.metadata.name)},
        "template": pods.pod_template(
            group,
            names.FRONT,
            containers=[
                pods.led_on(_container(group, controllers, image, addressed))
                | {"volumeMounts": [secret.as_mount() for secret in secrets]}
            ],
            volumes=[secret.as_volume() for secret in secrets],
            grace_period_s=GRACE_PERIOD_S,
            labels={},
            annotations={},
        ),
    }
    return sealed(deployment)


def _tracing_env(group: FrontGroup) -> tuple[Manifest, ...]:
    wish = group.spec.tracing
    if wish is None:
        return ()
    return (
        pods.value("GANTRY_TRACING_ENDPOINT", wish.endpoint),
        pods.value("GANTRY_TRACING_RATIO", wish.ratio),
    )


def _container(
    group: FrontGroup, controllers: ControllerGroup, image: str, addressed: int
) -> Manifest:
    meta = controllers.metadata
    addresses = names.controllers(meta.name, addressed, meta.namespace)
    return pods.container(
        names.FRONT,
        image=image,
        env=(
            *pods.ADDRESS_ENV,
            pods.value("GANTRY_CLUSTER", group.spec.controller_ref.name),
            pods.value("GANTRY_CONTROLLERS", addresses),
            pods.value("GANTRY_FIRST_PORT", str(names.FIRST_FRONT_PORT)),
            pods.value(PORTS_VARIABLE, str(group.spec.ports)),
            pods.value("GANTRY_CONNECTION_AGE_S", str(group.spec.connection_age_seconds)),
            pods.value("GANTRY_HTTP_PORT", str(names.FRONT_HTTP_PORT)),
            pods.value("GANTRY_STORE_PORT", str(names.BROKER_STORE_PORT)),
            pods.QUORUM_KEY_FILE,
            *front_tier_env(group),
            *_tracing_env(group),
            *tls_env(group.spec.tls),
            *member_env(group.spec.member_tls),
        ),
        ports=(*_ports(group), ("http", names.FRONT_HTTP_PORT)),
        http_port=names.FRONT_HTTP_PORT,
        resources=pods.resources(
            group.spec.resources, REQUESTS if group.spec.tier is None else REQUESTS_WITH_TIER
        ),
    )


def _autoscaler(group: FrontGroup, name: str) -> Manifest:
    wish = group.spec.autoscaling
    scaler = owned(group, names.FRONT, "autoscaling/v2", "HorizontalPodAutoscaler", name)
    target = {"type": "Utilization", "averageUtilization": wish.target_cpu_utilization_percentage}
    scaler["spec"] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": wish.min_replicas,
        "maxReplicas": wish.max_replicas,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    return sealed(scaler)
