"""A BrokerGroup that is deleted with its volumes, and begins again from what was uploaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from gantry_operator import names
from harness import client, store
from harness.installation import CONTROLLERS
from harness.node import on_node
from harness.waiting import wait_until
from harness.wishes import manifest

if TYPE_CHECKING:
    from harness.kube import Kube, Object

GROUP, TOPIC, BUCKET = "orders", "payments", "kept"
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}}
STORAGE = {"size": "200Mi", "whenDeleted": "Delete"}
PACKS = {"packBytes": 256 * 1024, "lingerMs": 500}
READY_PATIENCE_S, GONE_PATIENCE_S, UPLOAD_PATIENCE_S = 180.0, 120.0, 60.0


@pytest.mark.usefixtures("kube")
def test_a_group_begins_from_the_tier_of_one_that_is_gone(scratch: Kube, image: str) -> None:
    """All messages are there, at their old offsets, and more are taken and uploaded."""
    scratch.apply(
        manifest("ControllerGroup", CONTROLLERS, image=image, replicas=1, resources=SMALL)
    )
    tier = store.start(scratch, BUCKET) | PACKS
    scratch.apply(_group(tier))
    scratch.wait_for("brokergroup", GROUP, "Available", READY_PATIENCE_S)
    sent = [f"before {number:03d}" for number in range(200)]
    client.produce(scratch, TOPIC, sent)
    wait_until("all of it is uploaded", UPLOAD_PATIENCE_S, lambda: _is_uploaded(scratch))
    former = _read(scratch)["metadata"]["uid"]

    scratch.ctl("delete", "brokergroup", GROUP, "--wait=false")
    wait_until(
        "the group is gone", GONE_PATIENCE_S, lambda: scratch.get("brokergroup", GROUP) is None
    )
    wait_until("and its volumes", GONE_PATIENCE_S, lambda: not _claims(scratch))

    scratch.apply(_group(tier, bootstrap={"fromTier": {"shard": former}}))
    scratch.wait_for("brokergroup", GROUP, "Available", READY_PATIENCE_S)
    status = _read(scratch)["status"]
    assert status["bootstrap"]["state"] == "Completed", status["bootstrap"]
    wait_until("the topic is known", READY_PATIENCE_S, lambda: TOPIC in client.topics(scratch))
    more = [f"after {number:03d}" for number in range(50)]
    client.produce(scratch, TOPIC, more)
    read = client.read_on(scratch, TOPIC, "billing", f"--idle={client.QUIET_S:g}")
    assert sorted(read) == sorted([*sent, *more])
    scratch.wait_for("brokergroup", GROUP, "TierHealthy", UPLOAD_PATIENCE_S)
    wait_until("that is uploaded, too", UPLOAD_PATIENCE_S, lambda: _is_uploaded(scratch))


def _group(tier: dict[str, Any], **more: Any) -> Object:
    drain = {"deadlineSeconds": 0}
    spec = {"replicas": 2, "storage": STORAGE, "resources": SMALL, "drain": drain, "tier": tier}
    return manifest("BrokerGroup", GROUP, **spec, **more)


def _read(kube: Kube) -> Object:
    found = kube.get("brokergroup", GROUP)
    assert found is not None
    return found


def _is_uploaded(kube: Kube) -> bool:
    """Whether the tier ends where the confirmed log does, as its master has it."""
    (pod,) = (
        pod
        for pod in kube.list("pods")
        if pod["metadata"].get("labels", {}).get(names.LABEL_ROLE) == "master"
    )
    url = f"http://{pod['status']['podIP']}:{names.BROKER_HTTP_PORT}/status"
    found = json.loads(on_node(pod["spec"]["nodeName"], "curl", "-sS", url))
    return bool(found["tier"]["committedOffset"] == found["confirmOffset"] > 0)


def _claims(kube: Kube) -> list[str]:
    claims = (claim["metadata"]["name"] for claim in kube.list("pvc"))
    return [name for name in claims if GROUP in name]
