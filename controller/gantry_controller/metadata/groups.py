"""The life of a group: declared, populated, cleaned, retired, removed.

Ids are never issued twice and epochs never fall, not even across a removal: what stays of a removed
group is a tombstone with both. Upstream starts again at id 1 and epoch 0, which lets a forgotten
volume come back as somebody else.
"""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId
from msgspec.structs import replace

from gantry_controller.metadata.clients import SubscriptionTable
from gantry_controller.metadata.election import believable
from gantry_controller.metadata.events import (
    AdoptGroup,
    ApplyBrokerId,
    CleanBrokerData,
    DeclareGroup,
    ForgetMember,
    RegisterBroker,
    RemoveGroup,
    RetireGroup,
)
from gantry_controller.metadata.fencing import without
from gantry_controller.metadata.listeners import objection
from gantry_controller.metadata.locks import end_locks
from gantry_controller.metadata.preference import ambiguity
from gantry_controller.metadata.queue_maps import disown
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import (
    FIRST_BROKER_ID,
    BrokerGroup,
    Declaration,
    Member,
    MetadataState,
)
from gantry_controller.metadata.subscriptions import begin_settings, end_consumers
from gantry_controller.metadata.topic_table import TopicTable
from gantry_controller.metadata.topics import await_topics

MEMBERS_MAX = 128
"""A group of nine leaks an id now and then (a Java broker whose 1013 reply was lost asks for the
next one); beyond this the ghosts must be cleaned first."""

CONTROLLER_BEHIND = "ControllerBehind"
"""How a registration is refused of a member that knows of epochs which this quorum does not."""

BROKER_ID_MAX = 2**53 - 1  # exact in every JSON reader


def declare_group(state: MetadataState, event: DeclareGroup) -> Result:
    """Creates, adopts, changes or revives a group; commits nothing if nothing differs.

    A retired group comes back as it was, for any owner: the same one, too, since somebody may have
    taken it for gone by mistake. It takes messages then, and so does what gets another owner: a
    drain ends with the owner that wanted it.
    """
    if not 1 <= event.min_in_sync_replicas <= event.replicas:
        return refuse(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"minInSyncReplicas is {event.min_in_sync_replicas} "
            f"and must be between 1 and replicas, {event.replicas}",
        )
    problem = objection(event.listeners) or ambiguity(event.preferred)
    if problem is not None:
        return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, problem)
    wish = Declaration(
        event.uid,
        event.replicas,
        event.min_in_sync_replicas,
        event.route_address,
        event.listeners,
        event.preferred,
    )
    group = state.groups.get((event.cluster, event.name))
    if group is None:
        group = BrokerGroup(event.cluster, event.name)
    elif group.removed:
        if event.uid == group.removed_uid:
            return refuse(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"The owner {event.uid} has removed this group; declare it with a new uid",
            )
        group = _revive(group)
    elif group.declaration == wish and not group.retired:
        return Result(group=group)
    if group.retired or group.declaration is None or group.declaration.uid != event.uid:
        state.put_plain("drains", group.key, None)
    return Result(group=state.put(group, declaration=wish, retired=False), changed=True)


def remove_group(state: MetadataState, event: RemoveGroup) -> Result:
    """Leaves a tombstone; a repeated or late removal changes nothing."""
    group = state.find(event.cluster, event.name)
    if group is None:
        return Result()
    refusal = _refuse_strangers(group, event.uid)
    if refusal is not None:
        return refusal
    # A later group of that name is another.
    state.put_plain("wiped", group.key, None)
    state.put_plain("floors", group.key, None)
    state.put_plain("losses", group.key, None)
    disown(state, group)
    return _bury(state, group, event.uid, keeps_owners=event.owners)


def adopt_group(state: MetadataState, event: AdoptGroup) -> Result:
    """Takes over what another quorum decided up to ``event.epoch``.

    The members may register then, and the furthest of them is elected once enough are there
    (``election``). Refused once this quorum has elected anybody: then it has its own history.
    """
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        return missing(state, event, code, f"There is no broker group {event.name}")
    invalid = ResponseCode.CONTROLLER_INVALID_REQUEST
    if event.expected_epoch != group.master_epoch:
        remark = f"The group is in master epoch {group.master_epoch}, not {event.expected_epoch}"
        return refuse(invalid, remark, group)
    if group.had_master:
        return refuse(invalid, f"This quorum has elected masters of {group.name} itself", group)
    if event.epoch <= group.master_epoch:
        return Result(group=group)
    adopted = state.put(group, master_epoch=event.epoch, base_epoch=event.epoch)
    await_topics(state, adopted)
    begin_settings(state, adopted)
    return Result(group=adopted, changed=True)


