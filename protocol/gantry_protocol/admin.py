"""The controller's admin API: what its HTTP bodies look like, in both directions.

JSON names are camelCase; the attributes here are snake_case. What people and operators send
(``GroupDeclaration``, ``ElectRequest``, …) refuses unknown keys, so that a typing error is not a
default. What the controller answers may grow: older readers ignore keys they do not know.
"""

from typing import Annotated, Literal

from pydantic import Field

from gantry_protocol.admin_bodies import AdminRequest, AdminView, PreferredPlace

MAX_REPLICAS = 9


class AdvertisedMember(AdminView):
    """The addresses of a member for clients of one listener, as host:port; empty: none.

    ``route`` stands for the group while this member is its master, ``own`` for the member.
    """

    broker_id: Annotated[int, Field(ge=1)]
    route: Annotated[str, Field(max_length=300)]
    own: Annotated[str, Field(max_length=300)]


class GroupDeclaration(AdminRequest):
    """PUT /v1/groups/{cluster}/{name}: what the owner of a broker group wants it to be.

    ``uid`` is the identity of the object behind it: a second object of the same name is another
    group. ``route_address`` is the address clients are sent to as broker 0; None means the master's
    own. ``listeners``: the same for clients that come in from outside of the cluster.
    ``preferred``: the zones that an election with a choice prefers, in that order.
    """

    uid: Annotated[str, Field(min_length=1, max_length=128)]
    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
    min_in_sync_replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
    route_address: str | None = None
    listeners: dict[str, list[AdvertisedMember]] = Field(default_factory=dict)
    preferred: Annotated[list[PreferredPlace], Field(max_length=MAX_REPLICAS)] = Field(
        default_factory=list
    )

    def to_json(self) -> str:
        """The wire form; what is not wished is left out: older controllers know that form, too."""
        left_out = {name for name in ("listeners", "preferred") if not getattr(self, name)}
        return self.model_dump_json(by_alias=True, exclude=left_out)


MAX_FRONT_PORTS = 64


class FrontsDeclaration(AdminRequest):
    """PUT /v1/clusters/{cluster}/fronts/{name}: clients of a cluster are led to its fronts.

    ``address`` is a host name or an IP address without a port; the group with index n is reached
    there at ``first_port`` + n, as far as there are ``ports``.
    """

    address: Annotated[str, Field(min_length=1, max_length=253)]
    first_port: Annotated[int, Field(ge=1, le=65535)]
    ports: Annotated[int, Field(ge=1, le=MAX_FRONT_PORTS)]


class LeaseRequest(AdminRequest):
    """PUT /v1/quorum/lease."""

    enabled: bool


class TransferRequest(AdminRequest):
    """POST /v1/quorum/transfer: ``target`` shall lead; None: the voter that is furthest."""

    target: Annotated[int, Field(ge=1)] | None = None


class MemberRequest(AdminRequest):
    """POST /v1/quorum/members: take ``node`` in, as a learner (nobody begins as a voter).

    ``address`` is what ``--peers`` says behind the number: host[:raft[:remoting[:http]]].
    """

    node: Annotated[int, Field(ge=1, le=999_999_999)]
    address: Annotated[str, Field(min_length=1, max_length=256)]
    learner: Literal[True] = True


class ElectRequest(AdminRequest):
    """POST …/elect: make ``broker_id`` the master, if the group is still in ``master_epoch``."""

    broker_id: Annotated[int, Field(ge=1)]
    master_epoch: Annotated[int, Field(ge=0)]


class AcceptLossRequest(AdminRequest):
    """POST …/accept-loss: make ``broker_id`` the master although it lacks what was confirmed.

    ``confirmed_offset`` is what the group's view said, -1 for nothing: what is given up was seen.
    """

    broker_id: Annotated[int, Field(ge=1)]
    master_epoch: Annotated[int, Field(ge=0)]
    confirmed_offset: Annotated[int, Field(ge=-1)]


class AdoptRequest(AdminRequest):
    """POST …/adopt: take over a group of another quorum, whose copies are these brokers."""

    broker_ids: Annotated[list[int], Field(min_length=1, max_length=128)]
    master_epoch: Annotated[int, Field(ge=0)]
    accept_missing: bool = False


class EvidenceRequest(AdminRequest):
    """POST …/evidence: the pod with ``pod_uid`` is known to be gone (terminating is not gone)."""

    pod_uid: Annotated[str, Field(min_length=1, max_length=128)]
    gone: Literal[True] = True


