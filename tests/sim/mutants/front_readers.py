"""Bugs in reads of fronts that go to replicas."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

SPREAD = "gantry_broker.front.spread"
SHARES = "gantry_broker.front.core.shares:Shares"
SESSION = "gantry_broker.remote.reading:ReadSession"
LINK = "gantry_broker.remote.reader:ReplicaConnection"
READS = "gantry_broker.member.replica_reads:ReplicaReads.read_for_front"
CHOICE, EVEN = "unit/broker/front/test_spread.py", "unit/broker/front/test_shares.py"
LINKS = "unit/broker/remote/test_reading.py"
REPLICA = "unit/broker/member/test_replica_reads.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "front readers", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    Mutant(
        "a-replica-judges-for-fronts",
        "front readers",
        "a replica that lags moves a consumer's offset, by way of a front that believes it",
        (
            Edit(f"{READS}", "if not may_answer(", "if False and not may_answer("),
            Edit(
                f"{SPREAD}:_says_something",
                "return result.status is GetStatus.FOUND",
                "return True",
            ),
        ),
        Seeds("product-front-readers", 12),
    ),
    _mutant(
        "a-replicas-nothing-believed",
        "a consumer waits at a front for a record that a replica did not have yet",
        f"{SPREAD}:_says_something",
        "return result.status is GetStatus.FOUND",
        "return True",
        CHOICE,
    ),
    _mutant(
        "looked-at-all-it-has",
        "a pull with a filter waits for records behind those that a lagging replica looked at",
        f"{SPREAD}:_says_something",
        "return result.next_offset < result.max_offset",
        "return True",
        CHOICE,
    ),
    _mutant(
        "former-topics-at-replicas",
        "records of a deleted topic are read at a replica that has not heard of its end",
        f"{SPREAD}:SpreadStore._able",
        "replica.is_open and replica.topics_version >= self.topics.version",
        "replica.is_open",
        CHOICE,
    ),
    _mutant(
        "readers-of-any-queue",
        "queues that asked for no readers are read at replicas",
        f"{SPREAD}:SpreadStore._able",
        "readers_of(topic.attributes).of(wanted.queue_id)",
        "readers_of(topic.attributes).most",
        CHOICE,
    ),
    _mutant(
        "all-at-once-to-one",
        "consumers that come together all read from one member",
        f"{SHARES}._load",
        " + waiting * self._usual_bytes",
        "",
        EVEN,
    ),
    _mutant(
        "the-master-is-first",
        "of equals the master is read from, which has the writes as well",
        f"{SHARES}.pick",
        "member == MASTER_ID",
        "member != MASTER_ID",
        EVEN,
    ),
    _mutant(
        "topics-told-too-late",
        "a front takes what was read with newer topics for records of its own",
        f"{SESSION}._read",
        "self._tell_version()",
        "pass",
        LINKS,
    ),
    _mutant(
        "a-lost-replica-answers-never",
        "consumers wait for ever for a replica that was killed",
        f"{LINK}._lost",
        "had(None)",
        "pass",
        LINKS,
    ),
    _mutant(
        "a-shut-replica-is-asked",
        "a replica that is out of touch gives what was reset or deleted",
        f"{LINK}._received",
        "self.is_open = is_offered",
        "self.is_open = True",
        LINKS,
    ),
    _mutant(
        "fronts-read-out-of-touch",
        "a replica that nobody counts on serves fronts on and on",
        READS,
        "topic is None or not self.is_offered",
        "topic is None",
        REPLICA,
    ),
)
