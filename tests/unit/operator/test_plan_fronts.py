"""Plans for a FrontGroup: who serves, when clients are led there, and when back."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.models import FrontGroupStatus
from gantry_operator.plan import plan
from gantry_operator.plan.actions import (
    Action,
    ApplyObject,
    CheckAgain,
    DeclareFronts,
    DeleteObject,
    EmitEvent,
    RemoveFronts,
    SetFinalizer,
    WriteStatus,
)
from gantry_operator.plan.conditions import timestamp
from gantry_operator.plan.front_steps import NOBODY_S, SERVES_ON_S
from gantry_protocol.admin import DeclaredFronts, FrontIndex, FrontsDeclaration, FrontsView
from gantry_protocol.admin_client.outcomes import Unreachable
from unit.operator.world import (
    CLUSTER_IP,
    NOW,
    changed,
    front_pod,
    front_world,
    fronts,
    fronts_view,
    of_type,
    planned,
    settled_status,
    told,
    with_status,
)

HELD = (names.FRONTS_FINALIZER,)
UNDECLARED = fronts_view(declared=False)
SILENT = Unreachable("No leader of gantry answered.")


def deeds(actions: list[Action]) -> list[Action]:
    """What changes something but words."""
    return [a for a in actions if not isinstance(a, CheckAgain | EmitEvent | WriteStatus)]


def test_nothing_is_to_be_done_where_all_is_well() -> None:
    seen = with_status(front_world())
    assert deeds(planned(seen)) == []
    assert planned(seen) == []
    assert told(front_world(), "Ready")[0] == "True"


def test_the_status_of_fronts_that_serve() -> None:
    status = settled_status(front_world())
    assert status["address"] == f"{CLUSTER_IP}:10950"
    assert status["groups"] == [
        {"name": "orders", "port": 10950},
        {"name": "returns", "port": 10951},
    ]
    assert (status["served"], status["ready"]) == ("2/2", "2/2")


def test_everything_is_built_once_the_resource_is_there() -> None:
    seen = front_world(objects={}, pods=(), view=UNDECLARED)
    applied = [a.manifest["kind"] for a in of_type(planned(seen), ApplyObject)]
    around = ["Service", "PodDisruptionBudget", "NetworkPolicy"]
    assert applied == ["ConfigMap", *around, "Deployment"]
    assert told(seen, "Progressing")[:2] == ("True", "Applying")


# Clients are led there


def test_clients_are_led_there_once_a_front_is_ready() -> None:
    one = (front_pod(0), front_pod(1, ready=False))
    seen = front_world(view=UNDECLARED, pods=one)
    wished = FrontsDeclaration(address=CLUSTER_IP, first_port=10950, ports=16)
    assert deeds(planned(seen)) == [DeclareFronts(declaration=wished)]


@pytest.mark.parametrize(
    "pods", [(), (front_pod(0, ready=False), front_pod(1, ready=False))], ids=["none", "starting"]
)
def test_nobody_is_led_to_fronts_of_which_none_is_ready(pods: Any) -> None:
    seen = front_world(view=UNDECLARED, pods=pods)
    assert deeds(planned(seen)) == []
    assert told(seen, "Available")[:2] == ("False", "NoFrontReady")


def test_nobody_is_led_there_before_the_finalizer_is_on() -> None:
    seen = front_world(fronts({"finalizers": ()}), view=UNDECLARED)
    (step,) = deeds(planned(seen))
    assert step == SetFinalizer(present=True, finalizers=HELD, resource_version="7")


def test_nobody_is_led_there_by_word_of_controllers_that_cannot_be_asked() -> None:
    seen = front_world(view=SILENT)
    assert deeds(planned(seen)) == []
    assert told(seen, "Available")[:2] == ("Unknown", "ControllerUnreachable")
    assert of_type(planned(seen), CheckAgain) == [CheckAgain(after_s=5.0)]


@pytest.mark.parametrize(
    ("service", "live_parts", "wanted"),
    [
        pytest.param({}, {}, (CLUSTER_IP, 10950), id="cluster-ip"),
        pytest.param(
            {"advertisedAddress": "mq.example.com"}, {}, ("mq.example.com", 10950), id="advertised"
        ),
        pytest.param(
            {"type": "NodePort", "advertisedAddress": "node", "firstNodePort": 31000},
            {},
            ("node", 31000),
            id="node-port",
        ),
        pytest.param({"type": "LoadBalancer"}, {}, None, id="balancer-without-an-address"),
        pytest.param(
            {"type": "LoadBalancer"},
            {"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}},
            ("198.51.100.7", 10950),
            id="balancer",
        ),
        pytest.param(
            {"type": "LoadBalancer"},
            {"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}},
            ("lb.example.com", 10950),
            id="balancer-by-name",
        ),
    ],
)
def test_the_address_that_clients_are_given(
    service: dict[str, Any], live_parts: dict[str, Any], wanted: tuple[str, int] | None
) -> None:
    seen = front_world(fronts(service=service), view=UNDECLARED)
    seen.objects["Service", "clients-front"] |= live_parts
    found = [
        (step.declaration.address, step.declaration.first_port)
        for step in of_type(planned(seen), DeclareFronts)
    ]
    assert found == ([] if wanted is None else [wanted])
    if wanted is None:
        assert told(seen, "Available")[:2] == ("False", "WaitingForAddress")


def test_an_address_that_changed_is_declared_anew() -> None:
    view = fronts_view(address="10.96.0.1")
    (step,) = deeds(planned(front_world(view=view)))
    assert isinstance(step, DeclareFronts)
    assert step.declaration.address == CLUSTER_IP


def test_ports_that_were_added_count_once_every_front_listens_on_them() -> None:
    group = fronts(ports=18)
    seen = front_world(group)
    seen.deployment["status"]["updatedReplicas"] = 1  # type: ignore[index]
    assert of_type(planned(seen), DeclareFronts) == []
    seen.deployment["status"]["updatedReplicas"] = 2  # type: ignore[index]
    (step,) = of_type(planned(seen), DeclareFronts)
    assert step.declaration.ports == 18


# Clients are led back


def deleting(since_s: float | None = None, *, address: str | None = "x:10950", **facts: Any) -> Any:
    """A resource that is being deleted; `since_s` after its clients were seen led back."""
    meta = {"deletionTimestamp": "2026-11-21T11:59:00Z"}
    seen = front_world(fronts(meta | facts.pop("meta", {})), **facts)
    status: dict[str, Any] = {"observedGeneration": 1, "address": address}
    if since_s is not None:
        status["withdrawnAt"] = timestamp(NOW - dt.timedelta(seconds=since_s))
    return changed(seen, previous=FrontGroupStatus.model_validate(status), live_status=status)


def test_a_deletion_leads_clients_back_first() -> None:
    seen = deleting()
    assert deeds(planned(seen)) == [RemoveFronts()]
    assert told(seen, "Progressing")[:2] == ("True", "Deleting")


def test_fronts_serve_on_while_clients_may_still_hold_the_old_routes() -> None:
    seen = deleting(view=UNDECLARED)
    assert deeds(planned(seen)) == []
    assert settled_status(seen)["withdrawnAt"] == "2026-11-21T12:00:00Z"
    assert of_type(planned(seen), CheckAgain) == [CheckAgain(after_s=SERVES_ON_S)]
    seen = deleting(SERVES_ON_S - 1, view=UNDECLARED)
    assert deeds(planned(seen)) == []
    assert of_type(planned(seen), CheckAgain) == [CheckAgain(after_s=1.0)]


def test_the_pods_go_after_that() -> None:
    seen = deleting(SERVES_ON_S, view=UNDECLARED)
    assert planned(seen) == [SetFinalizer(present=False, finalizers=(), resource_version="7")]


def test_the_moment_of_the_withdrawal_stays() -> None:
    seen = deleting(10.0, view=UNDECLARED)
    assert settled_status(seen)["withdrawnAt"] == "2026-11-21T11:59:50Z"
    assert settled_status(seen)["address"] == "x:10950"


def test_nobody_who_was_never_led_there_is_waited_for() -> None:
    (step,) = planned(deleting(address=None, view=UNDECLARED))
    assert isinstance(step, SetFinalizer)


def test_controllers_that_cannot_be_asked_are_waited_for() -> None:
    seen = deleting(view=SILENT)
    assert deeds(planned(seen)) == []
    assert "Waiting for the controllers" in told(seen, "Progressing")[2]


def test_a_quorum_that_is_gone_leads_nobody() -> None:
    seen = deleting(view=SILENT, controllers=None, controllers_exist=False)
    (step,) = planned(seen)
    assert isinstance(step, SetFinalizer)


def test_a_deletion_touches_no_declaration_of_others() -> None:
    view = fronts_view(name="others")
    seen = deleting(SERVES_ON_S, view=view)
    assert of_type(planned(seen), RemoveFronts) == []


def test_fronts_that_are_all_gone_for_a_while_lead_nobody() -> None:
    seen = with_status(front_world(pods=(front_pod(0, ready=False),)))
    assert told(seen, "Available")[:2] == ("False", "NoFrontReady")
    soon, later = (NOW + dt.timedelta(seconds=s) for s in (NOBODY_S - 1, NOBODY_S))
    assert of_type(plan(seen, soon), RemoveFronts) == []
    assert of_type(plan(seen, later), RemoveFronts) == [RemoveFronts()]


# One for each cluster


def test_a_second_front_group_of_a_cluster_is_refused() -> None:
    seen = front_world(before="others", objects={}, pods=(), view=fronts_view(name="others"))
    assert deeds(planned(seen)) == []
    status, reason, message = told(seen, "Accepted")
    assert (status, reason) == ("False", "ClusterHasFronts")
    assert "FrontGroup others serves cluster gantry already" in message
    assert told(seen, "Ready")[:2] == ("False", "ClusterHasFronts")


def test_without_a_controller_group_nothing_is_built() -> None:
    silent = Unreachable("There is no ControllerGroup gantry.")
    seen = front_world(controllers=None, controllers_exist=False, objects={}, pods=(), view=silent)
    assert deeds(planned(seen)) == []
    assert told(seen, "Accepted")[:2] == ("False", "ControllerGroupNotFound")


def test_without_a_broker_group_the_condition_says_what_is_missing() -> None:
    seen = front_world(view=FrontsView(), broker_groups=())
    assert deeds(planned(seen)) == []
    assert told(seen, "Available")[:2] == ("False", "NoBrokerGroup")
    assert "create a BrokerGroup whose controllerRef names gantry" in told(seen, "Available")[2]


def test_a_broker_group_that_the_controllers_do_not_know_yet_is_waited_for() -> None:
    seen = front_world(broker_groups=("late", "orders", "returns"))
    assert told(seen, "GroupsServed")[:2] == ("False", "WaitingForGroups")
    assert "late" in told(seen, "GroupsServed")[2]


def test_more_groups_than_ports() -> None:
    seen = front_world(fronts(ports=1), view=fronts_view(ports=1))
    status, reason, message = told(seen, "GroupsServed")
    assert (status, reason) == ("False", "TooFewPorts")
    assert message.startswith("returns are reached at their own addresses, since there are 1 ports")
    assert "raise spec.ports to 2" in message
    assert settled_status(seen)["served"] == "1/2"
    assert told(seen, "Available")[0] == "True"


def test_ports_are_never_lowered() -> None:
    seen = front_world(fronts(ports=8), objects=front_world().objects)
    assert deeds(planned(seen)) == []
    assert told(seen, "Accepted")[:2] == ("False", "ImmutableFieldChanged")
    assert "set it back to 16" in told(seen, "Accepted")[2]


def test_paused_fronts_are_left_alone() -> None:
    seen = front_world(fronts(paused=True), objects={}, view=UNDECLARED)
    assert deeds(planned(seen)) == []
    assert told(seen, "Paused")[0] == "True"


# Replicas


SCALED = {"enabled": True, "minReplicas": 2}


def scaled(replicas: int) -> Any:
    """Fronts of which an autoscaler has made so many."""
    seen = front_world(
        fronts(replicas=2, autoscaling=SCALED), pods=tuple(front_pod(n) for n in range(replicas))
    )
    deployment = seen.deployment
    deployment["spec"]["replicas"] = replicas
    counts = ("replicas", "updatedReplicas", "readyReplicas")
    deployment["status"] |= dict.fromkeys(counts, replicas)
    return seen


def test_the_operator_leaves_replicas_to_the_autoscaler() -> None:
    seen = with_status(scaled(7))
    assert planned(seen) == []
    assert settled_status(seen)["ready"] == "7/7"
    later = changed(seen, image="gantry:2")
    (apply,) = of_type(planned(later), ApplyObject)
    assert "replicas" not in apply.manifest["spec"]
    assert apply.kept is None, "they are the autoscaler's already"


def test_the_number_of_fronts_stays_when_an_autoscaler_takes_over() -> None:
    seen = front_world(fronts(replicas=5, autoscaling=SCALED), objects=live_of(replicas=5))
    (deployment,) = [
        a for a in of_type(planned(seen), ApplyObject) if a.manifest["kind"] == "Deployment"
    ]
    assert "replicas" not in deployment.manifest["spec"]
    assert deployment.kept is not None
    assert deployment.kept["spec"] == {"replicas": 5}


def test_the_autoscaler_goes_with_its_wish() -> None:
    seen = front_world(fronts(replicas=3), objects=live_of(autoscaling=SCALED))
    gone = of_type(planned(seen), DeleteObject)
    assert [(a.kind, a.name) for a in gone] == [("HorizontalPodAutoscaler", "clients-front")]
    (apply,) = of_type(planned(seen), ApplyObject)
    assert apply.manifest["spec"]["replicas"] == 3
    assert apply.kept is None


def live_of(**spec: Any) -> Any:
    return front_world(fronts(**spec)).objects


# While pods change


def test_fronts_that_are_replaced() -> None:
    seen = front_world()
    seen.deployment["status"]["updatedReplicas"] = 1  # type: ignore[index]
    assert told(seen, "Progressing")[:2] == ("True", "ReplacingFronts")
    seen.deployment["metadata"]["generation"] = 2  # type: ignore[index]
    seen.deployment["status"]["updatedReplicas"] = 2  # type: ignore[index]
    assert told(seen, "Progressing")[:2] == ("True", "ReplacingFronts")


def test_events_tell_where_clients_are_led() -> None:
    (event,) = of_type(planned(front_world()), EmitEvent)
    assert (event.reason, event.note) == (
        "FrontsDeclared",
        f"Clients are led to {CLUSTER_IP}:10950.",
    )
    seen = changed(with_status(front_world()), view=UNDECLARED)
    (event,) = of_type(planned(seen), EmitEvent)[:1]
    assert (event.type, event.reason) == ("Warning", "FrontsNotDeclared")


def test_groups_of_one_more_port_than_is_declared_wait_for_the_fronts() -> None:
    groups = [FrontIndex(group=f"g{n}", index=n) for n in range(17)]
    view = changed_view(groups)
    seen = front_world(fronts(ports=17), view=view, broker_groups=())
    seen.deployment["status"]["updatedReplicas"] = 1  # type: ignore[index]
    assert told(seen, "GroupsServed")[:2] == ("False", "FrontsNotDeclared")


def changed_view(groups: list[FrontIndex]) -> FrontsView:
    entry = DeclaredFronts(name="clients", address=CLUSTER_IP, first_port=10950, ports=16)
    return FrontsView(fronts=[entry], groups=groups)