class RetireRequest(AdminRequest):
    """POST …/retire: the object with ``uid`` that stood for the group is gone."""

    uid: Annotated[str, Field(min_length=1, max_length=128)]


class DrainRequest(AdminRequest):
    """PUT …/drain: the group takes no new messages, and serves those that it has.

    ``uid`` is of the object that stands for it; None: whichever does.
    """

    uid: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class ForgetRequest(AdminRequest):
    """POST …/forget: strike a member that is dead and outside the sync-state set.

    ``incarnation`` is the process that was seen, None for a broker that announces none.
    """

    broker_id: Annotated[int, Field(ge=1)]
    incarnation: Annotated[str, Field(max_length=128)] | None = None


class FenceRequest(AdminRequest):
    """PUT …/fence: take a member out of its group for a while, or let it in again."""

    broker_id: Annotated[int, Field(ge=1)]
    fenced: bool


class TierView(AdminView):
    """A member's last report on its group's tier; the master's word is the one that counts.

    ``committed_offset`` and ``version`` are there only while the newest version of the tier's chain
    is the member's own; ``lag_ms`` is None while it does not know where the tier ends.
    """

    state: str
    epoch: int | None = None
    committed_offset: int | None = None
    lag_ms: int | None = None
    reason: str = ""
    version: int | None = None


class DrainView(AdminView):
    """A master's last report on what is left of a group that is being drained.

    ``unread``: messages that consumer groups have not consumed yet, each counted once for each of
    them; ``parked``: delayed ones; ``transactions``: those that are open. ``done``: nothing is
    left, no queue of a mapped topic is there, and nothing new is taken. ``waits_for`` says in words
    what is waited for; it is empty then.
    """

    done: bool
    unread: int
    parked: int
    transactions: int
    waits_for: str = ""


class MemberView(AdminView):
    """One member of a broker group as the controller sees it.

    ``epoch`` and the offsets (``log_start`` is its oldest byte) are what its last heartbeat said,
    -1 when none came; ``last_heartbeat_age_ms`` is None when none came. ``disk_stuck`` says why a
    disk that is nearly full takes nothing more, ``log_damage`` what of its log is damaged and was
    not repaired. ``drain`` is the master's word while the group is drained. ``fenced``: by people.
    ``refused``: its registration was, since it knows epochs that this quorum never decided, and
    ``epoch`` and ``max_offset`` are of that. ``settings``: fingerprint of the configuration file
    that is in force, empty if it does not say; ``settings_refused``: why a newer one is not.
    """

    broker_id: int
    address: str
    ha_address: str | None = None
    pod_uid: str | None = None
    pod_name: str | None = None
    incarnation: str | None = None
    alive: bool
    draining: bool = False
    epoch: int = -1
    max_offset: int = -1
    confirm_offset: int = -1
    log_start: int = -1
    disk_stuck: str = ""
    log_damage: str = ""
    last_heartbeat_age_ms: int | None = None
    in_sync: bool
    tier: TierView | None = None
    refused: bool = False
    drain: DrainView | None = None
    fenced: bool = False
    settings: str = ""
    settings_refused: str = ""


class LossView(AdminView):
    """The last time a person gave up what was confirmed, and had ``broker_id`` elected.

    Its log ended at ``end``; ``confirmed_offset`` was known to be confirmed, -1 if nothing was.
    """

    master_epoch: int
    broker_id: int
    epoch: int
    end: int
    confirmed_offset: int
    at_ms: int


class MastershipView(AdminView):
    """The course of the last change of a group's master; what nobody here has seen is None.

    ``epoch`` is that of the new master. ``planned``: it was asked for, by the master that gave way
    or by people; else ``reason`` says why the old one was held to be gone. The controllers' leader
    has ``noticed`` that, last ``heard`` the old master before, and seen the new one ``elected``, by
    its clock; it knows of nothing that came before it led. ``last_write_ms`` and ``first_write_ms``
    are store times, by the clocks of the masters: of the newest record of the masters before, and
    of the first one that was confirmed since. All are milliseconds since 1970.
    """

    epoch: int
    planned: bool | None = None
    reason: str = ""
    heard_ms: int | None = None
    noticed_ms: int | None = None
    elected_ms: int | None = None
    last_write_ms: int | None = None
    first_write_ms: int | None = None


