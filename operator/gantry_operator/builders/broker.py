"""Objects of a BrokerGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders import pods, services
from gantry_operator.builders.config import config_map
from gantry_operator.builders.network import broker_policy
from gantry_operator.builders.pipeline import pipeline_objects
from gantry_operator.builders.tier import tier_env, tier_keys

if TYPE_CHECKING:
    from gantry_operator.builders.meta import Manifest
    from gantry_operator.models import BrokerGroup, ControllerGroup

PORTS = (
    ("remoting", names.BROKER_REMOTING_PORT),
    ("ha", names.BROKER_HA_PORT),
    ("http", names.BROKER_HTTP_PORT),
)
REQUESTS = {"cpu": "250m", "memory": "256Mi"}
CLIENT_PORTS = PORTS[:1]
GRACE_PERIOD_S = 30
"""A draining master needs about one second; the rest is for a slow disk."""


def broker_objects(
    group: BrokerGroup, controllers: ControllerGroup, *, image: str, replicas: int
) -> list[Manifest]:
    """All objects of a broker group, in the order in which they are applied.

    Args:
        group: the wish.
        controllers: the quorum it refers to; brokers dial all of its pods.
        image: the default image.
        replicas: how many pods there are to be now. It differs from the wish while scaling down,
            which is a decision of the plan and not of the builder.
    """
    name = names.broker_statefulset(group.metadata.name)
    component = names.BROKER
    return [
        config_map(group, component, name, group.spec.config),
        services.headless(group, component, name, PORTS),
        services.cluster_ip(
            group,
            component,
            names.group_service(group.metadata.name),
            CLIENT_PORTS,
            traffic=names.TRAFFIC_ON,
        ),
        services.cluster_ip(
            group,
            component,
            names.master_service(group.metadata.name),
            CLIENT_PORTS,
            role=names.ROLE_MASTER,
        ),
        services.disruption_budget(group, component, name),
        *pipeline_objects(group, image=image),
        *broker_policy(group),
        pods.statefulset(
            group,
            _workload(group, controllers, image),
            replicas,
            controller_group=group.spec.controller_ref.name,
        ),
    ]


def _workload(group: BrokerGroup, controllers: ControllerGroup, image: str) -> pods.Workload:
    keys = tier_keys(group)
    addresses = names.controllers(
        controllers.metadata.name, controllers.spec.replicas, controllers.metadata.namespace
    )
    return pods.Workload(
        component=names.BROKER,
        statefulset=names.broker_statefulset(group.metadata.name),
        image=group.spec.image or image,
        env=(
            *pods.POD_ENV,
            pods.field("GANTRY_POD_UID", "metadata.uid"),
            pods.value("GANTRY_GROUP", group.metadata.name),
            pods.value("GANTRY_CLUSTER", group.spec.controller_ref.name),
            pods.value("GANTRY_CONTROLLERS", addresses),
            pods.QUORUM_KEY_FILE,
            *tier_env(group),
            *_retention_env(group),
        ),
        ports=PORTS,
        http_port=names.BROKER_HTTP_PORT,
        requests=REQUESTS,
        secrets=(pods.quorum_key(controllers.metadata.name), *((keys,) if keys else ())),
        grace_period_s=GRACE_PERIOD_S,
    )


def _retention_env(group: BrokerGroup) -> tuple[Manifest, ...]:
    """How much of the log is kept; what is not set is the broker's own default."""
    kept = group.spec.retention
    settings = {
        "GANTRY_RETENTION_HOURS": kept.hours,
        "GANTRY_RETENTION_BYTES": kept.bytes,
        "GANTRY_RETENTION_WHEN_FULL": kept.when_full and kept.when_full.lower(),
    }
    return tuple(pods.value(name, str(text)) for name, text in settings.items() if text is not None)
