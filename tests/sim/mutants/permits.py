"""Bugs in who may do what that whole runs find, with users, faults and all."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds
from sim.mutants.planting import Edit

KIND, SEEDS = "product-access", 6


def _mutant(name: str, what: str, place: str, text: str, other: str) -> Mutant:
    return Mutant(name, "access", what, (Edit(place, text, other),), Seeds(KIND, SEEDS))


MUTANTS = (
    _mutant(
        "rules-of-another-day",
        "a broker hears of users once, and of no rule that changes later",
        "gantry_protocol.remoting.known_users:KnownUsers._take",
        "self.users = Users(self.cluster, told.users)",
        "self.users = self.users if self.is_known else Users(self.cluster, told.users)",
    ),
    _mutant(
        "sent-back-for-strangers",
        "a message is sent back, and so read, by who may not consume its topic",
        "gantry_broker.clients.send_back:SendBack._was_read",
        "not may_read(record.topic)",
        "not may_read(header.origin_topic or record.topic)",
    ),
    _mutant(
        "guests-are-asked",
        "who says to be a producer is shown messages of topics that it may not send to",
        "gantry_broker.clients.access:ClusterUsers.may_be_asked",
        "return user == ACCESS_KEY or self.users.may(user, topic(name, Action.PUB), source)",
        "return True",
    ),
)
