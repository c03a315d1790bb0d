"""The pod template: environment, probes, volumes.

The template never contains the role label, or a failover would be a new revision. It contains the
traffic label, so that a pod gets clients without an operator. Everything in it
is a deterministic function of the resource, or every reconcile would be a new revision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gantry_protocol.process.config import variable_name

from gantry_operator import names
from gantry_operator.builders import template
from gantry_operator.builders.config import toml
from gantry_operator.builders.meta import Manifest, digest, owned, sealed
from gantry_operator.models.known_settings import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gantry_operator.models import BrokerGroup, ControllerGroup, FrontGroup
    from gantry_operator.models.parts import Resources, Storage

READABLE_BY_GROUP = 0o440
"""Mode of a Secret's files: the kubelet gives them to the pod's fsGroup."""
LED_FOR_S = 3
"""A deleted pod is led to until every node has heard of it; whom it refuses may not try again."""


class MountedSecret(NamedTuple):
    """A Secret in a pod: the volume's name, its source as the API has it, and where it is."""

    volume: str
    source: Manifest
    path: str

    def as_volume(self) -> Manifest:
        """Of the pod."""
        return {"name": self.volume, "secret": self.source}

    def as_mount(self) -> Manifest:
        """Of a container, which cannot write it."""
        return {"name": self.volume, "mountPath": self.path, "readOnly": True}


def secret_files(volume: str, secret: str, path: str) -> MountedSecret:
    """All entries of a Secret as files; the pod waits for the Secret to exist."""
    source: Manifest = {"secretName": secret, "defaultMode": READABLE_BY_GROUP}
    return MountedSecret(volume, source, path)


def quorum_key(controllers: str) -> MountedSecret:
    """The key of a quorum, by the ControllerGroup's name, for its controllers, brokers and fronts.

    Mounted whole and as files, never as environment: the kubelet replaces the files when the Secret
    changes, and processes read them at each new connection, so a new key restarts no pod.
    """
    return secret_files("quorum-key", names.quorum_secret(controllers), names.QUORUM_DIR)


class Workload(NamedTuple):
    """The differences between the pods of a controller and those of a broker.

    Attributes:
        component: `controller` or `broker`; also the sub-command and the container's name.
        statefulset: name of the StatefulSet, its headless Service and its ConfigMap.
        image: container image.
        env: settings, in the order in which they are written.
        ports: named container ports.
        http_port: where the probes ask.
        secrets: Secrets to mount read-only.
        grace_period_s: seconds between SIGTERM and SIGKILL.
        requests: CPU and memory that are reserved where the owner says nothing of them.
        config: settings in the file whose change restarts the pods.
        beside: further containers of each pod.
        labels: further labels of each pod.
    """

    component: str
    statefulset: str
    image: str
    env: tuple[Manifest, ...]
    ports: tuple[tuple[str, int], ...]
    http_port: int
    secrets: tuple[MountedSecret, ...]
    grace_period_s: int
    requests: Mapping[str, str]
    config: Mapping[str, str]
    beside: tuple[Manifest, ...] = ()
    labels: Mapping[str, str] = {}


def value(name: str, text: str) -> Manifest:
    """An environment variable with a value."""
    return {"name": name, "value": text}


def settings(values: Mapping[str, str]) -> tuple[Manifest, ...]:
    """Settings of a broker as environment variables, in the order of their definitions.

    What is not set is not told: the brokers' own defaults hold, and an older image that does not
    know a setting starts as before.
    """
    return tuple(value(variable_name(name), values[name]) for name in FIELDS if name in values)


