"""Names, labels, annotations and ports: the words that every object of Gantry is found by.

Everything that builds an object, selects one or reads one back uses these functions, so a name is
spelled in one place. A label that a selector uses never changes after creation; the role label is
written on pods only and is never part of a StatefulSet's selector or template.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP: Final = "mq.gantry.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

FIELD_MANAGER: Final = "gantry-operator"
"""Owner of every field the operator applies; status has a manager of its own, so that an apply of
one never releases fields of the other."""
STATUS_FIELD_MANAGER: Final = "gantry-operator-status"
REPLICAS_FIELD_MANAGER: Final = "gantry-operator-replicas"
"""Owner of the replicas of fronts between the operator and an autoscaler that takes them over, and
of those of brokers while a change of their template waits."""

PEOPLE_FIELD_MANAGER: Final = "kubectl-gantry"
"""Owner of what people have written into a spec by `gantry kube`."""

# Standard labels: https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_GROUP: Final = f"{GROUP}/group"
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_TRAFFIC: Final = f"{GROUP}/traffic"
"""`true` in the pod template of brokers; the Service of a group selects it. The operator writes
`false` on the pod of a member that the controllers call lost, so that new connections avoid it
before Kubernetes notices a lost node, and `true` when the member is back."""
LABEL_SHARDS: Final = f"{GROUP}/shards"
"""On the pods of a BrokerGroup with shards: how many of them the pod hosts, from the first on."""
LABEL_TOOLS: Final = f"{GROUP}/tools"
"""`true` on any pod that may reach the ports of controllers that tools use; see
`networkPolicy.toolsFrom`."""
LABEL_LISTENER: Final = f"{GROUP}/listener"
"""On the Services of a listener: its name. They go with it."""
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
"""Of nodes; Kubernetes copies it to their pods from version 1.35 on."""
LABEL_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
LABEL_REVISION: Final = "controller-revision-hash"

APP_NAME: Final = "gantry"
APPLY_DEFINITIONS: Final = "kubectl apply --server-side --force-conflicts -f crds"
"""Forced, since Helm counts as the owner of what it has once installed."""
MANAGED_BY: Final = "gantry-operator"
MANAGED_SELECTOR: Final = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
CONTROLLER: Final = "controller"
BROKER: Final = "broker"
DOOR: Final = "door"
"""Of a container beside the broker's in its pod; no pods are of it alone."""
FRONT: Final = "front"
USER: Final = "user"
"""Of the Secrets that are made for MessageUsers; they are read by name."""
OPERATOR: Final = "operator"
AUDIT: Final = "audit"
"""Of jobs that read the tier; no Service selects it."""
ROLE_MASTER: Final = "master"
ROLE_REPLICA: Final = "replica"
TRAFFIC_ON: Final = "true"
TRAFFIC_OFF: Final = "false"

