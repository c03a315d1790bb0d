"""Accounts of the measurement of clients that speak gRPC: rates, CPU per message, messages.

All of it is pure: answers of the Java programs in, figures out. Rule protected: a message counts as
lost only if it was acknowledged to its producer and handed to no consumer, and as left behind only
if a consumer that did not acknowledge it has not got it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from gantry_protocol.errors import GantryError

OURS, THEIRS = "grpc", "rocketmq-proxy"
"""Both proxies, as the benchmarks of their lines are called."""

PACE = 0.5
"""The rate of paced senders, of that which they reach alone."""

Victim = Literal["proxy", "master"]

UNITS: dict[str, tuple[str, int]] = {
    "messages_per_s": ("1/s", 0),
    "ratio": ("1", 2),
    "p50_ms": ("ms", 2),
    "p99_ms": ("ms", 2),
    "proxy_cpu_us": ("us", 0),
    "master_cpu_us": ("us", 0),
    "client_cpu_us": ("us", 0),
    "failed": ("1", 0),
    "lost": ("1", 0),
    "alone_per_s": ("1/s", 0),
    "beside_per_s": ("1/s", 0),
    "kept_percent": ("%", 0),
    "grpc_per_s": ("1/s", 0),
    "paced_kept_percent": ("%", 0),
    "paced_grpc_per_s": ("1/s", 0),
    "alone_cpu_us": ("us", 1),
    "beside_cpu_us": ("us", 1),
    "cpu_ratio": ("1", 2),
    "kills": ("1", 0),
    "proxy_gap_ms": ("ms", 0),
    "proxy_write_gap_ms": ("ms", 0),
    "master_gap_ms": ("ms", 0),
    "master_write_gap_ms": ("ms", 0),
    "acknowledged": ("1", 0),
    "refused": ("1", 0),
    "left": ("1", 0),
    "not_again": ("1", 0),
    "again": ("1", 0),
    "after_done": ("1", 0),
    "stuck": ("1", 0),
}
"""Unit and decimal places by metric; CPU is per message."""


# ---- rates


class Usage(msgspec.Struct, frozen=True):
    """CPU seconds that processes have used so far."""

    proxy: float
    master: float
    client: float


class Answer(msgspec.Struct, frozen=True):
    """The account of one window, as the Java program gives it.

    Attributes:
        messages: acknowledged to the producer, or by the consumer.
        failed: calls of the client that ended with an error.
        seconds: until the last of these messages.
        rest: the numbers behind these.
    """

    messages: int
    failed: int
    seconds: float
    rest: tuple[int, ...] = ()


def answer(words: Sequence[str]) -> Answer:
    """Reads what follows SENT or RECEIVED.

    Raises:
        GantryError: it is something else, or there was no message at all.
    """
    try:
        messages, failed, nanos, *rest = map(int, words)
    except ValueError as error:
        raise GantryError(f"The client's answer is no account of a window: {words}.") from error
    if not messages or nanos <= 0:
        raise GantryError(f"No message came through ({failed} calls failed).")
    return Answer(messages, failed, nanos / 1e9, tuple(rest))


def rate(seen: Answer, before: Usage, after: Usage) -> dict[str, float]:
    """The figures of a window: messages per second, and whose CPU each of them cost."""
    per_message = 1e6 / seen.messages
    return {
        "messages_per_s": seen.messages / seen.seconds,
        "proxy_cpu_us": (after.proxy - before.proxy) * per_message,
        "master_cpu_us": (after.master - before.master) * per_message,
        "client_cpu_us": (after.client - before.client) * per_message,
        "failed": float(seen.failed),
    }


def sent(seen: Answer, before: Usage, after: Usage) -> dict[str, float]:
    """The figures of a window of sends: those of `rate`, and latencies."""
    p50, p99 = seen.rest
    return rate(seen, before, after) | {"p50_ms": p50 / 1000, "p99_ms": p99 / 1000}


def ratio(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """Our messages per second, of theirs of the same round."""
    return ours["messages_per_s"] / theirs["messages_per_s"]


class Straight(msgspec.Struct, frozen=True):
    """A window of remoting senders straight at the master.

    Attributes:
        messages: that they were acknowledged.
        beside: that gRPC clients were acknowledged meanwhile.
        seconds: of the window.
        master_s: CPU of the master.
    """

    messages: int
    beside: int
    seconds: float
    master_s: float

    @property
    def per_s(self) -> float:
        """Messages per second of the senders."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """The master's CPU per message of either kind."""
        return 1e6 * self.master_s / (self.messages + self.beside)


