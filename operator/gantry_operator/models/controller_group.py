"""ControllerGroup: one Raft quorum that keeps metadata and elects masters."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gantry_operator import names
from gantry_operator.models.base import Condition, Model, Resource, Rule
from gantry_operator.models.listeners import (
    BY_NAME,
    CERTIFICATE_MESSAGE,
    CERTIFICATE_RULE,
    PLAIN_MESSAGE,
    PLAIN_RULE,
    ControllerClients,
    ListenerStatus,
    are_distinct,
    are_guarded,
    have_certificates,
)
from gantry_operator.models.network import ControllerNetworkPolicy
from gantry_operator.models.parts import (
    NOT_NULLABLE,
    Resources,
    ShortMap,
    Storage,
    config_rules,
)
from gantry_operator.models.template import Template
from gantry_operator.models.tls import MemberTlsWish, TlsWish  # noqa: TC001 - pydantic reads it


class ControllerGroupSpec(Model):
    """The wish for the quorum."""

    replicas: Literal[1, 3, 5] = Field(
        default=3,
        description=(
            "Number of controllers: 1, 3 or 5. 3 survive the loss of one, 5 of two, 1 of none. "
            "Members come and go one at a time, and nothing restarts; see Change the size of the "
            "quorum. Default 3."
        ),
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description=(
            "Container image. Default: the operator's own; a new one rolls through the groups "
            "that name none, one group at a time. A change restarts the controllers one by one, "
            "the leader last."
        ),
    )
    storage: Storage = Field(
        default_factory=Storage, description="Where each controller keeps its Raft log."
    )
    resources: Resources = Field(
        default_factory=Resources, description="CPU and memory of each controller."
    )
    config: ShortMap = Field(
        default_factory=dict,
        description=(
            "Controller settings as in the configuration file, for example election_timeout_ms: "
            '"400". At most 64. Refused: settings that the operator owns, unknown ones, and values '
            "out of range; the last two are not checked with the annotation "
            'mq.gantry.dev/unchecked-config: "true", for an image of another version. A change '
            "restarts the controllers one by one. Default none."
        ),
    )
    template: Template = Field(
        default_factory=Template, description="Closed subset of the pod template."
    )
    cluster_uid: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description=(
            "Identity of the quorum; controllers refuse volumes of another one. Default: the "
            "identity that the volumes of a deleted ControllerGroup of this name carry, if they "
            "are a majority of a quorum of the same size and agree; without such volumes, the uid "
            "of this resource. status.clusterUid has what is in use. Cannot change after creation."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    allow_unauthenticated: bool = Field(
        default=False,
        description=(
            "true: the controllers believe whoever shows no key of the quorum, as unmodified Java "
            "brokers and mqadmin do. It opens the quorum to everybody who reaches ports 9878 and "
            "9876: they may register brokers, move masterships and delete metadata; limit who does "
            "by toolsFrom and clientsFrom of networkPolicy. Default false. A change restarts the "
            "controllers one by one."
        ),
    )
    tls: TlsWish | None = Field(
        default=None,
        description=(
            "TLS of the name service for clients, and where controllers tell brokers of elections. "
            "A change restarts the controllers one by one; one of the Secret does not. Default "
            "none: nothing is encrypted."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    member_tls: MemberTlsWish | None = Field(
        default=None,
        description=(
            "TLS between members, with certificates of both sides: of Raft, and what members say "
            "to controllers. A change restarts the controllers one by one; one of the Secret does "
            "not. Default none: whoever has the quorum's key is believed."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    clients: ControllerClients = Field(
        default_factory=ControllerClients, description="How clients reach the name service."
    )
    network_policy: ControllerNetworkPolicy = Field(
        default_factory=ControllerNetworkPolicy,
        description="Who may open connections to the controllers, as a NetworkPolicy.",
    )
    paused: bool = Field(
        default=False,
        description=(
            "true: the operator changes nothing but status, and the finalizer that keeps a "
            "quorum whose BrokerGroups exist. Default false."
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
            "has(self.clusterUid) == has(oldSelf.clusterUid)"
            " && (!has(self.clusterUid) || self.clusterUid == oldSelf.clusterUid)",
            "clusterUid is fixed at creation, because the volumes are marked with it: set it back; "
            "to take up volumes of another quorum, delete this resource and create it with its "
            "uid",
        ),
        Rule(
            "self.storage.type != 'EmptyDir' || self.replicas == 1",
            "storage.type EmptyDir is allowed with one replica only, since a controller that lost "
            "its log must not vote: set replicas to 1 or storage.type to PersistentVolumeClaim",
            lambda spec: spec.storage.type != "EmptyDir" or spec.replicas == 1,
        ),
        *config_rules(),
    )


class LeaderStatus(Model):
    """The leader of the quorum."""

    pod: str = Field(description="Name of the leader's pod.")
    node_id: int = Field(description="Raft id of the leader.")
    term: int = Field(description="Raft term in which it leads.")


class QuorumMember(Model):
    """A member of the quorum, as its leader last said."""

    node_id: int = Field(description="Raft id of the member; that of pod 0 is 1.")
    name: str = Field(description="Name of the member's pod.")
    role: Literal["Voter", "Learner"] = Field(
        description="Voter, or Learner: it is being filled and does not vote yet."
    )


class ControllerGroupStatus(Model):
    """The operator's observations; they could be rebuilt from the world if they were lost."""

    observed_generation: int = Field(
        ge=-1, description="The generation of the spec this status was concluded from."
    )
    summary: str = Field(
        default="",
        description=(
            "All of it in one line, for example Healthy, Rolling 2/3, Refused NameTaken, Crashing "
            "with the process's last words, or Deleting with what it waits for."
        ),
    )
    replicas: int = Field(default=0, ge=0, description="Pods that exist.")
    ready_replicas: int = Field(default=0, ge=0, description="Pods that are Ready.")
    ready: str = Field(default="", description="Ready pods of wished pods, for example 3/3.")
    leader: LeaderStatus | None = Field(
        default=None, description="The leader, as the quorum last reported it."
    )
    members: tuple[QuorumMember, ...] = Field(
        default=(),
        description="The members of the quorum, as its leader last said.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["nodeId"],
        },
    )
    cluster_uid: str | None = Field(
        default=None, description="Identity under which the controllers run."
    )
    listeners: tuple[ListenerStatus, ...] | None = Field(
        default=None, description="Their addresses.", json_schema_extra=BY_NAME | NOT_NULLABLE
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description=(
            "Accepted, Available, FullyReplicated, Progressing, Altered (while others have changed "
            "the pods), Paused, Ready, which sums the others up, and while it is False Stalled or "
            "Reconciling, which tools by the rules of kstatus read; one entry each."
        ),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )


class ControllerGroup(Resource):
    """A Raft quorum that keeps the metadata of broker groups and elects their masters."""

    spec: ControllerGroupSpec = Field(
        default_factory=ControllerGroupSpec, description="What the quorum is to be like."
    )
    status: ControllerGroupStatus | None = Field(
        default=None, description="What the operator observes; written by the operator only."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
            f" && self.metadata.name.size() <= {names.MAX_CONTROLLER_GROUP_NAME}",
            "metadata.name must start with a letter, have only lower-case letters, digits and "
            f"hyphens, and at most {names.MAX_CONTROLLER_GROUP_NAME} characters, because Services "
            "and pods are named after it: choose another name",
            lambda group: names.is_group_name(group.metadata.name, names.MAX_CONTROLLER_GROUP_NAME),
        ),
    )
