"""Ambient facts that the rules must not fetch themselves: time, uids and random suffixes."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from typing import Protocol

from gantry_local.apiserver.names import SUFFIX_ALPHABET


class Ambient(Protocol):
    """The registry's view of the world."""

    def now_text(self) -> str:
        """The time as ``metav1.Time`` writes it: RFC 3339, whole seconds, UTC."""

    def later_text(self, seconds: int) -> str:
        """``now_text`` in so many seconds."""

    def uid(self) -> str:
        """A fresh uid."""

    def suffix(self, length: int) -> str:
        """Random characters for a generated name."""


class SystemAmbient:
    """The machine's clock and randomness."""

    def now_text(self) -> str:
        """The current UTC time."""
        return self.later_text(0)

    def later_text(self, seconds: int) -> str:
        """The UTC time in so many seconds."""
        when = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
        return when.strftime("%Y-%m-%dT%H:%M:%SZ")

    def uid(self) -> str:
        """A random UUID."""
        return str(uuid.uuid4())

    def suffix(self, length: int) -> str:
        """Characters that make no words."""
        return "".join(random.choices(SUFFIX_ALPHABET, k=length))  # noqa: S311  # names, not secrets


class FixedAmbient:
    """A still clock and counted uids, for tests of the rules."""

    def __init__(self, now: dt.datetime | None = None) -> None:
        self.now = now or dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self._count = 0

    def now_text(self) -> str:
        """The set time."""
        return self.later_text(0)

    def later_text(self, seconds: int) -> str:
        """The set time plus so many seconds."""
        return (self.now + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def uid(self) -> str:
        """Counted: uid-1, uid-2 and so on."""
        self._count += 1
        return f"uid-{self._count}"

    def suffix(self, length: int) -> str:
        """A counted suffix of the asked length."""
        self._count += 1
        return str(self._count).rjust(length, "x")
