"""The object store as the tier needs it: five calls, and how their failures are told.

Rules protected: a create either says "this very call made it" or says nothing (``Maybe``): exists,
conflict, time-out and 5xx are not told apart, because clients that retry and stores that answer
late mix them up. Whoever needs to know reads the object. "Not there" is an
answer, never an error that could also mean "no bucket". Every call ends at its deadline.

What it refuses: keys that could be another key (dots, empty parts), before any store sees them.
"""

import re
from enum import Enum
from mmap import mmap
from typing import NamedTuple, Protocol, TypeAlias

import msgspec
from gantry_protocol.errors import EXIT_TEMPORARY, GantryError

DATA_TIMEOUT_S = 20.0  # packs
MANIFEST_TIMEOUT_S = 5.0  # everything else
LIST_LIMIT_MAX = 1000  # keys of one listing; S3's page
MAX_KEY_BYTES = 512

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


class StoreError(GantryError):
    """A call of the store had no usable answer."""


class StoreUnavailable(StoreError):  # noqa: N818 - a plain word reads better where it is caught
    """No answer in time, or a failure that may pass; a write may have been applied."""

    exit_code = EXIT_TEMPORARY


class StoreBusy(StoreError):  # noqa: N818 - see above
    """Too many earlier calls never came back; this one was not sent."""

    exit_code = EXIT_TEMPORARY


class StoreRefused(StoreError):  # noqa: N818 - see above
    """The store says no for a reason a person must remove; nothing was applied."""


class Created(Enum):
    """This very call made the object."""

    CREATED = "created"


class Maybe(msgspec.Struct, frozen=True):
    """Anything else: the object is there or not, ours or another's.

    Attributes:
        reason: one clause for people.
    """

    reason: str


Creation: TypeAlias = Created | Maybe
CREATED = Created.CREATED


class Found(NamedTuple):
    """One object of a listing."""

    key: str
    size: int


class Store(Protocol):
    """An object store, or a prefix in one. Keys are relative to it.

    Every call raises :class:`StoreUnavailable`, :class:`StoreBusy` or :class:`StoreRefused` besides
    what is said there. A cancelled write may still be applied later.

    Attributes:
        url: for people; holds no secret.
    """

    url: str

    async def create(
        self, key: str, data: bytes | mmap, *, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> Creation:
        """Write the object unless there is one, whole or not at all. An outage is a ``Maybe``."""
        ...

    async def get(
        self, key: str, *, max_bytes: int, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> bytes | None:
        """The object; None if there is none. More than ``max_bytes`` is ``StoreRefused``."""
        ...

    async def get_range(
        self, key: str, start: int, length: int, *, timeout_s: float = DATA_TIMEOUT_S
    ) -> bytes | None:
        """At most ``length`` bytes from ``start`` on, fewer at its end; None if there is none."""
        ...

    async def list_keys(
        self,
        prefix: str,
        *,
        after: str | None = None,
        limit: int = LIST_LIMIT_MAX,
        timeout_s: float = MANIFEST_TIMEOUT_S,
    ) -> list[Found]:
        """The first ``limit`` objects below ``prefix`` and above ``after``, in byte order of keys.

        Whatever was created before the call began is in it.
        """
        ...

    async def delete(self, key: str, *, timeout_s: float = MANIFEST_TIMEOUT_S) -> None:
        """Remove the object; one that is not there is no error."""
        ...


def check_key(key: str) -> None:
    """Refuse what is no plain key: a programmer's error, or an attempt to leave the prefix.

    Raises:
        StoreRefused: says which key.
    """
    parts = key.split("/")
    if len(key) > MAX_KEY_BYTES or not all(map(_PART.match, parts)):
        raise StoreRefused(
            f"{key[:MAX_KEY_BYTES]!r} cannot be a key: parts begin with a letter or digit and hold "
            f"letters, digits, dots, dashes and underscores; at most {MAX_KEY_BYTES} bytes."
        )


def check_listing(prefix: str, after: str | None, limit: int) -> None:
    """Refuse a listing that stores would understand differently.

    Raises:
        StoreRefused: the prefix is neither empty nor whole folders.
    """
    assert 1 <= limit <= LIST_LIMIT_MAX
    if prefix:
        if not prefix.endswith("/"):
            raise StoreRefused(f"{prefix[:MAX_KEY_BYTES]!r} is no folder to list: end it with '/'.")
        check_key(prefix[:-1])
    if after is not None:
        check_key(after)
