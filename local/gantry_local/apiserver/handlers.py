"""One request, one verb: reads and writes of objects and their subresources."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec

from gantry_local.apiserver import errors, replies, selectors, tables
from gantry_local.apiserver.admission import CRD_KEY
from gantry_local.apiserver.bodies import APPLY, decode_body, write_options
from gantry_local.apiserver.deletion import parse_options
from gantry_local.apiserver.watching import WatchOptions

if TYPE_CHECKING:
    from aiohttp import web

    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.registry import Registry, Written
    from gantry_local.apiserver.routes import Target
    from gantry_local.apiserver.store import Record

_BODY_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_of(request: web.Request, target: Target) -> str:
    """The Kubernetes verb of a request; 405 where there is none."""
    if request.method in _BODY_VERBS:
        verb = _BODY_VERBS[request.method]
        if verb == "delete" and not target.name:
            return "deletecollection"
        # Collections are created into, objects are everything else.
        if (not target.name) is not (verb == "create"):
            raise errors.method_not_allowed()
        return verb
    if request.method != "GET":
        raise errors.method_not_allowed()
    if request.query.get("watch") in {"true", "1"}:
        return "watch"
    return "get" if target.name else "list"


def selector_of(request: web.Request, resource: ResourceType, target: Target) -> selectors.Selector:
    """The request's selector; a name in the URL of a watch is a field selector."""
    query = request.query
    selector = selectors.parse_selector(
        resource, query.get("labelSelector", ""), query.get("fieldSelector", "")
    )
    if not target.name:
        return selector
    named = selectors.FieldTerm(("metadata", "name"), target.name, equal=True)
    return selectors.Selector(selector.labels, (*selector.fields, named))


def watch_options(request: web.Request) -> WatchOptions:
    """Query parameters of a watch."""
    query = request.query
    initial = query.get("sendInitialEvents") == "true"
    if initial and query.get("resourceVersionMatch") != "NotOlderThan":
        raise errors.bad_request(
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    return WatchOptions(
        resource_version=query.get("resourceVersion", ""),
        bookmarks=query.get("allowWatchBookmarks") in {"true", "1"},
        initial_events=initial,
        timeout_s=_number(query.get("timeoutSeconds", "1800"), "timeoutSeconds") or 1800,
    )


def get(
    registry: Registry, request: web.Request, resource: ResourceType, target: Target
) -> web.Response:
    """One object, or its scale."""
    namespace = target.namespace or ""
    if target.subresource == "scale":
        return replies.as_json(registry.read_scale(resource, namespace, target.name))
    record = registry.get(resource, namespace, target.name)
    if tables.wants_table(request.headers.get("Accept", "")):
        return _table(registry, resource, [record], {"resourceVersion": str(record.revision)})
    return replies.raw(record.encoded())


def _table(
    registry: Registry, resource: ResourceType, records: list[Record], metadata: dict[str, Any]
) -> web.Response:
    definition = registry.store.get(CRD_KEY, ("", resource.qualified))
    crd = None if definition is None else definition.obj
    now = dt.datetime.now(dt.UTC)
    return replies.as_json(tables.table(resource, crd, records, metadata, now))


def list_objects(
    registry: Registry, request: web.Request, resource: ResourceType, target: Target
) -> web.Response:
    """A page of a collection, assembled from the stored text of its objects."""
    query = request.query
    registry.lists.check_version(
        query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    )
    page = registry.lists.page(
        resource,
        target.namespace,
        selector_of(request, resource, target),
        limit=_number(query.get("limit") or "0", "limit"),
        token=query.get("continue", ""),
    )
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    if tables.wants_table(request.headers.get("Accept", "")):
        return _table(registry, resource, page.records, metadata)
    head = msgspec.json.encode(
        {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata}
    )
    items = b",".join(record.encoded() for record in page.records)
    return replies.raw(head[:-1] + b',"items":[' + items + b"]}")


async def write(
    registry: Registry, request: web.Request, resource: ResourceType, target: Target, verb: str
) -> web.Response:
    """Create, update, patch, delete or scale."""
    body = decode_body(await request.read(), request.content_type)
    if verb in {"delete", "deletecollection"}:
        return _delete(registry, request, resource, target, body or {})
    if target.subresource == "scale":
        return _scale(registry, request, resource, target, _object(body))
    if verb == "patch":
        return replies.written(_patch(registry, request, resource, target, body))
    options = write_options(request.query, request.headers, request.content_type)
    namespace, obj = target.namespace or "", _object(body)
    if verb == "create":
        return replies.written(registry.create(resource, namespace, obj, options))
    updated = registry.update(
        resource, namespace, target.name, obj, options, subresource=target.subresource
    )
    return replies.written(updated)


def _patch(
    registry: Registry, request: web.Request, resource: ResourceType, target: Target, body: Any
) -> Written:
    options = write_options(request.query, request.headers, request.content_type)
    namespace, name, subresource = target.namespace or "", target.name, target.subresource
    if request.content_type == APPLY:
        return registry.apply(
            resource, namespace, name, _object(body), options, subresource=subresource
        )
    return registry.patch(
        resource, namespace, name, request.content_type, body, options, subresource=subresource
    )


def _scale(
    registry: Registry,
    request: web.Request,
    resource: ResourceType,
    target: Target,
    wanted: dict[str, Any],
) -> web.Response:
    namespace = target.namespace or ""
    options = write_options(request.query, request.headers, request.content_type)
    if request.method == "PATCH":
        current = registry.read_scale(resource, namespace, target.name)
        spec = {**current["spec"], **(wanted.get("spec") or {})}
        wanted = {"metadata": wanted.get("metadata") or {}, "spec": spec}
    scaled = registry.write_scale(resource, namespace, target.name, wanted, options)
    return replies.as_json(scaled)


def _delete(
    registry: Registry, request: web.Request, resource: ResourceType, target: Target, body: Any
) -> web.Response:
    if target.subresource:
        raise errors.method_not_allowed()
    options = parse_options(resource, _object(body), dict(request.query))
    if target.name:
        result = registry.delete(resource, target.namespace or "", target.name, options)
        return replies.deleted(resource, result)
    selector = selector_of(request, resource, target)
    found = registry.store.records(resource.key, target.namespace)
    hit = [record for record in found if selector.matches(record.obj)]
    for record in hit:
        registry.delete(resource, *record.key, options)
    listed = {
        "kind": resource.list_kind,
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(registry.store.revision)},
        "items": [record.obj for record in hit],
    }
    return replies.as_json(listed)


def _number(text: str, what: str) -> int:
    if not text.isdigit():
        raise errors.bad_request(f"{what} must be a non-negative integer, got {text!r}")
    return int(text)


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request must be an object")
    return body
