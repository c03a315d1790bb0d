"""Packets in a queue: when they go, in which order, how many are dropped, and the bound."""

from __future__ import annotations

import struct
from itertools import pairwise
from random import Random
from statistics import mean, pstdev

import pytest
from gantry_chaos.core.treatment import PacketQueue, PacketVerdict, Treatment
from gantry_chaos.inject import netlink


def waits(treatment: Treatment, packets: int = 4000) -> list[float]:
    """How long each packet waits; one arrives every 10 s, so that none meets another."""
    queue = PacketQueue(treatment, Random(3).random)
    found = []
    for number in range(packets):
        now_s = number * 10.0
        assert queue.arrive(number, now_s) is None
        assert queue.next_s is not None
        found.append(queue.next_s - now_s)
        assert list(queue.due(queue.next_s)) == [PacketVerdict(number, accept=True)]
    return found


def test_a_packet_goes_at_its_time_and_not_before() -> None:
    queue = PacketQueue(Treatment(latency_s=0.1), Random(1).random)
    assert queue.arrive(7, 1.0) is None
    assert list(queue.due(1.0999)) == []
    assert list(queue.due(1.1)) == [PacketVerdict(7, accept=True)]
    assert queue.next_s is None


def test_without_jitter_the_order_stays() -> None:
    queue = PacketQueue(Treatment(latency_s=0.1), Random(1).random)
    for number in range(100):
        queue.arrive(number, 1.0)
    assert [verdict.packet for verdict in queue.due(2.0)] == list(range(100))


def test_jitter_is_uniform_around_the_latency_and_reorders() -> None:
    found = waits(Treatment(latency_s=0.1, jitter_s=0.05))
    assert 0.05 <= min(found) < 0.052
    assert 0.148 < max(found) <= 0.15
    assert mean(found) == pytest.approx(0.1, abs=0.002)
    queue = PacketQueue(Treatment(latency_s=0.1, jitter_s=0.05), Random(1).random)
    for number in range(100):
        queue.arrive(number, 1.0 + number / 1000)
    order = [verdict.packet for verdict in queue.due(2.0)]
    assert sorted(order) == list(range(100))
    assert order != sorted(order)


def test_correlation_makes_waits_resemble_each_other() -> None:
    def steps(correlation: float) -> float:
        found = waits(Treatment(0.1, 0.05, delay_correlation=correlation))
        return mean(abs(b - a) for a, b in pairwise(found)) / pstdev(found)

    assert steps(0.9) < steps(0.5) < steps(0.0)


def test_loss_takes_its_share() -> None:
    queue = PacketQueue(Treatment(loss=0.3), Random(1).random)
    verdicts = [queue.arrive(number, 0.0) for number in range(10_000)]
    dropped = sum(1 for verdict in verdicts if verdict and not verdict.accept)
    assert dropped == pytest.approx(3000, abs=150)
    assert (queue.counts.dropped, queue.counts.released) == (dropped, 10_000 - dropped)


def test_a_full_queue_lets_packets_go_instead_of_losing_them() -> None:
    queue = PacketQueue(Treatment(latency_s=1.0), Random(1).random, packets_max=2)
    assert [queue.arrive(number, 0.0) for number in range(3)] == [
        None,
        None,
        PacketVerdict(2, accept=True),
    ]
    assert queue.counts.overflowed == 1
    assert [verdict.packet for verdict in queue.drain()] == [0, 1]
    assert len(queue) == 0


def test_the_same_seed_repeats_everything() -> None:
    assert waits(Treatment(0.1, 0.05), 50) == waits(Treatment(0.1, 0.05), 50)


def kernel_packet(packet: int) -> bytes:
    """A packet message as the kernel makes it: a mark first, then the header we look for."""
    mark = struct.pack("=HHI", 8, 3, 0)
    header = struct.pack("=HH", 11, 1) + struct.pack("!IHB", packet, 0x800, 0) + b"\0"
    body = struct.pack("!BBH", 2, 0, 5) + mark + header
    return struct.pack("=IHHII", 16 + len(body), 3 << 8, 0, 0, 0) + body


def test_packets_and_answers_are_read_from_one_datagram() -> None:
    refused = struct.pack("=IHHIIi", 20, 2, 0, 9, 0, -1) + bytes(0)
    data = kernel_packet(41) + refused + kernel_packet(42)
    assert list(netlink.messages(data)) == [
        netlink.Packet(41),
        netlink.NetlinkAck(9, 1),
        netlink.Packet(42),
    ]


@pytest.mark.parametrize("cut", [17, 20, 30])
def test_lengths_that_do_not_fit_are_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="netlink"):
        list(netlink.messages(kernel_packet(1)[:cut]))


def test_requests_have_the_kernels_layout() -> None:
    accept = netlink.verdict(7, 42, accept=True)
    assert accept == struct.pack("=IHHII", 32, 0x301, 1, 0, 0) + bytes.fromhex(
        "00000007"
    ) + struct.pack("=HH", 12, 2) + bytes.fromhex("000000010000002a")
    assert netlink.verdict(7, 42, accept=False)[24:28] == bytes(4)
    bind = netlink.bind(7, 1)
    assert bind[16:] == bytes.fromhex("00000007") + struct.pack("=HH", 8, 1) + b"\1\0\0\2"
    assert all(len(one) % 4 == 0 for one in (accept, bind, netlink.configure(7, 2, 100)))
