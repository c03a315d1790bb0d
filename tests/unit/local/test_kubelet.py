"""The kubelet's pure parts: environment, probes, back-off, status, addresses, process identity."""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import pytest
from gantry_local.kubelet import identity, probing
from gantry_local.kubelet.addresses import PodAddresses
from gantry_local.kubelet.backoff import RestartBackoff
from gantry_local.kubelet.environment import (
    ContainerConfigError,
    Launch,
    Sources,
    plan_launch,
)
from gantry_local.kubelet.status import ContainerState, pod_status, terminated

POD: dict[str, Any] = {
    "metadata": {
        "name": "p-0",
        "namespace": "n",
        "uid": "u-1",
        "labels": {"app": "x", "a.b/c": "d"},
        "annotations": {"note": "hi"},
    },
    "spec": {"nodeName": "local"},
    "status": {"podIP": "127.77.0.9", "hostIP": "127.0.0.1"},
}
OBJECTS = {"cm": {"data": {"k": "v"}}, "s": {"data": {"t": base64.b64encode(b"top").decode()}}}
SOURCES = Sources(
    lambda name: OBJECTS.get(name) if name == "cm" else None,
    lambda name: OBJECTS.get(name) if name == "s" else None,
)


def launch(mounts: dict[str, str] | None = None, **container: Any) -> Launch:
    return plan_launch(POD, container, base={"PATH": "/bin"}, mounts=mounts or {}, sources=SOURCES)


def field(path: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ({"name": "X", "value": "plain"}, "plain"),
        ({"name": "X"}, ""),
        ({"name": "X", "value": "$(ABOVE)/x"}, "1/x"),
        ({"name": "X", "value": "$(BELOW)"}, "$(BELOW)"),
        ({"name": "X", "value": "$$(ABOVE)"}, "$(ABOVE)"),
        ({"name": "X", "value": "a$b"}, "a$b"),
        (field("metadata.name"), "p-0"),
        (field("metadata.namespace"), "n"),
        (field("metadata.uid"), "u-1"),
        (field("status.podIP"), "127.77.0.9"),
        (field("metadata.labels['a.b/c']"), "d"),
        (field("metadata.labels['nope']"), ""),
        (field("metadata.annotations['note']"), "hi"),
        (field("spec.nodeName"), "local"),
        ({"name": "X", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}}, "v"),
        ({"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "t"}}}, "top"),
    ],
)
def test_environment(entry: dict[str, Any], value: str) -> None:
    env = [{"name": "ABOVE", "value": "1"}, entry, {"name": "BELOW", "value": "2"}]
    assert launch(env=env).env["X"] == value


@pytest.mark.parametrize(
    ("container", "text"),
    [
        ({"env": [field("spec.containers")]}, "fieldRef spec.containers"),
        ({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {}}}]}, "resourceFieldRef"),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "z", "key": "t"}}}]},
            'secret "z" not found',
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "z"}}}]},
            "couldn't find key z",
        ),
        ({"envFrom": [{"configMapRef": {"name": "z"}}]}, 'configmap "z" not found'),
    ],
)
def test_what_cannot_be_resolved(container: dict[str, Any], text: str) -> None:
    with pytest.raises(ContainerConfigError, match=text):
        launch(**container)


def test_optional_references_are_left_out() -> None:
    reference = {"name": "z", "key": "k", "optional": True}
    made = launch(
        env=[{"name": "X", "valueFrom": {"secretKeyRef": reference}}],
        envFrom=[{"configMapRef": {"name": "z", "optional": True}}],
    )
    assert made.env == {"PATH": "/bin"}


def test_env_from_takes_all_keys_and_env_wins() -> None:
    made = launch(
        envFrom=[{"configMapRef": {"name": "cm"}}, {"secretRef": {"name": "s"}, "prefix": "S_"}],
        env=[{"name": "k", "value": "mine"}],
    )
    assert (made.env["k"], made.env["S_t"]) == ("mine", "top")


@pytest.mark.parametrize(
    ("container", "argv"),
    [
        ({}, [sys.executable, "-P", "-m", "gantry_cli"]),
        ({"args": ["broker"]}, [sys.executable, "-P", "-m", "gantry_cli", "broker"]),
        ({"command": ["gantry", "broker"]}, [sys.executable, "-P", "-m", "gantry_cli", "broker"]),
        ({"command": ["python", "-c", "x"]}, [sys.executable, "-c", "x"]),
        ({"command": ["sleep", "$(N)"], "env": [{"name": "N", "value": "5"}]}, ["sleep", "5"]),
    ],
)
def test_commands(container: dict[str, Any], argv: list[str]) -> None:
    assert launch(**container).argv == argv


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/data", "/real/d"),
        ("/data/log", "/real/d/log"),
        ("--dir=/data", "--dir=/real/d"),
        ("/data:/etc/x", "/real/d:/real/x"),
        ("/database", "/database"),
        ("/var/data", "/var/data"),
        ("/data/inner/f", "/real/i/f"),
        ("/etc/x/token", "/real/x/token"),
    ],
)
def test_mount_paths_are_rewritten(text: str, rewritten: str) -> None:
    mounts = {"/data": "/real/d", "/data/inner": "/real/i", "/etc/x": "/real/x"}
    made = launch(mounts, command=["x", text], env=[{"name": "X", "value": text}])
    assert made.argv[1] == made.env["X"] == rewritten


