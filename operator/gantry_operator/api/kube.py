"""The verbs over the official asyncio client (`kubernetes.aio`).

Only its transport is used: requests are built from paths, since the typed methods would need one
class per kind and the dynamic client a discovery of everything. Nothing is retried here: the queue
does that, per key and with a back-off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from kubernetes.aio.client.api_client import ApiClient

from gantry_operator import names
from gantry_operator.api.errors import OldDefinitionsError, Unavailable, Undeclared, error_of
from gantry_operator.api.kinds import POD, TEMPLATED
from gantry_operator.api.port_forward import PROTOCOL, ForwardedAnswer, Passage, ask, passage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

    from gantry_operator.api.credentials import Credentials
    from gantry_operator.api.kinds import Kind
    from gantry_operator.api.protocol import Body

REQUEST_TIMEOUT_S = 30.0
LOG_CHUNK_BYTES = 64 * 1024
LIST_CHUNK = 100
"""Five hundred pods are six megabytes of text, for which there is no other use."""
_NO_TOTAL = aiohttp.ClientTimeout(total=None)
"""aiohttp's own would undo the cancellation of a worker (`gantry_protocol.admin_client.quorum`)."""
_MANAGER = {"fieldManager": names.FIELD_MANAGER}
_JSON = "application/json"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML, and what is sent is JSON
_MERGE = "application/merge-patch+json"


class _PageMeta(msgspec.Struct):
    token: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct):
    """A part of a list; each object is decoded on its own, when its turn has come."""

    items: list[msgspec.Raw] | None = None
    metadata: _PageMeta | None = None


_PAGE = msgspec.json.Decoder(_Page)
_ITEM = msgspec.json.Decoder(dict[str, Any])


