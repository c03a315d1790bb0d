"""Recorded decisions, made once more by the planner of this version and compared; pure.

A decision is the same if the same actions come out in the same order, to the letter. Both sides
pass the redactor first, since one of them has.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from gantry_operator.decisions.codec import (
    FORMAT,
    NotADecisionError,
    data_of,
    moment,
    seen_of,
)
from gantry_operator.plan import plan
from gantry_operator.plan.entities import EntityObserved, plan_entity
from gantry_operator.redact import Redactor

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.decisions.codec import Seen
    from gantry_operator.plan.actions import Action

SHOWN_MAX: Final = 20
"""Differences of one decision that are told."""
SHOWN_CHARS: Final = 120
DECISIONS_MAX: Final = 100_000
ACTIONS_MAX: Final = 2000
"""Of one decision; a plan has some dozens, and they are compared with each other."""
ALTERED: Final = "not compared: it rests on what was redacted"


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision as it stands in a file.

    Attributes:
        first, last: when it was made first, and last, without a change in between.
        count: how often.
        observation: class of what the planner was given; its fields are in `given` and, where they
            are large, in `parts` by number, objects of Kubernetes in `objects` likewise.
        actions: what came out; a large one as a number of `parts`.
        failure: what the planner failed with, in place of actions.
        altered: without what was redacted the planner would have decided otherwise.
    """

    first: str
    last: str
    count: int
    kind: str
    namespace: str
    name: str
    observation: str
    given: dict[str, Any] = {}
    parts: dict[str, int] = {}
    objects: dict[str, int] | None = None
    actions: list[int | dict[str, Any]] = []
    failure: str = ""
    altered: bool = False


class Recording(msgspec.Struct, frozen=True):
    """The decisions of one process, the oldest first.

    Attributes:
        format: see `codec.FORMAT`.
        version: of the operator.
        dropped: decisions that made room for others.
        parts: what several decisions share, by number.
    """

    format: int
    version: str
    dropped: int
    decisions: list[Written]
    parts: list[Any] = []


class Difference(NamedTuple):
    """A place at which this version decides otherwise."""

    path: str
    recorded: str
    now: str


class Outcome(msgspec.Struct, frozen=True):
    """A decision that was made once more.

    Attributes:
        told: what was decided, in words.
        differences: empty if this version decides the same.
        note: the reason that it was not compared; empty if it was.
    """

    written: Written
    told: str
    differences: tuple[Difference, ...] = ()
    note: str = ""


class _Heading(msgspec.Struct, frozen=True):
    format: int


_decoder = msgspec.json.Decoder(Recording)
_heading = msgspec.json.Decoder(_Heading)


def recording_of(data: bytes, place: str) -> Recording:
    """The decisions in a file.

    Raises:
        NotADecisionError: it holds none, or is of another format.
    """
    try:
        form: int = _heading.decode(data).format
        if form != FORMAT:
            raise NotADecisionError(
                f"{place} has format {form}, and this version reads {FORMAT}: use the version that "
                "took the bundle."
            )
        found = _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NotADecisionError(f"{place} holds no decisions: {error}.") from None
    if len(found.decisions) > DECISIONS_MAX:
        raise NotADecisionError(f"{place} has more than {DECISIONS_MAX} decisions.")
    return found


def decide(seen: Seen, now: dt.datetime) -> list[Action]:
    """The plan for an observation of any kind."""
    if isinstance(seen, EntityObserved):
        return plan_entity(seen, now)
    return plan(seen, now)


def replayed(recording: Recording, written: Written, place: str) -> Outcome:
    """A decision made once more.

    Raises:
        NotADecisionError: it cannot be read.
    """
    if len(written.actions) > ACTIONS_MAX:
        raise NotADecisionError(f"{place} has more than {ACTIONS_MAX} actions.")
    recorded = [
        _part(recording, one, place) if isinstance(one, int) else one for one in written.actions
    ]
    told = written.failure or ", ".join(label(one) for one in recorded) or "nothing"
    seen = seen_again(recording, written, place)
    now = moment(written.first, place)
    if written.altered:
        return Outcome(written, told, note=ALTERED)
    failure, actions = "", []
    try:
        actions = data_of(decide(seen, now))
    except Exception as error:  # noqa: BLE001 -- that the planner fails is a decision, too
        failure = failed(error)
    found = _compared(recorded, written.failure, redacted(actions), failure)
    return Outcome(written, told, tuple(found[:SHOWN_MAX]))


