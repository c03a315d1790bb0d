"""Packet filter rules of a fault, per network namespace, with their exact removal. Pure.

The rule protected here: only what a fault added is removed. Its rules stand in a chain of their own
named by the fault's tag; one jump per hook, with the tag as comment, switches it on. Nothing is
ever flushed but that chain, so the rules of kube-proxy and of other faults stay.

Where rules stand: a partition drops at the sender's OUTPUT and at the receiver's INPUT, because a
Service rewrites addresses between the two. Loss and delay stand at the receiver alone: packets held
in the sender's namespace would count against its TCP queue, which costs far more than the delay.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.core.actions import Absent, Command, Undo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

IPTABLES = ("iptables", "-w", "5")  # waits at most 5 s for others that hold its lock
QUEUES = 65536
FIRST_QUEUE = 1000  # beyond what a network plug-in takes


class Endpoint(msgspec.Struct, frozen=True, order=True):
    """One end of a flow: an address or network, and the namespace if it is a pod's."""

    address: str
    netns: str = ""


class PacketRule(msgspec.Struct, frozen=True):
    """One line of a fault's chain: what it matches and what happens then (nothing: it counts)."""

    match: tuple[str, ...]
    target: tuple[str, ...] = ()


class RuleSet(msgspec.Struct, frozen=True):
    """A fault's rules in one namespace."""

    netns: str
    tag: str
    table: str
    hooks: tuple[str, ...]
    rules: tuple[PacketRule, ...]

    def inject(self) -> tuple[Command, ...]:
        """Make the chain, fill it, switch it on."""
        chain: list[tuple[str, ...]] = [("-N", self.tag)]
        chain += [("-A", self.tag, *rule.match, *rule.target) for rule in self.rules]
        chain += [("-I", hook, "1", *_jump(self.tag)) for hook in self.hooks]
        return tuple(self._command(*words) for words in chain)

    def undo(self) -> tuple[Undo, ...]:
        """Switch it off, remove the chain, and look."""
        chain = [("-D", hook, *_jump(self.tag)) for hook in self.hooks]
        chain += [("-F", self.tag), ("-X", self.tag)]
        commands = [self._command(*words, may_fail=True) for words in chain]
        save = ("iptables-save", "-t", self.table)
        return (*commands, Absent(save, self.tag, self.netns))

    def counters(self) -> Command:
        """Prints how many packets and bytes each rule has matched."""
        return self._command("-L", self.tag, "-v", "-x", "-n")

    def _command(self, *words: str, may_fail: bool = False) -> Command:
        return Command((*IPTABLES, "-t", self.table, *words), self.netns, may_fail)


def tag(run: str, fault: str) -> str:
    """The name of a fault's chains: unlike any other's, and short enough for iptables (28)."""
    digest = hashlib.sha256(f"{run}/{fault}".encode()).hexdigest()
    return f"CHAOS-{digest[:8].upper()}"


def queue_number(fault_tag: str) -> int:
    """The queue of a fault; two faults in one namespace have different ones almost surely."""
    return FIRST_QUEUE + int(fault_tag.removeprefix("CHAOS-"), 16) % (QUEUES - FIRST_QUEUE)


def flows(
    sources: Iterable[Endpoint], targets: Iterable[Endpoint], direction: str
) -> list[tuple[Endpoint, Endpoint]]:
    """(sender, receiver) of everything that a fault strikes; nobody is cut off from itself."""
    pairs = [(s, t) for s in sources for t in targets if s.address != t.address]
    found: set[tuple[Endpoint, Endpoint]] = set()
    if direction in ("to", "both"):
        found.update(pairs)
    if direction in ("from", "both"):
        found.update((t, s) for s, t in pairs)
    return sorted(found)


def partition(fault_tag: str, struck: Sequence[tuple[Endpoint, Endpoint]]) -> list[RuleSet]:
    """Drop every packet of these flows, at both ends where both are pods."""
    sent: dict[str, set[str]] = {}
    received: dict[str, set[str]] = {}
    for sender, receiver in struck:
        if sender.netns:
            sent.setdefault(sender.netns, set()).add(receiver.address)
        if receiver.netns:
            received.setdefault(receiver.netns, set()).add(sender.address)
    return [
        RuleSet(
            netns,
            fault_tag,
            "filter",
            (*(["INPUT"] if netns in received else []), *(["OUTPUT"] if netns in sent else [])),
            tuple(
                [
                    PacketRule(("-s", peer), ("-j", "DROP"))
                    for peer in sorted(received.get(netns, ()))
                ]
                + [PacketRule(("-d", peer), ("-j", "DROP")) for peer in sorted(sent.get(netns, ()))]
            ),
        )
        for netns in sorted(sent.keys() | received.keys())
    ]


def loss(
    fault_tag: str, struck: Sequence[tuple[Endpoint, Endpoint]], probability: float
) -> list[RuleSet]:
    """Drop a share of the packets of these flows where they arrive; a first rule counts all."""
    dice = ("-m", "statistic", "--mode", "random", "--probability", f"{probability:.6f}")
    return [
        RuleSet(
            netns,
            fault_tag,
            "filter",
            ("INPUT",),
            tuple(
                rule
                for peer in peers
                for rule in (
                    PacketRule(("-s", peer)),
                    PacketRule(("-s", peer, *dice), ("-j", "DROP")),
                )
            ),
        )
        for netns, peers in _arriving(struck)
    ]


def queued(
    fault_tag: str, struck: Sequence[tuple[Endpoint, Endpoint]], queue: int
) -> list[RuleSet]:
    """Hand the packets of these flows to a queue where they arrive.

    Without a listener they pass (`--queue-bypass`), so a fault whose harness died heals itself.
    """
    hand = ("-j", "NFQUEUE", "--queue-num", str(queue), "--queue-bypass")
    return [
        RuleSet(
            netns,
            fault_tag,
            "mangle",
            ("PREROUTING",),
            tuple(PacketRule(("-s", peer), hand) for peer in peers),
        )
        for netns, peers in _arriving(struck)
    ]


def _arriving(struck: Sequence[tuple[Endpoint, Endpoint]]) -> list[tuple[str, list[str]]]:
    senders: dict[str, set[str]] = {}
    for sender, receiver in struck:
        senders.setdefault(receiver.netns, set()).add(sender.address)
    return [(netns, sorted(peers)) for netns, peers in sorted(senders.items())]


def _jump(fault_tag: str) -> tuple[str, ...]:
    return ("-m", "comment", "--comment", fault_tag, "-j", fault_tag)
