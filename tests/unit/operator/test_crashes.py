"""A crash loop is told with the last words of the process, and the status keeps still."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import io
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import POD
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.cache import Cache
from gantry_operator.plan.actions import CheckAgain, EmitEvent, WriteStatus
from gantry_operator.plan.crashes import MAX_WORDS, last_words
from gantry_operator.plan.observed import BrokerObserved, ControllerObserved, PodView, pod_view
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from gantry_protocol.errors import CorruptionError
from gantry_protocol.process.runtime import run
from unit.operator.world import (
    IMAGE,
    NOW,
    OLD,
    broker_world,
    brokers,
    changed,
    controller_world,
    controllers,
    member,
    of_type,
    planned,
    pod,
    told,
    view,
    with_status,
)

SENTENCE = "gantry: quotas: 'x' is no quota; write TENANT:BYTES."
LOG = f'{{"level": "info", "token": "hidden"}}\n{SENTENCE}\n'
END = {"exitCode": 2, "reason": "Error", "message": LOG, "finishedAt": "2026-11-21T11:59:50Z"}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}}


def since(seconds: float) -> dict[str, Any]:
    began = NOW - dt.timedelta(seconds=seconds)
    return {"running": {"startedAt": began.strftime("%Y-%m-%dT%H:%M:%SZ")}}


def live_pod(name: str, statuses: list[dict[str, Any]], **meta: Any) -> PodView:
    """A pod as the operator sees it: through its cache."""
    labels = names.labels(names.BROKER, "orders") | {names.LABEL_REVISION: "rev-new"}
    cache = Cache()
    head = {"name": name, "namespace": "mq", "uid": "u", "resourceVersion": "1", "labels": labels}
    cache.put(POD, {"metadata": head | meta, "status": {"containerStatuses": statuses}})
    found = cache.get(POD, "mq", name)
    assert found is not None
    assert "hidden" not in str(found), "of a log only our sentence is kept"
    return pod_view(found)


def container(state: Any, last: Any = None, name: str = "broker", n: int = 3) -> dict[str, Any]:
    ended = {} if last is None else {"terminated": last}
    return {"name": name, "state": state, "lastState": ended, "restartCount": n}


def crashing(*statuses: dict[str, Any]) -> BrokerObserved:
    found = live_pod("orders-broker-2", list(statuses))
    return broker_world(pods=(pod(0), pod(1), found))


LOOPING = crashing(container(BACK_OFF, END))


def events(seen: BrokerObserved | ControllerObserved) -> list[tuple[str, str, str]]:
    return [(e.type, e.reason, e.note) for e in of_type(planned(seen), EmitEvent)]


def test_the_kubelet_is_asked_for_last_words() -> None:
    made = broker_objects(brokers(), controllers(), image=IMAGE, replicas=3)
    made += controller_objects(
        controllers(), image=IMAGE, operator_namespace="", cluster_uid="cg-uid"
    )
    templates = [m["spec"]["template"]["spec"] for m in made if m["kind"] == "StatefulSet"]
    policies = [one["terminationMessagePolicy"] for t in templates for one in t["containers"]]
    assert policies == ["FallbackToLogsOnError"] * 3


def test_a_crash_loop_is_told_with_the_last_words() -> None:
    message = (
        "orders-broker-2 ended with code 2 and is started again: quotas: 'x' is no quota; write "
        "TENANT:BYTES."
    )
    assert told(LOOPING, "Progressing") == ("True", "PodCrashing", message)
    assert told(LOOPING, "Ready") == ("False", "PodCrashing", message)
    was = with_status(broker_world())
    assert ("Warning", "PodCrashing", message) in events(changed(was, pods=LOOPING.pods))
    assert events(with_status(LOOPING)) == [], "told once"


def test_a_crash_loop_of_controllers_is_told() -> None:
    name = "gantry-controller-1"
    looping = live_pod(name, [container(BACK_OFF, END, "controller")])
    seen = controller_world()
    seen = changed(with_status(seen), pods=(seen.pods[0], looping, seen.pods[2]))
    assert told(seen, "Ready")[1] == told(seen, "Progressing")[1] == "PodCrashing"
    assert [(kind, reason) for kind, reason, _ in events(seen)] == [("Warning", "PodCrashing")]


def test_the_status_keeps_still_while_the_loop_goes_on() -> None:
    later = END | {"finishedAt": "2026-11-21T11:59:59Z", "message": f"other lines\n{LOG}"}
    seen = with_status(LOOPING)
    for statuses in (
        container(since(1), later, n=4),
        container({"terminated": later}, END, n=4),
        container({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}, later),
        container(since(30), END, n=900),
    ):
        assert of_type(planned(changed(seen, pods=crashing(statuses).pods)), WriteStatus) == []


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(crashing(container(since(61), END)).pods, id="run-that-lasts"),
        pytest.param((pod(0), pod(1), pod(2)), id="all-ready"),
        pytest.param(crashing(container(since(1), END | {"exitCode": 0})).pods, id="ended-well"),
        pytest.param(
            (
                pod(0),
                pod(1),
                live_pod("orders-broker-2", [container(BACK_OFF, END)], deletionTimestamp="now"),
            ),
            id="on-its-way-out",
        ),
    ],
)
def test_it_ends_with_the_loop(pods: tuple[PodView, ...]) -> None:
    after = changed(with_status(LOOPING), pods=pods)
    assert told(after, "Progressing")[1] != "PodCrashing"
    assert told(after, "Ready")[1] != "PodCrashing"


def test_a_run_that_might_last_is_looked_at_again() -> None:
    """Nothing is heard when a run gets old enough to be well."""
    seen = changed(with_status(broker_world()), pods=LOOPING.pods)
    assert told(seen, "FullyReplicated")[0] == "True"
    assert of_type(planned(seen), CheckAgain) != []


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(view(member(1, alive=False), member(2), member(3)), id="no-master"),
        pytest.param(view(member(1), member(2)), id="not-replicated"),
        pytest.param(NotDeclared(), id="not-known"),
        pytest.param(Unreachable("no controller answers"), id="not-reached"),
    ],
)
def test_it_is_the_cause_of_what_else_is_amiss(known: Any) -> None:
    seen = changed(LOOPING, view=known)
    assert told(seen, "Progressing")[1] == told(seen, "Ready")[1] == "PodCrashing"


def test_a_roll_out_that_waits_for_it_tells_it() -> None:
    pods = (pod(0, revision=OLD), pod(1, revision=OLD), LOOPING.pods[2])
    assert told(changed(LOOPING, pods=pods), "Progressing")[1] == "PodCrashing"


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "code 137 (OOMKilled) and"),
        ({"exitCode": 137, "reason": "Error"}, "code 137 (SIGKILL) and"),
        ({"exitCode": 139, "signal": 11}, "code 139 (SIGSEGV) and"),
        ({"exitCode": 255}, "code 255 and is started again; see `kubectl logs --previous orders"),
    ],
)
def test_an_end_without_words(end: dict[str, Any], text: str) -> None:
    assert text in told(crashing(container(BACK_OFF, end)), "Progressing")[2]


@pytest.mark.parametrize("broker", [None, {"exitCode": 137}], ids=["well", "killed-long-ago"])
def test_a_door_that_ends_again_and_again_is_told_beside_a_broker_that_runs(broker: Any) -> None:
    statuses = (container(since(3600), broker), container(BACK_OFF, END, "door"))
    message = told(crashing(*statuses), "Progressing")[2]
    assert message.startswith("The door of orders-broker-2 ended with code 2 and is started again:")
    assert message.endswith("TENANT:BYTES.")
    silent = crashing(container(since(3600)), container(BACK_OFF, {"exitCode": 1}, "door"))
    log = "see `kubectl logs --previous orders-broker-2 -c door`."
    assert told(silent, "Progressing")[2].endswith(log)


def test_the_door_of_a_broker_that_ends_again_and_again_says_nothing() -> None:
    statuses = (container(BACK_OFF, END), container(since(3600), {"exitCode": 1}, "door"))
    assert told(crashing(*statuses), "Progressing")[2].startswith("orders-broker-2 ended with code")


def with_init(statuses: list[dict[str, Any]], init: list[dict[str, Any]]) -> PodView:
    """A pod as the operator sees it, with init containers."""
    labels = names.labels(names.BROKER, "orders") | {names.LABEL_REVISION: "rev-new"}
    head = {"name": "orders-broker-2", "namespace": "mq", "uid": "u", "labels": labels}
    status = {"containerStatuses": statuses, "initContainerStatuses": init}
    cache = Cache()
    cache.put(POD, {"metadata": head | {"resourceVersion": "1"}, "status": status})
    found = cache.get(POD, "mq", "orders-broker-2")
    assert "TENANT" not in str(found), "of others' logs nothing is kept"
    return pod_view(found or {})


def test_a_container_of_others_is_named_and_not_repeated() -> None:
    """A pod is Ready only while its sidecars run, so whoever waits for it must learn which ends."""
    beside = with_init([container(BACK_OFF, END, "agent"), container(since(3600))], [])
    _, reason, message = told(broker_world(pods=(pod(0), pod(1), beside)), "Progressing")
    assert reason == "PodCrashing"
    assert message == (
        "The container agent of orders-broker-2 ended with code 2 and is started again; see "
        "`kubectl logs --previous orders-broker-2 -c agent`."
    )


def test_an_init_container_that_ends_in_errors_is_named() -> None:
    waiting = container({"waiting": {"reason": "PodInitializing"}}, n=0)
    looping = with_init([waiting], [container(BACK_OFF, END, "prepare")])
    message = told(broker_world(pods=(pod(0), pod(1), looping)), "Progressing")[2]
    assert message.startswith("The container prepare of orders-broker-2 ended with code 2")
    done = {"terminated": {"exitCode": 0}}
    assert with_init([waiting], [container(done, END, "prepare")]).ended is None


def test_ours_comes_first_where_both_end() -> None:
    statuses = (container(BACK_OFF, END, "agent"), container(BACK_OFF, END))
    assert told(crashing(*statuses), "Progressing")[2].endswith("TENANT:BYTES.")


def test_whether_a_replica_runs_is_not_said_by_its_door() -> None:
    running, waiting = since(10), {"waiting": {"reason": "CrashLoopBackOff"}}
    assert live_pod(
        "orders-broker-2", [container(running), container(waiting, name="door")]
    ).running
    ended = {"terminated": {"exitCode": 0}}
    leaving = [container(ended), container(running, name="door")]
    gone = live_pod("orders-broker-2", leaving, deletionTimestamp="now")
    assert gone.finished
    assert not gone.running
    closed = [container(running), container(ended, name="door")]
    assert not live_pod("orders-broker-2", closed, deletionTimestamp="now").finished


def test_several_are_counted() -> None:
    pods = tuple(live_pod(f"orders-broker-{n}", [container(BACK_OFF, END)]) for n in range(3))
    message = told(broker_world(pods=pods), "Progressing")[2]
    assert message.startswith("orders-broker-0 ended")
    assert message.endswith("BYTES. 2 more pods end in errors, too.")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", ""),
        ("Traceback\nValueError: secret", ""),
        ('gantry: first.\n{"a": 1}\ngantry: last.\n', "last."),
        ('{"event": "gantry: not ours"}', ""),
        ("gantry: a\x1b[31mb\x00", "a [31mb"),
        (f"gantry: {'x' * 5000}", "x" * MAX_WORDS),
    ],
)
def test_last_words(message: str, words: str) -> None:
    assert last_words(message) == words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CorruptionError("/d/log", 17, "no sum"), "/d/log is damaged at byte 17: no sum."),
        (OSError(errno.ENOSPC, "No space left on device", "/d"), "No space left on device"),
    ],
)
def test_a_process_that_ends_while_it_runs_leaves_its_words(error: Exception, words: str) -> None:
    """Not only one whose settings are wrong: its log is what the kubelet keeps the end of."""

    async def main(_: asyncio.Event) -> None:
        raise error

    log = io.StringIO()
    assert run(main, stderr=log)
    assert words in last_words(log.getvalue())
