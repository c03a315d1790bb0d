"""Bugs in how a member that is slow by its history is judged (``gantry_broker.replica.pace``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

REPLICA = "gantry_broker.replica"
RULE = "unit/broker/replica/test_pace.py"

MUTANTS = (
    Mutant(
        "newcomer-is-waited-for-while-it-copies",
        "pace",
        "writes stand still for 0.4 s whenever a replica with much to copy arrives",
        (
            Edit(
                f"{REPLICA}.syncset:Member.__init__",
                "self.seen_whole_ms: int | None = None",
                "self.seen_whole_ms: int | None = now_ms",
            ),
            Edit(
                f"{REPLICA}.syncset:Member.greeted",
                "self._mark_end = self.seen_whole_ms = None",
                "self._mark_end = None",
            ),
        ),
        UnitTests("unit/broker/replica/test_sync_state_set.py"),
    ),
    Mutant(
        "closeness-outlives-its-link",
        "pace",
        "everybody waits for a replica that comes back, for what it held on a link before",
        (
            Edit(
                f"{REPLICA}.syncset:Member.greeted",
                "self._mark_end = self.seen_whole_ms = None",
                "self._mark_end = None",
            ),
        ),
        UnitTests("unit/broker/replica/test_sync_state_set.py"),
    ),
    Mutant(
        "copying-counts-as-standing-still",
        "pace",
        "a newcomer leaves the set as soon as its copy is complete, and comes and goes for a while",
        (
            Edit(
                f"{REPLICA}.pace:Pace.joined",
                "self.recent_ms = self.standing_ms = 0",
                "self.recent_ms = 0",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "still-member-stays",
        "pace",
        "a member that stands still holds everybody up for 2 s, though enough others stay",
        (Edit(f"{REPLICA}.pace:Pace.holds_up", "self.is_slow or", "self.is_slow and"),),
        UnitTests(RULE),
    ),
    Mutant(
        "slow-member-stays",
        "pace",
        "a member that stalls again and again, never for 2 s, slows everybody for ever",
        (Edit(f"{REPLICA}.pace:Pace.is_slow", "return self.recent_ms >=", "return 0 >="),),
        UnitTests(RULE),
    ),
    Mutant(
        "slow-members-leave-below-the-minimum",
        "pace",
        "the set falls below the minimum for a member that is merely slow, and writes are refused",
        (
            Edit(
                f"{REPLICA}.membership:wanted_set",
                "if slow and len(wanted) > needed:",
                "if slow:",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "slow-member-kept-out-when-needed",
        "pace",
        "writes are refused for want of a member that is there, since it was slow once",
        (
            Edit(
                f"{REPLICA}.membership:wanted_set",
                "len(wanted) < needed or not member.pace.is_out(now_ms)",
                "not member.pace.is_out(now_ms)",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "no-probation",
        "pace",
        "a slow member comes back at once, so that it is waited for most of the time",
        (Edit(f"{REPLICA}.pace:Pace.is_out", "return now_ms < self.out_until_ms", "return False"),),
        UnitTests(RULE),
    ),
    Mutant(
        "probation-never-grows",
        "pace",
        "a member that relapses each time it is back is taken back as soon as ever",
        (Edit(f"{REPLICA}.pace:Pace.left", "2 * self._probation_ms", "0"),),
        UnitTests(RULE),
    ),
    Mutant(
        "probation-without-bound",
        "pace",
        "a member that was slow for a day stays out for days when it is well again",
        (Edit(f"{REPLICA}.pace:Pace.left", "min(doubled_ms, PROBATION_MAX_MS)", "doubled_ms"),),
        UnitTests(RULE),
    ),
    Mutant(
        "stalls-out-of-the-set-unseen",
        "pace",
        "a member that still stalls comes back, as nobody waits for it meanwhile",
        (
            Edit(
                f"{REPLICA}.pace:Pace.look",
                "if self.out_until_ms and 2 * self.recent_ms >= self._limits.slow_ms:",
                "if False:",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "confirm-waits-for-who-is-out",
        "pace",
        "confirm waits for a slow member as for one that is about to join",
        (
            Edit(
                f"{REPLICA}.membership:Joiner._is_close",
                "and not member.pace.is_out(now_ms)",
                "",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "blamed-for-what-all-suffer",
        "pace",
        "members that stall together, with a disk that they share, are let go for it",
        (
            Edit(
                f"{REPLICA}.master:Mastership._look_at_paces",
                "held_by(self.min_in_sync, [self._log.flushed, *others])",
                "self._log.flushed",
            ),
        ),
        UnitTests(RULE),
    ),
    Mutant(
        "own-pause-blamed-on-members",
        "pace",
        "a master that stood still itself lets its members go for it",
        (Edit(f"{REPLICA}.pace:Pace.excuse", "self._mark_ms += pause_ms", "pass"),),
        UnitTests(RULE),
    ),
)