def seen_again(recording: Recording, written: Written, place: str) -> Seen:
    """The observation that a decision rests on.

    Raises:
        NotADecisionError: it cannot be read.
    """
    fields = dict(written.given)
    fields |= {name: _part(recording, part, place) for name, part in written.parts.items()}
    if written.objects is not None:
        parts = written.objects.items()
        fields["objects"] = {name: _part(recording, part, place) for name, part in parts}
    return seen_of(written.observation, fields, place)


def failed(error: Exception) -> str:
    """The planner's failure in words."""
    return f"fails with {type(error).__name__}: {redacted(str(error))}"


def redacted(value: Any) -> Any:
    """A value as JSON has it, without secrets."""
    plain = msgspec.json.decode(msgspec.json.encode(value))
    return Redactor().value("", plain)


def label(action: Any) -> str:
    """The kind of an action and what it is about, in a few words, whatever stands there."""
    return _words(action)[:SHOWN_CHARS]


def _words(action: Any) -> str:
    if not isinstance(action, dict) or len(action) != 1:
        return "?"
    ((kind, facts),) = action.items()
    if not isinstance(facts, dict):
        return str(kind)
    manifest = facts.get("manifest")
    if isinstance(manifest, dict):
        meta = manifest.get("metadata")
        return (
            f"{kind} {manifest.get('kind')}/{meta.get('name') if isinstance(meta, dict) else '?'}"
        )
    for field in ("name", "change", "reason", "broker_id", "group"):
        if facts.get(field):
            return f"{kind} {facts[field]}"
    status = facts.get("status")
    if isinstance(status, dict) and status.get("summary"):
        return f"{kind} ({status['summary']})"
    return f"{kind} {facts['after_s']} s" if "after_s" in facts else str(kind)


def _part(recording: Recording, number: int, place: str) -> Any:
    if not 0 <= number < len(recording.parts):
        raise NotADecisionError(f"{place}: there is no part {number}.")
    return recording.parts[number]


def _compared(
    recorded: list[Any], failure: str, now: list[Any], failure_now: str
) -> list[Difference]:
    """What differs; actions are matched by what they are about, in their order."""
    if failure or failure_now:
        if failure == failure_now:
            return []
        words = [failure or ", ".join(map(label, recorded)) or "nothing"]
        words.append(failure_now or ", ".join(map(label, now)) or "nothing")
        return [Difference("actions", *words)]
    old, new = [_kind(one) for one in recorded], [_kind(one) for one in now]
    found: list[Difference] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for what, begin, end, first, last in matcher.get_opcodes():
        if what == "equal":
            for one, other in zip(range(begin, end), range(first, last), strict=True):
                place = f"actions[{one}].{_word(recorded[one])}"
                _differ(found, place, _facts(recorded[one]), _facts(now[other]))
            continue
        for offset in range(max(end - begin, last - first)):
            one, other = begin + offset, first + offset
            was = label(recorded[one]) if one < end else "nothing"
            said = label(now[other]) if other < last else "nothing"
            found.append(Difference(f"actions[{one}]", was, said))
    return found


def _kind(action: Any) -> str:
    """What an action is about, without what it says."""
    return _word(action) if _word(action) in ("WriteStatus", "CheckAgain") else label(action)


def _word(action: Any) -> str:
    return next(iter(action), "?") if isinstance(action, dict) else "?"


def _facts(action: Any) -> Any:
    return next(iter(action.values()), None) if isinstance(action, dict) else action


def _differ(found: list[Difference], path: str, one: Any, other: Any) -> None:
    if one == other or len(found) > SHOWN_MAX:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            _differ(found, f"{path}.{key}", one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (part, counterpart) in enumerate(zip(one, other, strict=True)):
            _differ(found, f"{path}[{number}]", part, counterpart)
    else:
        found.append(Difference(path, _shown(one), _shown(other)))


def _shown(value: Any) -> str:
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."
