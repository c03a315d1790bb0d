"""Lists of what a cluster's groups hold, by name, a page at a time: topics, consumer groups.

Long lists are put together in bits, between which the loop serves others.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from heapq import nsmallest
from typing import NamedTuple, TypeVar

from aiohttp import web
from gantry_protocol.admin_topics import PAGE_MAX

from gantry_controller.admin.api import ApiRefusal
from gantry_controller.turns import BITS, TurnGate

Table = TypeVar("Table")
View = TypeVar("View")


class PageWish(NamedTuple):
    """The page that a request asks for.

    Attributes:
        known: the stamp of the list that the client has.
        after: the last name of the page before; empty for the first page.
        limit: how many it may have.
    """

    known: str
    after: str
    limit: int


def page_wish(request: web.Request) -> PageWish:
    """The page that a query asks for; raises ApiRefusal."""
    query = request.query
    limit = query.get("limit", "")
    if limit and not (limit.isascii() and limit.isdigit() and int(limit[:9]) > 0):
        raise ApiRefusal(400, "INVALID_REQUEST", f"limit={limit!r} is no number from 1 on.")
    return PageWish(
        query.get("known", ""), query.get("after", ""), min(int(limit[:9] or PAGE_MAX), PAGE_MAX)
    )


async def page_of(
    wish: PageWish,
    tables: Mapping[str, Table],
    names_of: Callable[[Table], Iterable[str]],
    view_of: Callable[[str], View],
    gate: TurnGate,
) -> tuple[list[View], bool]:
    """The views of the next names of any table, in order; and if there are more behind them."""
    found: set[str] = set()
    for table in tables.values():
        found |= await gate.bit(partial(_names_after, names_of, table, wish.after))
    names = await gate.bit(partial(nsmallest, wish.limit + 1, found))
    page = names[: wish.limit]
    views: list[View] = []
    for start in range(0, len(page), BITS):
        some = page[start : start + BITS]
        views += await gate.bit(partial(_each, view_of, some))
    return views, len(names) > len(page)


def _names_after(names_of: Callable[[Table], Iterable[str]], table: Table, after: str) -> set[str]:
    return {name for name in names_of(table) if name > after}


def _each(view_of: Callable[[str], View], names: Iterable[str]) -> list[View]:
    return [view_of(name) for name in names]


def stamp_of(*facts: object) -> str:
    """A word that changes with any of the facts, of which each has a stable ``repr``."""
    return blake2b(repr(facts).encode(), digest_size=16).hexdigest()
