"""Bugs in what a master does that hears nobody any more (``gantry_broker.replica.contact``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

REPLICA = "gantry_broker.replica"
RULE = "unit/broker/replica/test_contact.py"

MUTANTS = (
    Mutant(
        "cut-off-and-serving",
        "contact",
        "a master that hears neither controllers nor members takes sends and commits for ever",
        (
            Edit(
                f"{REPLICA}.contact:is_cut_off",
                "return controllers_ms >= limits.cut_off_ms and len(silent) > 0",
                "return False",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "silent-controllers-end-the-service",
        "contact",
        "a master stops when the controllers are away, although all its members answer",
        (Edit(f"{REPLICA}.contact:is_cut_off", " and len(silent) > 0", ""),),
        UnitTests(RULE),
    ),
    Mutant(
        "silent-members-end-the-service",
        "contact",
        "a master stops for silent members, although the controllers answer and shrink the set",
        (Edit(f"{REPLICA}.contact:is_cut_off", "controllers_ms >= limits.cut_off_ms and ", ""),),
        UnitTests(RULE),
    ),
    Mutant(
        "one-member-heard-is-enough",
        "contact",
        "a master serves on beside a member that is cut off with it, while another one is elected",
        (
            Edit(
                f"{REPLICA}.core:ReplicaCore._look_around",
                "silent = master.silent(self._now_ms)",
                "silent = master.silent(self._now_ms)[1:]",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "late-answer-believed",
        "contact",
        "an answer of the controllers that was long on its way counts from its arrival",
        (
            Edit(
                f"{REPLICA}.core:ReplicaCore._other_event",
                "max(self._controllers_ms, min(asked_ms, self._now_ms))",
                "self._now_ms",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "doubtful-members-unheard-of",
        "contact",
        "a member that an attempt of unknown outcome may have added is not listened for",
        (Edit(f"{REPLICA}.master:Mastership.silent", "self.set.counted", "self.set.members"),),
        UnitTests(RULE),
    ),
    Mutant(
        "old-words-believed-after-a-pause",
        "contact",
        "a process that stood still takes what its members said long ago for news",
        (
            Edit(
                f"{REPLICA}.master:Mastership.excuse",
                "if pause_ms >= self._limits.silence_ms:",
                "if False:",
            ),
        ),
        UnitTests(RULE),
    ),
)
