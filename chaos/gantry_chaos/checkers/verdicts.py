"""A verdict: whether a checker passed, its figures, and examples of what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLES_MAX = 10


class Verdict(msgspec.Struct, frozen=True):
    """The findings of a checker.

    Attributes:
        checker: its name.
        passed: False also when it could not decide.
        figures: by name, for the table.
        violations: sentences, at most `EXAMPLES_MAX` of them.
        violation_count: all of them.
    """

    checker: str
    passed: bool
    figures: dict[str, int | float | str | bool | None]
    violations: tuple[str, ...]
    violation_count: int


def verdict(
    checker: str,
    figures: dict[str, int | float | str | bool | None],
    violations: Iterable[str],
) -> Verdict:
    """Passed if nothing is wrong."""
    found = list(violations)
    return Verdict(checker, not found, figures, tuple(found[:EXAMPLES_MAX]), len(found))
