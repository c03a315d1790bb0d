"""Support bundles: what is in them, what is not, and what they say about themselves."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import tarfile
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.errors import Unavailable
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CLAIM,
    CONFIG_MAP,
    CRD,
    DEPLOYMENT,
    EVENT,
    LEASE,
    NODE,
    POD,
    SECRET,
    SERVICE,
    STATEFULSET,
)
from gantry_operator.cache import Key
from gantry_operator.decisions.recorder import written
from gantry_operator.models.generate import manifests
from gantry_operator.plan import plan
from gantry_operator.support.bundle import EVENTS_MAX, Bundle, packed
from gantry_operator.support.material import AT_ONCE
from gantry_operator.support.pod_logs import ContainerRun
from gantry_operator.support.report import LOG_BYTES_MIN, Limits, report, shares
from gantry_protocol.errors import GantryError
from support.decided_again import recorder
from unit.operator.fake_support import FakeSupport
from unit.operator.world import broker_world

NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
MIB = 1024 * 1024
OPERATOR = {"app.kubernetes.io/name": "gantry", "app.kubernetes.io/component": "operator"}
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJ\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "password": "hunter2-password",
    "variable": "hunter2-variable",
    "argument": "hunter2-argument",
    "url": "hunter2-url",
    "bearer": "hunter2-bearer-token",
    "toml": "hunter2-toml",
    "annotation": "hunter2-annotation",
    "event": "hunter2-event",
    "refusal": "hunter2-in-words",
    "secret": "hunter2-of-a-secret",
    "access key": "AKIAIOSFODNN7EXAMPLE",
    "bare key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "generated": "Yb3kQ9vTz7LmX1cRw5NpH8dJf2GsA6uE4oViKq0BtMx",
    "private key": "MIIEowIBAAKCAQEA0Z3VS5JJ",
    "web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "basic": base64.b64encode(b"admin:hunter2").decode(),
}


def status(name: str, restarts: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "image": "gantry:1", "state": {"running": {}}}
    if restarts:
        found |= {"restartCount": restarts, "lastState": {"terminated": {"exitCode": 1}}}
    return found


def a_cluster() -> FakeSupport:
    """A group whose objects, events and logs hold secrets where none should be."""
    api = FakeSupport()
    one = SECRETS
    api.have(BROKER_GROUP, "orders", spec={"replicas": 3}, status={"summary": "Healthy"})
    api.have(SECRET, "orders-keys", data={"password": one["secret"]})
    api.have(CONFIG_MAP, "orders-broker", data={"gantry.toml": f'token = "{one["toml"]}"\n'})
    api.have(SERVICE, "orders", metadata={"annotations": {"lb/api-token": one["annotation"]}})
    api.have(CLAIM, "data-orders-broker-0", status={"phase": "Bound"})
    environment = [
        {"name": "DB_PASSWORD", "value": one["variable"]},
        {"name": "STORE", "value": f"s3://a:{one['url']}@bucket"},
        {"name": "SEED", "value": one["access key"]},
        {"name": "GREETING", "value": "hello"},
    ]
    container = {"name": "sidecar", "env": environment, "args": ["--token", one["argument"]]}
    spec = {"template": {"spec": {"containers": [container]}}}
    applied = json.dumps({"spec": spec})
    api.have(
        STATEFULSET,
        "orders-broker",
        spec=spec,
        metadata={
            "managedFields": [{"manager": "x"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied},
        },
    )
    api.have(
        POD,
        "orders-broker-0",
        spec={"nodeName": "node-a", "containers": [container]},
        status={"containerStatuses": [status("broker", restarts=1), status("sidecar")]},
    )
    api.have(EVENT, "e1", message=f"mount failed: password={one['event']}", lastTimestamp="2")
    api.have(EVENT, "e0", message="first", lastTimestamp="1")
    api.have(NODE, "node-a", None, status={"images": ["x"], "nodeInfo": {}})
    api.have(NODE, "node-b", None)
    for crd in manifests().values():
        api.have(CRD, crd["metadata"]["name"], None, spec=crd["spec"])
    api.have(DEPLOYMENT, "gantry-operator", "system", metadata={"labels": OPERATOR})
    api.have(LEASE, "gantry-operator", "system", spec={"holderIdentity": "me"})
    api.have(
        POD,
        "gantry-operator-x",
        "system",
        metadata={"labels": OPERATOR},
        status={"containerStatuses": [status("operator")]},
    )
    lines = [
        "2026-11-29T12:00:00Z level=info event=started",
        f"2026-11-29T12:00:01Z password={one['password']}",
        f"2026-11-29T12:00:02Z Authorization: Bearer {one['bearer']}",
        f"2026-11-29T12:00:03Z {one['bare key']} {one['generated']}",
        f"2026-11-29T12:00:04Z {PEM}",
        f"2026-11-29T12:00:05Z got {one['web token']} and Basic {one['basic']}",
        "2026-11-29T12:00:06Z level=info event=ended\n",
    ]
    text = "\n".join(lines).encode()
    api.logs["orders-broker-0", "broker", False] = [text[:100], text[100:]]
    api.logs["orders-broker-0", "broker", True] = [text]
    api.logs["orders-broker-0", "sidecar", False] = [text]
    api.logs["gantry-operator-x", "operator", False] = [b"x event=leading\n"]
    return api


async def taken(api: FakeSupport, **facts: Any) -> Bundle:
    return await report(api, "mq", lambda _: None, now=NOW, version="0.1.0", **facts)


def listed(bundle: Bundle) -> Any:
    return json.loads(bundle.files["manifest.json"])


def read(bundle: Bundle, path: str) -> Any:
    return json.loads(bundle.files[path])


async def test_no_planted_secret_is_in_the_bundle() -> None:
    api = a_cluster()
    planted = json.dumps(api.objects) + repr(api.logs)
    assert [name for name, one in SECRETS.items() if one not in planted] == ["refusal"]
    bundle = await taken(api)
    api.denied = {"pods/log", "services"}
    refused = await taken(api)
    assert refused.unread, "their words are in the bundle"
    for found in (bundle, refused):
        everything = packed(found) + b"".join(found.files.values())
        left = [name for name, one in SECRETS.items() if one.encode() in everything]
        assert left == []
    assert not any("secret" in path for path in bundle.files), "no Secret was read"
    assert b"hello" in bundle.files["objects/mq/statefulset/orders-broker.json"]
    log = bundle.files["logs/mq/orders-broker-0/broker.log"].decode()
    assert log.startswith("2026-11-29T12:00:00Z level=info event=started\n")
    assert log.endswith("2026-11-29T12:00:06Z level=info event=ended\n")


async def test_the_bundle_says_what_was_redacted_where_and_how_often() -> None:
    bundle = await taken(a_cluster())
    found = {(one["file"], one["what"]): one for one in listed(bundle)["redacted"]}
    log = found["logs/mq/orders-broker-0/broker.log", "value with a secret-like name"]
    assert (log["count"], log["places"]) == (2, ["line 2", "line 3"])
    pod = found["objects/mq/pod/orders-broker-0.json", "value with a secret-like name"]
    assert pod["places"] == [
        "spec.containers[0].env[0][DB_PASSWORD]",
        "spec.containers[0].args[1]",
    ]
    assert ("logs/mq/orders-broker-0/broker.log", "private key") in found
    assert ("events/mq.json", "value with a secret-like name") in found
    assert listed(bundle)["redactedInAll"] == sum(one["count"] for one in found.values())
    assert f"Redacted: {listed(bundle)['redactedInAll']}," in bundle.files["README.md"].decode()


async def test_what_belongs_together_is_in_it() -> None:
    bundle = await taken(a_cluster())
    assert listed(bundle)["operatorNamespace"] == "system"
    for path in (
        "README.md",
        "objects/mq/brokergroup/orders.json",
        "objects/mq/persistentvolumeclaim/data-orders-broker-0.json",
        "objects/system/deployment/gantry-operator.json",
        "objects/system/lease/gantry-operator.json",
        "objects/cluster/node/node-a.json",
        "logs/mq/orders-broker-0/broker.previous.log",
        "logs/system/gantry-operator-x/operator.log",
    ):
        assert path in bundle.files
    assert "objects/cluster/node/node-b.json" not in bundle.files, "none of our pods is there"
    assert "images" not in read(bundle, "objects/cluster/node/node-a.json")["status"]
    crd = read(bundle, "objects/cluster/customresourcedefinition/brokergroups.mq.gantry.dev.json")
    assert crd["spec"]["versions"] == [{"name": "v1alpha1", "served": True, "storage": True}]
    stateful = read(bundle, "objects/mq/statefulset/orders-broker.json")
    assert "managedFields" not in stateful["metadata"]
    assert read(bundle, "events/mq.json")[0]["message"] == "first"
    versions = read(bundle, "versions.json")
    assert versions["server"] == {"gitVersion": "v1.34.1"}
    assert versions["imagesByContainer"]["broker"] == {"gantry:1": 1}
    assert set(listed(bundle)["files"]) == set(bundle.files) - {"manifest.json", "README.md"}


async def test_what_may_not_be_read_is_listed_and_the_rest_is_there() -> None:
    api = a_cluster()
    api.denied = {"nodes", "deployments", "pods/log"}
    bundle = await taken(api)
    why = {one["what"]: one["why"] for one in listed(bundle)["unread"]}
    assert why["nodes"] == "403 Forbidden: nodes is forbidden"
    assert "log of mq/orders-broker-0, container broker" in why
    assert "objects/mq/brokergroup/orders.json" in bundle.files
    assert listed(bundle)["operatorNamespace"] == ""
    named = await taken(a_cluster(), operator_namespace="system")
    assert listed(named)["operatorNamespace"] == "system"


async def test_without_an_answer_there_is_no_bundle() -> None:
    api = a_cluster()
    api.unavailable = Unavailable(0, "NoConnection", "refused")
    with pytest.raises(GantryError, match="The API server does not answer: refused"):
        await taken(api)


async def test_the_same_cluster_gives_the_same_bytes() -> None:
    one, two = packed(await taken(a_cluster())), packed(await taken(a_cluster()))
    assert one == two
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert all(m.name.startswith("gantry-report/") for m in members)
    assert {(m.mtime, m.uid, m.uname, m.mode) for m in members} == {(0, 0, "", 0o600)}


async def test_logs_are_cut_at_the_begin_of_a_line() -> None:
    api = a_cluster()
    line = b"2026-11-29T12:00:00Z password=hunter2-password and so on\n"
    api.logs["orders-broker-0", "broker", False] = [line * 400] * 20
    bundle = await taken(api, limits=Limits(log_bytes=64 * 1024))
    log = bundle.files["logs/mq/orders-broker-0/broker.log"]
    assert b"hunter2" not in log
    assert log.startswith(b"2026-11-29T12:00:00Z password=[redacted")
    assert log.count(b"\n") == 64 * 1024 // len(line)
    assert "logs/mq/orders-broker-0/broker.log: begins later than the log" in listed(bundle)["cut"]


async def test_the_bundle_is_bounded() -> None:
    api = a_cluster()
    for number in range(60):
        api.have(CONFIG_MAP, f"map-{number:03}", data={"a": "x" * 100_000})
    for number in range(EVENTS_MAX + 5):
        api.have(EVENT, f"f{number:05}", message="m", lastTimestamp=f"{number:05}")
    bundle = await taken(api, limits=Limits(total_bytes=8 * MIB))
    assert sum(map(len, bundle.files.values())) <= 8 * MIB
    cut = listed(bundle)["cut"]
    assert "events/mq.json: the oldest 7" in cut
    assert "objects/mq/configmap/map-059.json: left out, since the bundle is full" in cut
    assert "objects/mq/brokergroup/orders.json" in bundle.files, "what matters comes first"
    assert listed(bundle)["cutInAll"] >= 15


async def test_few_requests_at_a_time() -> None:
    api = a_cluster()
    for number in range(40):
        statuses = {"containerStatuses": [status("broker")]}
        api.have(POD, f"more-{number}", status=statuses)
        api.logs[f"more-{number}", "broker", False] = [b"x\n"] * 3
    await taken(api)
    assert 1 <= api.most_at_once <= AT_ONCE


def test_logs_share_the_room() -> None:
    runs = [ContainerRun("mq", f"p{number:04}", "broker") for number in range(1000)]
    limits = Limits(log_bytes=MIB, total_bytes=8 * MIB)
    assert shares(runs[:2], limits) == (runs[:2], MIB)
    fit, share = shares(runs[:64], limits)
    assert (len(fit), share) == (64, 64 * 1024)
    fit, share = shares(runs, limits)
    assert (len(fit), share) == (128, LOG_BYTES_MIN)


def test_a_secret_never_becomes_a_file() -> None:
    from gantry_operator.support.bundle import _Files

    with pytest.raises(AssertionError):
        _Files(MIB).put_object("x.json", {"kind": "Secret", "data": {}})


def decisions(namespace: str = "mq") -> bytes:
    """As an operator answers."""
    ring = recorder()
    seen = broker_world()
    ring.note(Key("BrokerGroup", namespace, "orders"), seen, b"", NOW, plan(seen, NOW))
    return written(ring.of(None), version="0.1.0", dropped=0)


async def test_decisions_of_the_operator_are_in_it() -> None:
    api = a_cluster()
    api.answers["gantry-operator-x"] = decisions()
    bundle = await taken(api)
    found = read(bundle, "decisions/gantry-operator-x.json")
    assert found == json.loads(decisions())
    asked = [query for pod, query in api.asked if "path" in query]
    assert asked == [{"port": "8080", "path": "/decisions?namespace=mq"}]
    assert b"kubectl gantry replay" in bundle.files["README.md"]


async def test_the_port_is_that_of_the_operators_container() -> None:
    api = a_cluster()
    (operator,) = (one for one in api.objects[POD.kind] if one["metadata"]["namespace"] == "system")
    ports = [{"name": "metrics", "containerPort": 1}, {"name": "http", "containerPort": 9090}]
    mesh = {"name": "mesh", "ports": [{"name": "http", "containerPort": 15000}]}
    operator["spec"] = {"containers": [mesh, {"name": "operator", "ports": ports}]}
    await taken(api)
    assert [query["port"] for _, query in api.asked if "path" in query] == ["9090"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "404 NotFound: system/gantry-operator-x"),
        (b"404: Not Found", "holds no decisions: "),
        (b'{"format": 7}', "has format 7, and this version reads 1"),
        ("denied", "403 Forbidden: pods gantry-operator-x is forbidden"),
    ],
)
async def test_decisions_that_cannot_be_read_are_told(answer: Any, why: str) -> None:
    api = a_cluster()
    if answer == "denied":
        api.denied = {"pods/portforward"}
    elif answer is not None:
        api.answers["gantry-operator-x"] = answer
    bundle = await taken(api)
    assert not any(path.startswith("decisions/") for path in bundle.files)
    unread = {one["what"]: one["why"] for one in listed(bundle)["unread"]}
    assert why in unread["decisions of system/gantry-operator-x"]


async def test_an_operator_that_has_decided_nothing_has_no_file() -> None:
    api = a_cluster()
    api.answers["gantry-operator-x"] = written([], version="0.1.0", dropped=0)
    bundle = await taken(api)
    assert not any(path.startswith("decisions/") for path in bundle.files)
    assert [one for one in listed(bundle)["unread"] if "decisions" in one["what"]] == []


def steps(core: str = "raft", lines: int = 3) -> bytes:
    """As a controller answers."""
    heading = {"format": 1, "core": core, "version": "0.1.0", "code": "x", "process": "c-0"}
    return b"\n".join([json.dumps(heading).encode(), *[b'["tick"]'] * lines, b'{"end":5}', b""])


def with_controller(api: FakeSupport, namespace: str = "mq") -> None:
    with_process(api, names.CONTROLLER, "quorum-0", namespace)


def with_process(api: FakeSupport, component: str, name: str, namespace: str = "mq") -> None:
    labels = {names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: component}
    ports = [{"name": "http", "containerPort": 9999}]
    spec = {"containers": [{"name": component, "ports": ports}]}
    api.have(POD, name, namespace, metadata={"labels": labels}, spec=spec)


async def test_the_steps_of_a_controller_are_in_it_as_it_gave_them() -> None:
    api = a_cluster()
    with_controller(api)
    api.answers["quorum-0"] = steps()
    bundle = await taken(api)
    assert bundle.files["raft/quorum-0.jsonl"] == steps()
    asked = [query for pod, query in api.asked if pod == "quorum-0" and "path" in query]
    assert asked == [{"port": "9999", "path": "/decisions"}]
    assert b"raft/POD.jsonl" in bundle.files["README.md"]


async def test_what_looks_like_a_secret_in_steps_is_taken_out() -> None:
    api = a_cluster()
    with_controller(api)
    api.answers["quorum-0"] = steps() + f'["password={SECRETS["event"]}"]\n'.encode()
    bundle = await taken(api)
    assert SECRETS["event"].encode() not in bundle.files["raft/quorum-0.jsonl"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "404 NotFound: mq/quorum-0"),
        (b"404: Not Found", "the answer holds no steps; the process may be an older one"),
        (b"[]", "the answer holds no steps"),
        (b"", "the answer holds no steps"),
        (steps("other"), "the answer holds no steps"),
        ("denied", "403 Forbidden: pods quorum-0 is forbidden"),
    ],
)
async def test_steps_that_cannot_be_read_are_told(answer: Any, why: str) -> None:
    api = a_cluster()
    with_controller(api)
    if answer == "denied":
        api.denied = {"pods/portforward"}
    elif answer is not None:
        api.answers["quorum-0"] = answer
    bundle = await taken(api)
    assert not any(path.startswith("raft/") for path in bundle.files)
    unread = {one["what"]: one["why"] for one in listed(bundle)["unread"]}
    assert why in unread["steps of mq/quorum-0"]


async def test_the_steps_of_brokers_are_in_it_as_they_gave_them() -> None:
    api = a_cluster()
    with_controller(api)
    api.answers["quorum-0"] = steps()
    for number in range(6):
        with_process(api, names.BROKER, f"orders-{number}")
        api.answers[f"orders-{number}"] = steps("replica", lines=3 + number)
    with_process(api, names.BROKER, "raft-is-not-its-core")
    api.answers["raft-is-not-its-core"] = steps("raft")
    bundle = await taken(api)
    for number in range(6):
        path = f"replica/orders-{number}.jsonl"
        assert bundle.files[path] == steps("replica", lines=3 + number)
    assert "raft/quorum-0.jsonl" in bundle.files
    unread = {one["what"]: one["why"] for one in listed(bundle)["unread"]}
    assert "holds no steps" in unread["steps of mq/raft-is-not-its-core"]
    assert b"replica/POD.jsonl" in bundle.files["README.md"]


async def test_steps_leave_room_for_logs() -> None:
    """Controllers' come first, and those for which there is no room are named."""
    api = a_cluster()
    limits = Limits(total_bytes=8 * 1024 * 1024)
    with_controller(api)
    api.answers["quorum-0"] = steps(lines=20_000)
    for number in range(12):
        with_process(api, names.BROKER, f"orders-{number:02d}")
        api.answers[f"orders-{number:02d}"] = steps("replica", lines=90_000)
    bundle = await taken(api, limits=limits)
    held = {path: len(data) for path, data in bundle.files.items() if path.endswith(".jsonl")}
    assert "raft/quorum-0.jsonl" in held
    assert "replica/orders-00.jsonl" in held
    assert sum(held.values()) <= limits.total_bytes // 4
    told = listed(bundle)
    cut = [one for one in told["cut"] if "replica/orders-" in one]
    unread = [one["what"] for one in told["unread"] if "too many steps" in one["why"]]
    assert len(held) - 1 + len(cut) + len(unread) == 12
    assert unread == [f"steps of mq/orders-{number:02d}" for number in (7, 8, 9, 10, 11)]
