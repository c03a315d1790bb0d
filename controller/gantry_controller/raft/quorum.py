"""Majorities (thesis §3.2): any two of them share a node."""

from collections.abc import Iterable


def quorum_size(members: int) -> int:
    """The size of a majority of ``members``."""
    return members // 2 + 1


def reached_by_quorum(values: Iterable[int], members: int) -> int:
    """The greatest value that a majority of ``members`` has reached.

    ``values`` holds one number per member that may be counted; the others count as nothing.
    """
    ordered = sorted(values, reverse=True)
    size = quorum_size(members)
    return ordered[size - 1] if size <= len(ordered) else 0
