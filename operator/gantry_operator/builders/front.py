"""Objects of a FrontGroup: a Deployment, since a front has nothing that the next one needs.

What fronts apply while running is in a file, where their image knows how to (`live`); all else, and
all of it for other images, is in the environment, whose change replaces the pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.process.config import variable_name

from gantry_operator import names
from gantry_operator.builders import pods, services
from gantry_operator.builders.config import (
    NEWEST_LIVE_OF_FRONTS,
    config_map,
    live_keys,
    restarting,
)
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
AGE = "connection_age_s"
LOG_LEVEL = "log_level"
TRACING = ("tracing_endpoint", "tracing_ratio")
BY_SPEC = "spec"
BY_AUTOSCALER = "autoscaler"


def front_objects(
    group: FrontGroup,
    controllers: ControllerGroup,
    *,
    image: str,
    addressed: int | None = None,
    live: str = NEWEST_LIVE_OF_FRONTS,
) -> list[Manifest]:
    """All objects of a front group, in the order in which they are applied.

    Args:
        group: the wish.
        controllers: the quorum of the cluster.
        image: the default image.
        addressed: as of brokers.
        live: the word for the settings that the image applies while running (`live_keys`); where
            it is empty each replaces the fronts, and there is no file.
    """
    addressed = addressed or controllers.spec.replicas
    name = names.front_deployment(group.metadata.name)
    return [
        *([_file(group, name, live)] if live else ()),
        _service(group, name),
        services.disruption_budget(group, names.FRONT, name),
        *front_policy(group),
        _deployment(group, controllers, name, group.spec.image or image, addressed, live),
        *([_autoscaler(group, name)] if group.spec.autoscaling.enabled else ()),
    ]


def _settings(group: FrontGroup) -> dict[str, str]:
    """The settings that fields of the wish are, of those that an image may apply while running."""
    wish = group.spec.tracing
    traced = () if wish is None else zip(TRACING, (wish.endpoint, wish.ratio), strict=True)
    level = group.spec.log_level
    logged = {} if level is None else {LOG_LEVEL: level}
    return {AGE: str(group.spec.connection_age_seconds), **logged, **dict(traced)}


def _file(group: FrontGroup, name: str, live: str) -> Manifest:
    keys = live_keys(live, names.FRONT)
    settings = {key: text for key, text in _settings(group).items() if key in keys}
    return config_map(group, names.FRONT, name, settings, "the FrontGroup")


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
    group: FrontGroup,
    controllers: ControllerGroup,
    name: str,
    image: str,
    addressed: int,
    live: str,
) -> Manifest:
    """The pods: a new one is Ready before an old one ends.

    Without `replicas` where an autoscaler sets them: an apply that named them would undo it.
    """
    by_spec = not group.spec.autoscaling.enabled
    deployment = owned(group, names.FRONT, "apps/v1", "Deployment", name)
    deployment["metadata"]["annotations"] = {
        names.ANNOTATION_REPLICAS: BY_SPEC if by_spec else BY_AUTOSCALER,
        **({names.ANNOTATION_LIVE: live} if live else {}),
    }
    bucket = tier_keys(group.spec.tier)
    mounts = [pods.CONFIG_MOUNT] if live else []
    volumes = [pods.config_volume(name)] if live else []
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
                pods.led_on(_container(group, controllers, image, addressed, live))
                | {"volumeMounts": mounts + [secret.as_mount() for secret in secrets]}
            ],
            volumes=volumes + [secret.as_volume() for secret in secrets],
            grace_period_s=GRACE_PERIOD_S,
            labels={},
            annotations={},
        ),
    }
    return sealed(deployment)


def _container(
    group: FrontGroup, controllers: ControllerGroup, image: str, addressed: int, live: str
) -> Manifest:
    told = restarting(_settings(group), live_keys(live, names.FRONT))

    def given(*keys: str) -> list[Manifest]:
        return [pods.value(variable_name(key), told[key]) for key in keys if key in told]

    meta = controllers.metadata
    addresses = names.controllers(meta.name, addressed, meta.namespace)
    return pods.container(
        names.FRONT,
        image=image,
        env=(
            *pods.ADDRESS_ENV,
            *([pods.CONFIG_FILE] if live else ()),
            pods.value("GANTRY_CLUSTER", group.spec.controller_ref.name),
            pods.value("GANTRY_CONTROLLERS", addresses),
            pods.value("GANTRY_FIRST_PORT", str(names.FIRST_FRONT_PORT)),
            pods.value(PORTS_VARIABLE, str(group.spec.ports)),
            *given(AGE),
            pods.value("GANTRY_HTTP_PORT", str(names.FRONT_HTTP_PORT)),
            pods.value("GANTRY_STORE_PORT", str(names.BROKER_STORE_PORT)),
            pods.QUORUM_KEY_FILE,
            *front_tier_env(group),
            *given(LOG_LEVEL, *TRACING),
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
