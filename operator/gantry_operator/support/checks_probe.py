"""Findings of a probe: syncs of running processes' disks, a message there and back; pure.

A probe asks where the doctor otherwise only reads objects, so its findings have checks of their
own: `syncs` and `send`. Where nothing was learned, that is what the finding says.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gantry_protocol.codes import ResponseCode

from gantry_operator.support.findings import Diagnosis, fail, ok, warn
from gantry_operator.support.round_trip import BODY_BYTES, GROUP, TOPIC

if TYPE_CHECKING:
    from gantry_operator.support.round_trip import Tripped
    from gantry_operator.support.sync_figures import SyncFigure

SYNC_WARN_S: Final = 0.02
"""Each send waits for the slowest disk of those in sync: from here on it shows to producers."""
SYNC_FAIL_S: Final = 0.5
"""Elections and heartbeats wait for a controller's disk, and time-outs begin to pass meanwhile."""
SEND_WARN_S: Final = 0.1
SEND_FAIL_S: Final = 1.0
"""What a client of RocketMQ waits for is 3 s; a third of it leaves no room for a retry."""
RIGHTS: Final = (
    "Ask for a role with create and get of pods/portforward in the namespace; nothing else is "
    "needed, neither exec nor Secrets."
)
_SLOW: Final = (
    "Look at the storage class and at what else uses the disk (docs/performance.md); "
    "the dashboards show it over time."
)


def syncs(pod: str, found: SyncFigure, window_s: float) -> Diagnosis:
    """The disk of a pod, and its figure."""
    window = f"{window_s:g} s"
    if found.p99_s is None:
        return warn(
            "syncs",
            f"{pod}: no syncs seen, neither in {window} nor since it began, so nothing is known of "
            "its disk.",
            "Probe again while messages are sent; see the check pods if it stays so.",
        )
    amount = f"above {_told(10.0)}" if found.p99_s == math.inf else f"at most {_told(found.p99_s)}"
    basis = f"of {found.syncs} in {window}"
    if not found.is_of_window:
        basis = f"of {found.syncs} since it began, as only {found.within} came in {window}"
    text = f"{pod}: the p99 of a sync is {amount}, {basis}."
    if found.p99_s > SYNC_FAIL_S:
        return fail("syncs", text, _SLOW)
    if found.p99_s > SYNC_WARN_S:
        return warn("syncs", text, _SLOW)
    return ok("syncs", text)


def unmeasured(pod: str, why: str) -> Diagnosis:
    """A pod whose disk nothing is known of."""
    return warn("syncs", f"{pod} is not measured: {why}.", "See the check pods, and probe again.")


def older(pod: str) -> Diagnosis:
    """A pod whose version does not tell."""
    return warn(
        "syncs",
        f"{pod} is not measured: its metrics have no times of syncs.",
        "It runs an older version: bring the group to this one.",
    )


def denied(why: str) -> Diagnosis:
    """The person may not reach pods; the same words for each, so that they are told once."""
    return warn("rights", f"Pods cannot be probed: {why}.", RIGHTS)


def asleep(called: str) -> Diagnosis:
    """A group whose pods are stopped because somebody wished so."""
    return ok("send", f"{called} is hibernated, so it is not probed.")


def nowhere(group: str) -> Diagnosis:
    """A group of which no pod takes a message."""
    return fail(
        "send",
        f"{group}: no message is sent, since none of its pods is Ready and leads to a master.",
        "See the checks replicas and pods.",
    )


def unreachable(group: str, via: str, why: str) -> Diagnosis:
    """There was no way to the pod."""
    return warn(
        "send",
        f"{group}: no message is sent, since there is no way to {via}: {why}.",
        "See the check pods, and probe again.",
    )


def left_out(groups: int, most: int) -> Diagnosis:
    """Too many to be probed at once."""
    return warn(
        "send",
        f"{groups} broker groups got no message: {most} are probed at most.",
        "Name one group, or probe the rest one by one.",
    )


def trip(group: str, via: str, found: Tripped) -> Diagnosis:
    """A message of a probe, and how far it has come."""
    if found.sent_s is None:
        return _not_acknowledged(group, via, found)
    own_s = max(0.0, found.sent_s - (found.way_s or 0.0))
    text = (
        f"{group}: {BODY_BYTES} bytes through {via} to topic {TOPIC} were acknowledged in "
        f"{_told(found.sent_s)}, of which {_told(found.way_s or 0.0)} are the way from here and "
        "back"
    )
    if found.read_s is None:
        todo = (
            "Consumers may not get what is stored: look at the log of the master, and read it with "
            f"gantry consume {TOPIC}."
        )
        is_refusal = found.code == ResponseCode.NO_PERMISSION
        return fail(
            "send",
            f"{text}, but the message cannot be read: {found.why}.",
            _rules() if is_refusal else todo,
        )
    text += f"; it was read {_told(found.read_s)} later."
    if own_s > SEND_FAIL_S:
        return fail(
            "send", text, "See the checks syncs and replicas: a send waits for the slowest."
        )
    if own_s > SEND_WARN_S:
        return warn(
            "send", text, "See the checks syncs and replicas: a send waits for the slowest."
        )
    return ok("send", text)


def _not_acknowledged(group: str, via: str, found: Tripped) -> Diagnosis:
    """A refusal, or no answer; what may be stored is told as that."""
    code = "" if found.code is None else f", code {found.code}"
    if found.code == ResponseCode.NO_PERMISSION and not found.stored:
        return warn("send", f"{group} took no message through {via}: {found.why}{code}.", _rules())
    if found.code is None and found.way_s is None:
        return warn(
            "send",
            f"{group}: {via} does not answer: {found.why}.",
            "If its clients need TLS, give --tls-ca-file; otherwise see the checks pods and "
            "replicas.",
        )
    stored = " The message may be stored all the same." if found.stored else ""
    return fail(
        "send",
        f"{group} acknowledged no message through {via}: {found.why}{code}.{stored}",
        "Producers get the same: see the checks replicas, volumes and conditions.",
    )


def _rules() -> str:
    return (
        "Where clients need a user, give --access-key and --secret-key-file of one that may Pub "
        f"and Sub topic {TOPIC}, and Sub group {GROUP}; otherwise the reason is in the message."
    )


def _told(seconds: float) -> str:
    """A short time for people."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.2g} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
