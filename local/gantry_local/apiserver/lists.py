"""Lists in pages over one consistent snapshot, with expiring continue tokens."""

from __future__ import annotations

import base64
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from gantry_local.apiserver.errors import bad_request, expired, version_in_future
from gantry_local.apiserver.store import Record  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.selectors import Selector
    from gantry_local.apiserver.store import Store

MAX_OPEN_LISTS: Final = 256
"""Snapshots held for unfinished lists; the oldest is dropped and its token answers 410."""


class Page(msgspec.Struct, frozen=True):
    """One answer to a list request."""

    records: list[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


class Lists:
    """Serves list requests; snapshots are only lists of references to stored records."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: OrderedDict[str, tuple[int, list[Record]]] = OrderedDict()
        self._counter = 0

    def page(
        self,
        resource: ResourceType,
        namespace: str | None,
        selector: Selector,
        *,
        limit: int,
        token: str,
    ) -> Page:
        """The first page, or the one ``token`` stands for; ``limit`` 0 means everything."""
        if token:
            revision, records = self._resume(token)
        else:
            revision = self._store.revision
            found = self._store.records(resource.key, namespace)
            records = [record for record in found if selector.matches(record.obj)]
        if not limit or len(records) <= limit:
            return Page(records, revision)
        rest = records[limit:]
        filtered = bool(selector.labels or selector.fields)
        return Page(
            records[:limit],
            revision,
            self._keep(revision, rest),
            None if filtered else len(rest),
        )

    def expire_all(self) -> None:
        """Forget every snapshot: all tokens answer 410, as after a compaction."""
        self._open.clear()

    def check_version(self, text: str, match: str) -> None:
        """The resourceVersion of a list request must not be ahead, nor exact and compacted."""
        if text in {"", "0"}:
            return
        if not text.isdigit():
            raise bad_request(f"invalid resource version {text!r}")
        asked = int(text)
        if asked > self._store.revision:
            raise version_in_future(asked, self._store.revision)
        if match == "Exact" and asked < self._store.revision:
            raise expired(f"The provided resource version is not available: {asked}")

    def _keep(self, revision: int, rest: list[Record]) -> str:
        self._counter += 1
        key = f"{revision}:{self._counter}"
        self._open[key] = (revision, rest)
        while len(self._open) > MAX_OPEN_LISTS:
            self._open.popitem(last=False)
        return base64.urlsafe_b64encode(key.encode()).decode()

    def _resume(self, token: str) -> tuple[int, list[Record]]:
        try:
            key = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
        except ValueError as error:
            raise bad_request("continue key is not valid") from error
        if key not in self._open:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        return self._open[key]
