"""Errors that the API server answers instead of doing what it was asked.

The reaction differs, so the type does: a conflict is planned anew, an invalid object is reported to
its owner, too many requests are waited out, everything else that is not our fault is tried again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ApiError(Exception):
    """A request that was not carried out.

    Attributes:
        status: HTTP status; 0 if there was no answer.
        reason: the machine-readable word of the answer's `Status`, such as AlreadyExists.
        message: for people.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Denied(ApiError):  # noqa: N818 -- a plain word reads better where it is caught
    """401 or 403: the operator's rights do not cover the request, or its token expired."""


class Ending(ApiError):  # noqa: N818 -- as above
    """403, since the namespace is being deleted: nothing new is taken, and all there is will go."""


class NotFound(ApiError):  # noqa: N818 -- as above
    """404: the object, or its kind, does not exist."""


class AlreadyExists(ApiError):  # noqa: N818 -- as above
    """409 with reason AlreadyExists: somebody created the object first."""


class Conflict(ApiError):  # noqa: N818 -- as above
    """409: a precondition failed, or somebody else owns a field. What we saw is out of date."""


class Gone(ApiError):  # noqa: N818 -- as above
    """410: the continuation of a list expired; it has to begin anew."""


class Invalid(ApiError):  # noqa: N818 -- as above
    """400 or 422: the object breaks the rules; trying again without a change is useless."""


class TooManyRequests(ApiError):  # noqa: N818 -- as above
    """429: wait for `retry_after_s` first."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float) -> None:
        super().__init__(status, reason, message)
        self.retry_after_s = retry_after_s


class Undeclared(ApiError):  # noqa: N818 -- as above
    """500 to an apply: the definition of the object's kind does not have one of its fields."""


class OldDefinitionsError(GantryError):
    """A definition became older than this process, which is to be started again; no `ApiError`."""


class Unavailable(ApiError):  # noqa: N818 -- as above
    """5xx, or no answer at all; whether the request took effect is unknown."""


UNDECLARED = "field not declared in schema"
"""https://github.com/kubernetes-sigs/structured-merge-diff, of a patch that cannot be typed."""
DEFAULT_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0
ENDING = "NamespaceTerminating"
"""Cause of a refused creation: https://pkg.go.dev/k8s.io/api/core/v1#NamespaceTerminatingCause."""

_TYPES: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def error_of(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error that an unsuccessful answer stands for; the body may be anything."""
    reason, message, causes = _status_of(body)
    message = message or body[:200].decode("utf-8", "replace").strip() or "no details"
    if status == 429:
        return TooManyRequests(status, reason or "TooManyRequests", message, _retry_after(headers))
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(status, reason, message)
    if status == 500 and UNDECLARED in message:
        return Undeclared(status, reason or "Undeclared", message)
    if status >= 500:
        return Unavailable(status, reason or "ServerError", message)
    kind = Ending if status == 403 and ENDING in causes else _TYPES.get(status, ApiError)
    return kind(status, reason or kind.__name__, message)


def _status_of(body: bytes) -> tuple[str, str, tuple[str, ...]]:
    """Reason, message and the reasons of all causes of a `Status`; the body may be anything."""
    try:
        answer = json.loads(body)
    except ValueError:
        return "", "", ()
    if not isinstance(answer, dict):
        return "", "", ()
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    reasons = tuple(
        str(cause.get("reason") or "")
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, dict)
    )
    return str(answer.get("reason") or ""), str(answer.get("message") or ""), reasons


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds from `Retry-After`; the HTTP-date form is not used by Kubernetes."""
    text = headers.get("Retry-After", "")
    if not (text.isascii() and text.isdigit()):
        return DEFAULT_RETRY_AFTER_S
    return min(max(float(text[:6]), DEFAULT_RETRY_AFTER_S), MAX_RETRY_AFTER_S)
