"""Faults the server can be told to have: the explicit object tests and chaos runs hold.

Every fault is stated by its caller and bounded by a count or by its removal; nothing is random.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from gantry_local.apiserver.errors import (
    StatusError,
    conflict,
    internal,
    too_many_requests,
)

if TYPE_CHECKING:
    from gantry_local.apiserver.kinds import ResourceType

MAX_RULES: Final = 100
MAX_DELAY_S: Final = 300.0
WatchFault = Literal["drop", "gone", "error", "silence"]
"""Cut connections; end with 410; end with an ERROR line; deliver nothing until cleared."""


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """Delay, then refuse, the next ``count`` requests that match; ``*`` matches everything.

    With code 200 a request is only delayed.
    """

    code: Literal[200, 409, 429, 500]
    verb: str = "*"
    plural: str = "*"
    count: int = 1
    retry_after_s: int = 1
    delay_s: float = 0.0

    def hits(self, verb: str, plural: str) -> bool:
        """Whether the rule applies to a request."""
        return self.count > 0 and self.verb in {"*", verb} and self.plural in {"*", plural}


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """One order at the fault switchboard: any of a rule, an outage and a watch fault."""

    rule: Rule | None = None
    outage: bool | None = None
    watches: WatchFault | None = None
    plural: str = "*"


class Faults:
    """The faults in force."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        # True: every connection is cut without an answer, as if no server were there.
        self.outage = False
        # Watches of these resources deliver nothing, not even bookmarks ("*": all).
        self.silent: set[str] = set()

    def add(self, rule: Rule) -> None:
        """Put a rule in force."""
        if len(self._rules) >= MAX_RULES:
            raise ValueError(f"at most {MAX_RULES} fault rules at a time")
        self._rules.append(rule)

    def clear(self) -> None:
        """No faults."""
        self._rules.clear()
        self.silent.clear()
        self.outage = False

    def rules(self) -> list[Rule]:
        """Rules that can still hit."""
        self._rules = [rule for rule in self._rules if rule.count > 0]
        return list(self._rules)

    async def meet(self, verb: str, resource: ResourceType, name: str) -> None:
        """Let a request meet the first rule that matches it; uses up one count.

        Raises:
            StatusError: what the rule refuses with.
        """
        for rule in self.rules():
            if rule.hits(verb, resource.plural):
                rule.count -= 1
                await asyncio.sleep(min(rule.delay_s, MAX_DELAY_S))
                if rule.code != 200:
                    raise _error(rule, resource, name)
                return

    def is_silent(self, plural: str) -> bool:
        """Whether watches of the resource deliver nothing for now."""
        return bool(self.silent & {"*", plural})


def _error(rule: Rule, resource: ResourceType, name: str) -> StatusError:
    match rule.code:
        case 409:
            return conflict(resource, name)
        case 429:
            return too_many_requests(rule.retry_after_s)
        case _:
            return internal("an injected fault")
