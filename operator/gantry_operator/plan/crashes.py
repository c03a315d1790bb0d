"""Crashes of our processes, in their own last words, and of what else is in their pods.

Two rules. What goes into a status is the sentence with which our process ends (`gantry: …`), in one
bounded line, and nothing else of its log; of a container that is not ours, nothing of its log at
all. And it keeps still: as long as a loop goes on, neither
the number of restarts nor the state in which a pod is just found changes a word of it.
"""

from __future__ import annotations

import datetime as dt
import signal
from typing import TYPE_CHECKING, Any

import msgspec

from gantry_operator import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.plan.observed import PodView

OURS = frozenset({names.BROKER, names.CONTROLLER, names.FRONT})
"""Names of the containers for which pods are: whether a pod's process runs is said of these."""
HEARD = OURS | {names.DOOR}
"""Names of all our containers; what others say is not repeated, though a pod waits for them."""
MARK = "gantry: "
"""Before the sentence with which a process of ours ends."""
MAX_WORDS = 400
"""Characters of that sentence that are repeated."""
LASTING_RUN = dt.timedelta(seconds=60)
"""A run that lasts longer is no part of a crash loop, whatever the pod still waits for."""
_NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)


class Ended(msgspec.Struct, frozen=True):
    """The last run of a container, which ended in an error.

    Attributes:
        container: its name.
        running_since: when its present run began; None if it does not run.
        code: exit code, never 0.
        cause: what the kubelet or the signal adds to it; may be empty.
        words: the sentence with which the process ended; empty if it had none.
    """

    container: str
    running_since: dt.datetime | None
    code: int
    cause: str
    words: str


def kept(status: dict[str, Any]) -> dict[str, Any]:
    """Of a container's status what decisions rest on, without the tail of its log."""
    name = status.get("name")
    heard = name in HEARD
    states = (status.get("state") or {}).items()
    last = (status.get("lastState") or {}).get("terminated")
    result = {"name": name, "state": {key: _slim(found, heard=heard) for key, found in states}}
    if last is None:
        return result
    return result | {"lastState": {"terminated": _slim(last, heard=heard)}}


def _slim(state: dict[str, Any] | None, *, heard: bool) -> dict[str, Any]:
    found = {
        key: value
        for key, value in (state or {}).items()
        if key in ("startedAt", "exitCode", "signal", "reason")
    }
    words = last_words((state or {}).get("message") or "") if heard else ""
    return found | {"message": f"{MARK}{words}"} if words else found


def last_words(message: str) -> str:
    """The sentence with which a process of ours ended, from the end of its log; may be empty."""
    for line in reversed(message.splitlines()):
        if line.startswith(MARK):
            text = "".join(char if char.isprintable() else " " for char in line)
            return text.removeprefix(MARK).strip()[:MAX_WORDS]
    return ""


def last_end(statuses: Iterable[dict[str, Any]]) -> Ended | None:
    """The end of the last finished run of a container; None if none ended in an error.

    Of several, the one that does not run or began its present run last: what another one ended
    with long ago is no news. Of two that do not run, ours, which says why.
    """
    found = [ended for status in statuses if (ended := _ended(status)) is not None]
    return max(found, key=_urgency, default=None)


def _urgency(ended: Ended) -> tuple[dt.datetime, bool]:
    return ended.running_since or _NEVER, ended.container in HEARD


def _ended(status: dict[str, Any]) -> Ended | None:
    name = status.get("name") or ""
    now, before = status.get("state") or {}, status.get("lastState") or {}
    ended = now.get("terminated") or before.get("terminated") or {}
    code = ended.get("exitCode") or 0
    if not code:
        return None
    words = last_words(ended.get("message") or "") if name in HEARD else ""
    return Ended(name, _running_since(now), code, _cause(ended, code), words)


def _cause(ended: dict[str, Any], code: int) -> str:
    reason = ended.get("reason") or "Error"
    if reason != "Error":
        return str(reason)
    number = ended.get("signal") or code - 128
    return signal.Signals(number).name if number in set(signal.Signals) else ""


def _running_since(state: dict[str, Any]) -> dt.datetime | None:
    running = state.get("running")
    if running is None:
        return None
    try:
        return dt.datetime.fromisoformat(running.get("startedAt") or "")
    except ValueError:
        return dt.datetime.min.replace(tzinfo=dt.UTC)


def crash_loop(pods: Iterable[PodView], now: dt.datetime) -> str:
    """The pods whose processes end in errors, with the words of the first; empty if none do."""
    crashing = [(pod.name, pod.ended) for pod in pods if pod.ended and _crashes(pod, now)]
    if not crashing:
        return ""
    name, ended = crashing[0]
    cause = f" ({ended.cause})" if ended.cause else ""
    text = f"{_who(name, ended)} ended with code {ended.code}{cause} and is started again"
    log = name if ended.container in OURS else f"{name} -c {ended.container}"
    text += f": {ended.words}" if ended.words else f"; see `kubectl logs --previous {log}`."
    more = len(crashing) - 1
    if not more:
        return text
    text = text if text.endswith(".") else f"{text}."
    return f"{text} {more} more {'pod ends' if more == 1 else 'pods end'} in errors, too."


def _who(pod: str, ended: Ended) -> str:
    if ended.container in OURS:
        return pod
    is_door = ended.container == names.DOOR
    return f"The door of {pod}" if is_door else f"The container {ended.container} of {pod}"


def crash_words(pods: Iterable[PodView], now: dt.datetime) -> str:
    """The same in a few words: those of the first, or how its process ended."""
    for pod in pods:
        if pod.ended is not None and _crashes(pod, now):
            return (
                pod.ended.words or f"{_who(pod.name, pod.ended)} ended with code {pod.ended.code}"
            )
    return ""


def _crashes(pod: PodView, now: dt.datetime) -> bool:
    if pod.ready or pod.terminating:
        return False
    since = pod.ended.running_since if pod.ended else None
    return since is None or now - since < LASTING_RUN
