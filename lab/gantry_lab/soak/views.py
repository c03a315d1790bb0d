"""Views of a soak over HTTP and at its end: JSON with camelCase names.

Pure. Every time is a reading of CLOCK_MONOTONIC in seconds: all processes and pods of one machine
share that clock, and none on another machine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_cli.client.ledger import DeliveryAccount  # noqa: TC002 -- msgspec reads it
from gantry_cli.trial.narrate import settled, whole

if TYPE_CHECKING:
    from gantry_cli.client.gaps import Gap
    from gantry_protocol.admin import GroupView, QuorumView

QUIET_S = 2.0  # without an acknowledgement people want to know why


class _View(msgspec.Struct, frozen=True, rename="camel"):
    """Something that is sent."""


class WatchedMember(_View, frozen=True):
    """One member of the watched group."""

    broker_id: int
    pod_uid: str | None
    alive: bool
    draining: bool


class WatchedGroup(_View, frozen=True):
    """The watched group, as the controllers said `stale_s` seconds ago."""

    name: str
    master_broker_id: int | None
    master_pod_uid: str | None
    master_epoch: int
    sync_state_set: list[int]
    members: list[WatchedMember]
    settled: bool
    stale_s: float


class WatchedQuorum(_View, frozen=True):
    """The controllers; `whole`: the leader hears every other one."""

    leader_name: str | None
    whole: bool


class MastershipView(_View, frozen=True):
    """One broker being master in one epoch."""

    epoch: int
    broker_id: int


class SoakState(_View, frozen=True):
    """Everything at one moment, `now_s`.

    Attributes:
        sending: not paused.
        started: the topic exists, so lanes and consumer run.
        flowing: acknowledgements came in every quarter of the last second.
        commits_flowing: the same for topic changes; False when none are made.
        last_trouble: the newest reason why something was not acknowledged; empty: none ever.
        error: what broke the soak itself; None: nothing did.
        group: None while it is not watched or was never heard of.
    """

    now_s: float
    sending: bool
    started: bool
    acknowledged: int
    consumed: int
    outstanding: int
    last_ack_s: float | None
    flowing: bool
    commits_flowing: bool
    illegal_offsets: int
    last_trouble: str
    error: str | None
    group: WatchedGroup | None
    quorum: WatchedQuorum | None
    masterships: list[MastershipView]
    conflicts: list[int]


class GapView(_View, frozen=True):
    """From one acknowledgement to the next."""

    start_s: float
    end_s: float
    ms: float


class GapAnswer(_View, frozen=True):
    """The longest gap, or None while the stream has not resumed."""

    gap: GapView | None


class Count(_View, frozen=True):
    """The account of a soak that is paused.

    Attributes:
        drained: the consumer has read every queue to its end; None: that was not looked for.
    """

    verdict: DeliveryAccount
    clean: bool
    outstanding: int
    drained: bool | None = None


class SoakOutcome(_View, frozen=True):
    """The account at the end: a sentence for each broken promise; `clean` means that none was."""

    verdict: DeliveryAccount
    clean: bool
    outstanding: int
    illegal_offsets: int
    conflicts: list[int]
    longest_gap_ms: float | None
    reasons: list[str]


def outcome_of(
    count: Count,
    *,
    illegal_offsets: int,
    conflicts: list[int],
    longest_gap_ms: float | None,
    last_trouble: str,
    error: str | None,
    unseen: str | None,
) -> SoakOutcome:
    """Judge the last count of a soak, and what was noticed besides.

    Args:
        count: of everything that was sent and consumed.
        illegal_offsets: how often the consumer was told that its offset is not legal.
        conflicts: epochs with two masters.
        longest_gap_ms: for the record; a gap breaks no promise.
        last_trouble: why nothing was acknowledged, if nothing was.
        error: what broke the soak itself; None: nothing.
        unseen: why the watched group was never seen: nobody can say then who was master; None: it
            was seen, or is not watched.
    """
    found = _reasons(count.verdict, illegal_offsets, conflicts, error)
    if count.verdict.acknowledged == 0:
        found.append(f"No message was acknowledged. {last_trouble}".strip())
    if unseen is not None:
        found.append(f"Nothing was heard of the watched group. {unseen}")
    return SoakOutcome(
        verdict=count.verdict,
        clean=not found,
        outstanding=count.outstanding,
        illegal_offsets=illegal_offsets,
        conflicts=conflicts,
        longest_gap_ms=longest_gap_ms,
        reasons=found,
    )


def group_of(group: GroupView | None, stale_s: float) -> WatchedGroup | None:
    """The part of a reading that matters to a soak."""
    if group is None:
        return None
    members = [
        WatchedMember(member.broker_id, member.pod_uid, member.alive, member.draining)
        for member in group.members
    ]
    masters = (member.pod_uid for member in members if member.broker_id == group.master_broker_id)
    return WatchedGroup(
        name=group.name,
        master_broker_id=group.master_broker_id,
        master_pod_uid=next(masters, None),
        master_epoch=group.master_epoch,
        sync_state_set=sorted(group.sync_state_set),
        members=members,
        settled=settled(group),
        stale_s=round(stale_s, 3),
    )


def quorum_of(quorum: QuorumView | None) -> WatchedQuorum | None:
    """The leader, and whether everybody is heard."""
    return None if quorum is None else WatchedQuorum(quorum.leader_name, whole(quorum))


def gap_of(gap: Gap | None) -> GapView | None:
    """A gap with its length."""
    return None if gap is None else GapView(gap.start_s, gap.end_s, gap.ms)


def _reasons(
    verdict: DeliveryAccount, illegal_offsets: int, conflicts: list[int], error: str | None
) -> list[str]:
    unexplained = verdict.duplicated - verdict.duplicated_after_lost_answer
    found = {
        f"The soak itself broke: {error}": error is not None,
        f"Acknowledged, and never consumed: {verdict.lost} messages.": verdict.lost > 0,
        f"Consumed twice, without a lost answer that explains it: {unexplained} messages.": (
            unexplained > 0
        ),
        f"Consumed again long after it was dealt with: {verdict.late} messages.": verdict.late > 0,
        f"Not found where it was acknowledged: {verdict.misplaced} messages.": (
            verdict.misplaced > 0
        ),
        f"The consumer was told that its offset is not legal: {illegal_offsets} times.": (
            illegal_offsets > 0
        ),
        f"Two masters in one epoch: {', '.join(map(str, conflicts))}.": bool(conflicts),
    }
    return [sentence for sentence, broken in found.items() if broken]


def sentence(outcome: SoakOutcome) -> str:
    """The account in one sentence."""
    verdict = outcome.verdict
    gap = "" if outcome.longest_gap_ms is None else f"; longest gap {outcome.longest_gap_ms:.0f} ms"
    return (
        f"{verdict.acknowledged} messages acknowledged, {verdict.consumed} consumed, "
        f"{verdict.lost} lost, {verdict.duplicated} twice "
        f"({verdict.duplicated_after_lost_answer} of them after a lost answer){gap}."
    )


def line(state: SoakState, longest_gap_ms: float | None) -> str:
    """The line of a terminal each second."""
    trouble = state.error or state.last_trouble or "no answer yet"
    if not state.started:
        return f"waiting for the topic: {trouble}"
    gap = "-" if longest_gap_ms is None else f"{longest_gap_ms:.0f} ms"
    text = f"{state.acknowledged} acknowledged, {state.consumed} consumed, longest gap {gap}"
    if state.last_ack_s is None:
        return f"{text}; {trouble}"
    quiet_s = state.now_s - state.last_ack_s
    return text if quiet_s < QUIET_S else f"{text}; nothing for {quiet_s:.0f} s: {trouble}"
