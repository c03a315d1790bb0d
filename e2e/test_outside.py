"""An unmodified Java client outside of the cluster, with its defaults, by a listener of node ports.

A cluster of its own. The client is a container of this machine, which reaches the nodes of kind and
nothing behind them. It sends while the master's process is killed ten times, and afterwards
receives what it was promised. The soak's clients are inside, and are led there as ever.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from gantry_operator import names
from gantry_protocol.command import request
from gantry_protocol.hosts import split_address
from gantry_protocol.remoting.client import RemotingClient
from harness import client, faults, java, soak
from harness.installation import CONTROLLERS, GROUP, LAB_IMAGE, new_namespace
from harness.java_log import JavaLog
from harness.report import Account
from harness.shell import run
from harness.trial import RESUME_PATIENCE_S, Trial
from harness.waiting import wait_until
from harness.wishes import resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kube import Kube
    from harness.report import Report

LISTENER = {"name": "outside", "type": "NodePort", "allowPlain": True}
TOPIC, PAUSE_MS = "java-outside", "10"
KILLS = 10
GAP_LIMIT_MS = 2000  # as of a Java client inside (test_java)
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}}
PATIENCE_S = 240.0


class JavaOutside:
    """A Java client in a container beside the cluster's nodes."""

    def __init__(self, image: str, name: str, *args: str) -> None:
        self.name = name
        self.remove()
        run("docker", "run", "-d", "--network", "host", "--name", name, image, *args)

    def log(self) -> JavaLog:
        """All that it has said so far."""
        return JavaLog.parse(run("docker", "logs", self.name))

    def flows(self, since_ms: float = 0.0) -> bool:
        """Whether a message was acknowledged after `since_ms`."""
        acks = self.log().acks
        return bool(acks) and acks[-1].at_ms > since_ms

    def stop(self) -> JavaLog:
        """Ask it to stop; all that it said."""
        run("docker", "kill", "--signal", "TERM", self.name)
        return self.ended()

    def ended(self) -> JavaLog:
        """All that it said, once it has ended with success."""
        code = run("docker", "wait", self.name, timeout_s=PATIENCE_S).strip()
        assert code == "0", run("docker", "logs", "--tail", "20", self.name)
        return self.log()

    def remove(self) -> None:
        """End it, if it runs."""
        run("docker", "rm", "--force", self.name)


@pytest.fixture(scope="module")
def trial(kube: Kube, image: str, workers: list[str], report: Report) -> Iterator[Trial]:
    """A group with a listener, and a client on each worker."""
    found = new_namespace(kube)
    clients = {"listeners": [LISTENER]}
    common: dict[str, Any] = {"resources": SMALL, "clients": clients}
    try:
        found.apply(
            resource("ControllerGroup", CONTROLLERS, image=image, **common),
            resource("BrokerGroup", GROUP, **common),
        )
        found.wait_for("brokergroup", GROUP, "FullyReplicated", PATIENCE_S)
        found.wait_for("brokergroup", GROUP, "ListenersServed", PATIENCE_S)
        soaks = soak.start_on(workers, found, image=LAB_IMAGE, controllers=CONTROLLERS, group=GROUP)
        yield Trial(found, GROUP, CONTROLLERS, soaks, report)
    finally:
        found.delete("namespace", found.namespace)


def name_servers(kube: Kube) -> list[str]:
    """What the ControllerGroup tells clients outside to use."""
    body = kube.get("controllergroup", CONTROLLERS)
    assert body is not None
    (listener,) = body["status"]["listeners"]
    found: list[str] = listener["addresses"]
    return found


async def brokers_by(name_server: str, topic: str) -> set[str]:
    """The addresses in a route that this machine asks for."""
    found = RemotingClient()
    await found.connect(name_server)
    answer = await found.call(request(105, {"topic": topic}))
    found.close()
    brokers = json.loads(answer.body)["brokerDatas"]
    return {address for broker in brokers for address in broker["brokerAddrs"].values()}


def nodes(kube: Kube) -> set[str]:
    """Addresses of the nodes that the group's pods are on."""
    pods = kube.list("pods", names.selector_text(names.BROKER, GROUP))
    return {pod["status"]["hostIP"] for pod in pods}


def test_a_java_client_outside_goes_on_when_the_master_is_killed(
    trial: Trial, report: Report, java_image: str
) -> None:
    servers = ";".join(name_servers(trial.kube))
    producer = JavaOutside(java_image, "gantry-java-outside", "soak", servers, TOPIC, PAUSE_MS)
    struck_ms: list[float] = []
    try:
        wait_until("the Java producer sends", PATIENCE_S, producer.flows)
        for _ in range(KILLS):
            trial.settle()
            struck_ms.append(faults.kill_master_process(trial) * 1000)
            wait_until(
                "the Java producer goes on",
                RESUME_PATIENCE_S,
                lambda: producer.flows(struck_ms[-1] + java.QUIET_MS),
            )
        sent = producer.stop()
    finally:
        producer.remove()
    count = str(len(sent.acks))
    consumer = JavaOutside(java_image, "gantry-java-outside", "lite-pull", servers, TOPIC, count)
    try:
        received = consumer.ended()
    finally:
        consumer.remove()
    lost = sent.acknowledged() - received.consumed()
    twice = len(received.received) - len(received.consumed())
    report.add(
        "Master's process SIGKILLed, default Java producer outside of the cluster",
        "write gap",
        [java.gap_ms(sent, at) for at in struck_ms],
        limit=GAP_LIMIT_MS,
        account=Account(len(sent.acks), len(lost), twice, twice),
    )
    assert not lost, sorted(lost)[:5]


async def test_each_way_in_has_its_own_addresses(trial: Trial) -> None:
    """Of the topic that the Java client has made."""
    inside = client.addresses(trial.kube, TOPIC)
    for name_server in name_servers(trial.kube):
        outside = await brokers_by(name_server, TOPIC)
        assert outside.isdisjoint(inside)
        assert {split_address(address)[0] for address in outside} <= nodes(trial.kube)
