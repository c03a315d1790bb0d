"""Objects of a cluster, read with a person's rights, and a list of what could not be read.

Nothing here fails because something may not be read: that is a finding, too, and is told. Only an
API server that does not answer at all is an error. Requests run a few at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from gantry_protocol.errors import GantryError

from gantry_operator import lease, names
from gantry_operator.api.errors import ApiError, Denied, NotFound, Unavailable
from gantry_operator.api.kinds import (
    AUTOSCALER,
    BUDGET,
    CERTIFICATE,
    CLAIM,
    CONFIG_MAP,
    CRD,
    CRON_JOB,
    CUSTOM,
    DEPLOYMENT,
    EVENT,
    LEASE,
    MUTATING,
    NETWORK_POLICY,
    NODE,
    POD,
    QUOTA,
    SERVICE,
    STATEFULSET,
    VALIDATING,
    Kind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_operator.api.protocol import Body, SupportApi

    Tell = Callable[[str], None]

AT_ONCE: Final = 4
OBJECTS_MAX: Final = 5000
"""Of one kind; more are not read."""
OURS: Final = f"{names.LABEL_NAME}={names.APP_NAME}"
OPERATORS: Final = f"{OURS},{names.LABEL_COMPONENT}={names.OPERATOR}"
_LABELED: Final = (
    STATEFULSET,
    DEPLOYMENT,
    POD,
    SERVICE,
    CONFIG_MAP,
    BUDGET,
    AUTOSCALER,
    CRON_JOB,
    NETWORK_POLICY,
    CLAIM,
)
"""Kinds of which those with our label are read."""
_OF_NAMESPACE: Final = (EVENT, QUOTA, CERTIFICATE)
_OF_CLUSTER: Final = (CRD, NODE, VALIDATING, MUTATING)


class Unread(msgspec.Struct, frozen=True):
    """Something that could not be read, and the API server's words why.

    Attributes:
        denied: the person's rights do not cover it.
    """

    what: str
    why: str
    denied: bool


class Material(msgspec.Struct):
    """Everything that was read.

    Attributes:
        namespace: where the groups are.
        operator_namespace: where an operator was found; empty if none was.
        server: the API server's word about itself.
        objects: by kind; those with a namespace of both namespaces, the second only for OPERATORS.
        unread: what could not be.
        cut: kinds of which there were more than OBJECTS_MAX.
    """

    namespace: str
    operator_namespace: str = ""
    server: dict[str, object] = {}
    objects: dict[str, list[Body]] = {}
    unread: list[Unread] = []
    cut: list[str] = []

    def of(self, kind: Kind, namespace: str | None = None) -> list[Body]:
        """Those of a kind in a namespace; in that of the groups if none is given."""
        wanted = self.namespace if namespace is None else namespace
        return [
            body
            for body in self.objects.get(kind.kind, ())
            if body["metadata"].get("namespace") in (wanted, None)
        ]

    def denied(self, kind: Kind) -> str:
        """The reason that a kind could not be read; empty if it was."""
        lists = (kind.plural, f"{kind.plural} of namespace {self.namespace}")
        return next((one.why for one in self.unread if one.what in lists), "")


async def gather(
    api: SupportApi, namespace: str, tell: Tell, *, operator_namespace: str = ""
) -> Material:
    """The groups of a namespace, what belongs to them, and their operator.

    Args:
        api: with the person's rights.
        namespace: of the groups.
        tell: hears what is being read.
        operator_namespace: of the operator; empty to look for one.

    Raises:
        GantryError: the API server does not answer.
    """
    reading = _Reading(api, namespace, tell)
    await reading.version()
    await reading.operator(operator_namespace)
    async with asyncio.TaskGroup() as tasks:
        for kind in CUSTOM:
            tasks.create_task(reading.all_of(kind, namespace))
        for kind in _LABELED:
            tasks.create_task(reading.all_of(kind, namespace, OURS))
        for kind in _OF_NAMESPACE:
            tasks.create_task(reading.all_of(kind, namespace))
        for kind in _OF_CLUSTER:
            tasks.create_task(reading.all_of(kind, None))
    found = reading.material
    found.unread.sort(key=lambda one: one.what)
    for bodies in found.objects.values():
        bodies.sort(key=_place)
    return found


def reason(error: ApiError) -> str:
    """An answer of the API server as words."""
    return f"{error.status} {error.reason}: {error.message}" if error.status else error.message


def _place(body: Body) -> tuple[str, str]:
    meta = body["metadata"]
    return meta.get("namespace") or "", meta["name"]


class _Reading:
    def __init__(self, api: SupportApi, namespace: str, tell: Tell) -> None:
        self._api = api
        self._tell = tell
        self._turn = asyncio.Semaphore(AT_ONCE)
        self.material = Material(namespace, "", {}, {}, [], [])

    async def version(self) -> None:
        """The API server's; it is the first that is asked."""
        try:
            self.material.server = await self._api.version()
        except Unavailable as error:
            raise GantryError(f"The API server does not answer: {error.message}.") from error
        except ApiError as error:
            self._unread("version of the API server", error)

    async def operator(self, namespace: str) -> None:
        """The Deployment, the pods and the Lease of an operator."""
        found = self.material
        places: Sequence[str | None] = [namespace] if namespace else [None, found.namespace]
        for place in places:
            if await self.all_of(DEPLOYMENT, place, OPERATORS):
                break
        operators = found.objects.get(DEPLOYMENT.kind) or []
        if not operators:
            return
        home = found.operator_namespace = operators[0]["metadata"]["namespace"]
        await self.all_of(EVENT, home)
        if home != found.namespace:
            await self.all_of(POD, home, OPERATORS)
        try:
            found.objects[LEASE.kind] = [await self._api.get(LEASE, home, lease.NAME)]
        except NotFound:
            found.objects[LEASE.kind] = []
        except ApiError as error:
            self._unread(f"{LEASE.plural} {home}/{lease.NAME}", error)

    async def all_of(self, kind: Kind, namespace: str | None, labels: str = "") -> bool:
        """Whether there are any; they are kept."""
        where = f" of namespace {namespace}" if namespace else ""
        bodies: list[Body] = []
        try:
            async with self._turn:
                self._tell(f"Reading {kind.plural}{where}")
                async for body in self._api.list_all(kind, namespace, labels):
                    if len(bodies) >= OBJECTS_MAX:
                        self.material.cut.append(f"{kind.plural}{where}: after {OBJECTS_MAX}")
                        break
                    body["metadata"].pop("managedFields", None)
                    bodies.append(body)
        except NotFound:
            pass  # the API server does not know the kind
        except ApiError as error:
            self._unread(f"{kind.plural}{where}", error)
        kept = self.material.objects.setdefault(kind.kind, [])
        known = {_place(body) for body in kept}
        kept += [body for body in bodies if _place(body) not in known]
        return bool(bodies)

    def _unread(self, what: str, error: ApiError) -> None:
        one = Unread(what, reason(error), isinstance(error, Denied))
        self.material.unread.append(one)