def test_backoff_doubles_to_its_limit_and_forgives() -> None:
    backoff = RestartBackoff()
    assert [backoff.after_exit(0) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert backoff.after_exit(9.9) == 10.0
    assert backoff.after_exit(10.0) == 0.2


SPEC = {"periodSeconds": 1, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}


def test_probes_are_parsed() -> None:
    container = {"ports": [{"name": "http", "containerPort": 8080}]}
    spec = {**SPEC, "httpGet": {"path": "/x", "port": "http"}, "initialDelaySeconds": 5}
    probe = probing.parse(spec, container, "127.77.0.1")
    assert probe is not None
    assert (probe.host, probe.port, probe.path) == ("127.77.0.1", 8080, "/x")
    assert probe.initial_delay_s == 5
    tcp = probing.parse({**SPEC, "tcpSocket": {"port": 1}}, {}, "127.77.0.1")
    assert tcp is not None
    assert tcp.path is None
    assert probing.parse(None, {}, "") is None


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"exec": {"command": ["x"]}}, "exec probes"),
        ({"grpc": {"port": 1}}, "grpc probes"),
        ({"httpGet": {"port": "nope"}}, "couldn't find port 'nope'"),
    ],
)
def test_probes_that_are_not_supported(spec: dict[str, Any], text: str) -> None:
    with pytest.raises(probing.UnsupportedProbeError, match=text):
        probing.parse({**SPEC, **spec}, {}, "")


@pytest.mark.parametrize(
    ("start", "results", "verdicts"),
    [
        (False, "+", [True]),
        (True, "---", [True, True, False]),
        (True, "--+--", [True, True, True, True, True]),
        (True, "---+", [True, True, False, True]),
    ],
)
def test_thresholds(*, start: bool, results: str, verdicts: list[bool]) -> None:
    probe = probing.parse({**SPEC, "tcpSocket": {"port": 1}}, {}, "")
    assert probe is not None
    verdict = probing.ProbeCount(probe, passing=start)
    assert [verdict.note(success=result == "+") for result in results] == verdicts


def status_of(*states: ContainerState, policy: str = "Always", old: Any = None) -> dict[str, Any]:
    pod = {"spec": {"restartPolicy": policy}, "status": old or {}}
    return pod_status(pod, list(states), ip="127.77.0.1", started_at="t0", now="t1")


def test_a_running_ready_container_makes_a_ready_pod() -> None:
    state = ContainerState("c", "i", running_since="t0", started=True, ready=True)
    status = status_of(state)
    assert status["phase"] == "Running"
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": "t0"}}


def test_one_container_that_is_not_ready_is_enough() -> None:
    good = ContainerState("a", "i", running_since="t0", ready=True)
    bad = ContainerState("b", "i", running_since="t0")
    conditions = {c["type"]: c for c in status_of(good, bad)["conditions"]}
    assert conditions["Ready"]["status"] == "False"
    assert conditions["Ready"]["reason"] == "ContainersNotReady"


def test_transition_times_move_with_the_status_only() -> None:
    state = ContainerState("c", "i", running_since="t0", ready=True)
    old = {
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "before"},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": "before"},
            {"type": "mine/gate", "status": "True"},
        ]
    }
    conditions = {c["type"]: c for c in status_of(state, old=old)["conditions"]}
    assert conditions["Ready"]["lastTransitionTime"] == "before"
    assert conditions["ContainersReady"]["lastTransitionTime"] == "t1"
    assert "mine/gate" in conditions


@pytest.mark.parametrize(
    ("code", "policy", "phase"),
    [
        (0, "Never", "Succeeded"),
        (1, "Never", "Failed"),
        (0, "OnFailure", "Succeeded"),
        (1, "OnFailure", "Running"),
        (0, "Always", "Running"),
    ],
)
def test_phases_after_an_exit(code: int, policy: str, phase: str) -> None:
    end = terminated(code, "t0", "t1")
    state = ContainerState("c", "i", terminated=end, last_terminated=end)
    assert status_of(state, policy=policy)["phase"] == phase


def test_a_killed_container_reports_its_signal() -> None:
    end = terminated(-9, "t0", "t1")
    assert (end["exitCode"], end["signal"], end["reason"]) == (137, 9, "Error")


def test_waiting_reasons() -> None:
    fresh = status_of(ContainerState("c", "i"))
    assert fresh["phase"] == "Pending"
    assert fresh["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    looping = ContainerState("c", "i", waiting=("CrashLoopBackOff", "back-off 1s"))
    assert status_of(looping)["containerStatuses"][0]["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 1s",
    }


def test_pod_addresses_are_used_in_turn() -> None:
    addresses = PodAddresses(7)
    first = addresses.take()
    assert first == "127.77.7.1"
    addresses.release(first)
    assert addresses.take() == "127.77.7.2"
    for _ in range(253):
        assert addresses.take()
    assert addresses.take() is None


def test_a_process_is_known_by_pid_and_start_time() -> None:
    own = identity.identify(os.getpid())
    assert own is not None
    assert own.alive()
    assert identity.parse(own.text()) == own
    stranger = identity.ProcessIdentity(own.pid, own.start_ticks + 1)
    assert not stranger.alive()
    assert not stranger.send(0)
    assert own.send(0)
    assert identity.parse("docker://abc") is None
    assert identity.identify(2**22 + 1) is None