ANNOTATION_APPLIED: Final = f"{GROUP}/applied-hash"
"""Hash of what the operator last applied: notices a field that was taken out of the wish."""
ANNOTATION_CONFIG: Final = f"{GROUP}/config-hash"
"""On the pod template: a changed configuration makes a new revision, so a rolling update. Without
the settings that brokers apply while running, where their image knows how to (`ANNOTATION_LIVE`).
"""
ANNOTATION_UNCHECKED: Final = f"{GROUP}/unchecked-config"
"""`true` on a resource: the settings in spec.config are not checked, for an image of another
version."""
ANNOTATION_CONTROLLER_GROUP: Final = f"{GROUP}/controller-group"
"""On a broker StatefulSet: the ControllerGroup it was created for."""
ANNOTATION_DOORS: Final = f"{GROUP}/doors"
"""`known` on a broker StatefulSet whose image runs `gantry door`; see `plan.broker`."""
ANNOTATION_FRONTS: Final = f"{GROUP}/fronts"
"""`known` on a broker StatefulSet whose image serves clients and fronts at once; likewise."""
ANNOTATION_LIVE: Final = f"{GROUP}/live-settings"
"""On a StatefulSet or Deployment whose image applies settings while running: the word for which."""
ANNOTATION_FILES: Final = f"{GROUP}/files"
"""On a pod: fingerprint of the settings for which its kubelet was to renew the files that
it has mounted. A kubelet looks at them at once when the pod changes, and else once in a while."""
ANNOTATION_SHARDS: Final = f"{GROUP}/shards"
"""On a broker StatefulSet: how many shards its pods host; none where they host one group."""
ANNOTATION_STORAGE_SIZE: Final = f"{GROUP}/storage-size"
"""On a StatefulSet whose claims have grown: the size that they were last wished to have."""
ANNOTATION_REPLICAS: Final = f"{GROUP}/replicas"
"""On the Deployment of fronts: who sets its replicas, `spec` or `autoscaler`."""
ANNOTATION_TEMPLATE: Final = f"{GROUP}/template-hash"
"""On a broker StatefulSet: hash of the pod template as the operator wished it, without what the API
server and others add. It tells a change that restarts pods from one that does not."""
FINALIZER: Final = f"{GROUP}/controller-metadata"
"""Set only while storage.whenDeleted of a BrokerGroup is Delete, or the deletionPolicy of what
stands for a topic, a user or a consumer group. Removing it by hand leaves the group's metadata in
the controller, nothing else: `kubectl patch bg NAME --type=json -p
'[{"op":"remove","path":"/metadata/finalizers"}]'`."""

QUORUM_FINALIZER: Final = f"{GROUP}/broker-groups"
"""On a ControllerGroup, exactly while BrokerGroups or FrontGroups refer to it: its deletion waits
for theirs. Take it off by hand to delete it in spite of them: `kubectl patch controllergroup NAME
--type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`."""
FRONTS_FINALIZER: Final = f"{GROUP}/fronts"
"""On a FrontGroup: clients are led back to the brokers before its pods go. Removing it by hand
leaves clients where nobody answers until they look again: `kubectl patch fg NAME --type=json -p
'[{"op":"remove","path":"/metadata/finalizers"}]'`, then `gantry fronts remove`."""
DRAIN_FINALIZER: Final = f"{GROUP}/drain"
"""On a BrokerGroup that has neighbours: what it holds is consumed before it goes. To go at once set
spec.drain.deadlineSeconds to 0, also while it is being deleted; without an operator: `kubectl patch
bg NAME --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`."""
ANNOTATION_QUORUM: Final = f"{GROUP}/cluster-uid"
ANNOTATION_QUORUM_SIZE: Final = f"{GROUP}/cluster-size"
"""On the claim of a controller's volume: identity and size of the quorum that the volume is of."""

CONTROLLER_REMOTING_PORT: Final = 9878
NAMESERVER_PORT: Final = 9876
RAFT_PORT: Final = 9879
CONTROLLER_HTTP_PORT: Final = 9880
BROKER_REMOTING_PORT: Final = 10911
BROKER_HA_PORT: Final = 10912
BROKER_HTTP_PORT: Final = 10913
DOOR_PORT: Final = 10910
BROKER_STORE_PORT: Final = 10914
DOOR_HTTP_PORT: Final = 10920
FRONT_HTTP_PORT: Final = 10921
FIRST_FRONT_PORT: Final = 10950
"""Of the broker group with index 0; each further index has the next one."""
FIRST_SHARD_PORT: Final = 11100
"""Of the shard with index 0, at its pods and at the Service; each further one has the next."""
FIRST_LISTENER_PORT: Final = 10930
"""Of the first listener of a quorum, at its pods; each further one has the next."""
FIRST_DIRECT_PORT: Final = 10940
"""Of the first listener with TLS of its own, at a broker behind a door; each further one has the
next. The door has it at `FIRST_LISTENER_PORT` and on, as a broker without a door has."""
FIRST_SHARD_LISTENER_PORT: Final = 11200
"""Of the first shard at the first listener with TLS of its own; each further shard has the next,
and each further listener begins `MAX_SHARDS` later."""
OPERATOR_HTTP_PORT: Final = 8080

