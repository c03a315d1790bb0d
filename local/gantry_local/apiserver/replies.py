"""Answers of the API server as HTTP responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from gantry_local.apiserver.errors import StatusError
    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.registry import Written


def raw(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """JSON text as it is."""
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def as_json(obj: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A value as JSON."""
    return raw(msgspec.json.encode(obj), status, headers)


def written(result: Written) -> web.Response:
    """The stored object: 201 when it is new; warnings as RFC 7234 headers."""
    response = raw(result.record.encoded(), 201 if result.created else 200)
    for warning in result.warnings:
        response.headers.add("Warning", f"299 - {msgspec.json.encode(warning).decode()}")
    return response


def deleted(resource: ResourceType, result: Written) -> web.Response:
    """Status Success when the object is gone, the marked object when it lingers."""
    if not result.deleted:
        return raw(result.record.encoded())
    details: dict[str, Any] = {
        "name": result.record.key[1],
        "kind": resource.plural,
        "uid": result.record.uid,
    }
    if resource.group:
        details["group"] = resource.group
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
    return as_json(status)


def refused(error: StatusError) -> web.Response:
    """A ``v1.Status`` with its code, and Retry-After where it says so."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return as_json(error.status(), error.code, headers)
