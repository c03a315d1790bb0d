"""The state as the admin API shows it: what is replicated, beside what this leader has heard."""

from gantry_protocol.admin import (
    DrainView,
    GroupView,
    LossView,
    MastershipView,
    MemberView,
    TierView,
    WatchEvent,
)
from gantry_protocol.admin_bodies import PreferredPlace

from gantry_controller.liveness.core import rules
from gantry_controller.liveness.core.claims import RefusedClaim
from gantry_controller.liveness.core.table import DrainReport, Tier
from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.confirmed import Loss
from gantry_controller.metadata.listeners import as_wished
from gantry_controller.metadata.preference import as_declared
from gantry_controller.metadata.state import BrokerGroup, Member


def _member_views(group: BrokerGroup, watchman: Watchman) -> list[MemberView]:
    claims = watchman.claims(group)
    return [
        member_view(group, member, watchman, claims.get(member.broker_id))
        for member in group.members
    ]


def member_view(
    group: BrokerGroup, member: Member, watchman: Watchman, claim: RefusedClaim | None
) -> MemberView:
    """One member; what its last heartbeat said is -1 when none came from the registered process."""
    row = rules.row_of(watchman.table, group, member)
    said = claim if row is None else row.beat
    age_s = watchman.heartbeat_age_s(group, member)
    return MemberView(
        broker_id=member.broker_id,
        address=member.address,
        ha_address=member.ha_address,
        pod_uid=member.pod_uid,
        incarnation=member.incarnation if member.announces else None,
        alive=watchman.is_alive(group, member),
        draining=row is not None and row.beat.draining,
        epoch=-1 if said is None else said.epoch,
        max_offset=-1 if said is None else said.max_offset,
        confirm_offset=-1 if row is None else row.beat.confirm_offset,
        log_start=-1 if row is None else row.beat.log_start,
        disk_stuck="" if row is None else row.beat.disk_stuck,
        log_damage="" if row is None else row.beat.log_damage,
        settings="" if row is None else row.beat.settings,
        settings_refused="" if row is None else row.beat.settings_refused,
        last_heartbeat_age_ms=None if age_s is None else round(age_s * 1000),
        in_sync=member.broker_id in group.sync_state_set,
        tier=None if row is None or row.beat.tier is None else _tier_view(row.beat.tier),
        refused=claim is not None,
        fenced=member.broker_id in group.fenced,
        drain=None
        if row is None or row.beat.drain is None
        else _drain_view(row.beat.drain, watchman.mapped_queues(group)[0]),
    )


def _drain_view(drain: DrainReport, queues: int) -> DrainView:
    """What the master says is left, and the open ``queues`` of mapped topics, which are here."""
    waits_for = [drain.waits_for] if drain.waits_for else []
    if queues:
        waits_for.append(f"queues of mapped topics that are still to move elsewhere: {queues}")
    return DrainView(
        done=drain.done and not queues,
        unread=drain.unread,
        parked=drain.parked,
        transactions=drain.transactions,
        waits_for="; ".join(waits_for),
    )


def _tier_view(tier: Tier) -> TierView:
    return TierView(
        state=tier.state,
        epoch=tier.epoch,
        committed_offset=tier.committed_offset,
        lag_ms=tier.lag_ms,
        reason=tier.reason,
        version=tier.version,
    )


def group_view(group: BrokerGroup, watchman: Watchman) -> GroupView:
    """One group."""
    wish = group.declaration
    floor = watchman.floor(group)
    drain = watchman.drain(group)
    queues, queues_wished = watchman.mapped_queues(group)
    return GroupView(
        cluster=group.cluster,
        name=group.name,
        uid=None if wish is None else wish.uid,
        replicas=None if wish is None else wish.replicas,
        min_in_sync_replicas=None if wish is None else wish.min_in_sync_replicas,
        route_address=None if wish is None else wish.route_address,
        listeners={} if wish is None else as_wished(wish.listeners),
        master_broker_id=group.master_id,
        master_address=None if group.master is None else group.master.address,
        master_epoch=group.master_epoch,
        sync_state_set=list(group.sync_state_set),
        sync_state_set_epoch=group.sync_state_set_epoch,
        clean=group.clean,
        retired=group.retired,
        members=_member_views(group, watchman),
        confirmed_epoch=-1 if floor is None else floor.epoch,
        confirmed_offset=-1 if floor is None else floor.offset,
        no_master_reason=watchman.why_nobody(group),
        loss=_loss_view(watchman.loss(group)),
        drain_began_ms=None if drain is None else drain.began_ms,
        has_others=watchman.has_others(group),
        queues=queues,
        queues_wished=queues_wished,
        mastership=_mastership_view(group, watchman),
        preferred=_places(group, watchman),
    )


def _places(group: BrokerGroup, watchman: Watchman) -> list[PreferredPlace] | None:
    """What was declared; None for nothing while some controller may not know such places."""
    places = () if group.declaration is None else group.declaration.preferred
    return as_declared(places) if places or watchman.may_raise() else None


def _mastership_view(group: BrokerGroup, watchman: Watchman) -> MastershipView | None:
    """The course of the last election, and the master's own word; it counts in its epoch only."""
    master, course = group.master, watchman.course(group)
    row = None if master is None else rules.row_of(watchman.table, group, master)
    beat = None if row is None or row.beat.epoch != group.master_epoch else row.beat
    if course is None and (beat is None or beat.first_write_ms is None):
        return None
    return MastershipView(
        epoch=group.master_epoch,
        planned=None if course is None else course.planned,
        reason="" if course is None else course.reason,
        heard_ms=None if course is None else course.heard_ms,
        noticed_ms=None if course is None else course.noticed_ms,
        elected_ms=None if course is None else course.elected_ms,
        last_write_ms=None if beat is None else beat.last_write_ms,
        first_write_ms=None if beat is None else beat.first_write_ms,
    )


def _loss_view(loss: Loss | None) -> LossView | None:
    if loss is None:
        return None
    return LossView(
        master_epoch=loss.master_epoch,
        broker_id=loss.broker_id,
        epoch=loss.epoch,
        end=loss.end,
        confirmed_offset=-1 if loss.floor is None else loss.floor.offset,
        at_ms=loss.at_ms,
    )


def watch_event(group: BrokerGroup, watchman: Watchman) -> WatchEvent:
    """One line of the watch; of a removed group only that it is gone."""
    return WatchEvent(
        index=group.changed_index,
        cluster=group.cluster,
        group=group.name,
        master_broker_id=group.master_id,
        master_epoch=group.master_epoch,
        sync_state_set=list(group.sync_state_set),
        sync_state_set_epoch=group.sync_state_set_epoch,
        members=_member_views(group, watchman),
        mastership=_mastership_view(group, watchman),
        deleted=group.removed,
    )
