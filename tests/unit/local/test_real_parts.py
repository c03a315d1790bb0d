"""Parts of a cluster over a real API server: its programs, volumes, mirror and writes."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gantry_local.apiserver.ambient import FixedAmbient
from gantry_local.client import ApiError
from gantry_local.kubelet.logs import Logs
from gantry_local.kubelet.serving import LogServer, owner_of
from gantry_local.real import provisioner, servers
from gantry_local.real.binaries import NAMES, find
from gantry_local.real.endpoints import KeptEndpoints, MirroredOnly
from gantry_local.real.mirror import MIRRORED, Mirror
from gantry_local.real.outbox import Outbox
from gantry_local.real.wishes import Wishes
from gantry_protocol.errors import ConfigError

Object = dict[str, Any]
PODS = ("", "pods")


def test_programs_are_found_where_they_are(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    named, on_path = find(tmp_path), find(None, {"PATH": f"/nowhere:{tmp_path}"})
    assert named == on_path
    assert named.apiserver == tmp_path / "kube-apiserver"
    (tmp_path / "etcd").chmod(0o644)
    with pytest.raises(ConfigError, match=r"no etcd in .*make api-binaries"):
        find(tmp_path)
    with pytest.raises(ConfigError, match="no etcd on the PATH"):
        find(None, {"PATH": "/nowhere"})


def test_a_signing_key_is_a_key_of_its_curve() -> None:
    pem = servers.new_signing_key()
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    assert servers.new_signing_key() != pem


def test_nothing_but_the_api_listens_on_the_network() -> None:
    etcd = servers.etcd_command(Path("/bin/etcd"))
    assert [word for word in etcd if "://" in word and "unix://" not in word] == []
    api = servers.apiserver_command(Path("/bin/a"), port=1, network="127.78.0.0/24")
    assert {"--bind-address=127.0.0.1", "--authorization-mode=RBAC"} <= set(api)
    assert not any("anonymous" in word or "insecure" in word for word in api)
    manager = servers.manager_command(Path("/bin/m"), Path("/k"))
    assert "--secure-port=0" in manager


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 0100007F:B5D6 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 10061 1
   1: 0100007F:1F90 0100007F:B5D6 01 00000000:00000000 00:00000000 00000000     0        0 10062 1
"""


def test_the_owner_of_a_connection_is_its_clients() -> None:
    client, server = ("127.0.0.1", 0xB5D6), ("127.0.0.1", 8080)
    assert owner_of(TABLE, client, server) == 1000
    assert owner_of(TABLE, server, client) == 0
    assert owner_of(TABLE, ("127.0.0.1", 1), server) is None


async def test_logs_are_their_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Logs(tmp_path / "logs")
    files.begin("default", "web-0", "web").write_bytes(b"one\ntwo\n")
    made = trustme.CA().issue_cert("127.0.0.1")
    certificate, key = tmp_path / "crt", tmp_path / "key"
    made.cert_chain_pems[0].write_to_path(certificate)
    made.private_key_pem.write_to_path(key)
    server = LogServer(files)
    url = (
        f"https://127.0.0.1:{await server.start(certificate, key)}/containerLogs/default/web-0/web"
    )
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(url, params={"tailLines": "1"}, ssl=trust) as found:
                assert (found.status, await found.read()) == (200, b"two\n")
            monkeypatch.setattr(os, "getuid", lambda: 65533)
            async with session.get(url, ssl=trust) as found:
                assert found.status == 403
    finally:
        await server.stop()


# Volumes


def claim(uid: str = "c1", *, phase: str = "Pending", has: str = "", **meta: Any) -> Object:
    annotations = {"volume.kubernetes.io/storage-provisioner": provisioner.PROVISIONER}
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "standard",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    status: Object = {"phase": phase}
    if phase == "Bound":
        spec["volumeName"] = f"pvc-{uid}"
        status["capacity"] = {"storage": has}
    base = {"namespace": "default", "name": "data", "uid": uid, "annotations": annotations}
    return {"metadata": base | meta, "spec": spec, "status": status}


def volume(uid: str = "c1", phase: str = "Bound", **spec: Any) -> Object:
    made = provisioner.new_volume(claim(uid), Path(f"/v/pvc-{uid}"))
    return made | {"status": {"phase": phase}, "spec": made["spec"] | spec}


