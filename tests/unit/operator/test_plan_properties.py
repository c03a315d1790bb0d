"""What holds for every plan in every world that can be drawn, likely or not."""

from __future__ import annotations

from typing import Any

from gantry_operator.models import BrokerGroupStatus, ControllerGroupStatus
from gantry_operator.plan.actions import (
    CheckAgain,
    DeletePod,
    Elect,
    EmitEvent,
    FenceMember,
    ForgetMember,
    LabelPod,
    ScaleDown,
    WriteStatus,
)
from gantry_operator.plan.members import ObservedGroup
from gantry_operator.plan.minimum import minimum_now
from gantry_operator.plan.observed import BrokerObserved, ControllerObserved, PodView
from gantry_protocol.admin import MemberView, TierView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from hypothesis import given
from hypothesis import strategies as st
from unit.operator.world import (
    NEW,
    OLD,
    broker_world,
    brokers,
    changed,
    controller_pod,
    controller_world,
    controllers,
    member,
    planned,
    pod,
    quorum,
    view,
)

flags = st.booleans()
tiers = st.one_of(
    st.none(),
    st.builds(
        TierView,
        state=st.sampled_from(
            ["standby", "claiming", "uploading", "backoff", "stalled", "fenced", "halted", "new"]
        ),
        epoch=st.one_of(st.none(), st.integers(0, 9)),
        committed_offset=st.one_of(st.none(), st.integers(0, 9)),
        lag_ms=st.one_of(st.none(), st.integers(0, 9_000)),
        reason=st.sampled_from(["", "403"]),
        version=st.one_of(st.none(), st.integers(1, 9)),
    ),
)


@st.composite
def seen_pods(draw: st.DrawFn, count: int) -> tuple[PodView, ...]:
    result = []
    for ordinal in range(count):
        if draw(st.integers(0, 9)) == 0:
            continue  # this one does not exist
        running = draw(flags)
        facts: dict[str, Any] = {
            "revision": draw(st.sampled_from([NEW, OLD])),
            "running": running,
            "ready": running and draw(flags),
            "terminating": draw(st.integers(0, 4)) == 0,
            "uid": f"uid-{ordinal}" if draw(st.integers(0, 4)) else f"fresh-{ordinal}",
            "role": draw(st.sampled_from([None, "master", "replica"])),
        }
        result.append(pod(ordinal, **facts))
    return tuple(result)


@st.composite
def members(draw: st.DrawFn, count: int) -> list[MemberView]:
    return [
        member(
            broker_id,
            alive=draw(st.integers(0, 4)) > 0,
            draining=draw(st.integers(0, 4)) == 0,
            in_sync=draw(flags),
            max_offset=draw(st.integers(0, 3)) * 100,
            tier=draw(tiers),
            fenced=draw(st.integers(0, 6)) == 0,
        )
        for broker_id in range(1, count + 1)
        if draw(st.integers(0, 9)) > 0
    ]


@st.composite
def broker_worlds(draw: st.DrawFn) -> BrokerObserved:
    wished, existing = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    spec: dict[str, Any] = {"replicas": wished, "paused": draw(st.integers(0, 9)) == 0}
    if draw(flags):
        spec["replication"] = {"minInSyncReplicas": draw(st.integers(1, wished))}
    if draw(st.integers(0, 3)) == 0:
        to = draw(st.one_of(st.none(), st.integers(0, 4)))
        spec["switchover"] = {"id": "a"} if to is None else {"id": "a", "to": to}
    if draw(st.integers(0, 2)) == 0:
        chosen = draw(st.lists(st.integers(0, 4), unique=True, max_size=3))
        if len([one for one in chosen if one < wished]) < wished:
            spec["fenced"] = chosen
    if draw(st.integers(0, 3)) == 0:
        spec["forget"] = {"id": "a", "brokerId": draw(st.integers(1, 6))}
    if draw(flags):
        spec["tier"] = {"url": "s3://bucket"}
    master = draw(st.one_of(st.none(), st.integers(1, existing)))
    known_members = [
        one.model_copy(update={"in_sync": False} if one.broker_id != master else {"fenced": False})
        if one.fenced
        else one
        for one in draw(members(existing))
    ]
    known: Any = view(
        master_broker_id=master,
        master_epoch=draw(st.integers(0, 9)),
        sync_state_set=[m.broker_id for m in known_members if m.in_sync],
        members=known_members,
        replicas=draw(st.integers(1, 5)),
    )
    if draw(st.integers(0, 5)) == 0:
        known = draw(st.sampled_from([NotDeclared(), Unreachable("lost")]))
    return broker_world(
        brokers(**spec), pods=draw(seen_pods(existing)), known=known, replicas=existing
    )


@st.composite
def controller_worlds(draw: st.DrawFn) -> ControllerObserved:
    size = draw(st.sampled_from([1, 3, 5]))
    lags = [draw(st.sampled_from([0, 10, 5000, None])) for _ in range(size)]
    leader = draw(st.one_of(st.none(), st.integers(1, size)))
    known: Any = quorum(*lags, leader=leader, node=draw(st.integers(1, size)))
    if draw(st.integers(0, 4)) == 0:
        known = Unreachable("lost")
    pods = tuple(
        controller_pod(p.ordinal or 0, revision=p.revision, running=p.running, ready=p.ready)
        for p in draw(seen_pods(size))
    )
    return controller_world(controllers(replicas=size), pods=pods, quorum=known)


