"""BrokerGroup: one replication group of brokers, as people wish it.

Only fields that do something are here. Fields name replicas by ordinal (the number at the end of
the pod's name), not by broker id: ids are the controller's and are never used twice. That is why
`forget` alone names an id: it is about a member whose pod is gone.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from gantry_protocol.names import LISTENERS_MAX
from pydantic import Field

from gantry_operator import names
from gantry_operator.models.base import Model, Resource, Rule
from gantry_operator.models.bootstrap import BOOTSTRAP_RULES, Bootstrap
from gantry_operator.models.broker_group_status import (
    BrokerGroupStatus,  # noqa: TC001 - pydantic reads it
)
from gantry_operator.models.containers import Sidecar  # noqa: TC001 - pydantic reads it
from gantry_operator.models.listeners import (
    BY_NAME,
    CERTIFICATE_MESSAGE,
    CERTIFICATE_RULE,
    PLAIN_MESSAGE,
    PLAIN_RULE,
    BrokerListeners,
    are_distinct,
    are_guarded,
    have_certificates,
)
from gantry_operator.models.network import BrokerNetworkPolicy
from gantry_operator.models.operations import (
    SOMEBODY_SERVES,
    ForgetWish,
    Update,
)
from gantry_operator.models.parts import (
    NOT_NULLABLE,
    ControllerRef,
    Resources,
    ShortMap,
    Storage,
    config_rules,
)
from gantry_operator.models.pipeline import NEEDS_A_BUCKET, Pipeline
from gantry_operator.models.preference import DISTINCT, NOT_FOR_SHARDS, PreferredMaster
from gantry_operator.models.retention import Retention
from gantry_operator.models.template import Template
from gantry_operator.models.tier import URL_IS_FIXED, Tier
from gantry_operator.models.tls import MemberTlsWish, TlsWish  # noqa: TC001 - pydantic reads it


class Replication(Model):
    """The conditions under which a message counts as stored."""

    min_in_sync_replicas: int | None = Field(
        default=None,
        ge=1,
        le=9,
        description=(
            "A send is acknowledged only while at least this many replicas, the master included, "
            "are in sync. Range 1 to replicas; default the smaller of 2 and replicas. Equal to "
            "replicas means that every restart of a replica pauses acknowledgements."
        ),
        json_schema_extra=NOT_NULLABLE,
    )


class Door(Model):
    """A process beside each broker that owns the connections of clients."""

    enabled: bool = Field(
        default=True,
        description=(
            "Whether each pod runs a door where route is Group: a container that takes clients' "
            "connections and passes them on to the master. They stay open when the master's "
            "process is killed, so that clients go on at once. false saves the process and a hop. "
            "An older group gets doors with its next image. A change restarts the replicas one by "
            "one. There is none with shards. Default true."
        ),
    )
    resources: Resources = Field(
        default_factory=Resources, description="CPU and memory of each door."
    )


class Clients(Model):
    """The way of clients to the group."""

    route: Literal["Group", "Master", "Pod"] = Field(
        default="Group",
        description=(
            "The address that clients get as the master's. Group: the Service over all Ready "
            "replicas, which pass connections on; it survives a failover. Master: the Service that "
            "follows the role label. Pod: the master's own, which saves a hop but changes with "
            "every failover. A change from or to Group adds or removes doors, which restarts the "
            "replicas one by one. Default Group."
        ),
    )
    door: Door = Field(
        default_factory=Door,
        description="The process beside each broker that keeps connections open in a failover.",
    )
    listeners: BrokerListeners = Field(
        default=(),
        description=(
            "Ways to the brokers from outside of the cluster, for clients that ask the "
            "ControllerGroup's listener of the same name. At most 4; default none."
        ),
        json_schema_extra=BY_NAME,
    )

    @property
    def has_door(self) -> bool:
        """Whether clients come in through doors; no other route leads to them."""
        return self.door.enabled and self.route == "Group"


class Switchover(Model):
    """A request to move the mastership once."""

    id: str = Field(
        min_length=1,
        max_length=63,
        description="Identity of the request, for example a date; each id is carried out once.",
    )
    to: int | None = Field(
        default=None,
        ge=0,
        le=8,
        description=(
            "Ordinal of the replica that is to become master; it must be in sync. Not set means "
            "the in-sync replica that is furthest ahead."
        ),
    )


class DrainWish(Model):
    """The fate of messages that are not consumed yet when the group is deleted."""

    deadline_seconds: int = Field(
        default=259_200,
        ge=0,
        le=31_536_000,
        description=(
            "How long a deletion waits, while other groups of the cluster take new messages, for "
            "consumer groups to read what this one holds; so does a lower number of shards. 0: not "
            "at all. It may be changed while the group is being deleted. Default: 259200, which "
            "is 72 hours and as long as messages are kept by default."
        ),
    )


_LISTENERS_FIRST = names.FIRST_SHARD_LISTENER_PORT
_LISTENERS_LAST = _LISTENERS_FIRST + LISTENERS_MAX * names.MAX_SHARDS - 1


def _may_be_a_listeners(sidecar: Sidecar) -> bool:
    """Whether a port of it has a number or a name that a listener of a shard has."""
    return any(
        _LISTENERS_FIRST <= port.container_port <= _LISTENERS_LAST
        or re.search(r"-[0-9]+$", port.name or "") is not None
        for port in sidecar.ports
    )


SHARD_RULES = (
    Rule(
        "has(self.shards) == has(oldSelf.shards)",
        "shards is fixed at creation as to whether it is set, because the names of the groups and "
        "the layout of the volumes depend on it: set it back, and create a new BrokerGroup",
    ),
    Rule(
        "!has(self.shards) || self.clients.route != 'Master'",
        "clients.route Master follows the role of a whole pod, and with shards a pod is the master "
        "of some groups only: set it to Group or Pod",
        lambda spec: spec.shards is None or spec.clients.route != "Master",
    ),
    Rule(
        "!has(self.shards) || !has(self.clients.listeners)"
        " || !self.clients.listeners.exists(l, has(l.tls)) || !has(self.template)"
        " || !has(self.template.spec) || !has(self.template.spec.sidecars)"
        " || self.template.spec.sidecars.all(s, !has(s.ports) || s.ports.all(p,"
        f" (p.containerPort < {_LISTENERS_FIRST} || p.containerPort > {_LISTENERS_LAST})"
        " && !(has(p.name) && p.name.matches('-[0-9]+$'))))",
        "each shard has a port for each listener with tls: choose a containerPort of a sidecar "
        f"below {_LISTENERS_FIRST} or above {_LISTENERS_LAST}, and a name that does not end in a "
        "hyphen and a number",
        lambda spec: (
            spec.shards is None
            or all(one.tls is None for one in spec.clients.listeners)
            or not any(map(_may_be_a_listeners, spec.template.spec.sidecars))
        ),
    ),
    Rule(
        "!has(self.shards) || !has(self.switchover)",
        "switchover moves the mastership of one group, and with shards there are many: remove it, "
        "and move one by the admin API of the controllers (POST /v1/groups/CLUSTER/NAME_0/elect)",
        lambda spec: spec.shards is None or spec.switchover is None,
    ),
    Rule(
        "!has(self.shards) || !has(self.pipeline)",
        "pipeline reads the tier of one group, and with shards there are many: remove it, and run "
        "gantry pipeline audit for each",
        lambda spec: spec.shards is None or spec.pipeline is None,
    ),
    Rule(
        "!has(self.shards) || !has(self.forget)",
        "forget names a member of one group, and with shards there are many: remove it, and use "
        "gantry forget SHARD --member ID",
        lambda spec: spec.shards is None or spec.forget is None,
    ),
)
"""Each shard is a group like any other; the rules say what a pod with many cannot do."""


class BrokerGroupSpec(Model):
    """The wish for the group."""

    controller_ref: ControllerRef = Field(
        default_factory=ControllerRef,
        description="The ControllerGroup that keeps this group's metadata and elects its master.",
    )
    replicas: int = Field(
        default=3,
        ge=1,
        le=9,
        description=(
            "Number of replicas, the master included. Range 1 to 9; default 3. Scaling down "
            "removes the highest ordinals, one at a time, and never below minInSyncReplicas."
        ),
    )
    shards: int | None = Field(
        default=None,
        ge=1,
        le=names.MAX_SHARDS,
        description=(
            "Number of broker groups that the same pods host: NAME_0, NAME_1 and so on, each with "
            "queues, a master and replicas of its own on the one volume of each pod. Everything "
            "else in this spec holds for each of them. Not set: one group, named like the "
            "resource; that is fixed at creation. More restart the replicas one by one, "
            "and take over the topics of the others; fewer are drained first, as drain says. "
            "Range 1 to 100; default not set."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description=(
            "Container image. Default: the operator's own; a new one rolls through the groups "
            "that name none, one group at a time. A change restarts the replicas one by one, the "
            "master last."
        ),
    )
    storage: Storage = Field(
        default_factory=Storage, description="Where each replica keeps its commit log."
    )
    replication: Replication = Field(
        default_factory=Replication, description="When a message counts as stored."
    )
    clients: Clients = Field(default_factory=Clients, description="How clients reach the group.")
    resources: Resources = Field(
        default_factory=Resources, description="CPU and memory of each replica."
    )
    config: ShortMap = Field(
        default_factory=dict,
        description=(
            "Broker settings as in the configuration file, for example log_segment_bytes: "
            '"67108864". At most 64. Refused: settings that the operator owns, unknown ones, and '
            "values out of range; the last two are not checked with the annotation "
            'mq.gantry.dev/unchecked-config: "true", for an image of another version. A change '
            "restarts the replicas one by one. Default none."
        ),
    )
    template: Template = Field(
        default_factory=Template, description="Closed subset of the pod template."
    )
    tier: Tier | None = Field(
        default=None,
        description=(
            "An object store to which the master uploads every acknowledged message; after a "
            "failover the new master goes on where the last one stopped. A store that fails stops "
            "the upload and nothing else. A change restarts the replicas one by one. Default none."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    bootstrap: Bootstrap | None = Field(
        default=None,
        description=(
            "The tier that a new group begins from. Volumes that hold something are left as they "
            "are. Fixed at creation. Default none: the group begins empty."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    tls: TlsWish | None = Field(
        default=None,
        description=(
            "TLS of brokers and doors for clients, and where they pass clients on to the master. "
            "A change restarts the replicas one by one; one of the Secret does not. Default none: "
            "nothing is encrypted."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    member_tls: MemberTlsWish | None = Field(
        default=None,
        description=(
            "TLS between members, with certificates of both sides: of replication, the stores' "
            "port, and what brokers say to controllers. A change restarts the replicas one by "
            "one; one of the Secret does not. Default none: whoever has the quorum's key is "
            "believed."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    retention: Retention = Field(
        default_factory=Retention,
        description=(
            "How long messages stay on the replicas' volumes, consumed or not, in a group without "
            "a tier. A change restarts the replicas one by one. Default: 72 hours, and the oldest "
            "go earlier when a volume is nearly full."
        ),
    )
    drain: DrainWish = Field(
        default_factory=DrainWish,
        description=(
            "What a deletion waits for in a cluster with other groups. The last group of a cluster "
            "and one whose ControllerGroup is being deleted are not waited for."
        ),
    )
    pipeline: Pipeline | None = Field(
        default=None,
        description=(
            "Jobs that read what the group uploaded. They need spec.tier and touch no broker. "
            "Default none."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    switchover: Switchover | None = Field(
        default=None, description="A request to move the mastership once. Default none."
    )
    preferred_master: PreferredMaster | None = Field(
        default=None,
        description=(
            "Zones for the master. Elections with a choice prefer them. A master elsewhere moves "
            "back when all replicas have been well for 5 minutes or more, one group at a time; "
            "not while switchover names its replica. Default none."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    fenced: tuple[Annotated[int, Field(ge=0, le=8)], ...] = Field(
        default=(),
        max_length=8,
        description=(
            "Ordinals of replicas that take no part: pod and volume stay, and they serve nobody, "
            "get no byte and are never elected. Default none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    forget: ForgetWish | None = Field(
        default=None, description="A request to strike a gone member once. Default none."
    )
    network_policy: BrokerNetworkPolicy = Field(
        default_factory=BrokerNetworkPolicy,
        description="Who may open connections to the brokers, as a NetworkPolicy.",
    )
    update: Update = Field(
        default_factory=Update, description="When a change that restarts pods is carried out."
    )
    hibernated: bool = Field(
        default=False,
        description=(
            "true: no pod runs. Volumes, and what the controllers know of the members, are kept, "
            "also with storage.whenScaled Delete; nobody is served. false again: the same members "
            "start, and the one that is elected holds every acknowledged message. Default false."
        ),
    )
    paused: bool = Field(
        default=False,
        description=(
            "true: the operator changes nothing but status and role labels. Failover works on, "
            "since the controller decides it. Deletion goes on. Default false."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            PLAIN_RULE,
            PLAIN_MESSAGE,
            lambda spec: are_guarded(spec.clients.listeners, spec.tls),
        ),
        Rule(
            CERTIFICATE_RULE,
            CERTIFICATE_MESSAGE,
            lambda spec: have_certificates(spec.clients.listeners, spec.tls),
        ),
        Rule(
            None,  # the list's key in the schema says so
            "two listeners have one name: rename one of them",
            lambda spec: are_distinct(spec.clients.listeners),
        ),
        Rule(
            "!has(self.replication.minInSyncReplicas)"
            " || self.replication.minInSyncReplicas <= self.replicas",
            "replication.minInSyncReplicas must not be greater than replicas, or nothing could "
            "ever be acknowledged: lower it or raise replicas",
            lambda spec: (spec.replication.min_in_sync_replicas or 1) <= spec.replicas,
        ),
        Rule(
            "self.storage.type != 'EmptyDir' || self.replicas == 1",
            "storage.type EmptyDir is allowed with one replica only, since a replaced pod loses "
            "its data: set replicas to 1 or storage.type to PersistentVolumeClaim",
            lambda spec: spec.storage.type != "EmptyDir" or spec.replicas == 1,
        ),
        Rule(
            "!has(self.tier) || !has(self.retention) || !has(self.retention.hours)"
            " && !has(self.retention.bytes) && !has(self.retention.whenFull)",
            "retention is for groups without a tier, which keeps every message: remove it, and set "
            "tier.localBytes for what stays on the volumes",
            lambda spec: spec.tier is None or spec.retention == Retention(),
        ),
        Rule(
            "!has(self.hibernated) || !self.hibernated || self.storage.type != 'EmptyDir'",
            "hibernated removes the pods, and with storage.type EmptyDir a pod's messages go with "
            "it: set it to false",
            lambda spec: not spec.hibernated or spec.storage.type != "EmptyDir",
        ),
        NEEDS_A_BUCKET,
        SOMEBODY_SERVES,
        DISTINCT,
        *SHARD_RULES,
        *BOOTSTRAP_RULES,
        NOT_FOR_SHARDS,
        *config_rules(),
    )

    @property
    def min_in_sync(self) -> int:
        """The effective minimum of in-sync replicas."""
        wanted = self.replication.min_in_sync_replicas
        return min(2, self.replicas) if wanted is None else wanted

    @property
    def fenced_now(self) -> frozenset[int]:
        """The ordinals to be fenced of replicas that there are to be."""
        return frozenset(ordinal for ordinal in self.fenced if ordinal < self.replicas)

    @property
    def has_door(self) -> bool:
        """Whether clients come in through doors, each of which leads to one group."""
        return self.clients.has_door and self.shards is None


class BrokerGroup(Resource):
    """A replication group of brokers that fails over by itself."""

    spec: BrokerGroupSpec = Field(
        default_factory=BrokerGroupSpec, description="What the group is to be like."
    )
    status: BrokerGroupStatus | None = Field(
        default=None, description="What the operator observes; written by the operator only."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
            f" && self.metadata.name.size() <= {names.MAX_BROKER_GROUP_NAME}",
            "metadata.name must start with a letter, have only lower-case letters, digits and "
            f"hyphens, and at most {names.MAX_BROKER_GROUP_NAME} characters, because Services and "
            "pods are named after it: choose another name",
            lambda group: names.is_group_name(group.metadata.name, names.MAX_BROKER_GROUP_NAME),
        ),
        URL_IS_FIXED,
    )
