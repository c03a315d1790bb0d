"""Controller metadata: the master of a group is one linearizable register. Pure, O(n log n).

A register holds (epoch, master). It changes by elections, which raise the epoch, and by the loss of
a master, which leaves the epoch and takes the master away. Clients see both through reads; an
election that a client asked for is seen through its answer, all others happen by themselves.

Why sorting decides it: an epoch never falls and within it the master can only go away, so every
state has a rank and the register's states rise in rank. A history is linearizable exactly if its
operations, sorted by rank, can be put on a line of time: no operation of a higher rank has returned
before one of a lower rank was called. (If that holds, any order by rank and then by call extends
the order of real time; if not, the pair itself cannot be ordered.) Reads of one rank must agree.

An election without a known answer restricts nothing, since elections may happen at any time.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from gantry_chaos.checkers.verdicts import Verdict, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gantry_chaos.history.observations import Observation
    from gantry_chaos.history.operations import Operation

from gantry_chaos.history.observations import RoleSeen

NAME = "metadata"
NO_MASTER = "none"
_VALUE = re.compile(r"(\d{1,18}):(\S+)")


class _Point(NamedTuple):
    """A completed operation on one register."""

    epoch: int
    step: int  # 0: the election itself; 1: its master is seen; 2: the master is gone
    master: str
    called_ms: int
    returned_ms: int
    client: str

    @property
    def rank(self) -> tuple[int, int]:
        return self.epoch, self.step

    def told(self) -> str:
        what = "elected" if self.step == 0 else "read"
        when = f"{self.called_ms} to {self.returned_ms} ms"
        return f"{self.client} {what} {self.epoch}:{self.master} ({when})"


def check(operations: Iterable[Operation]) -> Verdict:
    """Whether `read` and `elect` of every group are linearizable.

    Their key is the group; their value is `EPOCH:MASTER`, with `none` for no master.
    """
    groups: dict[str, list[_Point]] = {}
    violations: list[str] = []
    unknown = 0
    for operation in operations:
        if operation.op not in ("read", "elect") or operation.outcome == "FAILURE":
            continue
        if operation.outcome == "UNKNOWN" or operation.returned_ms is None:
            unknown += 1
            continue
        found = _VALUE.fullmatch(operation.value or "")
        if not found or (operation.op == "elect" and found[2] == NO_MASTER):
            violations.append(
                f"{operation.client} was answered {operation.value!r}, which is no EPOCH:MASTER."
            )
            continue
        step = 0 if operation.op == "elect" else 2 if found[2] == NO_MASTER else 1
        groups.setdefault(operation.key or "", []).append(
            _Point(
                int(found[1]),
                step,
                found[2],
                operation.called_ms,
                operation.returned_ms,
                operation.client,
            )
        )
    for group, points in sorted(groups.items()):
        violations += (f"{group}: {what}" for what in _linearizable(points))
    checked = sum(map(len, groups.values()))
    if not checked:
        violations.append("No operation was answered, so nothing is known.")
    epochs = {(group, point.epoch) for group, points in groups.items() for point in points}
    figures = {
        "registers": len(groups),
        "operations": checked,
        "unknown": unknown,
        "epochs": len(epochs),
        "linearizable": not violations,
    }
    return verdict(NAME, dict(figures), violations)


def _linearizable(points: list[_Point]) -> Iterator[str]:
    points.sort(key=lambda item: (item.rank, item.called_ms))
    for epoch, same in groupby(points, key=lambda item: item.epoch):
        seen = [item for item in same if item.step < 2]
        masters = sorted({item.master for item in seen})
        if len(masters) > 1:
            yield f"epoch {epoch} has several masters: {', '.join(masters)}."
        if sum(1 for item in seen if item.step == 0) > 1:
            yield f"epoch {epoch} was elected twice."
    first: _Point | None = None  # of all higher ranks, the one that returned first
    for _, ranked in groupby(reversed(points), key=lambda item: item.rank):
        here = list(ranked)
        if first is not None:
            for late in reversed(here):
                if first.returned_ms < late.called_ms:
                    yield f"{late.told()} after {first.told()} had returned."
        earliest = min(here, key=lambda item: item.returned_ms)
        if first is None or earliest.returned_ms < first.returned_ms:
            first = earliest


def check_roles(observations: Iterable[Observation]) -> Verdict:
    """Roles by the brokers' own word: one master per epoch, and no broker's epoch falls."""
    masters: dict[tuple[str, int], set[str]] = {}
    epochs: dict[tuple[str, str], int] = {}
    violations: list[str] = []
    for seen in observations:
        if not isinstance(seen, RoleSeen) or seen.role != "master":
            continue
        brokers = masters.setdefault((seen.group, seen.epoch), set())
        if seen.broker not in brokers and brokers:
            both = ", ".join(sorted({*brokers, seen.broker}))
            violations.append(f"{seen.group}: {both} were masters of epoch {seen.epoch}.")
        brokers.add(seen.broker)
        before = epochs.get((seen.group, seen.broker), 0)
        if seen.epoch < before:
            violations.append(
                f"{seen.group}: {seen.broker} was master of epoch {seen.epoch} at {seen.at_ms} ms, "
                f"after it had been of {before}."
            )
        epochs[seen.group, seen.broker] = max(before, seen.epoch)
    if not masters:
        violations.append("No master was ever seen, so nothing is known.")
    return verdict("roles", {"epochs": len(masters), "brokers": len(epochs)}, violations)