worlds = st.one_of(broker_worlds(), controller_worlds())


def disruptive(seen: Any) -> list[Any]:
    return [action for action in planned(seen) if action.disruptive]


@given(worlds)
def test_at_most_one_disruptive_action_and_the_world_is_told_first(seen: Any) -> None:
    actions = planned(seen)
    places = [n for n, action in enumerate(actions) if action.disruptive]
    assert len(places) <= 1
    if places:
        after = actions[places[0] + 1 :]
        assert all(isinstance(action, CheckAgain) for action in after)


@given(worlds)
def test_a_plan_is_a_function_of_what_is_seen(seen: Any) -> None:
    assert planned(seen) == planned(changed(seen))


@given(worlds)
def test_a_written_status_is_not_written_again(seen: Any) -> None:
    written = [action for action in planned(seen) if isinstance(action, WriteStatus)]
    model = BrokerGroupStatus if isinstance(seen, BrokerObserved) else ControllerGroupStatus
    for action in written:
        previous = model.model_validate(action.status)
        again = planned(changed(seen, live_status=action.status, previous=previous))
        assert not [a for a in again if isinstance(a, WriteStatus)]
        assert not [a for a in again if isinstance(a, EmitEvent) and a.type == "Warning"]


@given(broker_worlds())
def test_with_the_observation_lost_nothing_is_taken_away_and_no_label_moves(seen: Any) -> None:
    actions = planned(changed(seen, view=Unreachable("lost")))
    assert not [a for a in actions if a.disruptive or isinstance(a, LabelPod)]


@given(broker_worlds())
def test_whoever_is_fenced_leaves_the_minimum_in_sync_and_never_leads(seen: Any) -> None:
    for action in disruptive(seen):
        if not isinstance(action, FenceMember):
            continue
        known = ObservedGroup(seen.view, seen.pods)
        assert action.broker_id != seen.view.master_broker_id
        minimum = minimum_now(seen.view, seen.group.spec.min_in_sync)
        staying = known.in_sync() - {action.broker_id}
        assert action.broker_id not in seen.view.sync_state_set or len(staying) >= minimum


@given(broker_worlds())
def test_nobody_is_struck_who_lives_or_is_in_the_set(seen: Any) -> None:
    for action in planned(seen):
        if isinstance(action, ForgetMember):
            member = next(m for m in seen.view.members if m.broker_id == action.broker_id)
            assert not member.alive
            assert member.broker_id not in seen.view.sync_state_set
            assert member.broker_id != seen.view.master_broker_id


@given(controller_worlds())
def test_without_sight_of_the_quorum_only_dead_controllers_are_replaced(seen: Any) -> None:
    for action in disruptive(changed(seen, quorum=Unreachable("lost"))):
        assert isinstance(action, DeletePod)
        assert action.only_if_dead


@given(broker_worlds())
def test_a_running_master_is_never_taken_away_while_there_is_another_replica(seen: Any) -> None:
    for action in disruptive(seen):
        if not isinstance(action, DeletePod) or action.only_if_dead:
            continue
        group = ObservedGroup(seen.view, seen.pods)
        master = group.master()
        pod_of_master = group.pod_of(master) if master else None
        existing = seen.objects["StatefulSet", "orders-broker"]["spec"]["replicas"]
        assert existing == 1 or pod_of_master is None or pod_of_master.uid != action.uid


@given(broker_worlds())
def test_enough_members_stay_in_sync(seen: Any) -> None:
    for action in disruptive(seen):
        if isinstance(action, Elect | FenceMember):
            continue
        if isinstance(action, DeletePod) and action.only_if_dead:
            continue
        group = ObservedGroup(seen.view, seen.pods)
        spec = seen.group.spec
        existing = seen.objects["StatefulSet", "orders-broker"]["spec"]["replicas"]
        if isinstance(action, ScaleDown):
            leaving = group.at_ordinal(existing - 1)
            needed = spec.min_in_sync
        else:
            taken = next(p for p in seen.pods if p.uid == action.uid)
            leaving, needed = group.member_in(taken), min(spec.min_in_sync, existing - 1)
        gone = {leaving.broker_id} if leaving else set()
        assert len(group.in_sync() - gone) >= needed


@given(broker_worlds())
def test_only_members_of_the_sync_state_set_are_elected(seen: Any) -> None:
    for action in disruptive(seen):
        if isinstance(action, Elect):
            assert action.broker_id in ObservedGroup(seen.view, seen.pods).in_sync()
            assert action.broker_id != seen.view.master_broker_id
            assert action.master_epoch == seen.view.master_epoch


@given(controller_worlds())
def test_a_quorum_keeps_a_majority_of_caught_up_voters(seen: Any) -> None:
    size = seen.group.spec.replicas
    for action in disruptive(seen):
        assert isinstance(action, DeletePod)
        if action.only_if_dead or size == 1:
            continue
        well = [
            peer
            for peer in seen.quorum.peers
            if peer.name != action.name
            and (peer.id == seen.quorum.leader_id or (peer.match_index or 0) >= 99_000)
        ]
        assert len(well) > size // 2
