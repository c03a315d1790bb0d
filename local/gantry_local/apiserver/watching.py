"""Watch streams: from a revision to a sequence of JSON lines.

A stream never blocks the store. A reader that falls behind by more than the queue's bound is cut
off, as the real server does, and lists again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantry_local.apiserver.errors import bad_request, expired, version_in_future

if TYPE_CHECKING:
    from gantry_local.apiserver.errors import StatusError
    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.selectors import Selector
    from gantry_local.apiserver.store import Event, Store

MAX_QUEUED: Final = 50_000
"""Events one reader may lag behind: a full relist of the largest supported cluster fits."""


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Query parameters of a watch."""

    resource_version: str = ""
    bookmarks: bool = False
    initial_events: bool = False
    timeout_s: float = 1800.0


class WatchStream:
    """One watch; ``take`` yields chunks of lines, ``close`` ends it from outside."""

    def __init__(
        self,
        store: Store,
        resource: ResourceType,
        namespace: str | None,
        selector: Selector,
        options: WatchOptions,
    ) -> None:
        self.resource = resource
        self._namespace = namespace
        self._selector = selector
        self._store = store
        self._lines: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self.aborted = False
        self.ended = False
        self._start(options)
        # A reader that missed a change is cut off, and lists again.
        self._unsubscribe = store.subscribe(
            self._on_event, name=f"watch {resource.plural}", resync=self.abort
        )

    def _start(self, options: WatchOptions) -> None:
        text = options.resource_version
        if text and not text.isdigit():
            raise bad_request(f"invalid resource version {text!r}")
        since = int(text or 0)
        if since > self._store.revision:
            raise version_in_future(since, self._store.revision)
        if since == 0 or options.initial_events:
            for record in self._store.records(self.resource.key, self._namespace):
                if self._selector.matches(record.obj):
                    self._lines.append(_line("ADDED", record.encoded()))
            if options.initial_events:
                self._lines.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
            return
        missed = self._store.since(since)
        if missed is None:
            message = f"too old resource version: {since} ({self._store.compacted})"
            self.fail(expired(message))
            return
        for event in missed:
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        record = event.record
        if record.resource != self.resource.key or self.ended:
            return
        if self._namespace is not None and record.key[0] != self._namespace:
            return
        line = self._render(event)
        if line is None:
            return
        if len(self._lines) >= MAX_QUEUED:
            self.abort()
            return
        self._lines.append(line)
        self._wake.set()

    def _render(self, event: Event) -> bytes | None:
        """The event as this selector sees it: objects can come into view and leave it."""
        before = event.before is not None and self._selector.matches(event.before.obj)
        now = event.type != "DELETED" and self._selector.matches(event.record.obj)
        if now:
            return _line("MODIFIED" if before else "ADDED", event.record.encoded())
        if not before:
            return None
        if event.type == "DELETED":
            return _line("DELETED", event.record.encoded())
        assert event.before is not None
        version = event.record.obj["metadata"]["resourceVersion"]
        metadata = {**event.before.obj["metadata"], "resourceVersion": version}
        last = {**event.before.obj, "metadata": metadata}
        return _line("DELETED", msgspec.json.encode(last))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(self._store.revision)}
        if annotations:
            metadata["annotations"] = annotations
        obj = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": metadata,
        }
        return _line("BOOKMARK", msgspec.json.encode(obj))

    def bookmark(self) -> None:
        """Tell the reader the current revision; only when nothing older is still queued."""
        if not self._lines and not self.ended:
            self._lines.append(self._bookmark())
            self._wake.set()

    def fail(self, error: StatusError) -> None:
        """End the stream with an ERROR line."""
        self._lines.append(_line("ERROR", msgspec.json.encode(error.status())))
        self.end()

    def end(self) -> None:
        """End the stream cleanly after what is queued."""
        self.ended = True
        self._wake.set()

    def abort(self) -> None:
        """End the stream by cutting the connection."""
        self.aborted = True
        self.end()

    def close(self) -> None:
        """Detach from the store."""
        self._unsubscribe()
        self._lines.clear()

    async def take(self) -> bytes | None:
        """The next lines as one chunk; None at the end."""
        while not self._lines or self.aborted:
            if self.ended and (self.aborted or not self._lines):
                return None
            self._wake.clear()
            await self._wake.wait()
        chunk = b"".join(self._lines)
        self._lines.clear()
        return chunk


def _line(kind: str, encoded: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), encoded)