def field(name: str, path: str) -> Manifest:
    """An environment variable from the pod itself (downward API)."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


QUORUM_KEY_FILE = value("GANTRY_QUORUM_KEY_FILE", f"{names.QUORUM_DIR}/{names.QUORUM_KEY}")
ADDRESS_ENV = (
    field("GANTRY_NAME", "metadata.name"),
    field("POD_IP", "status.podIP"),
    value("GANTRY_BIND", "$(POD_IP)"),
)
"""Who and where a process is; `$(POD_IP)` is expanded by the kubelet from the variable above it."""
CONFIG_FILE = value("GANTRY_CONFIG", f"{names.CONFIG_DIR}/{names.CONFIG_KEY}")
CONFIG_MOUNT: Manifest = {"name": "config", "mountPath": names.CONFIG_DIR, "readOnly": True}
POD_ENV = (
    *ADDRESS_ENV,
    value("GANTRY_ADVERTISE", "$(POD_IP)"),
    value("GANTRY_DATA_DIR", names.DATA_DIR),
    CONFIG_FILE,
)
"""What the main container of every pod is told."""


def statefulset(
    owner: BrokerGroup | ControllerGroup,
    load: Workload,
    replicas: int,
    claim_size: str = "",
    **annotations: str,
) -> Manifest:
    """The StatefulSet of a group.

    Claim templates are immutable. One with less than is wished keeps its `claim_size`, and the wish
    becomes an annotation, since it must not shrink later.

    Parallel, because Raft members cannot become Ready one after the other. OnDelete, because the
    order of restarts is a decision about roles, which the StatefulSet controller knows nothing of.
    """
    result = owned(owner, load.component, "apps/v1", "StatefulSet", load.statefulset)
    template = _template_of(owner, load)
    if load.component == names.BROKER:
        annotations |= {"template_hash": digest(template)}
    storage = owner.spec.storage
    if claim_size:
        annotations |= {"storage_size": storage.size}
    if annotations:
        result["metadata"]["annotations"] = {
            f"{names.GROUP}/{key.replace('_', '-')}": text for key, text in annotations.items()
        }
    spec: Manifest = {
        "replicas": replicas,
        "serviceName": load.statefulset,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": names.selector(load.component, owner.metadata.name)},
        "template": template,
    }
    if storage.type == "PersistentVolumeClaim":
        spec["volumeClaimTemplates"] = [_claim(storage, claim_size or storage.size)]
        spec["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": storage.when_deleted,
            "whenScaled": storage.when_scaled,
        }
    result["spec"] = spec
    return sealed(result)


def _claim(storage: Storage, size: str) -> Manifest:
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    if storage.class_name:
        spec["storageClassName"] = storage.class_name
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}} | {
        "spec": spec
    }


def _template_of(owner: BrokerGroup | ControllerGroup, load: Workload) -> Manifest:
    of_brokers = load.component == names.BROKER
    return pod_template(
        owner,
        load.component,
        containers=[_main_container(owner, load), *load.beside],
        volumes=_volumes(owner.spec.storage, load),
        grace_period_s=load.grace_period_s,
        labels={**({names.LABEL_TRAFFIC: names.TRAFFIC_ON} if of_brokers else {}), **load.labels},
        annotations={names.ANNOTATION_CONFIG: digest(toml(load.config))},
    )


def pod_template(
    owner: BrokerGroup | ControllerGroup | FrontGroup,
    component: str,
    *,
    containers: list[Manifest],
    volumes: list[Manifest],
    grace_period_s: int,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> Manifest:
    """A pod of an owner, with what its owner adds to it."""
    extra, wish = owner.spec.template.metadata, owner.spec.template.spec
    # Labels of the operator win: a selector that no longer matched would orphan the pods.
    all_labels = dict(extra.labels) | names.labels(component, owner.metadata.name) | dict(labels)
    all_labels.pop(names.LABEL_ROLE, None)
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_period_s,
        "securityContext": template.security(wish.security_context),
        "containers": containers,
        "volumes": volumes,
    }
    return {
        "metadata": {
            "labels": all_labels,
            "annotations": dict(extra.annotations) | dict(annotations),
        },
        "spec": template.extended(spec, wish)
        | template.placement(owner.spec.template, component, owner.metadata.name),
    }


def _main_container(owner: BrokerGroup | ControllerGroup, load: Workload) -> Manifest:
    mounts = [{"name": "data", "mountPath": names.DATA_DIR}, CONFIG_MOUNT]
    mounts += [secret.as_mount() for secret in load.secrets]
    made = container(
        load.component,
        image=load.image,
        env=load.env,
        ports=load.ports,
        http_port=load.http_port,
        resources=resources(owner.spec.resources, load.requests),
    )
    return made | {"volumeMounts": mounts}


def container(
    name: str,
    *,
    image: str,
    env: Iterable[Manifest],
    ports: Iterable[tuple[str, int]],
    http_port: int,
    resources: Manifest,
) -> Manifest:
    """A container that runs the command of its name, without any volume."""
    made: Manifest = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["gantry", name],
        "env": list(env),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports],
        # The last sentence of a process that ends in an error comes into the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": template.container_security(None),
        "resources": resources,
    }
    return made | _probes(http_port)


def led_on(made: Manifest) -> Manifest:
    """A container that clients are led to; it serves on for a while when its pod is deleted."""
    hook = {"preStop": {"exec": {"command": ["sleep", str(LED_FOR_S)]}}}
    return made | {"lifecycle": hook}


def resources(wanted: Resources, requests: Mapping[str, str]) -> Manifest:
    """The owner's resources, and requests where it says nothing.

    A pod without requests gets the processor last and is evicted first. For what is limited, the
    API server derives the request from the limit; a default could exceed it.
    """
    made = wanted.to_object()
    if wanted.requests is None:
        limits = wanted.limits or {}
        made["requests"] = {name: size for name, size in requests.items() if name not in limits}
    return made


def _probes(port: int) -> Manifest:
    """Readiness decides about traffic, so it is quick; liveness restarts, so it is patient.

    One missed answer is enough to take a pod out of the Service: new connections of clients land
    on any Ready replica, and on a process that stands still each costs them a send time-out. A
    wrong guess costs nothing, since open connections stay and the other replicas pass clients on.
    The startup probe allows ten minutes, since a large commit log is checked before serving.
    """

    def probe(path: str, period_s: int, timeout_s: int, failures: int) -> Manifest:
        return {
            "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
            "periodSeconds": period_s,
            "timeoutSeconds": timeout_s,
            "failureThreshold": failures,
        }

    return {
        "startupProbe": probe("/livez", 1, 1, 600),
        "readinessProbe": probe("/readyz", 1, 1, 1),
        "livenessProbe": probe("/livez", 5, 5, 6),
    }


def config_volume(name: str) -> Manifest:
    """The volume with the configuration file of a group, by its ConfigMap's name."""
    return {"name": "config", "configMap": {"name": name}}


def _volumes(storage: Storage, load: Workload) -> list[Manifest]:
    volumes = [config_volume(load.statefulset)]
    volumes += [secret.as_volume() for secret in load.secrets]
    if storage.type == "EmptyDir":
        volumes.append({"name": "data", "emptyDir": {"sizeLimit": storage.size}})
    return volumes