DATA_DIR: Final = "/var/lib/gantry"
ADMIN_DIR: Final = "/etc/gantry/admin"
CONFIG_DIR: Final = "/etc/gantry/config"
QUORUM_DIR: Final = "/etc/gantry/quorum"
TIER_KEYS_DIR: Final = "/etc/gantry/tier"
TLS_DIR: Final = "/etc/gantry/tls"
MEMBER_TLS_DIR: Final = "/etc/gantry/member-tls"
MEMBER_TLS_VOLUME: Final = "member-tls"
LISTENER_TLS_DIR: Final = "/etc/gantry/listener-tls"
TOKEN_KEY: Final = "token"  # noqa: S105 -- the name of a key, not a secret
QUORUM_KEY: Final = "key"
"""Entry of the Secret that holds the key of a quorum; see `quorum_secret`."""
CONFIG_KEY: Final = "gantry.toml"
QUORUM_SIZE_KEY: Final = "quorum-size"
"""Entry of the ConfigMap of controllers, a file beside the other one: how many members there are,
where that is not as many as founded the quorum."""
TIER_KEYS: Final = ("accessKeyId", "secretAccessKey", "sessionToken")
"""Entries of the Secret that `spec.tier.credentialsSecret` names; the last one may be missing."""

MAX_BROKER_GROUP_NAME: Final = 45
"""`controller-revision-hash` is `<statefulset>-<10 characters>` and a label value has at most 63
characters, which leaves 52 for the StatefulSet; `-broker` takes 7 and `-controller` 11 of them."""
MAX_CONTROLLER_GROUP_NAME: Final = 41
MAX_FRONT_GROUP_NAME: Final = 40
"""A pod of a Deployment is `<deployment>-<10 characters>-<5>`, and its name is that of its host,
which has at most 63 characters; `-front` takes 6."""
MAX_FRONT_PORTS: Final = 64
MAX_SHARDS: Final = 100
MAX_LISTENERS: Final = 4
MAX_LISTENER_NAME: Final = 12
"""`NAME-at-LISTENER-8` of a broker group has 63 characters."""


_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SHARD = re.compile(r"([a-z][-a-z0-9]*)_[0-9]{1,4}")


def is_group_name(name: str, max_length: int) -> bool:
    """Whether a group may have this name: a DNS label (RFC 1035), since Services carry it."""
    return len(name) <= max_length and _DNS_LABEL.fullmatch(name) is not None


def controller_statefulset(group: str) -> str:
    """StatefulSet, headless Service, ConfigMap and PodDisruptionBudget of a ControllerGroup."""
    return f"{group}-controller"


def nameserver_service(group: str) -> str:
    """The Service that clients name as their name server."""
    return f"{group}-nameserver"


def admin_secret(group: str) -> str:
    """The Secret with the bearer token of the controllers' admin API."""
    return f"{group}-admin"


def quorum_secret(group: str) -> str:
    """The Secret with the key that controllers and brokers of a quorum show to each other."""
    return f"{group}-quorum-key"


def user_secret(resource: str) -> str:
    """The Secret that is made for a MessageUser that names none."""
    return f"{resource}-user"


def secrets(group: str) -> dict[str, str]:
    """All Secrets of a ControllerGroup, with the entry that each must have."""
    return {admin_secret(group): TOKEN_KEY, quorum_secret(group): QUORUM_KEY}


def broker_statefulset(group: str) -> str:
    """StatefulSet, headless Service, ConfigMap and PodDisruptionBudget of a BrokerGroup."""
    return f"{group}-broker"


def shard(group: str, index: int) -> str:
    """Name of one of the broker groups of a BrokerGroup with `spec.shards`.

    No resource may have an underscore in its name, so this is never the group of another one.
    """
    return f"{group}_{index}"


def shards(group: str, count: int) -> str:
    """All of them from 0 on, as a broker process is told of them."""
    return f"{group}_[0-{count - 1}]"


def shard_index(name: str) -> int:
    """The index of a shard, by its name."""
    return int(name.rpartition("_")[2])


def shard_port(name: str) -> int:
    """The port of a shard, by its name, at its pods and at the Service."""
    return FIRST_SHARD_PORT + shard_index(name)


def shard_port_name(index: int) -> str:
    """Name of the port of a shard at Services."""
    return f"shard-{index}"