def retire_group(state: MetadataState, event: RetireGroup) -> Result:
    """Has nobody sent to a group any more; its ids, epochs, set and topics stay as they are."""
    group = state.find(event.cluster, event.name)
    if group is None:
        return Result()
    refusal = _refuse_strangers(group, event.uid)
    if refusal is not None:
        return refusal
    if group.retired:
        return Result(group=group)
    gone = end_consumers(state, group)
    return Result(group=state.put(group, retired=True), changed=True, consumers_changed=gone)


def _refuse_strangers(group: BrokerGroup, uid: str) -> Result | None:
    if group.declaration is not None and group.declaration.uid == uid:
        return None
    owner = "nobody" if group.declaration is None else group.declaration.uid
    remark = f"The group belongs to {owner}, not to {uid}"
    return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, remark, group)


def apply_broker_id(state: MetadataState, event: ApplyBrokerId) -> Result:
    """Hands out ``event.broker_id``, once; the same check code may ask again."""
    group = state.groups.get((event.cluster, event.name))
    if group is None or group.removed:
        next_id = FIRST_BROKER_ID if group is None else group.next_broker_id
        if event.broker_id != next_id:
            return refuse(
                ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                f"Broker-set: {event.name} hasn't been registered in controller, "
                f"but broker try to apply brokerId: {event.broker_id}",
            )
        group = BrokerGroup(event.cluster, event.name) if group is None else _revive(group)
    holder = group.member(event.broker_id)
    if holder is not None and holder.check_code == event.check_code:
        return Result(group=group)
    if holder is not None or not group.next_broker_id <= event.broker_id <= BROKER_ID_MAX:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"Fail to apply brokerId: {event.broker_id} in broker-set: {event.name}",
            group,
        )
    if len(group.members) >= MEMBERS_MAX:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"Fail to apply brokerId: {event.broker_id} in broker-set: {event.name}: it has "
            f"{MEMBERS_MAX} members; clean those that are gone",
            group,
        )
    newcomer = Member(
        broker_id=event.broker_id,
        address=event.check_code.partition(";")[0],
        check_code=event.check_code,
    )
    return Result(
        group=state.put(
            group,
            members=(*group.members, newcomer),  # its id is the highest: still ascending
            next_broker_id=BrokerId(event.broker_id + 1),
        ),
        changed=True,
    )


def register_broker(state: MetadataState, event: RegisterBroker) -> Result:
    """Takes note of a started process: where it listens, and that its predecessor is gone."""
    group = state.find(event.cluster, event.name)
    if group is None:
        return missing(
            state,
            event,
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"Broker-set: {event.name} hasn't been registered in controller",
        )
    member = group.member(event.broker_id)
    if member is None:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"BrokerId: {event.broker_id} hasn't been registered in broker-set: {event.name}",
            group,
        )
    if event.last_epoch > group.master_epoch:
        return refuse(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"{CONTROLLER_BEHIND}: broker {event.broker_id} has written in epoch "
            f"{event.last_epoch}, the controller knows {event.name} only up to epoch "
            f"{group.master_epoch}; if this is another quorum than before, see: "
            f"gantry adopt {event.name}",
            group,
        )
    registrations = member.registrations + 1
    known = replace(
        member,
        address=event.address,
        incarnation=event.incarnation or f"#{registrations}",
        registrations=registrations,
        pod_uid=event.pod_uid,
        ha_address=_ha_address(event.address, event.ha_port),
    )
    if event.incarnation and event.incarnation == member.incarnation:
        known = replace(known, registrations=member.registrations)
    if known == member:
        return Result(group=group)
    members = tuple(known if item is member else item for item in group.members)
    return Result(group=state.put(group, members=members), changed=True)