class GroupView(AdminView):
    """One broker group. ``clean`` is False once an election had to leave the sync-state set.

    ``retired``: its owner is gone; everything is kept as it was, and nobody is sent there.
    ``confirmed_offset`` of ``confirmed_epoch`` is how far the quorum knows the group to have
    confirmed its log, -1 for nothing; who holds less is not elected. ``no_master_reason`` says why
    nobody is, although members live; it is empty where that is not so. ``drain_began_ms``: it is
    being drained since then; None: it is not. ``has_others``: other groups of its cluster take
    messages, so that this one can be drained. ``queues``: of mapped topics that it takes messages
    for; ``queues_wished``: the same once all that move have moved. ``mastership``: how the last
    master came to be it, as far as the answering node knows. ``preferred`` is as it was declared;
    None: not all controllers know of such places yet.
    """

    cluster: str
    name: str
    uid: str | None = None
    replicas: int | None = None
    min_in_sync_replicas: int | None = None
    route_address: str | None = None
    listeners: dict[str, list[AdvertisedMember]] = Field(default_factory=dict)
    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int
    sync_state_set: list[int]
    sync_state_set_epoch: int
    clean: bool = True
    retired: bool = False
    members: list[MemberView] = Field(default_factory=list)
    confirmed_epoch: int = -1
    confirmed_offset: int = -1
    no_master_reason: str = ""
    loss: LossView | None = None
    drain_began_ms: int | None = None
    has_others: bool = False
    queues: int = 0
    queues_wished: int = 0
    mastership: MastershipView | None = None
    preferred: list[PreferredPlace] | None = None


class GroupList(AdminView):
    """A page of GET /v1/groups, in the order of (cluster, name).

    ``index`` is the applied index the page was read at. ``continue_token`` (``continue`` on the
    wire) asks for the next page; None after the last one. A page may be short, and not be the last.
    """

    index: int
    groups: list[GroupView]
    continue_token: str | None = Field(default=None, alias="continue")


class PeerView(AdminView):
    """One member of the quorum; five attributes, from ``counted`` on, are the leader's to know.

    ``role`` is voter or learner; ``priority`` the election priority it last stated. ``counted`` is
    False while its disk is new, and it neither votes nor confirms anything, and None while the
    leader does not hear it; every node knows that of itself.
    ``differs_at_index``: the first entry after which its state was found to differ.
    ``settings`` and ``settings_refused``: as of ``QuorumView``, each member's own word; filled in
    by who asks them all.
    """

    id: int
    name: str
    address: str
    role: str = "voter"
    counted: bool | None = None
    match_index: int | None = None
    last_contact_ms: int | None = None
    priority: int | None = None
    differs_at_index: int | None = None
    settings: str = ""
    settings_refused: str = ""


class LeaseView(AdminView):
    """The leader's permission to answer reads by a lease.

    ``enabled`` is the replicated setting as the answering node knows it; ``valid``: the answering
    node leads, and its lease holds now.
    """

    enabled: bool
    valid: bool


class SnapshotView(AdminView):
    """Answer of POST /v1/quorum/snapshot: the answering node's state up to ``index`` is durable."""

    index: int
    term: int
    size_bytes: int
    took_ms: int


class QuorumView(AdminView):
    """GET /v1/quorum, answered by every node about itself.

    ``snapshot_index``: the newest snapshot of the answering node covers entries up to there.
    ``digest`` is that of the node's state after entry ``digest_index``; 0 while there is none.
    ``settings``: the fingerprint of the configuration file whose settings the answering node has;
    empty where it has none, or is older. ``settings_refused``: why it refuses a newer one's.
    """

    cluster_uid: str
    node_id: int
    name: str
    term: int
    role: str
    leader_id: int | None = None
    leader_name: str | None = None
    leader_http: str | None = None
    commit_index: int
    applied_index: int
    snapshot_index: int = 0
    digest_index: int = 0
    digest: str = ""
    lease: LeaseView | None = None
    settings: str = ""
    settings_refused: str = ""
    peers: list[PeerView]


class WatchEvent(AdminView):
    """One line of GET /v1/watch; a line with ``heartbeat`` carries only ``index``."""

    index: int
    heartbeat: bool = False
    cluster: str | None = None
    group: str | None = None
    master_broker_id: int | None = None
    master_epoch: int = 0
    sync_state_set: list[int] = Field(default_factory=list)
    sync_state_set_epoch: int = 0
    members: list[MemberView] = Field(default_factory=list)
    mastership: MastershipView | None = None
    deleted: bool = False


