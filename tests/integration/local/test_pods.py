"""Pods as processes: start, probes, restarts, termination, volumes, logs."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
from support.local_world import LocalWorld, container, running, service, stateful_set
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

LIVE = {"httpGet": {"path": "/live", "port": 8000}, "periodSeconds": 1, "failureThreshold": 3}


def data_dir(world: LocalWorld, pod: str) -> Path:
    claim = world.get("persistentvolumeclaims", f"data-{pod}")
    assert claim is not None
    return world.state.path / "volumes" / str(claim["spec"]["volumeName"])


def status(world: LocalWorld, pod: str) -> dict[str, Any]:
    found: dict[str, Any] = world.pod(pod)["status"]["containerStatuses"][0]
    return found


async def test_a_stateful_set_runs(world: LocalWorld) -> None:
    world.apply(stateful_set(replicas=2))
    await world.until_ready("web-0", "web-1")
    ips = [world.pod(f"web-{n}")["status"]["podIP"] for n in range(2)]
    assert len(set(ips)) == 2
    for n, ip in enumerate(ips):
        assert await world.ask(ip, 8000) == f"web-{n} 1"
        assert (data_dir(world, f"web-{n}") / "starts").read_text() == "1"

    def all_ready() -> bool:
        sts = world.get("statefulsets", "web", "apps")
        return sts is not None and sts["status"].get("readyReplicas") == 2

    await world.until(all_ready)


async def test_a_killed_process_is_not_ready_at_once_and_comes_back(world: LocalWorld) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    before = world.pod("web-0")
    process = world.process("web-0")
    assert process is not None
    assert process.send(signal.SIGKILL)
    await world.until(lambda: not world.ready("web-0"))
    assert "running" not in status(world, "web-0")["state"], "Ready outlived the process"
    await world.until(lambda: "terminated" in status(world, "web-0")["lastState"])
    ended = status(world, "web-0")["lastState"]["terminated"]
    assert (ended["exitCode"], ended["signal"]) == (137, 9)
    await world.until_ready("web-0")
    after = world.pod("web-0")
    assert status(world, "web-0")["restartCount"] == 1
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["podIP"] == before["status"]["podIP"]
    assert world.process("web-0") != process
    assert await world.ask(after["status"]["podIP"], 8000) == "web-0 2"


async def test_a_deleted_pod_is_replaced_with_its_volume(world: LocalWorld) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    before = world.pod("web-0")
    process = world.process("web-0")
    assert process is not None
    world.delete("pods", "web-0")
    uid = before["metadata"]["uid"]
    await world.until(lambda: world.ready("web-0") and world.pod("web-0")["metadata"]["uid"] != uid)
    assert not process.alive()
    after = world.pod("web-0")
    assert after["status"]["podIP"] != before["status"]["podIP"]
    assert await world.ask(after["status"]["podIP"], 8000) == "web-0 2"
    assert status(world, "web-0")["restartCount"] == 0


async def test_readiness_follows_the_probe(world: LocalWorld) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    marker = data_dir(world, "web-0") / "unready"
    marker.touch()
    await world.until(lambda: not world.ready("web-0"))
    assert status(world, "web-0")["restartCount"] == 0
    marker.unlink()
    await world.until_ready("web-0")


async def test_a_stopped_process_loses_readiness_and_keeps_running(world: LocalWorld) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    process = world.process("web-0")
    assert process is not None
    process.send(signal.SIGSTOP)
    await world.until(lambda: not world.ready("web-0"))
    process.send(signal.SIGCONT)
    await world.until_ready("web-0")
    assert world.process("web-0") == process


async def test_a_failed_liveness_probe_restarts_the_container(world: LocalWorld) -> None:
    world.apply(stateful_set(livenessProbe=LIVE))
    await world.until_ready("web-0")
    marker = data_dir(world, "web-0") / "dead"
    marker.touch()
    await world.until(lambda: status(world, "web-0")["restartCount"] > 0)
    marker.unlink()
    await world.until_ready("web-0")


async def test_a_startup_probe_holds_the_others_back(world: LocalWorld) -> None:
    world.apply(stateful_set(startupProbe={**LIVE, "failureThreshold": 100}))
    await world.until(lambda: world.process("web-0"))
    process = world.process("web-0")
    assert process is not None
    (data_dir(world, "web-0") / "dead").touch()
    await world.until((data_dir(world, "web-0") / "starts").exists)
    assert status(world, "web-0")["started"] is False
    assert not world.ready("web-0")
    (data_dir(world, "web-0") / "dead").unlink()
    await world.until_ready("web-0")
    assert status(world, "web-0")["started"] is True
    assert world.process("web-0") == process


async def test_a_startup_that_takes_too_long_is_tried_again(world: LocalWorld) -> None:
    world.apply(stateful_set(startupProbe={**LIVE, "failureThreshold": 2}))
    await world.until(lambda: world.get("persistentvolumeclaims", "data-web-0"))
    await world.until(lambda: world.process("web-0"))
    (data_dir(world, "web-0") / "dead").touch()
    await world.until(lambda: status(world, "web-0")["restartCount"] > 0)


async def test_a_crash_loop_backs_off(world: LocalWorld) -> None:
    sts = stateful_set()
    sts["spec"]["template"]["spec"]["containers"][0]["command"].append("fail")
    world.apply(sts)
    await world.until(lambda: world.get("pods", "web-0") and _waiting(world) == "CrashLoopBackOff")
    await world.until(lambda: status(world, "web-0")["restartCount"] >= 2)
    assert status(world, "web-0")["lastState"]["terminated"]["exitCode"] == 1
    assert not world.ready("web-0")


@pytest.mark.parametrize(
    ("policy", "words"), [("FallbackToLogsOnError", "gantry: no."), ("File", None)]
)
async def test_a_failed_run_leaves_the_end_of_its_log(
    world: LocalWorld, policy: str, words: str | None
) -> None:
    sts = stateful_set(terminationMessagePolicy=policy)
    script = "print('x' * 3000); print('gantry: no.'); raise SystemExit(2)"
    sts["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "-c", script]
    world.apply(sts)

    def last() -> dict[str, Any]:
        found = (world.get("pods", "web-0") or {}).get("status") or {}
        first: dict[str, Any] = (found.get("containerStatuses") or [{}])[0]
        return (first.get("lastState") or {}).get("terminated") or {}

    await world.until(last, "the first run has ended")
    assert last()["exitCode"] == 2
    message = last().get("message")
    assert (message and message.splitlines()[-1]) == words
    assert len(message or "") <= 2048


def _waiting(world: LocalWorld) -> str | None:
    statuses = (world.pod("web-0").get("status") or {}).get("containerStatuses") or [{"state": {}}]
    reason: str | None = statuses[0]["state"].get("waiting", {}).get("reason")
    return reason


async def test_sigterm_is_ignored_until_the_grace_period_ends(world: LocalWorld) -> None:
    sts = stateful_set()
    sts["spec"]["template"]["spec"]["containers"][0]["command"].append("stubborn")
    sts["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    world.apply(sts)
    await world.until_ready("web-0")
    process = world.process("web-0")
    assert process is not None
    world.patch("statefulsets", "web", {"spec": {"replicas": 0}}, "apps")
    await world.until(lambda: "deletionTimestamp" in world.pod("web-0")["metadata"])
    assert process.alive()
    await world.until(lambda: world.get("pods", "web-0") is None)
    assert not process.alive()


async def test_a_shortened_grace_period_counts(world: LocalWorld) -> None:
    sts = stateful_set()
    sts["spec"]["template"]["spec"]["containers"][0]["command"].append("stubborn")
    sts["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 600
    world.apply(sts)
    await world.until_ready("web-0")
    uid = world.pod("web-0")["metadata"]["uid"]
    world.delete("pods", "web-0")
    await world.until(lambda: "deletionTimestamp" in world.pod("web-0")["metadata"])
    world.delete("pods", "web-0", grace_s=1)
    await world.until(
        lambda: (world.get("pods", "web-0") or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid
    )


async def test_a_pod_whose_object_is_removed_still_ends(world: LocalWorld) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    process = world.process("web-0")
    assert process is not None
    world.patch("statefulsets", "web", {"spec": {"replicas": 0}}, "apps")
    world.delete("pods", "web-0", grace_s=0)
    assert world.get("pods", "web-0") is None
    async with asyncio.timeout(PATIENCE_S):
        await process.gone()


async def test_claims_are_removed_with_the_set_when_asked(world: LocalWorld) -> None:
    sts = stateful_set()
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    sts["spec"]["persistentVolumeClaimRetentionPolicy"] = policy
    world.apply(sts)
    await world.until_ready("web-0")
    directory = data_dir(world, "web-0")
    world.delete("statefulsets", "web", "apps")
    await world.until(lambda: world.get("persistentvolumeclaims", "data-web-0") is None)
    await world.until(lambda: world.get("pods", "web-0") is None)
    assert not directory.exists()


async def test_a_claim_in_use_is_not_removed(world: LocalWorld) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    directory = data_dir(world, "web-0")
    world.delete("persistentvolumeclaims", "data-web-0")

    def claim() -> dict[str, Any] | None:
        return world.get("persistentvolumeclaims", "data-web-0")

    await world.until(lambda: "deletionTimestamp" in (claim() or {"metadata": {}})["metadata"])
    world.patch("pods", "web-0", {"metadata": {"labels": {"touched": "yes"}}})
    await asyncio.sleep(0.1)  # every controller has seen the change by now
    assert claim() is not None
    world.patch("statefulsets", "web", {"spec": {"replicas": 0}}, "apps")
    await world.until(lambda: claim() is None)
    assert not directory.exists()


async def test_a_deleted_claim_goes_with_its_pod_and_the_next_begins_empty(
    world: LocalWorld,
) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    before, directory = world.pod("web-0"), data_dir(world, "web-0")
    world.delete("persistentvolumeclaims", "data-web-0")
    world.delete("pods", "web-0")
    uid = before["metadata"]["uid"]
    await world.until(lambda: world.ready("web-0") and world.pod("web-0")["metadata"]["uid"] != uid)
    assert not directory.exists()
    assert (data_dir(world, "web-0") / "starts").read_text() == "1"
    claim = world.get("persistentvolumeclaims", "data-web-0")
    assert claim is not None
    assert "deletionTimestamp" not in claim["metadata"]


def lone_pod(name: str, claim: str) -> dict[str, Any]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    mounts = [{"name": "data", "mountPath": "/data"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"volumes": [volume], "containers": [container(volumeMounts=mounts)]},
    }


async def test_a_pod_gets_no_node_while_its_claim_is_on_its_way_out(world: LocalWorld) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    world.delete("persistentvolumeclaims", "data-web-0")
    world.apply(lone_pod("late", "data-web-0"))
    await world.until(lambda: said(world, '"data-web-0" is being deleted'))
    assert "nodeName" not in world.pod("late")["spec"]
    world.patch("statefulsets", "web", {"spec": {"replicas": 0}}, "apps")
    await world.until(lambda: world.get("persistentvolumeclaims", "data-web-0") is None)
    await world.until(
        lambda: said(world, 'available: persistentvolumeclaim "data-web-0" not found')
    )
    world.delete("pods", "late")
    await world.until(lambda: world.get("pods", "late") is None)


async def test_retained_claims_are_found_again(world: LocalWorld) -> None:
    world.apply(stateful_set())
    await world.until_ready("web-0")
    world.delete("statefulsets", "web", "apps")
    await world.until(lambda: world.get("pods", "web-0") is None)
    assert (data_dir(world, "web-0") / "starts").read_text() == "1"
    world.apply(stateful_set())
    await world.until_ready("web-0")
    assert (data_dir(world, "web-0") / "starts").read_text() == "2"


async def test_configuration_reaches_the_process(world: LocalWorld) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"k": "v"},
    }
    world.apply(config)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    world.apply({**secret, "stringData": {"token": "top"}})
    sts = stateful_set()
    spec = sts["spec"]["template"]["spec"]
    spec["volumes"] = [
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "secret", "secret": {"secretName": "s"}},
    ]
    spec["containers"][0]["volumeMounts"] += [
        {"name": "config", "mountPath": "/etc/config"},
        {"name": "secret", "mountPath": "/etc/secret"},
    ]
    world.apply(sts)
    await world.until_ready("web-0")
    (pod_dir,) = (world.state.path / "pods").glob("default_web-0_*")
    key, token = pod_dir / "volumes/config/k", pod_dir / "volumes/secret/token"
    assert key.read_text() == "v"
    assert token.read_text() == "top"
    assert token.stat().st_mode & 0o777 == 0o600
    world.apply({**config, "data": {"k": "changed"}})
    await world.until(lambda: key.read_text() == "changed")
    world.delete("pods", "web-0")
    await world.until(lambda: not pod_dir.exists())


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
async def test_a_running_pod_keeps_its_files_when_their_source_is_deleted(
    world: LocalWorld, kind: str
) -> None:
    source = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "c"}}
    text = {"stringData": {"k": "v"}} if kind == "Secret" else {"data": {"k": "v"}}
    world.apply({**source, **text})
    world.apply(source | {"metadata": {"name": "other"}} | text)
    for name, mounted in (("web", "c"), ("bystander", "other")):
        sts = stateful_set(name)
        volume = {"secretName": mounted} if kind == "Secret" else {"name": mounted}
        key = "secret" if kind == "Secret" else "configMap"
        sts["spec"]["template"]["spec"]["volumes"] = [{"name": "config", key: volume}]
        world.apply(sts)
    await world.until_ready("web-0", "bystander-0")
    (pod_dir,) = (world.state.path / "pods").glob("default_web-0_*")
    (other_dir,) = (world.state.path / "pods").glob("default_bystander-0_*")
    file, other = pod_dir / "volumes/config/k", other_dir / "volumes/config/k"
    process = world.process("web-0")

    world.delete("secrets" if kind == "Secret" else "configmaps", "c")
    await world.until(lambda: said(world, f'{kind.lower()} "c" not found'))
    changed = {"stringData": {"k": "new"}} if kind == "Secret" else {"data": {"k": "new"}}
    world.apply(source | {"metadata": {"name": "other"}} | changed)
    await world.until(lambda: other.read_text() == "new", "other pods' files go on changing")
    assert file.read_text() == "v"
    assert world.process("web-0") == process
    assert world.ready("web-0")
    # Whoever follows changes still hears of them: a deleted pod is replaced at once.
    uid = world.pod("bystander-0")["metadata"]["uid"]
    world.delete("pods", "bystander-0")
    await world.until(
        lambda: world.ready("bystander-0") and world.pod("bystander-0")["metadata"]["uid"] != uid
    )
    world.apply({**source, **changed})
    await world.until(lambda: file.read_text() == "new")


def said(world: LocalWorld, text: str) -> bool:
    events = world.registry.store.records(("", "events"))
    return any(text in event.obj["message"] for event in events)


async def test_a_pod_waits_for_its_configuration(world: LocalWorld) -> None:
    sts = stateful_set()
    spec = sts["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "config", "configMap": {"name": "late"}}]
    world.apply(sts)

    def reported() -> bool:
        events = world.registry.store.records(("", "events"))
        return any('configmap "late" not found' in e.obj["message"] for e in events)

    await world.until(reported)
    assert world.process("web-0") is None
    world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})
    await world.until_ready("web-0")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s["containers"][0].update(readinessProbe={"exec": {}}), "exec probes"),
        (lambda s: s.update(volumes=[{"name": "x", "nfs": {"server": "x", "path": "/"}}]), "nfs"),
        (lambda s: s.update(initContainers=[container()]), "initContainers"),
    ],
    ids=["exec probe", "volume kind", "init container"],
)
async def test_what_is_not_supported_is_said(world: LocalWorld, change: Any, text: str) -> None:
    sts = stateful_set()
    change(sts["spec"]["template"]["spec"])
    world.apply(sts)

    def said() -> bool:
        events = world.registry.store.records(("", "events"))
        return any(text in e.obj["message"] and "not supported" in e.obj["message"] for e in events)

    await world.until(said)
    assert not world.ready("web-0")


async def test_names_and_services_follow_the_pods(world: LocalWorld) -> None:
    world.apply(stateful_set(replicas=2))
    world.apply(service("web", clusterIP="None", publishNotReadyAddresses=True))
    every = world.apply(service("every"))
    await world.until_ready("web-0", "web-1")
    address = every["spec"]["clusterIP"]

    def names() -> dict[str, str]:
        found: dict[str, str] = json.loads(world.state.hosts.read_text())
        return found

    expected = {
        f"web-{n}.web.default.svc": world.pod(f"web-{n}")["status"]["podIP"] for n in range(2)
    }
    await world.until(lambda: expected.items() <= names().items())
    assert names()["every.default.svc.cluster.local"] == address
    await _until_answers(world, address, {"web-0 1", "web-1 1"})
    (data_dir(world, "web-0") / "unready").touch()
    await world.until(lambda: not world.ready("web-0"))
    await _until_answers(world, address, {"web-1 1"})
    world.patch("statefulsets", "web", {"spec": {"replicas": 0}}, "apps")
    await world.until(lambda: world.get("pods", "web-1") is None)
    async with asyncio.timeout(PATIENCE_S):
        while await _answer(world, address) != "refused":
            await asyncio.sleep(0.02)


async def _answer(world: LocalWorld, address: str) -> str:
    try:
        return await world.ask(address, 80)
    except ConnectionRefusedError:
        return "refused"


async def _until_answers(world: LocalWorld, address: str, expected: set[str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while {await _answer(world, address) for _ in range(20)} != expected:
            await asyncio.sleep(0.02)


async def test_a_label_moves_a_service(world: LocalWorld) -> None:
    world.apply(stateful_set(replicas=2))
    chosen = world.apply(service("chosen", selector={"app": "web", "role": "master"}))
    await world.until_ready("web-0", "web-1")
    address = chosen["spec"]["clusterIP"]
    assert await _answer(world, address) == "refused"
    for master, other in ((0, 1), (1, 0)):
        world.patch("pods", f"web-{other}", {"metadata": {"labels": {"role": "replica"}}})
        world.patch("pods", f"web-{master}", {"metadata": {"labels": {"role": "master"}}})
        await _until_answers(world, address, {f"web-{master} 1"})


async def test_a_restarted_cluster_runs_its_pods_again(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as first:
        first.apply(stateful_set())
        first.apply(service("every"))
        await first.until_ready("web-0")
        before = first.pod("web-0")
        process = first.process("web-0")
        assert process is not None
    assert not process.alive()
    async with running(tmp_path / "state") as second:
        assert not second.ready("web-0") or second.process("web-0") is None
        await second.until_ready("web-0")
        after = second.pod("web-0")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert status(second, "web-0")["restartCount"] == 1
        assert await second.ask(after["status"]["podIP"], 8000) == "web-0 2"
        every = second.get("services", "every")
        assert every is not None
        await _until_answers(second, every["spec"]["clusterIP"], {"web-0 2"})