class KubeApi:
    """An API server behind HTTP."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._client: Any = ApiClient(configuration=credentials.configuration)

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        """One object, live."""
        return await self._call("GET", kind.path(namespace, name))

    async def list_all(
        self, kind: Kind, namespace: str | None, labels: str = ""
    ) -> AsyncIterator[Body]:
        """All objects of a kind."""
        query = {"limit": str(LIST_CHUNK)}
        if labels:
            query["labelSelector"] = labels
        path = kind.path(namespace)
        while True:
            page = _page(path, await self._read("GET", path, query=query))
            for item in _items(path, page):
                # Items of a list do not repeat what the list says about all of them.
                item |= {"apiVersion": kind.api_version, "kind": kind.kind}
                if kind not in TEMPLATED:
                    item["metadata"].pop("managedFields", None)  # half of every object
                yield item
            token = page.metadata and page.metadata.token
            if not token:
                return
            query["continue"] = token

    async def create(self, kind: Kind, body: Body) -> Body:
        """A new object."""
        path = kind.path(body["metadata"]["namespace"])
        return await self._call(
            "POST", path, body=body, query={"fieldManager": names.FIELD_MANAGER}
        )

    async def update(self, kind: Kind, body: Body) -> Body:
        """Replaces an object under its resourceVersion."""
        meta = body["metadata"]
        path = kind.path(meta["namespace"], meta["name"])
        return await self._call("PUT", path, body=body, query=_MANAGER)

    async def apply(self, kind: Kind, body: Body, manager: str = names.FIELD_MANAGER) -> Body:
        """Server-side apply, forced."""
        return await self._apply(kind, body, manager, "")

    async def apply_status(self, kind: Kind, body: Body) -> Body:
        """Server-side apply of the status. Raises also `OldDefinitionsError`."""
        try:
            return await self._apply(kind, body, names.STATUS_FIELD_MANAGER, "status")
        except Undeclared as error:
            raise OldDefinitionsError(
                f"the definition of {kind.kind} is older than this operator: {error.message}"
            ) from error

    async def _apply(self, kind: Kind, body: Body, manager: str, subresource: str) -> Body:
        meta = body["metadata"]
        path = kind.path(meta["namespace"], meta["name"], subresource)
        query = {"fieldManager": manager, "force": "true"}
        return await self._call("PATCH", path, body=body, query=query, content_type=_APPLY)

    async def merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Body,
        *,
        manager: str = names.FIELD_MANAGER,
    ) -> Body:
        """JSON merge patch."""
        path, query = kind.path(namespace, name), {"fieldManager": manager}
        return await self._call("PATCH", path, body=patch, query=query, content_type=_MERGE)

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, resource_version: str = ""
    ) -> None:
        """Deletes an object if it is still the one that was seen; dependents go after it."""
        conditions = {"uid": uid}
        if resource_version:
            conditions["resourceVersion"] = resource_version
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": conditions,
            "propagationPolicy": "Background",
        }
        await self._call("DELETE", kind.path(namespace, name), body=options)

    async def is_served(self, kind: Kind) -> bool:
        """Whether the API server knows the kind."""
        status, data, headers = await self._send("GET", kind.root, None, {}, _JSON)
        if status == 404:
            return False
        if status >= 300:
            raise error_of(status, data, headers)
        resources = json.loads(data).get("resources") or ()
        return any(resource.get("name") == kind.plural for resource in resources)

    async def schemas(self, group: str, version: str) -> dict[str, Body]:
        """The published schemas of a group's kinds, by kind."""
        document = await self._call("GET", f"/openapi/v3/apis/{group}/{version}")
        found = (document.get("components") or {}).get("schemas") or {}
        return {
            meant["kind"]: schema
            for schema in found.values()
            for meant in schema.get("x-kubernetes-group-version-kind") or ()
            if (meant.get("group"), meant.get("version")) == (group, version)
        }

    async def version(self) -> Body:
        """The API server's word about itself."""
        return await self._call("GET", "/version")

    async def read_log(
        self, namespace: str, pod: str, query: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        """A container's log in chunks; see `SupportApi`."""
        path = POD.path(namespace, pod, "log")
        silence_s = None if query.get("follow") == "true" else REQUEST_TIMEOUT_S
        answer = await self._open(path, dict(query))
        try:
            if answer.status == 401:
                answer.close()
                await self._credentials.load()
                answer = await self._open(path, dict(query))
            if answer.status >= 300:
                raise error_of(answer.status, await answer.read(), answer.headers)
            while True:
                async with asyncio.timeout(silence_s):
                    chunk = await answer.content.read(LOG_CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk
        except (TimeoutError, aiohttp.ClientError) as error:
            raise Unavailable(0, "NoConnection", f"GET {path} broke off: {error}") from error
        finally:
            answer.close()

    async def ask_port(
        self, namespace: str, pod: str, port: int, path: str, *, bytes_max: int
    ) -> bytes:
        """The body of an answer to GET from a port of a pod; see `SupportApi`."""
        what = f"GET {path} of pod {namespace}/{pod}"
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT_S),
                self._forwarded(namespace, pod, port, what) as forwarded,
            ):
                return await ask(forwarded, path, ForwardedAnswer(what, bytes_max))
        except TimeoutError as error:
            message = f"{what} had no answer within {REQUEST_TIMEOUT_S:.0f} s"
            raise Unavailable(0, "Timeout", message) from error

    @contextlib.asynccontextmanager
    async def pass_to_port(
        self, namespace: str, pod: str, port: int
    ) -> AsyncGenerator[Passage, None]:
        """A way to a port of a pod; see `SupportApi`. The caller bounds the time."""
        what = f"port {port} of pod {namespace}/{pod}"
        async with (
            self._forwarded(namespace, pod, port, what) as forwarded,
            passage(forwarded, what) as way,
        ):
            yield way

    @contextlib.asynccontextmanager
    async def _forwarded(
        self, namespace: str, pod: str, port: int, what: str
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
        place = POD.path(namespace, pod, "portforward")
        query = {"ports": str(port)}
        _, url, headers, *_ = await self._request("GET", place, None, query, _JSON)
        headers = headers | {"Accept": "*/*"}  # a kubelet has a port in no other form
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 -- as its own WsApiClient
        try:
            async with rest.pool_manager.ws_connect(
                url, headers=headers, protocols=(PROTOCOL,), proxy=rest.proxy
            ) as forwarded:
                yield forwarded
        except aiohttp.WSServerHandshakeError as error:
            raise error_of(error.status, b"", error.headers or {}) from error
        except aiohttp.ClientError as error:
            raise Unavailable(0, "NoConnection", f"{what}: {error}") from error

    async def _open(self, path: str, query: dict[str, str]) -> aiohttp.ClientResponse:
        """An answer to GET of which only the head was read."""
        request = await self._request("GET", path, None, query, _JSON)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer = await self._client.call_api(*request, _request_timeout=_NO_TOTAL)
        except TimeoutError as error:
            message = f"GET {path} had no answer within {REQUEST_TIMEOUT_S:.0f} s"
            raise Unavailable(0, "Timeout", message) from error
        except aiohttp.ClientError as error:
            raise Unavailable(0, "NoConnection", f"GET {path}: {error}") from error
        found: aiohttp.ClientResponse = answer.response
        return found

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: dict[str, str] | None = None,
        content_type: str = _JSON,
    ) -> Body:
        data = await self._read(method, path, body=body, query=query, content_type=content_type)
        try:
            answer = json.loads(data)
        except ValueError as error:
            raise Unavailable(200, "NotJson", f"{method} {path} was not JSON") from error
        if not isinstance(answer, dict):
            raise Unavailable(200, "NotAnObject", f"{method} {path} was no object")
        return answer

    async def _read(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: dict[str, str] | None = None,
        content_type: str = _JSON,
    ) -> bytes:
        """One request; a refused token is read anew once, since tokens rotate."""
        status, data, headers = await self._send(method, path, body, query or {}, content_type)
        if status == 401:
            await self._credentials.load()
            status, data, headers = await self._send(method, path, body, query or {}, content_type)
        if status >= 300:
            raise error_of(status, data, headers)
        return data

    async def _send(
        self, method: str, path: str, body: Body | None, query: dict[str, str], content_type: str
    ) -> tuple[int, bytes, Any]:
        request = await self._request(method, path, body, query, content_type)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer = await self._client.call_api(*request, _request_timeout=_NO_TOTAL)
                return answer.status, await answer.read(), answer.headers
        except TimeoutError as error:
            message = f"{method} {path} had no answer within {REQUEST_TIMEOUT_S:.0f} s"
            raise Unavailable(0, "Timeout", message) from error
        except aiohttp.ClientError as error:
            raise Unavailable(0, "NoConnection", f"{method} {path}: {error}") from error

    async def _request(
        self, method: str, path: str, body: Body | None, query: dict[str, str], content_type: str
    ) -> Any:
        return await self._client.param_serialize(
            method=method,
            resource_path=path,
            query_params=list(query.items()),
            header_params={"Accept": _JSON, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )

    def __repr__(self) -> str:
        """Without credentials."""
        return f"KubeApi({self._credentials.configuration.host})"


def _page(path: str, data: bytes) -> _Page:
    try:
        return _PAGE.decode(data)
    except msgspec.ValidationError as error:
        raise Unavailable(200, "NotAList", f"GET {path} was no list: {error}") from error
    except msgspec.DecodeError as error:
        raise Unavailable(200, "NotJson", f"GET {path} was not JSON") from error


def _items(path: str, page: _Page) -> Iterator[Body]:
    try:
        for text in page.items or ():
            yield _ITEM.decode(text)
    except msgspec.DecodeError as error:
        raise Unavailable(200, "NotAnObject", f"GET {path} had what is no object") from error
