"""The last decisions about each resource, in memory: a ring that is read when somebody asks.

Recorded is a decision that differs from the one before it about the same resource: in what others
say (`spins.fingerprint`, which leaves out figures that move by themselves) or in the actions. One
that repeats is counted, at the price of a comparison. One that is new is encoded once, and what it
has in common with others, such as the objects that did not change, is kept once.

Bounds: decisions of one resource, and bytes of all; the oldest go first. Nothing is redacted here,
since nothing leaves the process by this: `written` gives a copy without secrets. The planner hashes
what it writes, so hashes of what held a secret are replaced by those of the copy (`hashes`). Where
the planner would decide otherwise about the copy all the same, the copy says so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from gantry_protocol.process import log

from gantry_operator.decisions.codec import FORMAT, data_of, fields_of, seen_of
from gantry_operator.decisions.hashes import hashes_of
from gantry_operator.decisions.replay import Recording, Written, failed, replayed, seen_again
from gantry_operator.redact import Redactor

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from gantry_operator.cache import Key
    from gantry_operator.decisions.codec import Seen
    from gantry_operator.metrics import Metrics
    from gantry_operator.plan.actions import Action

OF_ONE_MAX: Final = 64
"""Decisions about one resource."""
BYTES_MAX: Final = 4 * 1024 * 1024
DECISION_BYTES: Final = 2048
PART_BYTES: Final = 256
"""What each of them takes besides what is encoded, about."""
INLINE_MAX: Final = 256
"""Bytes up to which a field stands in a decision itself when it is written."""
LOOKS_MAX: Final = 3
TRIED_MAX: Final = 500
"""Decisions without their secrets that are made again before they are given away."""
_log = log.get("decisions")
_encode = msgspec.json.Encoder().encode


class _Part:
    """JSON that decisions share.

    Attributes:
        users: decisions that have it, each as often as it does.
        clean: the same without secrets; None until somebody asks.
        altered: something was taken out.
    """

    __slots__ = ("altered", "clean", "data", "users")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.users = 0
        self.clean: bytes | None = None
        self.altered = False

    def cleaned(self) -> bytes:
        """Without secrets: the redactor goes over it until it finds nothing more."""
        if self.clean is None:
            redactor = Redactor()
            plain = msgspec.json.decode(self.data)
            value = redactor.value("", plain)
            text = shown = _text(value)
            for _ in range(LOOKS_MAX):
                again = redactor.text("", text)
                if again == text:
                    break
                text = again
            else:
                text = '"[left out, since it could not be redacted]"'
            self.altered = value != plain or text != shown
            self.clean = _compact(text)
        return self.clean

    def is_altered(self) -> bool:
        """Whether something is taken out."""
        self.cleaned()
        return self.altered


def _text(value: Any) -> str:
    """JSON in lines, as a bundle has it, so that what stands in a line is the same."""
    return msgspec.json.format(_encode(value), indent=2).decode()


def _encoded(values: dict[str, Any]) -> dict[str, bytes]:
    return {name: _encode(value) for name, value in values.items()}


def _compact(text: str) -> bytes:
    try:
        return _encode(msgspec.json.decode(text))
    except msgspec.DecodeError:  # the redactor took a part of its form
        return b'"[left out, since it could not be redacted]"'


class Decision:
    """A decision that is kept.

    Attributes:
        first, last, count, failure: as in `replay.Written`.
        same: what the next one is compared with: what was read, the failure and the actions; None
            if it is not the last one about its resource.
    """

    __slots__ = ("actions", "count", "failure", "fields", "first", "key", "kind", "last", "objects",
                 "same")  # fmt: skip

    def __init__(self, key: Key, kind: str, now: dt.datetime, failure: str) -> None:
        self.key = key
        self.kind = kind
        self.first = self.last = now
        self.count = 1
        self.failure = failure
        self.fields: dict[str, _Part] = {}
        self.objects: dict[str, _Part] | None = None
        self.actions: list[_Part] = []
        self.same: tuple[bytes, str, tuple[Action, ...]] | None = None

    def parts(self) -> list[_Part]:
        """All that it is made of."""
        return [*self.fields.values(), *(self.objects or {}).values(), *self.actions]


class DecisionRing:
    """A ring of decisions.

    Args:
        metrics: where its size is shown.
        ring: its name there.
        bytes_max: of all that is kept.
    """

    def __init__(self, metrics: Metrics, ring: str, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._parts: dict[bytes, _Part] = {}
        self._all: dict[Decision, None] = {}  # the oldest first
        self._of: dict[Key, deque[Decision]] = {}
        self._entries = metrics.decisions.labels(ring)
        self._size = metrics.decision_bytes.labels(ring)
        self._drops = metrics.decisions_dropped.labels(ring)
        self._told = False  # of one that could not be written down
        self.dropped = 0

    def note(
        self,
        key: Key,
        seen: Seen,
        read: bytes,
        now: dt.datetime,
        decided: Sequence[Action] | Exception,
    ) -> None:
        """Takes in a decision; one that cannot be written down is dropped, and told once.

        Args:
            key: the resource.
            seen: what the planner was given.
            read: fingerprint of that (`spins.fingerprint`).
            now: the time that it was given.
            decided: the actions that it answered, or what it failed with.
        """
        failure = failed(decided) if isinstance(decided, Exception) else ""
        actions = () if isinstance(decided, Exception) else tuple(decided)
        same = read, failure, actions
        before = self._of[key][-1] if key in self._of else None
        if before is not None:
            if before.same == same:
                before.last, before.count = now, before.count + 1
                return
            before.same = None
        try:
            fields = fields_of(seen)
            objects = fields.pop("objects", None)
            given = _encoded(fields), None if objects is None else _encoded(objects)
            done = [_encode(action) for action in data_of(actions)]
        except Exception as error:  # noqa: BLE001 -- no decision waits for its own record
            self._lose(key, error)
            return
        decision = Decision(key, type(seen).__name__, now, failure)
        decision.same = same
        self._add(decision, *given, done)
        self._bound()

    def of(self, namespace: str | None) -> list[Decision]:
        """The decisions about the resources of a namespace, the oldest first; None for all."""
        return [one for one in self._all if namespace in (None, one.key.namespace)]

    def _add(
        self,
        decision: Decision,
        fields: dict[str, bytes],
        objects: dict[str, bytes] | None,
        actions: list[bytes],
    ) -> None:
        decision.fields = {name: self._part(data) for name, data in fields.items()}
        if objects is not None:
            decision.objects = {name: self._part(data) for name, data in objects.items()}
        decision.actions = [self._part(data) for data in actions]
        self._bytes += DECISION_BYTES
        self._all[decision] = None
        self._of.setdefault(decision.key, deque()).append(decision)

    def _lose(self, key: Key, error: Exception) -> None:
        self.dropped += 1
        self._drops.inc()
        if not self._told:
            self._told = True
            _log.exception("decision not recorded", error, kind=key.kind, name=key.name)

    def _part(self, data: bytes) -> _Part:
        part = self._parts.get(data)
        if part is None:
            part = self._parts[data] = _Part(data)
            self._bytes += len(data) + PART_BYTES
        part.users += 1
        return part

    def _bound(self) -> None:
        newest = next(reversed(self._all))
        if len(self._of[newest.key]) > OF_ONE_MAX:
            self._drop(self._of[newest.key][0])
        while self._bytes > self._bytes_max and self._all:
            self._drop(next(iter(self._all)))
        self._entries.set(len(self._all))
        self._size.set(self._bytes)

    def _drop(self, decision: Decision) -> None:
        del self._all[decision]
        others = self._of[decision.key]
        others.popleft()  # of one resource, too, the oldest goes first
        if not others:
            del self._of[decision.key]
        self._bytes -= DECISION_BYTES
        for part in decision.parts():
            part.users -= 1
            if not part.users:
                del self._parts[part.data]
                self._bytes -= len(part.data) + PART_BYTES
        self.dropped += 1
        self._drops.inc()


def written(decisions: Sequence[Decision], *, version: str, dropped: int) -> bytes:
    """A file of decisions without secrets; may run in another thread than the recorder.

    Args:
        decisions: see `DecisionRing.of`.
        version: of the operator.
        dropped: how many there are no more.
    """
    file = _File(Recording(FORMAT, version, dropped, [], []))
    in_order = sorted(decisions, key=lambda one: one.first)
    redacted = [one for one in in_order if any(part.is_altered() for part in one.parts())]
    tried, left = set(redacted[-TRIED_MAX:]), set(redacted[:-TRIED_MAX])
    hashes: dict[Key, dict[bytes, bytes]] = {}
    for one in in_order:
        known = hashes.setdefault(one.key, {})
        end = len(file.recording.parts)
        result = file.copy(one, known)
        if one in tried and file.is_altered(result):
            known |= file.hashes(one, result)
            file.shorten(end)
            result = file.copy(one, known)
            result = msgspec.structs.replace(result, altered=file.is_altered(result))
        elif one in left:
            result = msgspec.structs.replace(result, altered=True)
        file.recording.decisions.append(result)
    return _encode(file.recording)


class _File:
    """A file of decisions in the making."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._numbers: dict[bytes, int] = {}

    def shorten(self, end: int) -> None:
        """Takes parts back."""
        del self.recording.parts[end:]
        self._numbers = {data: number for data, number in self._numbers.items() if number < end}

    def copy(self, one: Decision, hashes: dict[bytes, bytes]) -> Written:
        """A decision without secrets, and with other hashes in place of some."""

        def clean(part: _Part) -> bytes:
            data = part.cleaned()
            for hashed, other in hashes.items():
                data = data.replace(hashed, other)
            return data

        def number(part: _Part) -> int:
            data = clean(part)
            if data not in self._numbers:
                self._numbers[data] = len(self._numbers)
                self.recording.parts.append(msgspec.json.decode(data))
            return self._numbers[data]

        small = {k: part for k, part in one.fields.items() if len(part.data) <= INLINE_MAX}
        parts = {k: part for k, part in one.fields.items() if k not in small}
        objects = None
        if one.objects is not None:
            objects = {name: number(part) for name, part in one.objects.items()}
        return Written(
            first=one.first.isoformat(),
            last=one.last.isoformat(),
            count=one.count,
            kind=one.key.kind,
            namespace=one.key.namespace,
            name=one.key.name,
            observation=one.kind,
            given={name: msgspec.json.decode(clean(part)) for name, part in small.items()},
            parts={name: number(part) for name, part in parts.items()},
            objects=objects,
            actions=[number(part) for part in one.actions],
            failure=one.failure,
        )

    def is_altered(self, one: Written) -> bool:
        """Whether the planner decides otherwise about the copy than it did about the original."""
        try:
            return bool(replayed(self.recording, one, "").differences)
        except Exception:  # noqa: BLE001 -- it is a fault of the copy, whatever it is
            return True

    def hashes(self, one: Decision, copy: Written) -> dict[bytes, bytes]:
        """The hashes of what holds secrets, with those of the same without them."""
        try:
            original = {name: msgspec.json.decode(part.data) for name, part in one.fields.items()}
            if one.objects is None:
                return {}
            parts = one.objects.items()
            original["objects"] = {name: msgspec.json.decode(part.data) for name, part in parts}
            seen = seen_of(one.kind, original, "")
            found = hashes_of(seen, seen_again(self.recording, copy, ""), one.first)
        except Exception:  # noqa: BLE001 -- as above
            return {}
        return {_encode(hashed): _encode(other) for hashed, other in found.items()}