CASES: dict[str, tuple[list[Object], list[Object], list[tuple[str, str]]]] = {
    "a new claim": ([claim()], [], [("make", "pvc-c1")]),
    "a claim whose volume is there": ([claim()], [volume(phase="Available")], []),
    "somebody else's claim": ([claim(annotations={})], [], []),
    "a claim that goes": ([claim(deletionTimestamp="now")], [], []),
    "a bound claim": ([claim(phase="Bound", has="1Gi")], [volume()], []),
    "a claim that wants more": (
        [claim(phase="Bound", has="500Mi")],
        [volume()],
        [("grow", "pvc-c1")],
    ),
    "a released volume": ([], [volume(phase="Released")], [("remove", "pvc-c1")]),
    "a bound volume whose claim is not told of": ([], [volume()], []),
    "a released volume to keep": (
        [],
        [volume(phase="Released", persistentVolumeReclaimPolicy="Retain")],
        [],
    ),
    "a released volume of somebody else": (
        [],
        [
            {
                "metadata": {"name": "x"},
                "spec": {"persistentVolumeReclaimPolicy": "Delete"},
                "status": {"phase": "Released"},
            }
        ],
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_volumes_follow_claims(case: str) -> None:
    claims, volumes, expected = CASES[case]
    found = [(action.kind, action.volume) for action in provisioner.plan(claims, volumes)]
    assert found == expected


# The mirror and the writes, by a server that is told what to say


class Server:
    """Answers by a script: lists by plural, then one watch each; requests are noted."""

    def __init__(self) -> None:
        self.items: dict[str, list[Object]] = {}
        self.watched: dict[str, asyncio.Queue[Object | None]] = {
            resource.plural: asyncio.Queue() for resource in MIRRORED
        }
        self.revision = 1
        self.asked: list[tuple[str, str, Object | None]] = []
        self.answers: list[Exception | Object] = []
        self.lists = 0

    async def request(self, method: str, path: str, **given: Any) -> Any:
        await asyncio.sleep(0)
        if method == "GET":
            self.lists += 1
            items = self.items.get(path.rpartition("/")[2], [])
            return {"metadata": {"resourceVersion": str(self.revision)}, "items": items}
        self.asked.append((method, path, given.get("body")))
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def lines(
        self, path: str, _query: dict[str, str], *, silence_s: float
    ) -> AsyncGenerator[bytes]:
        assert silence_s > 0
        queue = self.watched[path.rpartition("/")[2]]
        while (event := await queue.get()) is not None:
            yield msgspec.json.encode(event)

    def tell(self, kind: str, obj: Object, plural: str = "pods") -> None:
        self.watched[plural].put_nowait({"type": kind, "object": obj})


def pod(revision: int, uid: str = "u1", **status: Any) -> Object:
    meta = {"namespace": "default", "name": "web-0", "uid": uid, "resourceVersion": str(revision)}
    return {"metadata": meta, "spec": {}, "status": status}


class World:
    """A mirror and an outbox over a scripted server."""

    def __init__(self) -> None:
        self.server = Server()
        self.wishes = Wishes()
        client: Any = self.server
        self.mirror = Mirror(client, self.wishes)
        self.outbox = Outbox(client, self.mirror.store, self.wishes, FixedAmbient())

    def phase(self) -> str | None:
        record = self.mirror.store.get(PODS, ("default", "web-0"))
        return None if record is None else record.obj["status"].get("phase", "")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.001)

    async def run(self, story: Callable[[World], Any]) -> None:
        tasks = [asyncio.create_task(part.run()) for part in (self.mirror, self.outbox)]
        try:
            await self.mirror.synced()
            await story(self)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_mirror_follows_and_lists_anew_when_the_server_has_forgotten() -> None:
    async def story(world: World) -> None:
        world.server.tell("ADDED", pod(2, phase="Pending"))
        await world.until(lambda: world.phase() == "Pending")
        world.server.items["pods"] = [pod(7, uid="u2", phase="Running")]
        lists = world.server.lists
        world.server.tell("ERROR", {"code": 410, "message": "too old"})
        await world.until(lambda: world.phase() == "Running")
        assert world.server.lists == lists + 1
        record = world.mirror.store.get(PODS, ("default", "web-0"))
        assert record is not None
        assert record.uid == "u2"
        world.server.tell("DELETED", pod(8, uid="u2"))
        await world.until(lambda: world.phase() is None)
        assert world.mirror.failures == {}

    await World().run(story)


async def test_a_server_that_does_not_answer_takes_nothing_away() -> None:
    async def story(world: World) -> None:
        world.server.tell("ADDED", pod(2, phase="Pending"))
        await world.until(lambda: world.phase() == "Pending")
        world.server.items["pods"] = [pod(2, phase="Pending")]
        world.server.tell("ERROR", {"code": 500, "message": "etcd is slow"})
        await world.until(lambda: world.mirror.failures["pods"] == 1)
        assert world.phase() == "Pending"
        world.server.tell("MODIFIED", pod(3, phase="Running"))
        await world.until(lambda: world.phase() == "Running")

    await World().run(story)


async def test_a_status_is_sent_until_it_is_taken() -> None:
    async def story(world: World) -> None:
        world.server.tell("ADDED", pod(2, phase="Pending"))
        await world.until(lambda: world.phase() == "Pending")
        world.server.answers = [ApiError("no answer"), ApiError("busy", code=503), pod(4)]
        world.outbox.set_status("", "pods", pod(2), {"phase": "Running"})
        assert world.phase() == "Running"
        world.server.tell("MODIFIED", pod(3, phase="Pending"))
        await world.until(lambda: len(world.server.asked) == 3)
        assert world.phase() == "Running"
        assert world.outbox.failures == {"status": 2}

    await World().run(story)


async def test_what_the_server_refuses_is_not_sent_for_ever() -> None:
    async def story(world: World) -> None:
        world.server.tell("ADDED", pod(2))
        await world.until(lambda: world.phase() is not None)
        world.server.answers = [ApiError("invalid", code=422)]
        world.outbox.set_status("", "pods", pod(2), {"phase": "Nonsense"})
        await world.until(lambda: world.outbox.failures["status"] == 1)
        world.outbox.set_status("", "pods", pod(2), {"phase": "Running"})
        await world.until(lambda: len(world.server.asked) == 2)

    await World().run(story)


async def test_an_ended_pod_does_not_begin_again() -> None:
    async def story(world: World) -> None:
        world.server.tell("ADDED", pod(2))
        await world.until(lambda: world.phase() is not None)
        world.outbox.end(pod(2))
        assert world.phase() is None
        world.server.tell("MODIFIED", pod(3))
        world.server.tell("ADDED", {**pod(4), "metadata": pod(4)["metadata"] | {"name": "web-1"}})
        store = world.mirror.store
        await world.until(lambda: bool(world.server.asked))
        assert world.server.asked[0][:2] == ("DELETE", "/api/v1/namespaces/default/pods/web-0")
        world.server.tell("DELETED", pod(5))
        world.server.tell("ADDED", pod(6, uid="u2"))
        await world.until(lambda: store.get(PODS, ("default", "web-0")) is not None)
        record = store.get(PODS, ("default", "web-0"))
        assert record is not None
        assert record.uid == "u2"

    await World().run(story)


async def test_nothing_is_said_of_a_pod_that_is_another_by_now() -> None:
    async def story(world: World) -> None:
        world.server.tell("ADDED", pod(2, uid="u2"))
        await world.until(lambda: world.phase() is not None)
        assert world.outbox.set_status("", "pods", pod(1), {"phase": "Running"}) is None
        assert world.outbox.bind(pod(1), "local") is None
        world.outbox.end(pod(1))
        assert world.phase() == ""

    await World().run(story)


def service(uid: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "default", "name": "web", "uid": uid},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }


def test_slices_are_the_living_services() -> None:
    world = World()
    store = world.mirror.store
    endpoints = KeptEndpoints(MirroredOnly(store, FixedAmbient()))
    key = ("default", "web")
    store.put(("", "services"), key, service("s1"))
    list(endpoints.initial_keys())
    endpoints.reconcile(key)
    assert len(store.owned_by("s1")) == 1
    store.delete(("", "services"), key)
    store.put(("", "services"), key, service("s2"))
    endpoints.reconcile(key)
    assert (len(store.owned_by("s1")), len(store.owned_by("s2"))) == (0, 1)
    store.delete(("", "services"), key)
    endpoints.reconcile(key)
    assert store.owned_by("s2") == []
