"""Bugs on replication links: what is heard, and what is taken for a repair."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_mutant = one_edit("gantry_broker")

LINKS = "unit/broker/ha/test_links.py"
REPAIR = "unit/broker/ha/test_repair.py"

MUTANTS = (
    _mutant(
        "bytes-of-another-range",
        "broker ha",
        "a repair takes bytes of another place or length for those that it asked for",
        "ha.repair:fetch",
        " or (answer.start, len(answer.data)) != (at, size)",
        "",
        UnitTests(f"{REPAIR}::test_bytes_of_another_range_are_not_taken"),
    ),
    _mutant(
        "closed-link-still-heard",
        "broker ha",
        "what came together with the message that closed a link is heard",
        "ha.links:Link.data_received",
        "    for message in messages:\n        if self._ended:\n            return\n",
        "    for message in messages:\n",
        UnitTests(f"{LINKS}::test_nothing_is_heard_of_a_link_that_was_closed"),
    ),
    _mutant(
        "closed-link-still-read",
        "broker ha",
        "nonsense on a link that was closed ends it a second time",
        "ha.links:Link.data_received",
        "    if self._ended:\n        return\n    try:",
        "    try:",
        UnitTests(f"{LINKS}::test_nothing_is_heard_of_a_link_that_was_closed"),
    ),
)