def clean_broker_data(state: MetadataState, event: CleanBrokerData) -> Result:
    """Strikes members that are gone, or the whole group; checks in upstream's order."""
    group = state.find(event.cluster, event.name)
    refusal = None if event.clean_living else _refuse_to_clean_the_living(group, event)
    if refusal is not None:
        return refusal
    if group is None:
        return missing(
            state,
            event,
            ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
            f"Broker {event.name} is not existed,clean broker data failure.",
        )
    struck = set(event.broker_ids or ())
    if event.clean_living or not struck:
        struck = {member.broker_id for member in group.members}
    members = tuple(item for item in group.members if item.broker_id not in struck)
    if members == group.members:
        return Result(group=group)
    if not members and group.declaration is None:
        return _bury(state, group, None, keeps_owners=event.owners)
    kept = tuple(item for item in group.sync_state_set if item not in struck)
    lost_master = group.master_id in struck
    # If nothing is left to protect, the group starts again, above its epochs.
    cleaned = state.put(
        group,
        members=members,
        fenced=without(group, tuple(item.broker_id for item in members)),
        base_epoch=group.base_epoch if members else group.master_epoch,
        master_id=None if lost_master else group.master_id,
        master_incarnation="" if lost_master else group.master_incarnation,
        sync_state_set=kept,
        sync_state_set_epoch=group.sync_state_set_epoch + (kept != group.sync_state_set),
    )
    return Result(group=cleaned, changed=True)


def forget_member(state: MetadataState, event: ForgetMember) -> Result:
    """Strikes a member that is dead and outside the sync-state set; its id is never issued again.

    Every member of the set holds every acknowledged record, so nothing that was acknowledged goes
    with a member outside it, as long as somebody in the set lives.
    """
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        return missing(state, event, code, f"There is no broker group {event.name}")
    member = group.member(event.broker_id)
    if member is None:
        return Result(group=group)
    reason = _reason_to_keep(group, member, event)
    if reason:
        return refuse(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, reason, group)
    members = tuple(item for item in group.members if item is not member)
    fenced = without(group, tuple(item.broker_id for item in members))
    return Result(group=state.put(group, members=members, fenced=fenced), changed=True)


def _reason_to_keep(group: BrokerGroup, member: Member, event: ForgetMember) -> str:
    live = believable(group, event.live)
    if member.broker_id in live:
        return f"Broker {member.broker_id} of {group.name} is alive: stop it first"
    if member.announces and event.incarnation != member.incarnation:
        return f"Another process of broker {member.broker_id} of {group.name} has registered since"
    if member.broker_id in group.sync_state_set:
        return (
            f"Broker {member.broker_id} of {group.name} is in the sync-state set: it holds what "
            "was acknowledged"
        )
    if group.had_master and live.keys().isdisjoint(group.sync_state_set):
        return (
            f"No member of the sync-state set of {group.name} is alive: broker "
            f"{member.broker_id} may hold the only copy that is left"
        )
    return ""


def _refuse_to_clean_the_living(group: BrokerGroup | None, event: CleanBrokerData) -> Result | None:
    if not event.broker_ids and group is not None and group.master_id is not None:
        return refuse(
            ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
            f"Broker {event.name} is still alive, clean up failure",
            group,
        )
    live = {} if group is None else believable(group, event.live)
    for broker_id in sorted(event.broker_ids or ()):
        if broker_id in live:
            return refuse(
                ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
                f"Broker [{event.name},  {broker_id}] is still alive, clean up failure",
                group,
            )
    return None


def _bury(
    state: MetadataState, group: BrokerGroup, uid: str | None, *, keeps_owners: bool
) -> Result:
    table = state.topic_table(group.key)
    if table.topics:
        state.put_topics(group.key, TopicTable(version=table.version + 1))
    subscriptions = state.subscription_table(group.key)
    if subscriptions.groups:
        state.put_subscriptions(group.key, SubscriptionTable(subscriptions.version + 1))
    state.put_plain("drains", group.key, None)
    end_locks(state, group, keeps_owners=keeps_owners)
    gone = end_consumers(state, group)
    tombstone = state.put(
        group,
        declaration=None,
        members=(),
        fenced=(),
        master_id=None,
        master_incarnation="",
        sync_state_set=(),
        sync_state_set_epoch=group.sync_state_set_epoch + bool(group.sync_state_set),
        removed=True,
        removed_uid=uid,
        retired=False,
    )
    return Result(group=tombstone, changed=True, consumers_changed=gone)


def _revive(tombstone: BrokerGroup) -> BrokerGroup:
    return replace(
        tombstone, removed=False, removed_uid=None, clean=True, base_epoch=tombstone.master_epoch
    )


def _ha_address(address: str, ha_port: int | None) -> str | None:
    if ha_port is None:
        return None
    return f"{address.rpartition(':')[0]}:{ha_port}"
