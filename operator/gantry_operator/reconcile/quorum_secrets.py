"""The Secrets of quorums: made once, remembered while the operator runs, made again as they were.

Rules protected: a Secret that exists is never written, whoever made it, so people replace its
content by editing it. One that was deleted comes back with the content that the processes still
have mounted; only if this operator never saw that content, it comes back with a new one, which the
kubelets bring to the pods by themselves within about a minute.

The operator has no right to list or watch Secrets, since that would show it all of them. So each is
read by its name, in turn and slowly. Nothing read here is logged or put into a status or an event.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import TYPE_CHECKING, NamedTuple

from gantry_protocol.process import log

from gantry_operator import names
from gantry_operator.api.errors import (
    AlreadyExists,
    ApiError,
    Denied,
    Invalid,
    NotFound,
    Unavailable,
)
from gantry_operator.api.kinds import CONTROLLER_GROUP, SECRET
from gantry_operator.builders import quorum_secret
from gantry_operator.cache import Key

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_operator.api.protocol import Api
    from gantry_operator.cache import Cache
    from gantry_operator.models import ControllerGroup

RANDOM_BYTES = 32
KNOWN_MAX = 10_000
LOOK_INTERVAL_S = 2.0
"""How long a deletion may go unseen where there are few quorums."""
LOOKS_PER_S = 20.0
"""The most that is asked of the API server for this; many quorums are looked at less often."""
_log = log.get("secrets")


class Survey(NamedTuple):
    """The Secrets of a quorum that do not exist, and why others cannot be read, by name."""

    missing: tuple[str, ...]
    unread: dict[str, ApiError]


class Secrets:
    """Knowledge of the quorums' Secrets, those read last if there are very many.

    A quorum that is deleted is remembered, too: its brokers run on, and if it is created again they
    and its new controllers have the same key at once.

    Args:
        api: where they are read and created.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[tuple[str, str], dict[str, str]] = {}

    async def survey(self, namespace: str, group: str) -> Survey:
        """Those Secrets of a ControllerGroup that are not as they should be; others are remembered.

        Raises:
            ApiError: the API server does not answer, or wants to be left in peace.
        """
        absent: list[str] = []
        unread: dict[str, ApiError] = {}
        for name, entry in names.secrets(group).items():
            try:
                if not await self._exists(namespace, name, entry):
                    absent.append(name)
            except (Denied, Invalid, Unavailable) as error:
                if error.status == 0:
                    raise
                unread[name] = error
        return Survey(tuple(absent), unread)

    async def ensure(self, group: ControllerGroup, name: str) -> None:
        """Creates a Secret as it was, or with a new random content; one that exists stays."""
        entry = names.secrets(group.metadata.name)[name]
        namespace = group.metadata.namespace
        data = self._known.get((namespace, name)) or {entry: _random()}
        try:
            await self._api.create(SECRET, quorum_secret(group, name, data))
        except AlreadyExists:
            return
        self._remember(namespace, name, data)

    async def watch(self, cache: Cache, enqueue: Callable[[Key], None]) -> None:
        """Looks for ever, and enqueues each ControllerGroup that lacks a Secret."""
        while True:
            groups = list(cache.names(CONTROLLER_GROUP))
            for namespace, name in groups:
                await self._look(namespace, name, enqueue)
                await asyncio.sleep(len(names.secrets(name)) / LOOKS_PER_S)
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _look(self, namespace: str, group: str, enqueue: Callable[[Key], None]) -> None:
        try:
            absent = (await self.survey(namespace, group)).missing
        except ApiError as error:
            _log.debug("secrets not read", namespace=namespace, group=group, error=error)
            return
        if absent:
            enqueue(Key(CONTROLLER_GROUP.kind, namespace, group))

    async def _exists(self, namespace: str, name: str, entry: str) -> bool:
        try:
            body = await self._api.get(SECRET, namespace, name)
        except NotFound:
            return False
        content = (body.get("data") or {}).get(entry)
        if content:  # one that was emptied is no reason to forget what the processes have
            self._remember(namespace, name, {entry: content})
        return True

    def _remember(self, namespace: str, name: str, data: dict[str, str]) -> None:
        self._known.pop((namespace, name), None)
        self._known[namespace, name] = data
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]


def _random() -> str:
    """A line of 43 characters from 32 random bytes, in base64 as a Secret has it."""
    line = secrets.token_urlsafe(RANDOM_BYTES)
    return base64.b64encode(line.encode()).decode()
