"""The controller's own requests: heartbeats, registration, elections, sets, settings, records.

Each handler reads its header, adds what the leader knows of the members, and leaves the decision to
the event's ``apply``. Only what cannot be read at all is refused here.
"""

from collections.abc import Callable
from functools import partial

from gantry_protocol import settings_text
from gantry_protocol.bodies import (
    ReplicasInfo,
    SyncStateSetBody,
    decode_body,
    encode_body,
)
from gantry_protocol.bodies.batches import (
    ChangedBody,
    HeartbeatsBody,
    LookRow,
    LooksBody,
    heartbeat_header,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import BodyError
from gantry_protocol.headers import from_ext, to_ext
from gantry_protocol.headers.controller import (
    NO_BROKER,
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    BrokerHeartbeatRequestHeader,
    CleanBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetMetadataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_controller.liveness.core.table import (
    TIER_REASON_MAX_CHARS,
    TIER_STATE_MAX_CHARS,
    DrainReport,
    Heartbeat,
    Tier,
)
from gantry_controller.liveness.watchman import NOT_HEARD, Watchman
from gantry_controller.metadata.events import (
    LOWEST_PRIORITY,
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    RegisterBroker,
)
from gantry_controller.metadata.groups import CONTROLLER_BEHIND
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.results import Result, refuse
from gantry_controller.metadata.state import FIRST_BROKER_ID, BrokerGroup, GroupKey
from gantry_controller.remoting import replies
from gantry_controller.remoting.consumers import ConsumerRequests
from gantry_controller.remoting.dispatcher import Dispatcher, Exchange, Serve
from gantry_controller.remoting.fronts import FrontRequests
from gantry_controller.remoting.live_settings import LiveSettings, SettingRefused
from gantry_controller.remoting.queue_maps import QueueMapRequests
from gantry_controller.remoting.replica_info import ReplicaInfo
from gantry_controller.remoting.topics import TopicRequests
from gantry_controller.remoting.users import UserRequests
from gantry_controller.turns import BITS, Work

TIMEOUT_MIN_S = 0.1
TIMEOUT_MAX_S = 600.0
"""A broker states its own heartbeat time-out; beyond these bounds it is a mistake."""

MAX_BROKER_ID = 2**63 - 1
SET_SIZE_MAX = 1000
NAMES_MAX = 10_000  # of groups in one GetSyncStateData

Describe = Callable[[], GetMetadataResponseHeader]


class ControllerRequests:
    """Handlers of the controller's codes on one node.

    Args:
        dispatcher: the way into the log and back.
        machine: the applied state.
        watchman: who is alive.
        describe: the answer to GetMetadataInfo.
        listing: the answer to GetControllerConfig, ``key=value`` by key, besides the live settings.
        live_settings: which UpdateControllerConfig changes.
        default_timeout_s: for a registered process that has not sent a heartbeat yet.
        refresh: takes note of a heartbeat of a broker of the old kind (group, address); False if
            there is none.

    Attributes:
        fronts: the requests of fronts that wait.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        machine: MetadataStateMachine,
        watchman: Watchman,
        *,
        describe: Describe,
        listing: Callable[[], dict[str, str]],
        live_settings: LiveSettings,
        default_timeout_s: float,
        refresh: Callable[[GroupKey, str], bool],
    ) -> None:
        self._dispatcher = dispatcher
        self._machine = machine
        self._watchman = watchman
        self._describe = describe
        self._listing = listing
        self._live_settings = live_settings
        self._default_timeout_s = default_timeout_s
        self._refresh = refresh
        self._replica_infos = ReplicaInfo()
        self.fronts = FrontRequests(dispatcher, machine)
        self.queue_maps = QueueMapRequests(
            dispatcher, machine, watchman.may_raise, watchman.may_serve
        )
        self.users = UserRequests(dispatcher, machine, watchman.may_raise)
        dispatcher.add(self._handlers())
        dispatcher.add(self.fronts.handlers())
        dispatcher.add(TopicRequests(dispatcher, machine, watchman).handlers())
        dispatcher.add(self.queue_maps.handlers())
        dispatcher.add(self.users.handlers())
        dispatcher.add(ConsumerRequests(dispatcher, machine).handlers())

    def _handlers(self) -> dict[RequestCode, Serve]:
        code = RequestCode
        return {
            code.BROKER_HEARTBEAT: self._heartbeat,
            code.GANTRY_HEARTBEATS: self._heartbeats,
            code.CONTROLLER_GET_METADATA_INFO: self._metadata,
            code.UPDATE_CONTROLLER_CONFIG: self._update_config,
            code.GET_CONTROLLER_CONFIG: self._get_config,
            code.CONTROLLER_ALTER_SYNC_STATE_SET: self._alter,
            code.CONTROLLER_ELECT_MASTER: self._elect,
            code.CONTROLLER_REGISTER_BROKER: self._register,
            code.CONTROLLER_GET_REPLICA_INFO: self._replica_info,
            code.GANTRY_GET_CHANGED_GROUPS: self._changed_groups,
            code.CONTROLLER_GET_SYNC_STATE_DATA: self._sync_state_data,
            code.CLEAN_BROKER_DATA: self._clean,
            code.CONTROLLER_GET_NEXT_BROKER_ID: self._next_id,
            code.CONTROLLER_APPLY_BROKER_ID: self._apply_id,
        }

    # Answered by any node.

    def _heartbeat(self, exchange: Exchange) -> RemotingCommand:
        """BrokerHeartbeat (904): oneway, to every controller; real brokers never see the answer."""
        header = from_ext(BrokerHeartbeatRequestHeader, exchange.request.ext)
        if header.broker_id is None:
            if self._refresh((header.cluster_name, header.broker_name), header.broker_addr):
                return reply(exchange.request)
            code = ResponseCode.CONTROLLER_INVALID_REQUEST
            return reply(exchange.request, code, "Heart beat with empty brokerId")
        self._heard(header, header.broker_id, exchange.connection.id)
        return reply(exchange.request, remark="Heart beat success")

    def _heartbeats(self, exchange: Exchange) -> RemotingCommand:
        """Heartbeats (31003): each row is what a single heartbeat is, and nothing more."""
        body = decode_body(HeartbeatsBody, exchange.request.body)
        guard, connection = self._dispatcher.guard, exchange.connection
        for row in body.rows:
            if not guard.speaks_for(connection, body.cluster_name, row.broker_name):
                remark = f"The certificate is not for {body.cluster_name}/{row.broker_name}"
                return reply(exchange.request, ResponseCode.NO_PERMISSION, remark)
        for row in body.rows:
            self._heard(heartbeat_header(body, row), row.broker_id, exchange.connection.id)
        return reply(exchange.request, remark="Heart beat success")

    def _heard(
        self, header: BrokerHeartbeatRequestHeader, broker_id: BrokerId, connection: int
    ) -> None:
        timeout_s = header.heartbeat_timeout_ms / 1000
        beat = Heartbeat(
            broker_id=broker_id,
            timeout_s=min(max(timeout_s, TIMEOUT_MIN_S), TIMEOUT_MAX_S),
            incarnation=header.incarnation or "",
            epoch=header.epoch,
            max_offset=header.max_offset,
            confirm_offset=header.confirm_offset,
            confirm_epoch=Epoch(-1) if header.confirm_epoch is None else header.confirm_epoch,
            priority=header.election_priority,
            draining=header.draining,
            pod_uid=header.pod_uid,
            tier=_tier(header),
            log_start=Offset(-1) if header.log_start is None else header.log_start,
            disk_stuck=(header.disk_stuck or "")[:TIER_REASON_MAX_CHARS],
            log_damage=(header.log_damage or "")[:TIER_REASON_MAX_CHARS],
            drain=_drain(header),
            last_write_ms=header.last_write_ms,
            first_write_ms=header.first_write_ms,
            settings=(header.settings or "")[:TIER_REASON_MAX_CHARS],
            settings_refused=(header.settings_refused or "")[:TIER_REASON_MAX_CHARS],
        )
        self._watchman.heard((header.cluster_name, header.broker_name), beat, connection)

    def _metadata(self, exchange: Exchange) -> RemotingCommand:
        """GetMetadataInfo (1005)."""
        return reply(exchange.request, ext=to_ext(self._describe()))

    def _get_config(self, exchange: Exchange) -> RemotingCommand:
        """GetControllerConfig (1010), in the syntax of Java's properties files."""
        listing = self._listing() | self._live_settings.listing()
        return reply(exchange.request, body=settings_text.write(listing))

    def _update_config(self, exchange: Exchange) -> RemotingCommand:
        """UpdateControllerConfig (1009): on this node, until it restarts."""
        try:
            self._live_settings.update(exchange.request.body)
        except SettingRefused as error:
            return reply(exchange.request, ResponseCode.NO_PERMISSION, str(error))
        return reply(exchange.request)

    # Answered by the leader: events.

    def _alter(self, exchange: Exchange) -> None:
        header = from_ext(AlterSyncStateSetRequestHeader, exchange.request.ext)
        body = decode_body(SyncStateSetBody, exchange.request.body)
        if len(body.sync_state_set) > SET_SIZE_MAX:
            raise BodyError(f"A sync-state set of {len(body.sync_state_set)} ids is a mistake.")
        group = self._group(header.cluster_name, header.broker_name)
        event = AlterSyncStateSet(
            cluster=header.cluster_name or "",
            name=header.broker_name,
            master_id=header.master_broker_id,
            master_epoch=header.master_epoch,
            incarnation=header.incarnation or "",
            new_set=tuple(body.sync_state_set),
            expected_set_epoch=body.sync_state_set_epoch,
            live=() if group is None else self._watchman.alive_of(group, body.sync_state_set),
        )
        self._dispatcher.write(exchange, event, partial(replies.alter_reply, exchange.request))

    def _elect(self, exchange: Exchange) -> RemotingCommand | None:
        header = from_ext(ElectMasterRequestHeader, exchange.request.ext)
        group = self._group(header.cluster_name, header.broker_name)
        requester = None if header.broker_id == NO_BROKER else header.broker_id
        asking = None if header.designate_elect else requester
        event = ElectMaster(
            cluster=header.cluster_name,
            name=header.broker_name,
            requester=requester,
            designate=header.designate_elect,
            incarnation=header.incarnation or "",
            expected_epoch=header.master_epoch,
            live=() if group is None else self._watchman.live_members(group, asking),
            first_wait_over=group is not None and self._watchman.first_wait_over(group),
        )
        objection = "" if group is None else self._watchman.before_election(group, event)
        if objection:
            held = refuse(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, objection, group)
            return replies.elect_reply(exchange.request, held)
        self._dispatcher.write(exchange, event, partial(replies.elect_reply, exchange.request))
        return None

    def _register(self, exchange: Exchange) -> RemotingCommand | None:
        """RegisterBroker (1003).

        The check code is compared here and not when the event is applied: an id has one for ever,
        and a controller of an older version, which knows of no code, would come to another state.
        """
        header = from_ext(RegisterBrokerToControllerRequestHeader, exchange.request.ext)
        event = RegisterBroker(
            cluster=header.cluster_name or "",
            name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_address,
            incarnation=header.incarnation or "",
            pod_uid=header.pod_uid,
            ha_port=header.ha_port,
            last_epoch=header.last_epoch or Epoch(0),
        )

        def answer(result: Result) -> RemotingCommand:
            self._heard_by_registration(exchange, header, result)
            return replies.register_reply(
                exchange.request,
                result,
                cluster=header.cluster_name,
                name=header.broker_name,
                broker_id=header.broker_id,
                versions=self._versions(result.group),
            )

        group = self._group(header.cluster_name, header.broker_name)
        member = None if group is None else group.member(header.broker_id)
        if member is not None and header.register_check_code not in (None, member.check_code):
            code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
            remark = f"BrokerId: {header.broker_id} of {header.broker_name} is another volume's"
            return answer(refuse(code, remark, group))
        self._dispatcher.write(exchange, event, answer)
        return None

    def _heard_by_registration(
        self,
        exchange: Exchange,
        header: RegisterBrokerToControllerRequestHeader,
        result: Result,
    ) -> None:
        """A process that names itself has said in its registration all that a heartbeat says."""
        if result.group is not None and (result.remark or "").startswith(CONTROLLER_BEHIND):
            self._watchman.registration_refused(
                result.group,
                header.broker_id,
                max(header.last_epoch or Epoch(0), header.acted_epoch or Epoch(0)),
                Offset(-1) if header.max_offset is None else header.max_offset,
            )
        if not result.ok or result.group is None or not header.incarnation:
            return
        beat = Heartbeat(
            broker_id=header.broker_id,
            timeout_s=self._default_timeout_s,
            incarnation=header.incarnation,
            epoch=Epoch(-1) if header.last_epoch is None else header.last_epoch,
            max_offset=Offset(-1) if header.max_offset is None else header.max_offset,
            priority=(
                LOWEST_PRIORITY if header.election_priority is None else header.election_priority
            ),
            pod_uid=header.pod_uid,
        )
        self._watchman.heard(result.group.key, beat, exchange.origin)

    def _clean(self, exchange: Exchange) -> RemotingCommand | None:
        """CleanBrokerData (1011). A living member is struck only if its present process is named.

        Upstream strikes the living, too, if told so in general (``isCleanLivingBroker``).
        """
        header = from_ext(CleanBrokerDataRequestHeader, exchange.request.ext)
        ids: tuple[BrokerId, ...] | None = None
        if (header.broker_ids_to_clean or "").strip():
            try:
                ids = _parse_ids(header.broker_ids_to_clean or "")
            except ValueError as error:
                code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
                remark = (
                    "Please set the option <brokerControllerIdsToClean> according to the format, "
                    f"exception: {error}"
                )
                return reply(exchange.request, code, remark)
        group = self._group(header.cluster_name, header.broker_name)
        members = () if group is None else group.members
        if header.clean_living_broker or group is None or group.master_id is None:
            # Without a master upstream strikes a whole group, whoever of it lives.
            ids = ids or tuple(member.broker_id for member in members)
        wished = set((header.living or "").split(";"))
        named = {
            item.broker_id for item in members if f"{item.broker_id}={item.incarnation}" in wished
        }
        all_know = self._watchman.may_raise()
        if all_know is None:
            return reply(exchange.request, ResponseCode.SYSTEM_BUSY, NOT_HEARD)
        # A new leader has heard nothing of many a living broker.
        feared = () if group is None else self._watchman.not_proved_gone(group)
        event = CleanBrokerData(
            cluster=header.cluster_name or "",
            name=header.broker_name,
            broker_ids=ids,
            live=tuple(item for item in feared if item.broker_id not in named),
            owners=all_know,
        )
        self._dispatcher.write(exchange, event, partial(_plain, exchange.request))
        return None

    def _apply_id(self, exchange: Exchange) -> None:
        header = from_ext(ApplyBrokerIdRequestHeader, exchange.request.ext)
        event = ApplyBrokerId(
            cluster=header.cluster_name or "",
            name=header.broker_name,
            broker_id=header.applied_broker_id,
            check_code=header.register_check_code,
        )
        echo = to_ext(ApplyBrokerIdResponseHeader(header.cluster_name, header.broker_name))

        def answer(result: Result) -> RemotingCommand:
            return reply(exchange.request, result.code, result.remark, echo)

        self._dispatcher.write(exchange, event, answer)

    # Answered by the leader: reads.

    def _replica_info(self, exchange: Exchange) -> None:
        header = from_ext(GetReplicaInfoRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            group = self._group(header.cluster_name, header.broker_name)
            if group is None:
                ambiguity = self._machine.state.ambiguity(header.cluster_name, header.broker_name)
                return replies.no_replica_info_reply(exchange.request, ambiguity)
            if _is_replaced(group, header.broker_id, header.incarnation):
                # A late registration of an earlier process won; this one must register again.
                code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
                remark = f"This process of broker {header.broker_id} hasn't been registered"
                return reply(exchange.request, code, remark, {})
            return self._replica_infos.reply(
                exchange.request,
                group,
                versions=self._versions(group),
                draining=self._watchman.draining(group),
            )

        self._dispatcher.read(exchange, answer)

    def _changed_groups(self, exchange: Exchange) -> None:
        """GetChangedGroups (31004): the groups whose answer differs from the digest sent."""
        body = decode_body(LooksBody, exchange.request.body)

        def answer() -> RemotingCommand:
            changed = [
                row.broker_name
                for row in body.rows
                if self._digest(body.cluster_name, row) != row.digest
            ]
            return reply(exchange.request, body=encode_body(ChangedBody(changed)))

        self._dispatcher.read(exchange, answer)

    def _digest(self, cluster: str, row: LookRow) -> int | None:
        """The digest of the answer to GetReplicaInfo for ``row``; None for a refusal."""
        group = self._group(cluster, row.broker_name)
        if group is None or _is_replaced(group, row.broker_id, row.incarnation):
            return None
        return self._replica_infos.digest(
            group, versions=self._versions(group), draining=self._watchman.draining(group)
        )

    def _next_id(self, exchange: Exchange) -> None:
        header = from_ext(GetNextBrokerIdRequestHeader, exchange.request.ext)
        key = (header.cluster_name or "", header.broker_name)

        def answer() -> RemotingCommand:
            group = self._machine.state.groups.get(key)  # a tombstone knows the next id, too
            next_id = FIRST_BROKER_ID if group is None else group.next_broker_id
            echo = GetNextBrokerIdResponseHeader(header.cluster_name, header.broker_name, next_id)
            return reply(exchange.request, ext=to_ext(echo))

        self._dispatcher.read(exchange, answer)

    def _sync_state_data(self, exchange: Exchange) -> RemotingCommand | None:
        """GetSyncStateData (1006): the one unsafe read, for people, of the leader's memory."""
        names = decode_body(list[str], exchange.request.body) if exchange.request.body else []
        if not names or len(names) > NAMES_MAX:
            remark = "not set any response code"
            return reply(exchange.request, ResponseCode.SYSTEM_ERROR, remark)

        ambiguities = [self._machine.state.ambiguity(None, name) for name in names]
        if any(ambiguities):  # the answer has a place for one group of each name only
            remark = next(filter(None, ambiguities))
            return reply(exchange.request, ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
        return self._dispatcher.in_turns(exchange, self._replicas_of(exchange, names))

    def _replicas_of(self, exchange: Exchange, names: list[str]) -> Work[RemotingCommand]:
        table: dict[str, ReplicasInfo] = {}
        for place, name in enumerate(names, start=1):
            if place % BITS == 0:
                yield
            group = self._group(None, name)
            if group is not None:
                alive = (member.broker_id for member in self._watchman.live_members(group))
                table[name] = replies.replicas_info(group, alive)
        return replies.sync_state_data_reply(exchange.request, table)

    # What they share.

    def _group(self, cluster: str | None, name: str) -> BrokerGroup | None:
        return self._machine.group(cluster, name)

    def _versions(self, group: BrokerGroup | None) -> replies.Versions:
        if group is None:
            return replies.Versions(0, 0)
        state, key = self._machine.state, group.key
        drain = state.drains.get(key)
        return replies.Versions(
            state.topic_table(key).version,
            state.subscription_table(key).version,
            None if drain is None else drain.began_ms,
        )


def _drain(header: BrokerHeartbeatRequestHeader) -> DrainReport | None:
    """What the heartbeat says of a drain, no longer than it may be."""
    if header.drain_done is None:
        return None
    return DrainReport(
        done=header.drain_done,
        unread=header.drain_unread or 0,
        parked=header.drain_parked or 0,
        transactions=header.drain_transactions or 0,
        waits_for=(header.drain_waits_for or "")[:TIER_REASON_MAX_CHARS],
    )


def _tier(header: BrokerHeartbeatRequestHeader) -> Tier | None:
    """What the heartbeat says of the tier, no longer than it may be."""
    if not header.tier_state:
        return None
    return Tier(
        state=header.tier_state[:TIER_STATE_MAX_CHARS],
        epoch=header.tier_epoch,
        committed_offset=header.tier_committed_offset,
        lag_ms=header.tier_lag_ms,
        reason=(header.tier_reason or "")[:TIER_REASON_MAX_CHARS],
        version=header.tier_version,
    )


def _is_replaced(group: BrokerGroup, broker_id: BrokerId | None, incarnation: str | None) -> bool:
    """Whether the asking process, if it says who it is, is not the registered one."""
    if broker_id is None or not incarnation:
        return False
    member = group.member(broker_id)
    return member is None or not member.is_incarnation(incarnation)


def _plain(to: RemotingCommand, result: Result) -> RemotingCommand:
    return reply(to, result.code, result.remark)


def _parse_ids(text: str) -> tuple[BrokerId, ...]:
    """Raises ValueError: one of them is no number, or one that no event of the log holds."""
    ids = {BrokerId(int(part)) for part in text.split(";")}
    if max(map(abs, ids)) > MAX_BROKER_ID:
        raise ValueError(f"an id is at most {MAX_BROKER_ID}")
    return tuple(sorted(ids))
