"""A thin client of a Kubernetes API for the command line: get, apply, delete, scale, logs.

Works against any cluster a kubeconfig names by URL, token and, for TLS, certificate authority; the
operator has its own client. The rule protected here: every refusal of the server reaches the person
as one sentence, in its words.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
import yaml
from gantry_protocol.errors import ConfigError, GantryError

from gantry_local.manifests import Manifest, where

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

MANAGER: Final = "gantry-cli"
TIMEOUT_S: Final = 30.0
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class ApiError(GantryError):
    """The API server refused, or did not answer.

    Attributes:
        code: HTTP status; 0 when there was no answer.
        reason: The Status reason such as ``NotFound``.
    """

    def __init__(self, message: str, *, code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class Resource(msgspec.Struct, frozen=True):
    """One served resource, from discovery."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """``group/version`` or ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``plural.group``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def called(self, word: str) -> bool:
        """Whether people may mean this resource by ``word``."""
        lower = word.lower()
        own = {self.plural, self.singular, self.kind.lower(), self.qualified, *self.short_names}
        return lower in own

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """The URL path; ``namespace`` None lists all namespaces."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


class Table(msgspec.Struct, frozen=True):
    """A list as people read it."""

    columns: list[str]
    rows: list[list[str]]


class Client:
    """``async with Client.from_kubeconfig(path) as client``."""

    def __init__(self, url: str, token: str, *, ca: str = "") -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._ca = ca
        self._session: aiohttp.ClientSession | None = None
        self._resources: list[Resource] | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """The current context of a kubeconfig with a URL and a token.

        Raises:
            ConfigError: the file is missing or has no such context.
        """
        try:
            config = yaml.safe_load(path.read_text(encoding="utf-8"))
            contexts = {item["name"]: item["context"] for item in config["contexts"]}
            context = contexts[config["current-context"]]
            clusters = {item["name"]: item["cluster"] for item in config["clusters"]}
            users = {item["name"]: item["user"] for item in config["users"]}
            cluster = clusters[context["cluster"]]
            ca = base64.b64decode(cluster.get("certificate-authority-data", "")).decode("ascii")
            return cls(cluster["server"], users[context["user"]].get("token", ""), ca=ca)
        except FileNotFoundError as error:
            raise ConfigError(
                f"There is no {path}, so no local cluster was ever started here; run gantry local "
                "up, or name its directory with GANTRY_LOCAL_DIR."
            ) from error
        except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is not a usable kubeconfig: {error!r}.") from error

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": f"{MANAGER}/0", "Authorization": f"Bearer {self._token}"}
        # aiohttp's own total would undo the cancellation of who asks.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        trust = ssl.create_default_context(cadata=self._ca) if self._ca else True
        connector = aiohttp.TCPConnector(ssl=trust)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        """One request; the decoded answer.

        Raises:
            ApiError: a refusal in the server's words, or nobody answers.
        """
        assert self._session is not None, "the client is used inside 'async with'"
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type, "Accept": accept}
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                self._session.request(
                    method, self.url + path, params=query, data=data, headers=headers
                ) as response,
            ):
                content = await response.read()
                status = response.status
                self._warn(response.headers.getall("Warning", []))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error
        answer = _decode(content)
        if status >= 400:
            raise _refusal(status, answer)
        return answer

    async def lines(
        self, path: str, query: dict[str, str], *, silence_s: float
    ) -> AsyncGenerator[bytes]:
        """The lines of an answer without an end, such as a watch's.

        Raises:
            ApiError: a refusal, a broken connection, or nothing came in ``silence_s`` seconds.
        """
        assert self._session is not None, "the client is used inside 'async with'"
        rest = b""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=silence_s)
        try:
            async with self._session.get(
                self.url + path, params=query, timeout=timeout
            ) as response:
                if response.status >= 400:
                    raise _refusal(response.status, _decode(await response.read()))
                async for chunk in response.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield line
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _warn(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            print(f"Warning: {warning.removeprefix('299 - ')}", file=sys.stderr)  # noqa: T201 - kubectl prints them too

    def _unreachable(self, error: Exception) -> ApiError:
        why = str(error) or "timed out"
        return ApiError(
            f"No API server answers at {self.url.partition('/k/')[0]} ({why}); "
            "start the cluster with gantry local up."
        )

    async def resources(self) -> list[Resource]:
        """Every served resource."""
        if self._resources is None:
            groups = (await self.request("GET", "/apis"))["groups"]
            paths = ["/api/v1"]
            paths += [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
            lists = await asyncio.gather(*(self.request("GET", path) for path in paths))
            self._resources = [
                _resource(listed["groupVersion"], item)
                for listed in lists
                for item in listed["resources"]
                if "/" not in item["name"]
            ]
        return self._resources

    async def resource(self, word: str) -> Resource:
        """The resource people call ``word``: plural, singular, kind, short name, plural.group.

        Raises:
            ApiError: there is none.
        """
        for found in await self.resources():
            if found.called(word):
                return found
        raise ApiError(f"The server does not have a resource called {word!r}.", code=404)

    async def kind(self, api_version: str, kind: str) -> Resource:
        """The resource of an object's apiVersion and kind.

        Raises:
            ApiError: there is none.
        """
        for refreshed in (False, True):
            if refreshed:
                self._resources = None  # a definition applied a moment ago
            for found in await self.resources():
                if found.kind == kind and found.api_version == api_version:
                    return found
        raise ApiError(
            f"The server does not know kind {kind} of {api_version}; apply its definition first.",
            code=404,
        )

    async def get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any]:
        """One object."""
        found: dict[str, Any] = await self.request("GET", resource.path(namespace, name))
        return found

    async def list(
        self, resource: Resource, namespace: str | None, *, labels: str = ""
    ) -> list[dict[str, Any]]:
        """Objects of one namespace, or of all of them (None)."""
        query = {"labelSelector": labels} if labels else None
        answer = await self.request("GET", resource.path(namespace), query=query)
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [{**head, **item} for item in answer["items"]]

    async def table(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        name: str = "",
        labels: str = "",
        wide: bool = False,
    ) -> Table:
        """The output of ``kubectl get``, from the server."""
        path = resource.path(namespace, name)
        query = {"labelSelector": labels} if labels else None
        answer = await self.request("GET", path, query=query, accept=_TABLE)
        everywhere = resource.namespaced and namespace is None
        shown = [
            index
            for index, column in enumerate(answer["columnDefinitions"])
            if wide or not column["priority"]
        ]
        columns = [answer["columnDefinitions"][index]["name"].upper() for index in shown]
        rows = []
        for row in answer.get("rows") or []:
            cells = [_cell(row["cells"][index]) for index in shown]
            if everywhere:
                cells.insert(0, row["object"]["metadata"].get("namespace", ""))
            rows.append(cells)
        return Table(["NAMESPACE", *columns] if everywhere else columns, rows)

    async def apply(
        self, obj: Manifest, *, namespace: str = "default", force: bool = True
    ) -> tuple[dict[str, Any], str]:
        """Server-side apply; returns the object and created, configured or unchanged."""
        resource = await self.kind(obj["apiVersion"], obj["kind"])
        name, space = where(obj, namespace)
        path = resource.path(space, name)
        try:
            before = (await self.request("GET", path))["metadata"]["resourceVersion"]
        except ApiError as error:
            if error.code != 404:
                raise
            before = None
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        query["force"] = "true" if force else "false"
        applied = await self.request(
            "PATCH", path, query=query, body=obj, content_type="application/apply-patch+yaml"
        )
        if before is None:
            return applied, "created"
        same = applied["metadata"]["resourceVersion"] == before
        return applied, "unchanged" if same else "configured"

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        patch: dict[str, Any],
        *,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Merge-patch an object."""
        path = resource.path(namespace, name, subresource)
        kind = "application/merge-patch+json"
        answer: dict[str, Any] = await self.request("PATCH", path, body=patch, content_type=kind)
        return answer

    async def scale(self, resource: Resource, name: str, namespace: str, replicas: int) -> None:
        """Set the replica count through ``/scale``."""
        wanted = {"spec": {"replicas": replicas}}
        await self.patch(resource, name, namespace, wanted, subresource="scale")

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        *,
        grace_s: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete an object; returns when the deletion is accepted."""
        options: dict[str, Any] = {"propagationPolicy": propagation}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        await self.request("DELETE", resource.path(namespace, name), body=options)

    async def logs(
        self,
        pod: str,
        namespace: str,
        *,
        container: str = "",
        tail: int | None = None,
        previous: bool = False,
        follow: bool = False,
    ) -> AsyncIterator[bytes]:
        """A pod's log in chunks; with ``follow`` until cancelled."""
        assert self._session is not None
        query = {"follow": str(follow).lower(), "previous": str(previous).lower()}
        if container:
            query["container"] = container
        if tail is not None:
            query["tailLines"] = str(tail)
        url = f"{self.url}/api/v1/namespaces/{namespace}/pods/{pod}/log"
        try:
            async with self._session.get(url, params=query) as response:
                if response.status >= 400:
                    raise _refusal(response.status, _decode(await response.read()))
                async for chunk in response.content.iter_any():
                    yield chunk
        except aiohttp.ClientError as error:
            raise self._unreachable(error) from error


def _resource(group_version: str, item: dict[str, Any]) -> Resource:
    group, _, version = group_version.rpartition("/")
    return Resource(
        group,
        version,
        item["name"],
        item.get("singularName") or item["kind"].lower(),
        item["kind"],
        item["namespaced"],
        tuple(item.get("shortNames") or ()),
    )


def _decode(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content.decode(errors="replace")


def _refusal(status: int, answer: Any) -> ApiError:
    if isinstance(answer, dict) and answer.get("kind") == "Status":
        text = str(answer.get("message") or answer.get("reason") or status)
        return ApiError(f"The API server refused: {text}", code=status, reason=answer["reason"])
    return ApiError(f"The API server answered {status}: {answer!s:.200}", code=status)


def _cell(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
