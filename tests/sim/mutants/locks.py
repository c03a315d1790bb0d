"""Bugs in the locks of orderly consumers: a queue has two owners."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

LOCKS = "gantry_broker.clients.locks:QueueLocks"
KEEPER = "gantry_broker.clients.lock_keeping:LockKeeper"
OWNERS = "gantry_controller.metadata.locks:report_locks"
HERE = "unit/broker/clients/test_locks.py"
THERE = "unit/controller/metadata/test_locks.py"
MAPPED = "gantry_broker.clients.mapped.locks:MappedLocks"
MAPS, STATE = "gantry_controller.metadata.queue_maps", "gantry_controller.metadata.locks"
MOVED = "unit/controller/metadata/test_moved_owners.py"
HANDED = "unit/broker/clients/mapped/test_locks.py"
LEARNED = "unit/broker/clients/test_learned_owners.py"


def _mutant(
    name: str, what: str, place: str, text: str, other: str, *, killer: str = HERE
) -> Mutant:
    return Mutant(name, "queue locks", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    Mutant(
        "owners-of-the-last-master-forgotten",
        "queue locks",
        "the next master gives away queues whose owners still believe in their locks",
        (
            Edit(
                f"{LOCKS}.restore",
                "for (group, queue), client_id in owners.items():",
                "for (group, queue), client_id in ():",
            ),
        ),
        Seeds("product-rich", 12),
    ),
    _mutant(
        "granted-before-the-report",
        "a client believes in a lock that the next master has never heard of",
        f"{LOCKS}.owned",
        "and (not self.by_quorum or self._kept.get((group, queue)) == client_id)",
        "",
    ),
    _mutant(
        "believed-while-it-is-being-freed",
        "a queue that is taken again while it is reported free is reported for nobody",
        f"{LOCKS}.take_news",
        "self._kept.pop(place, None)",
        "pass",
        killer=f"{HERE}::test_a_queue_that_was_freed_and_taken_again_waits_for_the_report_under_way",
    ),
    _mutant(
        "granted-before-owners-are-known",
        "a new master gives queues away before it has read who owns them",
        f"{KEEPER}.began",
        "self._read()",
        "self._locks = QueueLocks(self._is_member, _now_s)",
    ),
    _mutant(
        "who-is-gone-loses-at-once",
        "a client whose connections are cut loses a queue that it goes on consuming",
        f"{LOCKS}._is_over",
        "lasted_s >= GONE_S and (",
        "(",
    ),
    _mutant(
        "unlocked-by-what-was-given-up",
        "an unlock that comes late frees a queue that its client has locked anew since",
        f"{LOCKS}.unlock",
        "(known.client_id, known.connection) == (client_id, connection)",
        "known.client_id == client_id",
    ),
    _mutant(
        "unlocked-behind-a-late-lock",
        "the same, when a lock of the former connection comes late before it",
        f"{LOCKS}.lock",
        "connection if connection >= known.connection else _NONE",
        "connection",
    ),
    _mutant(
        "unlocked-at-the-next-master-by-anybody",
        "the same, when the master that granted the queue anew was replaced meanwhile",
        f"{LOCKS}.unlock",
        "== (client_id, connection)",
        "in ((client_id, connection), (client_id, _NONE))",
    ),
    _mutant(
        "renewed-by-who-stood-still",
        "a master that was replaced while it stood still renews a lock of before",
        f"{KEEPER}._has_stood_still",
        "_now_s() - self._looked_s >= STOOD_STILL_S",
        "False",
    ),
    _mutant(
        "late-report-of-owners-counts",
        "a report that was given up for lost overwrites the owner who came after",
        OWNERS,
        "if event.serial < last:",
        "if False:",
        killer=THERE,
    ),
    _mutant(
        "deposed-master-reports-owners",
        "a master that was replaced overwrites the owners whom its successor has granted",
        OWNERS,
        "if refusal is not None:",
        "if False:",
        killer=THERE,
    ),
    _mutant(
        "owners-end-with-the-epoch",
        "what the last master reported is gone once its successor reports",
        OWNERS,
        "_changed(table, event.groups)",
        "_changed(table if table.epoch == event.master_epoch else LockTable(), event.groups)",
        killer=THERE,
    ),
    # Queues of mapped topics, which move.
    Mutant(
        "owners-stay-where-the-queue-was",
        "queue locks",
        "a queue that has moved is given to somebody while its owner goes on",
        (Edit(f"{MAPS}:seal_queues", "if event.owners:", "if False:"),),
        Seeds("product-queues", 3),
    ),
    _mutant(
        "owners-of-a-group-that-is-gone-forgotten",
        "a queue that begins anew is given to somebody while its owner goes on",
        f"{MAPS}:map_queues",
        "if event.owners:",
        "if False:",
        killer=MOVED,
    ),
    _mutant(
        "owners-end-with-a-removed-group",
        "the queues of a removed group begin anew without the owners that they had",
        f"{STATE}:end_locks",
        "if keeps_owners:",
        "if False:",
        killer=MOVED,
    ),
    _mutant(
        "owners-of-a-removed-group-for-ever",
        "the quorum keeps owners of a group that nobody is left to free",
        f"{STATE}:owners_follow",
        "if arrived and state.find(cluster, name) is None:",
        "if False:",
        killer=MOVED,
    ),
    _mutant(
        "owners-of-another-topic-follow",
        "a queue that has moved has an owner of another topic's queue",
        f"{STATE}:owners_follow",
        "owner.topic == topic and ",
        "",
        killer=MOVED,
    ),
    _mutant(
        "owners-left-behind-by-a-young-leader",
        "two consumers hold one queue, which moved before a new leader had heard of the others",
        "gantry_controller.remoting.queue_maps:QueueMapRequests._seal",
        "if all_know is None:",
        "if False:",
        killer="unit/controller/remoting/test_queue_map_requests.py",
    ),
    _mutant(
        "owners-moved-unasked",
        "controllers of two versions apply one event to two states",
        "gantry_controller.remoting.queue_maps:QueueMapRequests._seal",
        "owners=all_know",
        "owners=True",
        killer="unit/controller/remoting/test_queue_map_requests.py",
    ),
    _mutant(
        "absence-of-before-counts",
        "queues begin anew before the master of a group that was back knows that it is gone",
        "gantry_controller.metadata.given_up:GoneGroups.applied",
        "self._since_s.pop(group.key, None)",
        "pass",
        killer=MOVED,
    ),
    _mutant(
        "moving-queue-is-locked",
        "a queue is granted while its owners are handed over",
        f"{MAPPED}._may_be_owned",
        " or not book.takes(own.topic, own.queue_id)",
        "",
        killer=HANDED,
    ),
    _mutant(
        "told-after-the-move-has-begun",
        "who has waited for a lock is told that he has it, and the next group knows nothing of it",
        f"{MAPPED}.lock",
        " if self._may_be_owned(own, here[own])",
        "",
        killer=HANDED,
    ),
    _mutant(
        "group-that-is-gone-tells-owners",
        "a group whose queues are about to begin anew elsewhere grants them",
        f"{MAPPED}._may_be_owned",
        "book.maps.is_gone(own.broker_name) or ",
        "",
        killer=HANDED,
    ),
    _mutant(
        "owned-before-its-owners-are-known",
        "a group that a queue has come to grants it before it has asked who owns it",
        f"{MAPPED}._may_be_owned",
        "own.queue_id < MAPPED_QUEUES_MAX or self._locks.knows(own)",
        "True",
        killer=HANDED,
    ),
    _mutant(
        "older-client-takes-what-has-come",
        "a client that sees this group's own queues locks the segment of a mapped one",
        f"{MAPPED}._place",
        " and is_number",
        "",
        killer=HANDED,
    ),
    _mutant(
        "owners-who-came-are-not-taken-over",
        "whoever asks first owns a queue that has come here",
        f"{LOCKS}.adopt",
        "for place, client_id in owners.items():",
        "for place, client_id in ():",
        killer=LEARNED,
    ),
    _mutant(
        "stale-owner-taken-over",
        "who is granted a queue is not told so, since somebody owns it who gave it up",
        f"{LOCKS}.adopt",
        " or place in self._news or place in self._doubtful",
        "",
        killer=LEARNED,
    ),
    _mutant(
        "read-while-a-report-is-under-way",
        "an owner counts as known to the controllers whom a report has just struck",
        f"{KEEPER}._read",
        "if self._asking:",
        "if False:",
        killer=LEARNED,
    ),
    _mutant(
        "reported-while-owners-are-read",
        "the same, the report being the later one",
        f"{KEEPER}._report",
        " or self._asking",
        "",
        killer=LEARNED,
    ),
    _mutant(
        "first-reading-counts-for-what-came-since",
        "a queue that came while a new master read the owners has none",
        f"{KEEPER}._read_came",
        "for queue in asked:",
        "for queue in (*asked, *self._unread):",
        killer=LEARNED,
    ),
)
