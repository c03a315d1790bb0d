"""The demonstration's account: figures, and what among them means that Gantry failed.

Pure. The rule protected here: the demonstration may only succeed if nothing acknowledged was lost,
every duplicate is explained by an answer that got lost, and both gaps were really measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gantry_cli.client.ledger import Verdict
    from gantry_cli.trial.history import Reign


class Account(msgspec.Struct, frozen=True):
    """What is printed after `DEMO`; gaps are None when writes did not resume."""

    ready_s: float | None
    write_gap_ms: float | None
    handover_gap_ms: float | None
    acknowledged: int
    consumed: int
    lost: int
    duplicated: int
    duplicated_after_lost_answer: int
    unknown: int
    misplaced: int
    illegal_offsets: int
    master_changes: int
    masters: list[Reign]
    epochs_with_two_masters: list[int]
    duration_s: float

    def failures(self) -> list[str]:
        """One sentence for each reason why this run is no success."""
        reasons = {
            "no message was acknowledged": self.acknowledged == 0,
            "writes did not resume after the kill": self.write_gap_ms is None,
            "writes did not resume after the hand-over": self.handover_gap_ms is None,
            f"{self.lost} acknowledged messages were lost": self.lost > 0,
            f"{self.duplicated - self.duplicated_after_lost_answer} duplicates have no lost answer "
            "that explains them": self.duplicated > self.duplicated_after_lost_answer,
            f"{self.misplaced} messages were not where they were acknowledged": self.misplaced > 0,
            f"consumers were told {self.illegal_offsets} times that their offset is not legal": (
                self.illegal_offsets > 0
            ),
            f"two masters in epochs {self.epochs_with_two_masters}": bool(
                self.epochs_with_two_masters
            ),
            f"the mastership moved {self.master_changes} times, expected 2": (
                self.master_changes != 2
            ),
        }
        return [reason for reason, failed in reasons.items() if failed]

    def line(self) -> str:
        """The last line of the demonstration."""
        return f"DEMO {msgspec.json.encode(self).decode()}"


def account(
    verdict: Verdict,
    *,
    ready_s: float | None,
    write_gap_ms: float | None,
    handover_gap_ms: float | None,
    illegal_offsets: int,
    masters: list[Reign],
    master_changes: int,
    conflicts: list[int],
    duration_s: float,
) -> Account:
    """Put the figures of a run together, rounded to what a reader can use."""

    def rounded(value: float | None, digits: int) -> float | None:
        return None if value is None else round(value, digits)

    return Account(
        ready_s=rounded(ready_s, 2),
        write_gap_ms=rounded(write_gap_ms, 1),
        handover_gap_ms=rounded(handover_gap_ms, 1),
        acknowledged=verdict.acknowledged,
        consumed=verdict.consumed,
        lost=verdict.lost,
        duplicated=verdict.duplicated,
        duplicated_after_lost_answer=verdict.duplicated_after_lost_answer,
        unknown=verdict.unknown,
        misplaced=verdict.misplaced,
        illegal_offsets=illegal_offsets,
        master_changes=master_changes,
        masters=masters,
        epochs_with_two_masters=conflicts,
        duration_s=round(duration_s, 1),
    )
