"""Bugs in the locks of orderly consumers: a queue has two owners."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

LOCKS = "gantry_broker.clients.locks:QueueLocks"
KEEPER = "gantry_broker.clients.lock_keeping:LockKeeper"
OWNERS = "gantry_controller.metadata.locks:report_locks"
HERE = "unit/broker/clients/test_locks.py"
THERE = "unit/controller/metadata/test_locks.py"


def _mutant(
    name: str, what: str, place: str, text: str, other: str, *, killer: str = HERE
) -> Mutant:
    return Mutant(
        name, "queue locks", what, (Edit(place, text, other),), UnitTests(killer), quick=True
    )


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
        "gantry_controller.metadata.locks:_changed",
        "groups = dict(table.groups)",
        "groups = dict(table.groups) if table.epoch == event.master_epoch else {}",
        killer=THERE,
    ),
)
