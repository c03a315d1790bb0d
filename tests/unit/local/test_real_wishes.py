"""The kubelet's word on pods, and what the server shows meanwhile."""

from __future__ import annotations

from typing import Any

from gantry_local.real.wishes import Wishes, status_patch

Object = dict[str, Any]


def pod(revision: int = 5, uid: str = "u1", **status: Any) -> Object:
    meta = {"namespace": "default", "name": "web-0", "uid": uid, "resourceVersion": str(revision)}
    return {"metadata": meta, "spec": {}, "status": status}


def condition(kind: str, status: str = "True") -> Object:
    return {"type": kind, "status": status}


def test_what_nobody_spoke_of_is_shown_as_it_is() -> None:
    assert Wishes().shown(pod(phase="Pending")) == pod(phase="Pending")


def test_what_was_said_is_shown_until_the_server_has_it() -> None:
    wishes = Wishes()
    wishes.set_status(pod(5), {"phase": "Running"})
    assert wishes.shown(pod(6, phase="Pending")) == pod(6, phase="Running", conditions=[])
    assert wishes.next_step("u1") is not None
    # Under way: another's write is told of before the answer comes.
    assert wishes.shown(pod(7, phase="Pending")) == pod(7, phase="Running", conditions=[])
    wishes.taken("u1", 9)
    assert wishes.shown(pod(8, phase="Pending")) == pod(8, phase="Running", conditions=[])
    assert wishes.shown(pod(9, phase="Running")) == pod(9, phase="Running")
    assert wishes.get("u1") is None


def test_a_status_that_is_said_while_one_is_under_way_is_sent_after_it() -> None:
    wishes = Wishes()
    wishes.set_status(pod(), {"phase": "Pending"})
    first = wishes.next_step("u1")
    wishes.set_status(pod(), {"phase": "Running"})
    wishes.taken("u1", 6)
    second = wishes.next_step("u1")
    assert first is not None
    assert second is not None
    assert first.body["status"]["phase"] == "Pending"
    assert second.body["status"]["phase"] == "Running"
    wishes.taken("u1", 7)
    assert wishes.next_step("u1") is None


def test_a_step_without_an_answer_is_due_again() -> None:
    wishes = Wishes()
    wishes.bind(pod(), "local")
    first = wishes.next_step("u1")
    assert wishes.next_step("u1") is None
    wishes.failed("u1")
    assert wishes.next_step("u1") == first


def test_a_pod_is_bound_before_its_status_is_told() -> None:
    wishes = Wishes()
    wishes.set_status(pod(), {"phase": "Running"})
    wishes.bind(pod(), "local")
    kinds = []
    while (step := wishes.next_step("u1")) is not None:
        kinds.append((step.kind, step.method, step.subresource))
        wishes.taken("u1", 0)
    assert kinds == [("bind", "POST", "binding"), ("status", "PATCH", "status")]


def test_a_bound_pod_has_its_node_until_the_server_shows_it() -> None:
    wishes = Wishes()
    wishes.bind(pod(5), "local")
    wishes.next_step("u1")
    wishes.taken("u1", 0)
    shown = wishes.shown(pod(6))
    assert shown is not None
    assert shown["spec"] == {"nodeName": "local"}
    bound = {**pod(7), "spec": {"nodeName": "local"}}
    assert wishes.shown(bound) == bound
    assert wishes.get("u1") is None


def test_an_ended_pod_is_not_shown_again_and_only_its_removal_is_sent() -> None:
    wishes = Wishes()
    wishes.set_status(pod(), {"phase": "Running"})
    wishes.next_step("u1")
    wishes.delete(pod())
    wishes.failed("u1")  # the status that was under way
    assert wishes.shown(pod(50)) is None
    step = wishes.next_step("u1")
    assert step is not None
    assert (step.kind, step.body["preconditions"]) == ("delete", {"uid": "u1"})
    wishes.taken("u1", 0)
    assert wishes.next_step("u1") is None
    assert wishes.shown(pod(51)) is None  # until the server says that it is gone
    wishes.forget("u1")
    assert wishes.shown(pod(1, uid="u2")) == pod(1, uid="u2")


def test_a_removal_without_an_answer_is_sent_again() -> None:
    wishes = Wishes()
    wishes.delete(pod())
    first = wishes.next_step("u1")
    wishes.failed("u1")
    assert wishes.next_step("u1") == first


def test_conditions_of_others_are_theirs() -> None:
    wishes = Wishes()
    stale = {"type": "mq.gantry.dev/x", "status": "False"}
    wishes.set_status(pod(), {"conditions": [condition("Ready"), stale]})
    step = wishes.next_step("u1")
    assert step is not None
    assert step.body["status"]["conditions"] == [condition("Ready")]
    theirs = condition("mq.gantry.dev/x")
    shown = wishes.shown(pod(6, conditions=[condition("Ready", "False"), theirs]))
    assert shown is not None
    assert shown["status"]["conditions"] == [condition("Ready"), theirs]


def test_addresses_replace_the_last_ones_and_are_taken_back() -> None:
    given = status_patch({"podIP": "127.77.0.2", "podIPs": [{"ip": "127.77.0.2"}]})
    assert given["podIPs"] == [{"$patch": "replace"}, {"ip": "127.77.0.2"}]
    without = status_patch({"phase": "Running"})
    assert (without["podIP"], without["podIPs"]) == (None, None)
    wishes = Wishes()
    wishes.set_status(pod(), {"phase": "Running"})
    shown = wishes.shown(pod(6, podIP="127.77.0.2", podIPs=[{"ip": "127.77.0.2"}]))
    assert shown is not None
    assert "podIP" not in shown["status"]


def test_pods_that_the_server_does_not_list_are_forgotten() -> None:
    wishes = Wishes()
    wishes.delete(pod(uid="u1"))
    wishes.delete(pod(uid="u2"))
    wishes.retain({"u2", "u3"})
    assert wishes.get("u1") is None
    assert wishes.get("u2") is not None
