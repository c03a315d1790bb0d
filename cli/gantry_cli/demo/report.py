"""The demonstration's account: figures, and what among them means that Gantry failed.

Pure. The rule protected here: the demonstration may only succeed if nothing acknowledged was lost,
nothing is stored twice, though answers got lost and were asked for again, all gaps were really
measured, and the tier is sound, complete, and was written by nobody but the masters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gantry_cli.client.ledger import DeliveryAccount
    from gantry_cli.trial.history import Mastership

CHANGES = 3  # killed, handed over, frozen


class Uploader(msgspec.Struct, frozen=True, rename="camel"):
    """One claim of the tier."""

    epoch: int
    broker: str
    version: int
    from_offset: int


class TierAccount(msgspec.Struct, frozen=True, rename="camel"):
    """The tier as the store has it, read and verified after everything.

    Attributes:
        uploaders: every claim, in order.
        versions, packs, records: of the chain.
        committed_offset: the tier holds everything below.
        load_end_offset: what was confirmed when the load had ended.
        confirm_offset: what the controllers said after the chain was read; what brokers write for
            themselves lets it rise all the time.
        refused: packs of a master that was frozen over their commit; no version names them.
        findings: faults; none when the tier is sound.
    """

    uploaders: list[Uploader]
    versions: int
    packs: int
    records: int
    committed_offset: int
    load_end_offset: int
    confirm_offset: int
    refused: list[str]
    findings: list[str]

    def failures(self, masters: list[Mastership]) -> dict[str, bool]:
        """Reasons why the tier is not what it should be, each with whether it holds."""
        claimed = [uploader.epoch for uploader in self.uploaders]
        return {
            f"the tier has faults: {'; '.join(self.findings)}": bool(self.findings),
            f"the tier was claimed for epochs {claimed}, masters served in "
            f"{[master.epoch for master in masters]}": not set(claimed)
            <= {master.epoch for master in masters},
            "the last master did not upload": bool(masters)
            and (not claimed or claimed[-1] != masters[-1].epoch),
            f"the tier ends at {self.committed_offset}, the load was confirmed up to "
            f"{self.load_end_offset}": self.committed_offset < self.load_end_offset,
            "no upload of the frozen master was refused": not self.refused,
        }


class DemoAccount(msgspec.Struct, frozen=True):
    """The account printed after `DEMO`; gaps are None when writes did not resume."""

    ready_s: float | None
    write_gap_ms: float | None
    handover_gap_ms: float | None
    freeze_gap_ms: float | None
    acknowledged: int
    consumed: int
    lost: int
    duplicated: int
    duplicated_after_lost_answer: int
    unknown: int
    misplaced: int
    illegal_offsets: int
    master_changes: int
    masters: list[Mastership]
    epochs_with_two_masters: list[int]
    tier: TierAccount
    duration_s: float

    def failures(self) -> list[str]:
        """One sentence for each reason why this run is no success."""
        reasons = {
            "no message was acknowledged": self.acknowledged == 0,
            "writes did not resume after the kill": self.write_gap_ms is None,
            "writes did not resume after the hand-over": self.handover_gap_ms is None,
            "writes did not resume after the freeze": self.freeze_gap_ms is None,
            f"{self.lost} acknowledged messages were lost": self.lost > 0,
            f"{self.duplicated} messages are stored twice": self.duplicated > 0,
            f"{self.misplaced} messages were not where they were acknowledged": self.misplaced > 0,
            f"consumers were told {self.illegal_offsets} times that their offset is not legal": (
                self.illegal_offsets > 0
            ),
            f"two masters in epochs {self.epochs_with_two_masters}": bool(
                self.epochs_with_two_masters
            ),
            f"the mastership moved {self.master_changes} times, expected {CHANGES}": (
                self.master_changes != CHANGES
            ),
            **self.tier.failures(self.masters),
        }
        return [reason for reason, failed in reasons.items() if failed]

    def line(self) -> str:
        """The last line of the demonstration."""
        return f"DEMO {msgspec.json.encode(self).decode()}"


def account(
    verdict: DeliveryAccount,
    *,
    ready_s: float | None,
    write_gap_ms: float | None,
    handover_gap_ms: float | None,
    freeze_gap_ms: float | None,
    illegal_offsets: int,
    masters: list[Mastership],
    master_changes: int,
    conflicts: list[int],
    tier: TierAccount,
    duration_s: float,
) -> DemoAccount:
    """Put the figures of a run together, rounded to what a reader can use."""

    def rounded(value: float | None, digits: int) -> float | None:
        return None if value is None else round(value, digits)

    return DemoAccount(
        ready_s=rounded(ready_s, 2),
        write_gap_ms=rounded(write_gap_ms, 1),
        handover_gap_ms=rounded(handover_gap_ms, 1),
        freeze_gap_ms=rounded(freeze_gap_ms, 1),
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
        tier=tier,
        duration_s=round(duration_s, 1),
    )
