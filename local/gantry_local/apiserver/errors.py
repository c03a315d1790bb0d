"""Refusals of the API server: every one is a ``v1.Status`` with the real code and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.validation import Cause


class StatusError(Exception):
    """A refusal; ``status()`` is its body on the wire."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.retry_after_s = retry_after_s
        if retry_after_s is not None:
            self.details["retryAfterSeconds"] = retry_after_s

    def status(self) -> dict[str, Any]:
        """The ``v1.Status`` object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            body["details"] = self.details
        return body


def _about(resource: ResourceType, name: str, *, kind: bool = False) -> dict[str, Any]:
    details = {"name": name, "kind": resource.kind if kind else resource.plural}
    if resource.group:
        details["group"] = resource.group
    return details


def not_found(resource: ResourceType, name: str) -> StatusError:
    """404: no such object."""
    message = f'{resource.qualified} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_about(resource, name))


def no_such_path() -> StatusError:
    """404 for a URL that no resource serves."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: ResourceType, name: str) -> StatusError:
    """409: create of an existing name."""
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_about(resource, name))


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(resource: ResourceType, name: str, why: str = MODIFIED) -> StatusError:
    """409: the stored object is not what the caller assumed."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_about(resource, name))


def invalid(resource: ResourceType, name: str, causes: Sequence[Cause]) -> StatusError:
    """422 with one cause per violated field."""
    texts = [cause.text() for cause in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = _about(resource, name, kind=True)
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field or "<nil>"}
        for cause in causes
    ]
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details=details)


def invalid_options(causes: Sequence[Cause]) -> StatusError:
    """422 about the request's own options."""
    texts = ", ".join(cause.text() for cause in causes)
    details = {
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    }
    message = f'PatchOptions.meta.k8s.io "" is invalid: {texts}'
    return StatusError(422, "Invalid", message, details=details)


def bad_request(message: str) -> StatusError:
    """400: the request itself makes no sense."""
    return StatusError(400, "BadRequest", message)


def forbidden(resource: ResourceType, name: str, why: str) -> StatusError:
    """403: not now, not here."""
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, details=_about(resource, name))


def unauthorized() -> StatusError:
    """401: no or wrong bearer token."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> StatusError:
    """410: the asked history has been compacted."""
    return StatusError(410, "Expired", message)


def too_many_requests(retry_after_s: int) -> StatusError:
    """429 with Retry-After."""
    return StatusError(
        429,
        "TooManyRequests",
        "the server has received too many requests and has asked us to try again later",
        retry_after_s=retry_after_s,
    )


def internal(message: str) -> StatusError:
    """500: the server's own fault, or typed-patch failures as the real one reports them."""
    return StatusError(500, "InternalError", message)


def method_not_allowed() -> StatusError:
    """405: the resource does not have this verb."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message)


def unsupported_media(content_type: str, accepted: Sequence[str]) -> StatusError:
    """415: an unknown patch or body type."""
    message = (
        f'the body of the request was in an unknown format - got "{content_type}", accepted '
        f"media types include: {', '.join(accepted)}"
    )
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit_bytes: int) -> StatusError:
    """413: bodies are bounded."""
    message = f"Request entity too large: limit is {limit_bytes}"
    return StatusError(413, "RequestEntityTooLarge", message)


def version_in_future(asked: int, current: int) -> StatusError:
    """504: a resourceVersion this server has not reached."""
    message = f"Too large resource version: {asked}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusError(504, "Timeout", message, details=details)