class ErrorView(AdminView):
    """Every refusal: ``error`` is a stable code, ``leader`` the leader's HTTP base URL if known.

    ``peers``: the HTTP base URLs of all members, where another one may do.
    """

    error: str
    message: str
    leader: str | None = None
    peers: list[str] = Field(default_factory=list)


class DeclaredFronts(AdminView):
    """Fronts of a cluster as they were declared; see `FrontsDeclaration`."""

    name: str
    address: str
    first_port: int
    ports: int


class FrontIndex(AdminView):
    """A broker group's number among the fronts' ports; whether clients are led to it there."""

    group: str
    index: int
    served_by_fronts: bool = False


class FrontsView(AdminView):
    """GET /v1/clusters/{cluster}/fronts: at most one declaration, and groups by index.

    The groups are those that some front could have a port for: with indexes below
    ``MAX_FRONT_PORTS``.
    """

    fronts: list[DeclaredFronts] = Field(default_factory=list)
    groups: list[FrontIndex] = Field(default_factory=list)


class QueuesWish(AdminRequest):
    """PUT /v1/clusters/{cluster}/queues/{topic}: makes a mapped topic, or changes its map.

    Attributes:
        queues: how many the topic is to have; never fewer than it has.
        places: broker groups by number of the queue; new queues that are not named are spread.
    """

    queues: int
    places: dict[int, str] = Field(default_factory=dict)


class AccessWish(AdminRequest):
    """PUT /v1/clusters/{cluster}/access: whether every request of a client needs a user."""

    enabled: bool


class UserWish(AdminRequest):
    """PUT and PATCH /v1/clusters/{cluster}/users/{user}: made, or changed in what is not None."""

    secret: str | None = Field(default=None, repr=False)
    type: str | None = None
    status: str | None = None


class RuleWish(AdminRequest):
    """One rule of a user; see ``access.rules``."""

    resource: str
    actions: list[str]
    sources: list[str] = Field(default_factory=list)
    decision: str = "Allow"
    policy: str = "Custom"


class SecretCheck(AdminRequest):
    """POST /v1/clusters/{cluster}/users/{user}/check: whether this is the user's secret."""

    secret: str = Field(repr=False)


class SecretCheckView(AdminView):
    """The answer to a ``SecretCheck``."""

    matches: bool


class RulesWish(AdminRequest):
    """POST /v1/clusters/{cluster}/users/{user}/rules."""

    rules: list[RuleWish]


class RuleView(AdminView):
    """One rule of a user."""

    resource: str
    actions: list[str]
    sources: list[str] = Field(default_factory=list)
    decision: str = ""
    policy: str = ""


class UserView(AdminView):
    """One user; its secret is never shown."""

    name: str
    type: str
    status: str
    rules: list[RuleView] = Field(default_factory=list)


class AccessView(AdminView):
    """GET /v1/clusters/{cluster}/access.

    ``changed``: index of the last change of a user, a rule or the switch, where it is told.
    """

    enabled: bool
    changed: int | None = None
    users: list[UserView] = Field(default_factory=list)


class RebalanceRequest(AdminRequest):
    """POST /v1/clusters/{cluster}/queues-rebalance: queues move until groups have equally many.

    Attributes:
        dry_run: say what would move, and move nothing.
        without: groups that shall have none afterwards.
    """

    dry_run: bool = False
    without: list[str] = Field(default_factory=list)


class SegmentView(AdminView):
    """A part of a queue; it ends where the next one starts."""

    group: str
    start: int
    queue_id: int


class QueueView(AdminView):
    """One queue of a mapped topic; ``target``: the group that it is about to move to."""

    number: int
    segments: list[SegmentView]
    target: str = ""


class MappedTopicView(AdminView):
    """The queue map of one topic; ``detail`` where one topic was asked for."""

    topic: str
    epoch: int
    queues: int
    by_group: dict[str, int]
    moving: int = 0
    detail: list[QueueView] = Field(default_factory=list)


class QueueMapsView(AdminView):
    """GET /v1/clusters/{cluster}/queues: at most ``MAPPED_TOPICS_SHOWN`` topics, by name."""

    topics: list[MappedTopicView] = Field(default_factory=list)
    load: dict[str, int] = Field(default_factory=dict)


class MoveView(AdminView):
    """A queue that moves, or would."""

    topic: str
    queue: int
    group: str
    target: str


class MovesView(AdminView):
    """The answer to a rebalance."""

    moves: list[MoveView] = Field(default_factory=list)


MAPPED_TOPICS_SHOWN = 1_000