def resource_of(broker_group: str) -> str:
    """Name of the BrokerGroup to which a group of the controllers belongs, if it is of one."""
    found = _SHARD.fullmatch(broker_group)
    return broker_group if found is None else found[1]


def group_service(group: str) -> str:
    """The Service over all Ready replicas; any of them passes a connection on to the master."""
    return group


def master_service(group: str) -> str:
    """The Service that follows the role label."""
    return f"{group}-master"


def listener_service(group: str, listener: str, ordinal_: int | None = None) -> str:
    """The Service of a listener over all pods of a group, or over one of them."""
    of_all = f"{group}-at-{listener}"
    return of_all if ordinal_ is None else f"{of_all}-{ordinal_}"


def listener_port(listener: str) -> str:
    """Name of the port of a container where a listener leads to."""
    return f"at-{listener}"


def direct_port(listener: str) -> str:
    """Name of the port of a broker behind a door where a listener leads to that replica."""
    return f"to-{listener}"


def shard_listener_port(listener: str, index: int) -> str:
    """Name of the port of a broker where a listener leads to a shard; at most 15 characters.

    No other port's name is one of a listener with a number behind it.
    """
    return f"{listener}-{index}"


def listener_volume(listener: str) -> str:
    """The volume with the Secret of a listener; no volume of people's begins so."""
    return f"gantry-at-{listener}"


def front_deployment(group: str) -> str:
    """Deployment, Service, autoscaler and PodDisruptionBudget of a FrontGroup."""
    return f"{group}-front"


def audit_job(group: str) -> str:
    """The CronJob that audits a BrokerGroup's part of the tier; at most 52 characters."""
    return f"{group}-audit"


def pod(statefulset: str, ordinal: int) -> str:
    """Name of a StatefulSet's pod."""
    return f"{statefulset}-{ordinal}"


def ordinal(pod_name: str) -> int | None:
    """The ordinal at the end of a StatefulSet pod's name; None if there is none."""
    _, _, tail = pod_name.rpartition("-")
    return int(tail) if tail.isascii() and tail.isdigit() else None


def member_secret(pod_body: Mapping[str, Any]) -> str | None:
    """The Secret with the member's certificate that a pod was given; None: it was given none.

    It is the pod's and not its resource's: while a group comes to TLS, or leaves it, pods differ.
    """
    for volume in (pod_body.get("spec") or {}).get("volumes") or ():
        if volume.get("name") == MEMBER_TLS_VOLUME:
            secret: str | None = (volume.get("secret") or {}).get("secretName")
            return secret
    return None


def pod_host(statefulset: str, ordinal_: int, namespace: str) -> str:
    """DNS name of a pod; the headless Service is named like its StatefulSet."""
    return f"{pod(statefulset, ordinal_)}.{statefulset}.{namespace}.svc"


def controllers(group: str, replicas: int, namespace: str) -> str:
    """Remoting addresses of all controllers of a group, as brokers take them."""
    name = controller_statefulset(group)
    hosts = (pod_host(name, n, namespace) for n in range(replicas))
    return ",".join(f"{host}:{CONTROLLER_REMOTING_PORT}" for host in hosts)


def peers(group: str, replicas: int, namespace: str) -> str:
    """`node id=host` of all controllers; node ids are ordinals plus one."""
    name = controller_statefulset(group)
    return ",".join(f"{n + 1}={pod_host(name, n, namespace)}" for n in range(replicas))


def selector(component: str, instance: str) -> dict[str, str]:
    """The immutable labels by which a group's pods are selected."""
    return {LABEL_NAME: APP_NAME, LABEL_INSTANCE: instance, LABEL_COMPONENT: component}


def labels(component: str, instance: str) -> dict[str, str]:
    """All labels of an owned object."""
    result = selector(component, instance) | {LABEL_MANAGED_BY: MANAGED_BY}
    if component == BROKER:
        result[LABEL_GROUP] = instance
    return result


def selector_text(component: str, instance: str) -> str:
    """The selector as the scale subresource wants it."""
    return ",".join(f"{key}={value}" for key, value in selector(component, instance).items())
