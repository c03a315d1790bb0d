"""Bugs in fronts that serve a group from its tier while it has no master."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

ABSENCE = "gantry_broker.front.core.absence:Absence.heard"
AS_OF = "gantry_broker.front.core.as_of"
STORE = "gantry_broker.front.bucket.store:BucketStore"
TABLES = "gantry_broker.front.bucket.tables"
CLIENTS = "gantry_broker.front.bucket.clients"
EVIDENCE = "unit/broker/front/test_absence.py"
KNOWN = "unit/broker/front/test_as_of.py"
READ = "unit/broker/front/test_bucket.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "bucket", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "off-at-the-first-word",
        "a leader that has just been elected has heard nobody, and fronts leave living masters",
        ABSENCE,
        "now_s - self._since_s >= OFF_AFTER_S",
        "True",
        EVIDENCE,
    ),
    _mutant(
        "silent-controllers-mean-off",
        "a front that is cut off from everybody speaks for groups that are served elsewhere",
        ABSENCE,
        "if info is None:",
        "if False:",
        EVIDENCE,
    ),
    _mutant(
        "any-member-is-a-master",
        "a replica that lives without a majority keeps consumers from the tier",
        ABSENCE,
        "member.alive and member.broker_id == info.master_broker_id",
        "member.alive",
        EVIDENCE,
    ),
    _mutant(
        "silence-in-between-counts",
        "two words of the leader, minutes apart, are taken for one long absence",
        ABSENCE,
        "self._times = 0",
        "pass",
        EVIDENCE,
    ),
    _mutant(
        "the-oldest-row-counts",
        "a consumer that starts goes back to where its group once was",
        f"{AS_OF}:OffsetsBack.take_rows",
        "reversed(list(rows))",
        "list(rows)",
        KNOWN,
    ),
    _mutant(
        "offsets-of-a-former-topic-kept",
        "consumers of a topic that was made again skip its first messages",
        f"{AS_OF}:OffsetsBack.take_rows",
        " or at < self._removed.get(topic, -1)",
        "",
        KNOWN,
    ),
    _mutant(
        "half-a-state-is-whole",
        "the offsets in the lost pieces of a state are taken for none",
        f"{AS_OF}:OffsetsBack.take_piece",
        "if not is_last and (piece.index, piece.count) != self._next:",
        "if False:",
        KNOWN,
    ),
    _mutant(
        "full-and-silent",
        "offsets that found no room are answered as if there were none",
        f"{AS_OF}:OffsetsBack.take_rows",
        "self.is_full = True",
        "pass",
        KNOWN,
    ),
    _mutant(
        "made-again-behind-the-head",
        "records of a deleted topic are read as those of the next one of that name",
        f"{AS_OF}:Removals.below",
        "if since > self.version:",
        "if False:",
        READ,
    ),
    _mutant(
        "first-removal-counts",
        "records between two removals of a topic are shown",
        f"{AS_OF}:Removals.take",
        "max(at, self._at.get(name, -1))",
        "min(at, self._at.get(name, at))",
        KNOWN,
    ),
    _mutant(
        "former-queue-is-read",
        "records of a deleted topic are read as those of the next one of that name",
        f"{STORE}.read",
        "if wanted.offset < begin:",
        "if False:",
        READ,
    ),
    _mutant(
        "one-pack-two-topics",
        "a topic that was made again within one pack shows the former one's records",
        f"{TABLES}:_begin",
        "if below <= index.entry(places[at].pack).lo:",
        "if True:",
        READ,
    ),
    _mutant(
        "tables-despite-a-lost-pack",
        "the newest commit was in a pack that is missing, and a consumer goes back",
        f"{TABLES}:read_tables",
        "if index.losses.packs:",
        "if False:",
        READ,
    ),
    _mutant(
        "the-head-is-the-end",
        "a consumer beyond the tier's head is sent back, and gets messages again",
        f"{STORE}.read",
        "if self._is_beyond(wanted):",
        "if False:",
        READ,
    ),
    _mutant(
        "an-end-though-a-pack-is-lost",
        "a consumer that begins at the end begins before records that cannot be read now",
        f"{STORE}._offsets",
        "if isinstance(found, Trouble):",
        "if False:",
        READ,
    ),
    _mutant(
        "a-reset-without-end",
        "a consumer that has followed a reset gets the same messages again and again",
        f"{CLIENTS}:BucketProcessor._followed",
        "if due_reset(committed, group, topic, queue_id) == offset:",
        "if False:",
        READ,
    ),
    _mutant(
        "only-whom-this-front-hears",
        "members at two fronts are told two lists, and a queue has two owners",
        f"{CLIENTS}:BucketConsumers.remembered",
        "list(self._members.get(group, ()))",
        "[]",
        READ,
    ),
    _mutant(
        "mapped-queues-from-one-tier",
        "queues of a mapped topic are read where they are no more",
        f"{CLIENTS}:BucketProcessor.__call__",
        " or self._is_mapped(request)",
        "",
        READ,
    ),
)
