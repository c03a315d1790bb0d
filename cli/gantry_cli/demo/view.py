"""The view of the show: a live screen on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gantry_cli.trial.narrate import member_name

if TYPE_CHECKING:
    from gantry_protocol.admin import GroupView, MemberView
    from rich.console import RenderableType

    from gantry_cli.demo.stage import DemoStage, Event

BARS = "▁▂▃▄▅▆▇█"
SPARK_STEP_S = 0.25
SPARK_STEPS = 72
EVENTS_SHOWN = 10
STALE_AFTER_S = 1.0
STYLES = {"did": "bold yellow", "saw": "", "gap": "bold cyan"}


def sparkline(counts: list[int]) -> str:
    """One character per step; a step without anything is a blank, so that a gap is a gap."""
    top = max(counts, default=0) or 1
    return "".join(BARS[(count * (len(BARS) - 1)) // top] if count else " " for count in counts)


def print_event(event: Event) -> None:
    """One plain line per event."""
    mark = {"did": ">", "saw": " ", "gap": "*"}[event.kind]
    Console(highlight=False, soft_wrap=True).print(f"{event.at_s:6.2f} s {mark} {event.text}")


class LiveScreen:
    """Draws a stage whenever rich asks for it."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage

    def __rich__(self) -> RenderableType:
        """The whole screen."""
        return Group(self._members(), self._writes(), self._events())

    def _members(self) -> RenderableType:
        observer = self._stage.observer
        group = observer.group if observer is not None else None
        table = Table(expand=True, box=None, pad_edge=False)
        for heading in ("pod", "role", "broker", "in sync", "end", "confirmed", "heard"):
            table.add_column(heading, justify="left" if heading in ("pod", "role") else "right")
        if group is not None:
            for member in sorted(group.members, key=lambda item: item.broker_id):
                table.add_row(*_row(group, member), style=_style(group, member))
        tier = self._stage.tier
        return Panel(
            table,
            title=self._title(group),
            subtitle=None if tier is None else tier.line,
            border_style="blue",
        )

    def _title(self, group: GroupView | None) -> str:
        observer = self._stage.observer
        if group is None or observer is None:
            return "waiting for the broker group"
        leader = observer.quorum.leader_name if observer.quorum else None
        stale = "" if observer.stale_s < STALE_AFTER_S else f" · {observer.stale_s:.0f} s old"
        return (
            f"group {group.name} · epoch {group.master_epoch} · "
            f"in-sync set {sorted(group.sync_state_set)} · controller leader {leader or '?'}{stale}"
        )

    def _writes(self) -> RenderableType:
        load = self._stage.load
        if load is None:
            return Panel("no load yet", title="writes", border_style="blue")
        now_s = time.monotonic()
        spark = sparkline(load.acks.rates(now_s, step_s=SPARK_STEP_S, steps=SPARK_STEPS))
        silence_ms = (now_s - load.acks.last_s) * 1000 if load.acks.last_s is not None else 0.0
        facts = Text.assemble(
            ("acknowledged ", "dim"),
            str(load.ledger.acknowledged),
            ("   consumed ", "dim"),
            str(load.ledger.consumed),
            ("   since the last one ", "dim"),
            (f"{silence_ms:.0f} ms", "bold red" if silence_ms > 300 else ""),
        )
        for what, gap_ms in self._stage.gaps.items():
            facts.append(f"   {what} ", "dim")
            facts.append(f"{gap_ms:.0f} ms", "bold cyan")
        return Panel(
            Group(Text(spark, style="green", no_wrap=True), facts),
            title=f"acknowledged writes, last {SPARK_STEP_S * SPARK_STEPS:.0f} s",
            border_style="blue",
        )

    def _events(self) -> RenderableType:
        lines = Text()
        for event in list(self._stage.events)[-EVENTS_SHOWN:]:
            lines.append(f"{event.at_s:6.2f} s  ", "dim")
            lines.append(f"{event.text}\n", STYLES[event.kind])
        return Panel(lines, title=self._stage.phase, border_style="blue")


def _row(group: GroupView, member: MemberView) -> list[str]:
    heard = member.last_heartbeat_age_ms
    return [
        member_name(group, member.broker_id),
        _role(group, member),
        str(member.broker_id),
        "yes" if member.in_sync else "no",
        str(member.max_offset) if member.max_offset >= 0 else "?",
        str(member.confirm_offset) if member.confirm_offset >= 0 else "?",
        f"{heard} ms ago" if heard is not None else "never",
    ]


def _role(group: GroupView, member: MemberView) -> str:
    if not member.alive:
        return "gone"
    if member.draining:
        return "draining"
    return "MASTER" if member.broker_id == group.master_broker_id else "replica"


def _style(group: GroupView, member: MemberView) -> str:
    if not member.alive:
        return "red"
    if member.broker_id == group.master_broker_id:
        return "bold green"
    return "" if member.in_sync else "yellow"
