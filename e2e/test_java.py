"""Unmodified Java clients with default settings, in pods of their own, and the example's group."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from gantry_operator import names
from harness import faults, java
from harness.java import QUIET_MS, JavaClient, consumer_pod, gap_ms, producer_pod
from harness.java_log import JavaLog
from harness.kube import Kube
from harness.report import Account, Report
from harness.trial import RESUME_PATIENCE_S, SETTLE_PATIENCE_S, Trial
from harness.waiting import wait_until

NAMESERVER = f"{names.nameserver_service('gantry')}:{names.NAMESERVER_PORT}"
MESSAGES = 200
PAUSE_MS = 10
KILLS = 5
GAP_LIMIT_MS = 2000
CONSUME_PATIENCE_S = 180.0


@pytest.fixture
def producer(kube: Kube, java_image: str) -> Iterator[Callable[[str], JavaClient]]:
    """Starts the producer of a topic, and waits until its messages are acknowledged."""
    name = "java-producer"

    def produce(topic: str) -> JavaClient:
        client = java.start(kube, producer_pod(name, java_image, NAMESERVER, topic, PAUSE_MS))
        wait_until(f"{name} gets acknowledgements", java.START_PATIENCE_S, client.flows)
        return client

    yield produce
    kube.delete("pod", name, "--grace-period=0", "--force")


@pytest.fixture
def consume(kube: Kube, java_image: str) -> Iterator[Callable[[str, str, int], JavaLog]]:
    """Receives so many messages of a topic in a mode of the consumer pod."""
    name = "java-consumer"

    def consumed(mode: str, topic: str, count: int) -> JavaLog:
        pod = consumer_pod(name, java_image, NAMESERVER, topic, count, mode=mode)
        return java.start(kube, pod).ended(CONSUME_PATIENCE_S)

    yield consumed
    kube.delete("pod", name, "--grace-period=0", "--force")


@pytest.mark.parametrize("mode", ["pull", "lite-pull"])
def test_what_a_java_producer_sends_a_java_consumer_receives(
    kube: Kube,
    producer: Callable[[str], JavaClient],
    consume: Callable[[str, str, int], JavaLog],
    mode: str,
) -> None:
    topic = f"java-{mode}"
    kube.wait_for("brokergroup", "orders", "FullyReplicated", SETTLE_PATIENCE_S)
    running = producer(topic)
    wait_until(
        f"{MESSAGES} messages are acknowledged",
        java.START_PATIENCE_S,
        lambda: len(running.log().acks) >= MESSAGES,
    )
    sent = running.stop()
    assert sent.totals == (len(sent.acks), 0), sent.nacks[:5]
    received = consume(mode, topic, len(sent.acks)).received
    assert sorted(message.key for message in received) == sorted(ack.key for ack in sent.acks)
    places = {ack.key: (ack.queue, ack.offset) for ack in sent.acks}
    assert {message.key: (message.queue, message.offset) for message in received} == places


def test_a_java_producer_goes_on_when_the_master_is_killed(
    trial: Trial,
    report: Report,
    producer: Callable[[str], JavaClient],
    consume: Callable[[str, str, int], JavaLog],
) -> None:
    topic = "java-kill"
    running = producer(topic)
    struck_ms: list[float] = []
    for _ in range(KILLS):
        trial.settle()
        struck_ms.append(faults.kill_master_process(trial) * 1000)
        wait_until(
            "the Java producer goes on",
            RESUME_PATIENCE_S,
            lambda: running.flows(struck_ms[-1] + QUIET_MS),
        )
    sent = running.stop()
    assert sent.totals is not None
    received = consume("lite-pull", topic, len(sent.acks))
    lost = sent.acknowledged() - received.consumed()
    # A message whose answer got lost is sent again by the client, and then there twice.
    twice = len(received.received) - len(received.consumed())
    report.add(
        "Master's process SIGKILLed, default Java producer",
        "write gap",
        [gap_ms(sent, at) for at in struck_ms],
        limit=GAP_LIMIT_MS,
        account=Account(len(sent.acks), len(lost), twice, twice),
    )
    assert not lost, sorted(lost)[:5]
