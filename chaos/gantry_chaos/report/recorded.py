"""A history alone, judged: which checkers concern it, and what they found, in words. Pure.

Every operation is one that some checker knows, or the history is refused: what was not checked is
not passed over in silence. How long clients could not write is no question of right and wrong, and
not asked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_chaos.checkers import linearizable, queue, register

if TYPE_CHECKING:
    from gantry_chaos.checkers.verdicts import Verdict
    from gantry_chaos.history.operations import History

MESSAGES = ("enqueue", "dequeue")
MASTERS = ("read", "elect")
UNJUDGED = ("commit",)  # of `gantry_lab soak`: its outcome is all there is to it
KNOWN = (*MESSAGES, *MASTERS, *linearizable.OPERATIONS, *UNJUDGED)


def unknown(history: History) -> list[str]:
    """Operations that no checker knows."""
    return sorted({operation.op for operation in history.operations} - set(KNOWN))


def verdicts(history: History, *, drained: bool) -> list[Verdict]:
    """One per checker that is concerned; none: there is nothing to judge.

    Args:
        history: of clients.
        drained: consumers have read to the end.
    """
    operations = history.operations
    kinds = {operation.op for operation in operations}
    found = []
    if kinds & set(linearizable.OPERATIONS):
        found.append(linearizable.check(operations))
    if kinds & set(MASTERS):
        found.append(register.check(operations))
    if kinds & set(MESSAGES):
        found.append(queue.check(operations, drained=drained))
    return found


def told(found: list[Verdict]) -> list[str]:
    """The verdicts for a terminal, and the whole in one sentence."""
    lines = []
    for item in found:
        figures = ", ".join(f"{name}={value}" for name, value in item.figures.items())
        lines.append(f"{item.checker} {'passed' if item.passed else 'FAILED'}: {figures}")
        lines += [f"  {sentence}" for sentence in item.violations]
    wrong = [item.checker for item in found if not item.passed]
    if wrong:
        lines.append(f"The history is not what it should be: {', '.join(wrong)}.")
    else:
        lines.append("Nothing in the history is wrong.")
    return lines
