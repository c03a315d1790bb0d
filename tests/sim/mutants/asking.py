"""Bugs in whom a broker asks among the controllers (``gantry_broker.control``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

ORDER = "gantry_broker.control.core.order:for_reads"
PEERS = "gantry_broker.control.peers:ControllerPeers"
ORDERS, ASKED = "unit/broker/control/test_order.py", "unit/broker/control/test_peers.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "asking", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "reads-asked-of-the-leader",
        "every read of every broker adds to the leader's load, and the followers idle",
        ORDER,
        "return 2",
        "return -1",
        ORDERS,
    ),
    _mutant(
        "one-follower-reads-for-all",
        "all brokers read from the same follower",
        "gantry_broker.control.core.order:_turned",
        "(turn + at) % size",
        "at",
        ORDERS,
    ),
    _mutant(
        "lagging-follower-asked-again",
        "a follower that lags is asked first by each read, and each read takes two ways",
        f"{PEERS}._read",
        "peer.aside_until_s = loop.time() + ASIDE_S",
        "peer.aside_until_s = loop.time()",
        ASKED,
    ),
    _mutant(
        "silent-follower-takes-all-the-time",
        "a read at a stopped follower fails although two controllers could answer it",
        f"{PEERS}._read",
        "left_s / 2 if others else left_s",
        "left_s",
        ASKED,
    ),
    _mutant(
        "quiet-controllers-are-silent",
        "in a quiet cluster no broker hears that there is no news, and nobody follows a group back",
        f"{PEERS}._read",
        "held_s + (",
        "0 * held_s + (",
        ASKED,
    ),
    _mutant(
        "changes-asked-of-followers",
        "a change without an answer is sent again by another way, and happens twice",
        f"{PEERS}.ask",
        "if served_by_followers(command.code):",
        "if True:",
        ASKED,
    ),
)
