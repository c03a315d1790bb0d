"""Bugs in the retention of a log without a tier: what goes too early, and who is left behind."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

DECISIONS = "unit/broker/retention/test_decisions.py"
REAL_LOG = "unit/broker/retention/test_log_retention.py"
HANDSHAKE = "unit/broker/replica/test_handshake.py"
TRIMMED = "unit/broker/replica/test_trimmed.py"


def _mutant(name: str, breaks: str, where: str, old: str, new: str, killer: str) -> Mutant:
    edit = Edit(f"gantry_broker.{where}", old, new)
    return Mutant(name, "retention", breaks, (edit,), UnitTests(killer))


MUTANTS = (
    _mutant(
        "cuts-above-confirm",
        "a master cuts what is not confirmed",
        "retention.core.rules:decide",
        "needed = min(needed, facts.confirm)",
        "needed = facts.end",
        f"{DECISIONS}::test_the_log_is_trimmed_to_the_least_of_all",
    ),
    _mutant(
        "cuts-below-a-link",
        "a replica outside the set waits for ever for bytes that are gone",
        "replica.core:ReplicaCore._trimmed",
        "[] if self.master is None else self.master.links_below(start)",
        "[]",
        f"{TRIMMED}::test_who_goes_on_below_the_new_start_is_sent_away_and_begins_anew",
    ),
    _mutant(
        "cuts-leave-behind",
        "a replica that ends below the master's start is sent what is gone",
        "replica.handshake:_common_end",
        "point < mine.log_start or",
        "",
        f"{HANDSHAKE}::test_the_master_names_the_last_common_point",
    ),
    _mutant(
        "cuts-and-a-stale-lineage",
        "who is killed between throwing its log away and saving the new lineage is stuck",
        "replica.handshake:_common_end",
        "common < hello.end",
        "not theirs.entries",
        f"{HANDSHAKE}::test_the_master_names_the_last_common_point",
    ),
    _mutant(
        "retention-above-confirm",
        "the log loses what is not confirmed",
        "retention.core.rules:decide",
        "needed = min(needed, facts.confirm)",
        "pass",
        f"{DECISIONS}::test_the_log_is_trimmed_to_the_least_of_all",
    ),
    _mutant(
        "retention-below-a-member",
        "the log loses what a member of the set, a delayed message or a transaction needs",
        "retention.core.rules:decide",
        "min((need.at for need in facts.needed), default=facts.confirm)",
        "facts.confirm",
        f"{DECISIONS}::test_the_log_is_trimmed_to_the_least_of_all",
    ),
    _mutant(
        "retention-before-the-state",
        "the log loses topics and offsets that are in force (H12)",
        "retention.core.rules:toward",
        "min(safe, log.whole_from)",
        "safe",
        f"{DECISIONS}::test_the_log_is_trimmed_to_the_least_of_all",
    ),
    _mutant(
        "full-disk-breaks-promises",
        "a disk that is nearly full takes what somebody needs",
        "retention.core.rules:decide",
        "min(forced, needed)",
        "forced",
        f"{DECISIONS}::test_otherwise_it_is_kept_and_says_why",
    ),
    _mutant(
        "no-state-ahead-of-time",
        "a disk that is full takes no state any more, and nothing can go",
        "retention.core.rules:_nothing_due",
        "facts.disk_fills",
        "False",
        f"{REAL_LOG}::test_a_disk_that_fills_has_the_state_ready",
    ),
    _mutant(
        "jumped-clock-believed",
        "a clock that jumps ahead empties the log",
        "retention.log_retention:SteadyClock.now_ms",
        "min(self._wall(), self._passed() + self._ahead_s)",
        "self._wall()",
        f"{REAL_LOG}::test_a_clock_that_jumps_ahead_makes_nothing_old",
    ),
)
