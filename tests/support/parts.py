"""An n-th of the tests, drawn by their names: the same turn has the same ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from zlib import crc32

ROOT = Path(__file__).resolve().parents[2]
SHARING = 'scope="module"'


@cache
def has_shared_fixture(file: str) -> bool:
    """Whether tests of this file, a path below the root, use one fixture together."""
    return SHARING in (ROOT / file).read_text("utf-8")


def scope_of(nodeid: str) -> str:
    """A test's own name, or its file's, if tests there use one fixture together."""
    file = nodeid.partition("::")[0]
    return file if has_shared_fixture(file) else nodeid


def is_in_share(nodeid: str, shares: int, turn: int) -> bool:
    """Whether a test belongs to one of ``shares`` parts; what has one scope stays together."""
    return crc32(scope_of(nodeid).encode()) % shares == turn % shares
