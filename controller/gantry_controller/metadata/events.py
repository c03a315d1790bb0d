"""The events of the log, and their bytes.

Each event carries the request *and the evidence it is judged by* (rocketmq #7163, #7165), so that
applying it needs nothing but the state. The classes form a union told apart by ``type``, which ends
in the version of that class's layout: a changed layout is a new class with a new number, and the
old one stays readable for as long as logs may hold it. A reader that meets a type or a field it
does not know stops: to skip an event would be to disagree with the quorum in silence.
"""

import msgspec
from gantry_protocol.access.rules import Rule
from gantry_protocol.errors import GantryError
from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_controller.metadata.clients import ConsumerGroup, QueueOwner
from gantry_controller.metadata.listeners import GroupListener
from gantry_controller.metadata.preference import WishedPlace
from gantry_controller.metadata.topic_table import Topic

LOWEST_PRIORITY = 2**31 - 1


class UnknownEventError(GantryError):
    """The log holds an event that this version cannot read."""


class LiveMember(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A member that the leader held to be alive when it made the event, and what it knew of it.

    Attributes:
        incarnation: of the process that said so; empty for brokers that announce none.
        epoch: the newest epoch of its lineage, -1 if unknown.
        max_offset: the end of its log, -1 if unknown.
        confirm_offset: up to where it knows its log to be acknowledged, -1 if unknown.
        priority: smaller wins among equals (``brokerElectionPriority``).
        draining: it is about to stop.
        connected: it has an open connection to the leader, so it is surely no corpse whose
            heartbeat has not timed out yet.
    """

    broker_id: BrokerId
    incarnation: str = ""
    epoch: Epoch = Epoch(-1)
    max_offset: Offset = Offset(-1)
    confirm_offset: Offset = Offset(-1)
    priority: int = LOWEST_PRIORITY
    draining: bool = False
    connected: bool = True


class _Record(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    tag_field="type",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """About the whole quorum's state, not about one group."""


class _Event(_Record, frozen=True):
    """About a group; ``cluster`` may be empty where Java's request names none."""

    cluster: str
    name: str


class DeclareGroup(_Event, frozen=True, tag="DeclareGroup/1"):
    """The owner's wish for a group; creates it, or revives a tombstone above its old epochs."""

    uid: str
    replicas: int
    min_in_sync_replicas: int
    route_address: str | None = None
    listeners: tuple[GroupListener, ...] = ()
    preferred: tuple[WishedPlace, ...] = ()


class RemoveGroup(_Event, frozen=True, tag="RemoveGroup/1"):
    """The owner ``uid`` gives the group up; a tombstone stays.

    With ``owners`` the owners of its queues that are to begin anew elsewhere are kept until then.
    """

    uid: str
    owners: bool = False


class RetireGroup(_Event, frozen=True, tag="RetireGroup/1"):
    """The owner ``uid`` is gone; the group is kept as it is, and nobody is sent there."""

    uid: str


class ForgetMember(_Event, frozen=True, tag="ForgetMember/1"):
    """Strike a member that is gone and holds nothing that nobody else holds.

    Attributes:
        incarnation: the process that is meant, empty for a broker that announces none.
        live: the members that are heard, and the one that is meant unless it is proved gone.
    """

    broker_id: BrokerId
    incarnation: str = ""
    live: tuple[LiveMember, ...] = ()


class FenceMember(_Event, frozen=True, tag="FenceMember/1"):
    """Take a member out of its group for a while, or let it in again (``metadata.fencing``).

    Attributes:
        fenced: False lets it in again.
        live: the members that are heard.
    """

    broker_id: BrokerId
    fenced: bool
    live: tuple[LiveMember, ...] = ()


class ApplyBrokerId(_Event, frozen=True, tag="ApplyBrokerId/1"):
    """A broker takes an id (code 1013)."""

    broker_id: BrokerId
    check_code: str


class RegisterBroker(_Event, frozen=True, tag="RegisterBroker/1"):
    """A started broker makes itself known (code 1003)."""

    broker_id: BrokerId
    address: str
    incarnation: str = ""
    pod_uid: str | None = None
    ha_port: int | None = None
    last_epoch: Epoch = Epoch(0)


class ElectMaster(_Event, frozen=True, tag="ElectMaster/1"):
    """Make sure that there is a master (code 1002, or the controller's own wish).

    Attributes:
        requester: the asking broker, the designated one, or None for the controller itself.
        designate: ``requester`` or nobody.
        incarnation: of the asking broker, if it said so.
        expected_epoch: refuse unless the group is still in this epoch; None: do not compare.
        live: the members held to be alive.
        first_wait_over: the leader has known of the group's first registration for as long as the
            first election waits for the last members.
    """

    requester: BrokerId | None = None
    designate: bool = False
    incarnation: str = ""
    expected_epoch: Epoch | None = None
    live: tuple[LiveMember, ...] = ()
    first_wait_over: bool = False


class AlterSyncStateSet(_Event, frozen=True, tag="AlterSyncStateSet/1"):
    """The master changes its set, by comparison with both epochs (code 1001)."""

    master_id: BrokerId
    master_epoch: Epoch
    new_set: tuple[BrokerId, ...]
    expected_set_epoch: int
    incarnation: str = ""
    live: tuple[LiveMember, ...] = ()


class FloorRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One group: its master of ``master_epoch`` has confirmed all below ``offset``.

    The last byte of that was written in ``epoch``.
    """

    cluster: str
    name: str
    master_epoch: Epoch
    epoch: Epoch
    offset: Offset


class RaiseFloors(_Record, frozen=True, tag="RaiseFloors/1"):
    """The confirmed ends of groups have risen, by their masters' word."""

    rows: tuple[FloorRow, ...]


class AcceptLoss(_Event, frozen=True, tag="AcceptLoss/1"):
    """A person has this member elected although it lacks what was confirmed.

    Attributes:
        expected_epoch: refuse unless the group is still in this epoch.
        floor_offset: of the floor that the person was shown, -1 for none; refuse any other.
        live: the members held to be alive.
        at_ms: when, by the leader's clock.
    """

    broker_id: BrokerId
    expected_epoch: Epoch
    floor_offset: Offset
    live: tuple[LiveMember, ...] = ()
    at_ms: int = 0


class AdoptGroup(_Event, frozen=True, tag="AdoptGroup/1"):
    """A person has this quorum take over a group of another quorum, up to ``epoch``.

    Attributes:
        expected_epoch: refuse unless the group is still in this epoch.
    """

    epoch: Epoch
    expected_epoch: Epoch


class CleanBrokerData(_Event, frozen=True, tag="CleanBrokerData/1"):
    """An administrator strikes members, or a whole group, from the record (code 1011).

    ``owners`` is that of ``RemoveGroup``.
    """

    broker_ids: tuple[BrokerId, ...] | None = None
    clean_living: bool = False
    live: tuple[LiveMember, ...] = ()
    owners: bool = False


class CreateTopic(_Event, frozen=True, tag="CreateTopic/1"):
    """Creates or changes a topic (code 17); an empty ``name`` means every group of the cluster.

    With ``if_absent`` a group that has the topic keeps it as it is. ``attributes`` is what becomes
    of the topic's attributes, as ``metadata.attributes`` reads it; ``config`` has none.
    """

    topic: str
    config: Topic
    if_absent: bool = False
    attributes: str = ""


class DeleteTopic(_Event, frozen=True, tag="DeleteTopic/1"):
    """Deletes a topic (codes 215, 216); empty ``cluster`` or ``name`` mean all."""

    topic: str


class ImportBroker(_Event, frozen=True, tag="ImportBroker/1"):
    """A broker of the old kind reports itself and its topics (code 103)."""

    broker_id: int
    address: str
    ha_address: str | None = None
    state_version: int = 0
    topics: dict[str, Topic] = {}


class ForgetImport(_Event, frozen=True, tag="ForgetImport/1"):
    """A broker of the old kind is gone (code 104, or silent for too long)."""

    address: str


class ReportTopics(_Event, frozen=True, tag="ReportTopics/1"):
    """The master of an adopted group says which topics its log has (code 31009).

    ``broker_id``, ``incarnation`` and ``master_epoch`` are the evidence that it is the master.
    ``more``: further parts of the same table follow.
    """

    broker_id: BrokerId
    master_epoch: Epoch
    topics: dict[str, Topic]
    incarnation: str = ""
    more: bool = False


class PutSubscriptionGroup(_Event, frozen=True, tag="PutSubscriptionGroup/1"):
    """Creates or changes a subscription group (code 200); an empty ``name`` means every group.

    ``config`` is upstream's ``SubscriptionGroupConfig`` as JSON, read and written by the leader.
    """

    group: str
    config: bytes


class DeleteSubscriptionGroup(_Event, frozen=True, tag="DeleteSubscriptionGroup/1"):
    """Deletes a subscription group (code 207); an empty ``name`` means every group."""

    group: str


class ReportConsumers(_Event, frozen=True, tag="ReportConsumers/1"):
    """A master says whose members changed (code 31001); None for a group without any.

    ``broker_id``, ``incarnation`` and ``master_epoch`` are the evidence that it is the master.
    """

    broker_id: BrokerId
    master_epoch: Epoch
    groups: dict[str, ConsumerGroup | None]
    incarnation: str = ""


class ReportLocks(_Event, frozen=True, tag="ReportLocks/1"):
    """A master says which queues have another owner (code 31011); without a client one has none.

    ``broker_id``, ``incarnation`` and ``master_epoch`` are the evidence that it is the master.
    ``serial`` rises with each report of one epoch: one that was overtaken changes nothing.
    """

    broker_id: BrokerId
    master_epoch: Epoch
    serial: int
    groups: dict[str, tuple[QueueOwner, ...]]
    incarnation: str = ""


class ForgetConsumers(_Event, frozen=True, tag="ForgetConsumers/1"):
    """The group has had no living master for long; what its last one reported is old.

    ``master_epoch`` is the evidence: a master of a later epoch was not looked at.
    """

    master_epoch: Epoch


class PutKv(_Record, frozen=True, tag="PutKv/1"):
    """A tool keeps a value in the name service (code 100)."""

    namespace: str
    key: str
    value: str


class DeleteKv(_Record, frozen=True, tag="DeleteKv/1"):
    """A tool strikes a value (code 102)."""

    namespace: str
    key: str


class SetWritable(_Event, frozen=True, tag="SetWritable/1"):
    """An administrator keeps producers from a group (code 205), or lets them back (327)."""

    writable: bool


class ChangeSettings(_Record, frozen=True, tag="ChangeSettings/1"):
    """An administrator changes settings of the name service, in upstream's words (code 318)."""

    settings: dict[str, str]


class TakeTopics(_Event, frozen=True, tag="TakeTopics/1"):
    """A group that never had a master takes over what all others of its cluster have.

    Attributes:
        shares: mapped topics, too, and it is to have its share of their queues.
        beside: also a group that was given topics already, as each is that may have queues of a
            mapped one.
    """

    shares: bool = False
    beside: bool = False


class TakeShare(_Event, frozen=True, tag="TakeShare/1"):
    """A new group has been given its share of the queues of mapped topics."""


class DrainGroup(_Event, frozen=True, tag="DrainGroup/1"):
    """A group is about to leave: it takes no new messages, and serves those that it has.

    Attributes:
        uid: refuse a group of another owner; None: whoever owns it.
        at_ms: when, by the leader's clock.
    """

    uid: str | None = None
    at_ms: int = 0


class EndDrain(_Event, frozen=True, tag="EndDrain/1"):
    """The group stays: it takes messages again."""


class DeclareFronts(_Record, frozen=True, tag="DeclareFronts/1"):
    """Clients of ``cluster`` are led to fronts, which ``name`` declares."""

    cluster: str
    name: str
    address: str
    first_port: int
    ports: int


class RemoveFronts(_Record, frozen=True, tag="RemoveFronts/1"):
    """Clients of ``cluster`` are led to the fronts of ``name`` no more."""

    cluster: str
    name: str


class MapQueues(_Record, frozen=True, tag="MapQueues/1"):
    """Makes or changes the queue map of a topic.

    Attributes:
        queues: the number of its queues; never fewer than it has.
        places: numbers of queues, and the groups that they are to be at. Queues that exist move
            there; a new one that is not named goes where ``metadata.placement`` says.
        epoch: the map's epoch is at least this.
        given_up: queues whose group is gone are at their new places at once.
        owners: the owners of these move with them.
    """

    cluster: str
    topic: str
    queues: int
    places: tuple[tuple[int, str], ...] = ()
    epoch: int = 0
    given_up: bool = False
    owners: bool = False


class SealQueues(_Event, frozen=True, tag="SealQueues/1"):
    """A master says where its segments of queues that move end, all before being confirmed.

    ``broker_id``, ``incarnation`` and ``master_epoch`` are the evidence that it is the master.
    ``ends`` are numbers of queues, and their ends as queue offsets. With ``owners`` those who own
    the queues own them where they go on. ``map_epoch`` is of the map by which the master acts: a
    queue that stayed after all and moves again has taken messages behind an end of then; 0: nobody
    says.
    """

    broker_id: BrokerId
    master_epoch: Epoch
    topic: str
    ends: tuple[tuple[int, int], ...]
    incarnation: str = ""
    owners: bool = False
    map_epoch: int = 0


class ReleaseSegments(_Event, frozen=True, tag="ReleaseSegments/1"):
    """A master says of which first segments of queues nothing is left at its group.

    ``broker_id``, ``incarnation`` and ``master_epoch`` are the evidence that it is the master.
    ``least`` has numbers of queues, with the group's own queue that is the segment, and the first
    queue offset that is left there.
    """

    broker_id: BrokerId
    master_epoch: Epoch
    topic: str
    least: tuple[tuple[int, int, int], ...]
    incarnation: str = ""


class ReportTopic(_Record, frozen=True, tag="ReportTopic/1"):
    """Brokers of the old kind, by name, have a topic that is new or was changed (code 217)."""

    topic: str
    queues: dict[str, Topic]


class CreateUser(_Record, frozen=True, tag="CreateUser/1"):
    """Makes a user of ``cluster`` (code 3001)."""

    cluster: str
    user: str
    secret: str
    kind: str
    status: str

    def __repr__(self) -> str:
        return f"CreateUser({self.cluster!r}, {self.user!r}, {self.kind!r}, {self.status!r})"


class UpdateUser(_Record, frozen=True, tag="UpdateUser/1"):
    """Changes a user (code 3002); what is None stays."""

    cluster: str
    user: str
    secret: str | None = None
    kind: str | None = None
    status: str | None = None

    def __repr__(self) -> str:
        return f"UpdateUser({self.cluster!r}, {self.user!r}, {self.kind!r}, {self.status!r})"


class DeleteUser(_Record, frozen=True, tag="DeleteUser/1"):
    """Deletes a user and its rules (code 3003)."""

    cluster: str
    user: str


class PutRules(_Record, frozen=True, tag="PutRules/1"):
    """Gives a user rules (codes 3006, 3007)."""

    cluster: str
    user: str
    rules: tuple[Rule, ...]


class DeleteRules(_Record, frozen=True, tag="DeleteRules/1"):
    """Takes the rule on a resource from a user (code 3008); None: all of its rules."""

    cluster: str
    user: str
    policy: str
    resource: str | None = None


class SetAccess(_Record, frozen=True, tag="SetAccess/1"):
    """Says whether clients of ``cluster`` need users (code 31018)."""

    cluster: str
    enabled: bool


Event = (
    DeclareGroup
    | RemoveGroup
    | RetireGroup
    | ForgetMember
    | FenceMember
    | ApplyBrokerId
    | RegisterBroker
    | ElectMaster
    | AlterSyncStateSet
    | RaiseFloors
    | AcceptLoss
    | AdoptGroup
    | CleanBrokerData
    | CreateTopic
    | DeleteTopic
    | ImportBroker
    | ForgetImport
    | PutSubscriptionGroup
    | DeleteSubscriptionGroup
    | ReportConsumers
    | ReportLocks
    | ForgetConsumers
    | PutKv
    | DeleteKv
    | SetWritable
    | ChangeSettings
    | ReportTopic
    | ReportTopics
    | DeclareFronts
    | RemoveFronts
    | TakeTopics
    | TakeShare
    | DrainGroup
    | EndDrain
    | MapQueues
    | SealQueues
    | ReleaseSegments
    | CreateUser
    | UpdateUser
    | DeleteUser
    | PutRules
    | DeleteRules
    | SetAccess
)

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """The bytes that go into the log."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> Event:
    """The event of ``data``.

    Raises:
        UnknownEventError: the bytes are no event of a layout known here.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnknownEventError(
            f"The replicated log holds an event that this version cannot read ({error}); "
            "run at least the version that the rest of the quorum runs."
        ) from error
