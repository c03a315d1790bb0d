"""Parked messages, a log that breaks off, masters that die, and a wall clock that jumps.

The scheduler is the real one. The log is a list of what senders and delivery append: parked
messages, delivered ones, and after each batch how far its level has come.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from gantry_broker.clients.core.delay.schedule import Level, Parked, Schedule

DELAYS_MS = (40, 300, 2_000)
BATCH = 4


class Entry(NamedTuple):
    """One record of the log.

    Attributes:
        kind: ``park``, ``deliver`` or ``progress``.
        number: queue offset of the message; of progress, the position.
        at_ms: steady time of the append.
        wall_ms: its store time.
        append: which append it was part of.
    """

    kind: str
    level: int
    number: int
    at_ms: int
    wall_ms: int
    append: int


class DelayWorld:
    """One group, over many masterships."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 10_000_000
        self.skew_ms = 0  # wall clock minus steady clock
        self.log: list[Entry] = []
        self.confirmed = 0  # entries below are
        self.torn: set[int] = set()  # appends of which a crash left only a part
        self.early: list[str] = []
        self.refusing = False
        self._appends = 0
        self._began: tuple[int, int] = (0, 0)  # steady time and wall time of the promotion
        self._inherited: list[int] = []  # by level: parked messages below were there already
        self._arrived_ms: dict[tuple[int, int], int] = {}  # in this mastership
        self._waiting: list[tuple[int, int, int, int]] = []  # end in the log, level, position, …
        self.promote()

    # ---- the log

    def parked(self, level: int, upto: int | None = None) -> list[Entry]:
        return [one for one in self.log[:upto] if one.kind == "park" and one.level == level]

    def delivered(self, level: int) -> list[Entry]:
        return [one for one in self.log if one.kind == "deliver" and one.level == level]

    def _append(self, entries: list[tuple[str, int, int]]) -> None:
        wall_ms = max([self.now_ms + self.skew_ms, *(one.wall_ms for one in self.log[-1:])])
        self._appends += 1
        for kind, level, number in entries:
            self.log.append(Entry(kind, level, number, self.now_ms, wall_ms, self._appends))

    # ---- what happens

    def park(self) -> None:
        level = self.random.randrange(len(DELAYS_MS))
        self._append([("park", level, len(self.parked(level)))])

    def confirm(self) -> None:
        """Everything appended so far; the master hears of it."""
        fresh = self.log[self.confirmed :]
        self.confirmed = len(self.log)
        for one in fresh:
            if one.kind == "park":
                self._arrived_ms[one.level, one.number] = self.now_ms
                self.schedule.levels[one.level].arrived(one.number + 1, self.now_ms)
        waiting, self._waiting = self._waiting, []
        for _, level, position, _ in waiting:
            self.schedule.advanced(level, position)

    def crash(self) -> None:
        """The master dies; the next one has all that is confirmed and maybe some of the rest."""
        keep = self.random.randint(self.confirmed, len(self.log))
        if 0 < keep < len(self.log) and self.log[keep - 1].append == self.log[keep].append:
            self.torn.add(self.log[keep].append)
        del self.log[keep:]
        self.promote()

    def promote(self) -> None:
        self._waiting.clear()
        self._arrived_ms.clear()
        self._began = (self.now_ms, self.now_ms + self.skew_ms)
        self._inherited = [len(self.parked(number)) for number in range(len(DELAYS_MS))]
        levels = []
        for number, delay_ms in enumerate(DELAYS_MS):
            reached = [
                one.number for one in self.log if (one.kind, one.level) == ("progress", number)
            ]
            end = len(self.parked(number, self.confirmed))
            position = reached[-1] if reached else 0
            levels.append(Level(position, end, self._inherited[number], delay_ms))
        self.schedule = Schedule(levels, *self._began)

    def pass_time(self, by_ms: int) -> None:
        """As the shell: look when the schedule asks for it."""
        until_ms = self.now_ms + by_ms
        while (wake_ms := self.schedule.wake_ms()) is not None and wake_ms <= until_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            self._look()
        self.now_ms = until_ms

    def _look(self) -> None:
        for number in self.schedule.wanted(self.now_ms):
            if self.refusing:
                self.schedule.refused(number, self.now_ms)
                continue
            level = self.schedule.levels[number]
            found = self.parked(number, self.confirmed)[level.position :][:BATCH]
            messages = [Parked(one.number, one.wall_ms, DELAYS_MS[number]) for one in found]
            count = self.schedule.judge(number, messages, self.now_ms)
            for one in found[:count]:
                self._judge_time(one)
            if count:
                position = level.position + count
                batch = [("deliver", number, one.number) for one in found[:count]]
                self._append([*batch, ("progress", number, position)])
                self._waiting.append((len(self.log), number, position, count))

    def _judge_time(self, one: Entry) -> None:
        """The rule of the clocks, as told to users."""
        delay_ms = DELAYS_MS[one.level]
        began_ms, began_wall_ms = self._began
        if one.number >= self._inherited[one.level]:
            earliest_ms = self._arrived_ms[one.level, one.number] + delay_ms
        else:
            left_ms = one.wall_ms + delay_ms - began_wall_ms
            earliest_ms = began_ms + min(delay_ms, max(0, left_ms))
        if self.now_ms < earliest_ms:
            self.early.append(f"{one} at {self.now_ms}, not before {earliest_ms}")