def store(alone: Straight, beside: Straight, paced: Straight) -> dict[str, float]:
    """The figures of the store behind a proxy: what its own senders keep beside gRPC clients.

    Args:
        alone: as fast as they are answered.
        beside: the same, beside gRPC clients.
        paced: these again, with senders at the rate of ``PACE`` of that alone.
    """
    return {
        "alone_per_s": alone.per_s,
        "beside_per_s": beside.per_s,
        "kept_percent": 100 * beside.per_s / alone.per_s,
        "grpc_per_s": beside.beside / beside.seconds,
        "paced_kept_percent": 100 * paced.per_s / (PACE * alone.per_s),
        "paced_grpc_per_s": paced.beside / paced.seconds,
        "alone_cpu_us": alone.cpu_us,
        "beside_cpu_us": beside.cpu_us,
        "cpu_ratio": beside.cpu_us / alone.cpu_us,
    }


def order(number: int) -> tuple[str, str]:
    """Both proxies in the order of a round; each begins every second one."""
    return (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS)


# ---- kills


def victims(kills: int) -> Iterator[Victim]:
    """The victim of each kill: a proxy and the master in turn."""
    for number in range(kills):
        yield "master" if number % 2 else "proxy"


class Producing:
    """The producer's word on each message.

    Attributes:
        acknowledged: keys.
        refused: how many were not acknowledged; they may be stored.
    """

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.refused = 0

    def note(self, kind: str, key: str) -> bool:
        """A line of the program; whether it is an acknowledgement."""
        if kind == "ACK":
            self.acknowledged.add(key)
        self.refused += kind == "NACK"
        return kind == "ACK"


class Taking:
    """A consumer's word on each message.

    Args:
        knows_answers: it says DONE once the acknowledgement is answered, not before.

    Attributes:
        got: keys that it was handed at least once.
        done: those that it has acknowledged, maybe without an answer.
        owed: those that it has not, and was not handed again since.
        left: how often it has left one unacknowledged.
        again: how often it was handed one again, neither owed nor known to be done: it was in
            flight, or its acknowledgement was not answered.
        after_done: how often it was handed one whose acknowledgement had been answered.
    """

    def __init__(self, *, knows_answers: bool) -> None:
        self.got: set[str] = set()
        self.done: set[str] = set()
        self.owed: set[str] = set()
        self.left = self.again = self.after_done = 0
        self._answered: set[str] = set()
        self._knows_answers = knows_answers

    def note(self, kind: str, key: str) -> bool:
        """A line of the program; whether a message was handed out."""
        match kind:
            case "GOT":
                self._handed(key)
            case "DONE" | "UNSURE":
                self.done.add(key)
                if kind == "DONE" and self._knows_answers:
                    self._answered.add(key)
            case "FAILED" | "LEFT":
                self.left += 1
                self.owed.add(key)
        return kind == "GOT"

    def lost(self, acknowledged: set[str]) -> int:
        """Messages that were acknowledged to their producer, and never handed out."""
        return len(acknowledged - self.got)

    def waits(self, acknowledged: set[str]) -> bool:
        """Whether something has to come yet: what it never got, has left, or has not finished."""
        return bool(self.owed) or not acknowledged <= self.done

    def _handed(self, key: str) -> None:
        if key in self.owed:
            self.owed.remove(key)
        elif key in self._answered:
            self.after_done += 1
        elif key in self.got:
            self.again += 1
        self.got.add(key)
