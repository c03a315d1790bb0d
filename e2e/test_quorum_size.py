"""A quorum of three becomes one of five and of three again, by one edit each, under load."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from gantry_operator import names
from harness import client
from harness.waiting import wait_until
from harness.wishes import GROUP, broker_group, resource

if TYPE_CHECKING:
    from harness.kube import Kube

START_PATIENCE_S = 180.0
SIZE_PATIENCE_S = 300.0
QUIET_S = 6.0  # twice the silence after which a broker is taken for gone
SMALL = {"requests": {"cpu": "50m", "memory": "96Mi"}}
STORAGE = {"size": "200Mi", "whenScaled": "Delete"}
TOPIC = "greetings"


@pytest.mark.usefixtures("kube")
def test_three_five_three_and_no_send_fails(scratch: Kube, image: str) -> None:
    quorum = {"image": image, "resources": SMALL, "storage": STORAGE}
    scratch.apply(
        resource("ControllerGroup", client.CONTROLLERS, **quorum),
        broker_group(image=image, resources=SMALL),
    )
    scratch.wait_for("brokergroup", GROUP, "FullyReplicated", START_PATIENCE_S)
    brokers, first = _lives(scratch, names.BROKER, GROUP), _controllers(scratch)
    epoch = _epoch(scratch)
    done = threading.Event()
    with ThreadPoolExecutor(1) as background:
        load = background.submit(_send_until, scratch, done)
        try:
            _resize(scratch, 5)
            five = _controllers(scratch)
            assert first.items() <= five.items(), "who was there goes on"
            # Nobody was told of the last one when it started; brokers are heard there all the same.
            _lead(scratch, 5)
            done.wait(QUIET_S)
            assert _epoch(scratch) == epoch
            _resize(scratch, 3)
            assert _controllers(scratch) == first, "nothing restarted"
            done.wait(QUIET_S)
        finally:
            done.set()
        sent = load.result()
    assert sorted(set(client.consume(scratch, TOPIC))) == sorted(sent)
    assert _lives(scratch, names.BROKER, GROUP) == brokers, "no broker restarted"
    assert _epoch(scratch) == epoch, "no broker was taken for gone"
    claims = f"data-{names.controller_statefulset(client.CONTROLLERS)}-"
    gone = "the volumes of those who went are gone"
    wait_until(
        gone,
        SIZE_PATIENCE_S,
        lambda: (
            [
                claim["metadata"]["name"].removeprefix(claims)
                for claim in scratch.list("persistentvolumeclaims")
                if claim["metadata"]["name"].startswith(claims)
            ]
            == ["0", "1", "2"]
        ),
    )


def _resize(kube: Kube, size: int) -> None:
    kube.patch("controllergroup", client.CONTROLLERS, {"spec": {"replicas": size}})

    def reached() -> bool:
        found = kube.get("controllergroup", client.CONTROLLERS) or {"metadata": {}}
        status = found.get("status", {})
        members = [(one["nodeId"], one["role"]) for one in status.get("members", ())]
        ready = [c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"]
        current = status.get("observedGeneration") == found["metadata"].get("generation")
        wanted = [(number, "Voter") for number in range(1, size + 1)]
        return current and ready == ["True"] and members == wanted and status["replicas"] == size

    wait_until(f"the quorum has {size} members", SIZE_PATIENCE_S, reached)


def _lead(kube: Kube, number: int) -> None:
    """Hands leadership over, as a person does in the pod of a controller."""
    command = (
        f"gantry controllers transfer {number} --controllers $POD_IP:{names.CONTROLLER_HTTP_PORT} "
        f"--admin-token-file {names.ADMIN_DIR}/{names.TOKEN_KEY}"
    )

    def leads() -> bool:
        found = kube.get("controllergroup", client.CONTROLLERS) or {}
        return bool((found.get("status", {}).get("leader") or {}).get("nodeId") == number)

    found = kube.get("controllergroup", client.CONTROLLERS) or {}
    # Its pod has the token of the admin API, and knows its own address.
    kube.ctl("exec", str(found["status"]["leader"]["pod"]), "--", "sh", "-c", command)
    wait_until(f"controller {number} leads", SIZE_PATIENCE_S, leads)


def _controllers(kube: Kube) -> dict[str, tuple[str, int]]:
    return _lives(kube, names.CONTROLLER, client.CONTROLLERS)


def _lives(kube: Kube, component: str, instance: str) -> dict[str, tuple[str, int]]:
    """By pod: which one it is, and how often its containers were started again."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(one["restartCount"] for one in pod["status"]["containerStatuses"]),
        )
        for pod in kube.list("pods", names.selector_text(component, instance))
    }


def _epoch(kube: Kube) -> int:
    found = kube.get("brokergroup", GROUP) or {}
    return int(found["status"]["master"]["epoch"])


def _send_until(kube: Kube, stop: threading.Event) -> list[str]:
    """Send without a failure until told to stop; what was sent."""
    sent: list[str] = []
    while not stop.is_set():
        messages = [f"{len(sent) + number:08}" for number in range(300)]
        summary = client.produce(kube, TOPIC, messages, "--rate=60")
        assert (summary["acknowledged"], summary["failed"]) == (len(messages), 0), summary
        sent += messages
    return sent
