"""Set-ups that take long and are alike: the next one begins while a test still has the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Begun = TypeVar("Begun")


def one_ahead(count: int, begin: Callable[[], Begun]) -> Iterator[Begun]:
    """`count` times what `begin` returns, each begun when the one before it is handed out.

    `begin` only sets things going; whoever gets the result waits for it. Nothing is begun before
    the first is asked for, and none that nobody will ask for.

    Args:
        count: how many will be asked for, at least 0.
        begin: starts the next one.
    """
    ahead = [begin()] if count else []
    for left in range(count - 1, -1, -1):
        if left:
            ahead.append(begin())
        yield ahead.pop(0)
