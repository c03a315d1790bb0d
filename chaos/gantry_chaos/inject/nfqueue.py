"""Holds packets of one queue back; started inside a namespace by whoever injects the fault.

    python -m gantry_chaos.inject.nfqueue QUEUE SEED LATENCY_S JITTER_S CORRELATION LOSS CORRELATION

Prints `listening` once packets come here. It ends when its standard input ends, so it never
outlives the harness; packets that it holds are let go then, later ones pass by the rule's bypass.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from random import Random

from gantry_chaos.core.treatment import PACKETS_MAX, PacketQueue, Treatment
from gantry_chaos.errors import InjectionError
from gantry_chaos.inject import netlink

RECEIVE_BYTES = 1 << 16
SOCKET_BUFFER_BYTES = 8 << 20
SOL_NETLINK = 270
NETLINK_NO_ENOBUFS = 5
SO_RCVBUFFORCE = 33
ANSWER_TIMEOUT_S = 5.0
DATAGRAMS_AT_ONCE = 64


def open_queue(queue: int) -> socket.socket:
    """A socket that gets the packets of `queue` of this namespace.

    Raises:
        InjectionError: the kernel refused: no privilege, or somebody else has the queue.
    """
    try:
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, netlink.NETLINK_NETFILTER)
        link.bind((0, 0))
        link.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES)
        link.settimeout(ANSWER_TIMEOUT_S)
        for sequence, request in enumerate(
            (netlink.bind(queue, 1), netlink.configure(queue, 2, PACKETS_MAX)), 1
        ):
            link.send(request)
            _expect(link, sequence, queue)
        link.setblocking(False)
    except OSError as error:
        raise InjectionError(f"Queue {queue} cannot be opened: {error.strerror}.") from error
    return link


def _expect(link: socket.socket, sequence: int, queue: int) -> None:
    while True:
        for message in netlink.messages(link.recv(RECEIVE_BYTES)):
            if isinstance(message, netlink.NetlinkAck) and message.sequence == sequence:
                if message.code:
                    why = os.strerror(message.code)
                    raise InjectionError(f"Queue {queue} cannot be taken: {why}.")
                return


def serve(link: socket.socket, queue: int, held: PacketQueue, until: int) -> None:
    """Answer for packets until the descriptor `until` ends."""
    while True:
        due_s = held.next_s
        wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
        ready, _, _ = select.select([link.fileno(), until], [], [], wait_s)
        if link.fileno() in ready:
            _receive(link, queue, held)
        for verdict in held.due(time.monotonic()):
            link.send(netlink.verdict(queue, verdict.packet, accept=verdict.accept))
        if until in ready and not os.read(until, RECEIVE_BYTES):
            break
    for verdict in held.drain():
        link.send(netlink.verdict(queue, verdict.packet, accept=verdict.accept))


def _receive(link: socket.socket, queue: int, held: PacketQueue) -> None:
    for _ in range(DATAGRAMS_AT_ONCE):
        try:
            data = link.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        now_s = time.monotonic()
        for message in netlink.messages(data):
            if isinstance(message, netlink.Packet):
                at_once = held.arrive(message.id, now_s)
                if at_once is not None:
                    link.send(netlink.verdict(queue, at_once.packet, accept=at_once.accept))


def main() -> None:
    """Read the arguments, listen, serve."""
    queue, seed = int(sys.argv[1]), int(sys.argv[2])
    latency_s, jitter_s, correlation, loss, loss_correlation = map(float, sys.argv[3:8])
    treatment = Treatment(latency_s, jitter_s, correlation, loss, loss_correlation)
    held = PacketQueue(treatment, Random(seed).random)  # noqa: S311 -- repeatable on purpose
    try:
        with open_queue(queue) as link:
            sys.stdout.write("listening\n")
            sys.stdout.flush()
            serve(link, queue, held, sys.stdin.fileno())
    except InjectionError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
