"""A bare view of a Kubernetes API, for the contract suite: any server a kubeconfig names.

Requests go the way that the operator's go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from gantry_operator.api.credentials import Credentials
from gantry_operator.api.kube import KubeApi
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Object = dict[str, Any]
WIDGETS = "/apis/contract.gantry.dev/v1/namespaces/{ns}/widgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

WIDGET_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.contract.gantry.dev"},
    "spec": {
        "group": "contract.gantry.dev",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "!has(self.low) || self.low <= self.replicas",
                                        "message": "low must not exceed replicas",
                                    }
                                ],
                                "properties": {
                                    "replicas": {
                                        "type": "integer",
                                        "minimum": 0,
                                        "maximum": 9,
                                        "default": 3,
                                    },
                                    "low": {"type": "integer"},
                                    "route": {"type": "string", "enum": ["Group", "Master"]},
                                    "name": {"type": "string", "pattern": "^[a-z]+$"},
                                    "fixed": {
                                        "type": "string",
                                        "x-kubernetes-validations": [
                                            {
                                                "rule": "self == oldSelf",
                                                "message": "fixed is immutable",
                                            }
                                        ],
                                    },
                                    "plain": {"type": "array", "items": {"type": "string"}},
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "size": {"type": "integer"},
                                                "color": {"type": "string"},
                                            },
                                        },
                                    },
                                    "options": {
                                        "type": "object",
                                        "additionalProperties": {"type": "string"},
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "selector": {"type": "string"},
                                    "note": {"type": "string"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


class Refused(Exception):  # noqa: N818  # tests read better with the plain word
    """An answer of 400 or more."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(f"{code} {status.get('reason')}: {status.get('message')}")
        self.code = code
        self.status = status
        self.reason = status.get("reason", "")
        self.message = status.get("message", "")

    @property
    def fields(self) -> set[str]:
        """Fields named by the causes."""
        causes = (self.status.get("details") or {}).get("causes") or []
        return {cause.get("field", "") for cause in causes}


class ContractApi:
    """Requests by path; bodies and answers are plain objects."""

    def __init__(self, kubeconfig: Path) -> None:
        self._credentials = Credentials(kubeconfig)
        self._api: KubeApi | None = None
        self.ns = "default"
        # Makes early revisions unwatchable where time alone has not done so yet.
        self.compact: Callable[[], None] = lambda: None

    async def __aenter__(self) -> ContractApi:
        await self._credentials.load()
        self._api = KubeApi(self._credentials)
        self._client.user_agent = "contract/1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.close()

    @property
    def _open(self) -> KubeApi:
        assert self._api is not None, "use it in `async with`"
        return self._api

    @property
    def _client(self) -> Any:
        return self._open._client

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        **query: str,
    ) -> Object:
        """One request, by the operator's own transport."""
        status, content, _ = await self._open._send(
            method, path.format(ns=self.ns), body, query, kind
        )
        if status >= 400:
            raise Refused(status, _status(content))
        answer: Object = json.loads(content)
        return answer

    async def get(self, path: str, **query: str) -> Object:
        """GET."""
        return await self.call("GET", path, **query)

    async def create(self, path: str, body: Object, **query: str) -> Object:
        """POST."""
        return await self.call("POST", path, body, **query)

    async def replace(self, path: str, body: Object, **query: str) -> Object:
        """PUT."""
        return await self.call("PUT", path, body, **query)

    async def merge(self, path: str, body: Object, **query: str) -> Object:
        """PATCH with a merge patch."""
        return await self.call("PATCH", path, body, kind="application/merge-patch+json", **query)

    async def apply(
        self, path: str, body: Object, manager: str = "one", *, force: bool = False
    ) -> Object:
        """PATCH with server-side apply."""
        kind = "application/apply-patch+yaml"
        query = {"fieldManager": manager, "force": str(force).lower()}
        return await self.call("PATCH", path, body, kind=kind, **query)

    async def delete(self, path: str, body: Object | None = None, **query: str) -> Object:
        """DELETE."""
        return await self.call("DELETE", path, body, **query)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        """A watch."""
        request = await self._client.param_serialize(
            method="GET",
            resource_path=path.format(ns=self.ns),
            query_params=list({"watch": "true", "timeoutSeconds": "30", **query}.items()),
            auth_settings=["BearerToken"],
        )
        answer = await self._client.call_api(*request)
        async with answer.response as response:
            if response.status >= 400:
                raise Refused(response.status, await response.json(content_type=None))
            try:
                yield Watch(response)
            finally:
                # A close would wait for the server's own with the client ended by then.
                if response.connection and response.connection.transport:
                    response.connection.transport.abort()

    async def until(self, path: str, check: Callable[[Object | None], bool]) -> Object | None:
        """Poll until the object (None: 404) is as wanted."""
        found: Object | None = None
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    found = await self.get(path)
                except Refused as refused:
                    if refused.code not in {404, 429}:  # 429: a definition is being served anew
                        raise
                    found = None
                if check(found):
                    return found
                await asyncio.sleep(0.05)


class Watch:
    """Events of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content

    async def next(self) -> tuple[str, Object]:
        """The next event as (type, object)."""
        async with asyncio.timeout(PATIENCE_S):
            line = await self._content.readline()
        assert line, "the watch ended"
        event = json.loads(line)
        return event["type"], event["object"]

    async def until(self, kind: str, name: str) -> Object:
        """The next event of a type about an object, skipping others."""
        while True:
            got, obj = await self.next()
            if (got, obj["metadata"].get("name")) == (kind, name):
                return obj

    async def ended(self) -> bool:
        """Whether the stream has ended."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._content.readline() == b""


def _status(content: bytes) -> Object:
    """The Status of a refusal; a path without any server answers plain text."""
    try:
        status: Object = json.loads(content)
    except json.JSONDecodeError:
        return {"message": content.decode(errors="replace")}
    return status


def widget(name: str, /, **spec: Any) -> Object:
    """A Widget."""
    return {
        "apiVersion": "contract.gantry.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


def config_map(name: str, /, *, labels: dict[str, str] | None = None, **data: str) -> Object:
    """A ConfigMap."""
    metadata: Object = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def managers(obj: Object) -> dict[str, Object]:
    """Field sets by manager name."""
    return {e["manager"]: e["fieldsV1"] for e in obj["metadata"].get("managedFields") or []}
