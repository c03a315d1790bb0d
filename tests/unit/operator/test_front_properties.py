"""What holds for every plan for fronts in every world that can be drawn, likely or not."""

from __future__ import annotations

import datetime as dt
from typing import Any

from gantry_operator import names
from gantry_operator.models import FrontGroupStatus
from gantry_operator.plan.actions import (
    ApplyObject,
    DeclareFronts,
    EmitEvent,
    RemoveFronts,
    SetFinalizer,
    WriteStatus,
)
from gantry_operator.plan.conditions import timestamp
from gantry_operator.plan.front_steps import SERVES_ON_S, declared
from gantry_protocol.admin import FrontsView
from gantry_protocol.admin_client.outcomes import Unreachable
from hypothesis import given
from hypothesis import strategies as st
from unit.operator.world import (
    NOW,
    changed,
    front_pod,
    front_world,
    fronts,
    fronts_view,
    of_type,
    planned,
)

flags = st.booleans()
HELD = (names.FRONTS_FINALIZER,)


@st.composite
def worlds(draw: st.DrawFn, *, deleting: bool = False) -> Any:
    meta: dict[str, Any] = {"finalizers": HELD if deleting or draw(flags) else ()}
    if deleting or draw(flags):
        meta["deletionTimestamp"] = timestamp(NOW)
    ports = draw(st.sampled_from([1, 2, 16]))
    spec = {
        "ports": ports,
        "paused": draw(st.integers(0, 4)) == 0,
        "autoscaling": {"enabled": draw(flags)},
        "service": {"type": draw(st.sampled_from(["ClusterIP", "LoadBalancer"]))},
    }
    seen = front_world(
        fronts(meta, **spec),
        view=draw(
            st.sampled_from(
                [
                    Unreachable("silent"),
                    FrontsView(),
                    fronts_view(ports=ports),
                    fronts_view("others"),
                    fronts_view(declared=False),
                ]
            )
        ),
        pods=tuple(front_pod(n, ready=draw(flags)) for n in range(draw(st.integers(0, 3)))),
        before=draw(st.sampled_from(["", "", "others"])),
        controllers_exist=draw(flags),
    )
    live = seen.deployment
    live["metadata"]["annotations"][names.ANNOTATION_REPLICAS] = draw(
        st.sampled_from(["spec", "autoscaler"])
    )
    live["status"]["updatedReplicas"] = draw(st.integers(0, 3))
    if draw(flags):
        del seen.objects["Deployment", "clients-front"]
    ago_s = draw(st.one_of(st.none(), st.floats(0, 100)))
    status: dict[str, Any] = {"observedGeneration": 1}
    if draw(flags):
        status["address"] = "x:10950"
    if ago_s is not None:
        status["withdrawnAt"] = timestamp(NOW - dt.timedelta(seconds=ago_s))
    return changed(seen, previous=FrontGroupStatus.model_validate(status), live_status=status)


@given(worlds())
def test_clients_are_led_only_to_fronts_that_are_ready_and_stay(seen: Any) -> None:
    if of_type(planned(seen), DeclareFronts):
        assert any(pod.ready for pod in seen.pods)
        assert seen.meta.finalizers == HELD
        assert seen.meta.deletion_timestamp is None
        assert not seen.before
        assert not seen.group.spec.paused


@given(worlds(deleting=True))
def test_pods_go_only_once_nobody_can_be_led_there_any_more(seen: Any) -> None:
    for step in of_type(planned(seen), SetFinalizer):
        assert not step.present, "the API server would refuse it"
        if not seen.controllers_exist:
            continue
        assert not isinstance(seen.view, Unreachable)
        assert declared(seen) is None
        if seen.previous.address is not None:
            led_back = dt.datetime.fromisoformat(seen.previous.withdrawn_at)
            assert (NOW - led_back).total_seconds() >= SERVES_ON_S


@given(worlds())
def test_without_the_controllers_word_clients_are_led_nowhere_else(seen: Any) -> None:
    silent = changed(seen, view=Unreachable("silent"))
    assert of_type(planned(silent), DeclareFronts, RemoveFronts) == []


@given(worlds())
def test_replicas_are_the_autoscalers_or_the_specs(seen: Any) -> None:
    for action in of_type(planned(seen), ApplyObject):
        if action.manifest["kind"] == "Deployment":
            by_spec = not seen.group.spec.autoscaling.enabled
            assert ("replicas" in action.manifest["spec"]) is by_spec
            assert action.kept is None or not by_spec


@given(worlds())
def test_a_written_status_is_not_written_again(seen: Any) -> None:
    (written,) = of_type(planned(seen), WriteStatus) or (None,)
    if written is None:
        return
    told = FrontGroupStatus.model_validate(written.status)
    later = changed(seen, previous=told, live_status=written.status)
    assert of_type(planned(later), WriteStatus, EmitEvent) == []


@given(worlds())
def test_no_plan_for_fronts_is_disruptive(seen: Any) -> None:
    assert not any(action.disruptive for action in planned(seen))
