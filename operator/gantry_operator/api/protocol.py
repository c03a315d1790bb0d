"""The verbs. Everything that changes the cluster goes through here; tests replace this.

Watching is not among them: kopf does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gantry_operator import names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from gantry_operator.api.kinds import Kind
    from gantry_operator.api.port_forward import Passage

Body = dict[str, Any]


class ReadOnlyApi(Protocol):
    """The verbs that change nothing. Every verb raises `ApiError`."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        """One object, live; namespace None for what is in none."""
        ...

    def list_all(self, kind: Kind, namespace: str | None, labels: str = "") -> AsyncIterator[Body]:
        """All objects of a kind, in chunks behind the scenes.

        Raises `Gone` in the middle if the list became too old; what came before is then no list.
        """
        ...

    async def is_served(self, kind: Kind) -> bool:
        """Whether the API server knows the kind."""
        ...


class SupportApi(ReadOnlyApi, Protocol):
    """The verbs of people who look at more than objects; the operator has no use for them."""

    async def version(self) -> Body:
        """The API server's word about itself."""
        ...

    def read_log(
        self, namespace: str, pod: str, query: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        """A container's log in chunks; with `follow` until it ends or the reader goes away.

        Args:
            namespace: of the pod.
            pod: its name.
            query: as of `pods/log`: container, previous, timestamps, tailLines, sinceTime, follow.
        """
        ...

    async def ask_port(
        self, namespace: str, pod: str, port: int, path: str, *, bytes_max: int
    ) -> bytes:
        """The answer to an HTTP GET from what listens on the loopback address in a pod.

        Args:
            namespace: of the pod.
            pod: its name.
            port: where it listens.
            path: with the query.
            bytes_max: of the answer, with its head; a larger one is an error.
        """
        ...

    def pass_to_port(
        self, namespace: str, pod: str, port: int
    ) -> AbstractAsyncContextManager[Passage]:
        """A way to what listens on the loopback address in a pod, for any protocol.

        Args:
            namespace: of the pod.
            pod: its name.
            port: where it listens.
        """
        ...


class Api(ReadOnlyApi, Protocol):
    """A Kubernetes API server."""

    async def create(self, kind: Kind, body: Body) -> Body:
        """A new object; `AlreadyExists` if there is one of its name."""
        ...

    async def update(self, kind: Kind, body: Body) -> Body:
        """Replaces an object under its resourceVersion; used for the Lease only."""
        ...

    async def apply(self, kind: Kind, body: Body, manager: str = names.FIELD_MANAGER) -> Body:
        """Server-side apply, forced: the fields of `body` are the operator's, or a manager's."""
        ...

    async def apply_status(self, kind: Kind, body: Body) -> Body:
        """Server-side apply of the status subresource, under a field manager of its own."""
        ...

    async def merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Body,
        *,
        manager: str = names.FIELD_MANAGER,
    ) -> Body:
        """JSON merge patch; a uid or resourceVersion in its metadata is a precondition."""
        ...

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, resource_version: str = ""
    ) -> None:
        """Deletes an object if it is still the one that was seen."""
        ...
