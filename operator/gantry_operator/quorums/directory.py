"""All quorums that the operator knows: where their pods are, their tokens, their streams."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from gantry_protocol.admin_client.admin import Admin
from gantry_protocol.admin_client.errors import QuorumUnreachableError
from gantry_protocol.admin_client.quorum import Endpoint, Quorum

from gantry_operator import names
from gantry_operator.api.errors import ApiError
from gantry_operator.api.kinds import CONTROLLER_GROUP, POD, SECRET
from gantry_operator.cache import Cache, Key
from gantry_operator.plan.observed import pod_view
from gantry_operator.quorums.trust import SecretTrust
from gantry_operator.quorums.watch import RoleWatch

if TYPE_CHECKING:
    import aiohttp

    from gantry_operator.api.protocol import Api

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
OnChange = Callable[[str, str], None]
OnDoubt = Callable[[str, str], None]


class Directory:
    """Admin clients by ControllerGroup; their streams run as tasks of the caller.

    Args:
        cache: where the pods are known.
        api: where the tokens are read.
        session: shared by all clients.
        on_change: called with namespace and name of a broker group whose roles changed.
        on_doubt: called with namespace and name of a ControllerGroup that has no stream although it
            answered, or has one again (``RoleWatch``).
    """

    def __init__(
        self,
        cache: Cache,
        api: Api,
        session: aiohttp.ClientSession,
        on_change: OnChange,
        on_doubt: OnDoubt,
    ) -> None:
        self._cache = cache
        self._api = api
        self._session = session
        self._on_change = on_change
        self._on_doubt = on_doubt
        self._admins: dict[tuple[str, str], Admin] = {}
        self._tokens: dict[tuple[str, str], str] = {}
        self._trusts: dict[tuple[str, str], dict[str, SecretTrust]] = {}  # by Secret
        self._watches: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._streams: dict[tuple[str, str], RoleWatch] = {}

    def admin(self, namespace: str, name: str) -> Admin:
        """The admin client of a ControllerGroup."""
        found = self._admins.get((namespace, name))
        if found is None:
            quorum = Quorum(
                name,
                lambda: self._endpoints(namespace, name),
                lambda fresh: self._token(namespace, name, fresh),
                self._session,
            )
            found = self._admins[namespace, name] = Admin(quorum, name)
        return found

    def follow(self, namespace: str, name: str, spawn: Spawn) -> None:
        """Starts the stream of a ControllerGroup unless it runs."""
        if (namespace, name) in self._watches:
            return
        watch = RoleWatch(
            self.admin(namespace, name).quorum,
            lambda group: self._on_change(namespace, group),
            lambda: self._on_doubt(namespace, name),
        )
        self._streams[namespace, name] = watch
        self._watches[namespace, name] = spawn(watch.run())

    def drop(self, namespace: str, name: str) -> None:
        """Forgets a ControllerGroup that is gone."""
        self._admins.pop((namespace, name), None)
        self._tokens.pop((namespace, name), None)
        self._trusts.pop((namespace, name), None)
        self._streams.pop((namespace, name), None)
        task = self._watches.pop((namespace, name), None)
        if task is not None:
            task.cancel()

    def known_groups(self) -> set[tuple[str, str]]:
        """Namespace and name of every broker group that some quorum has named."""
        return {
            (namespace, group)
            for (namespace, _), watch in self._streams.items()
            for group in watch.groups
        }

    @property
    def streams(self) -> int:
        """The number of streams that are followed."""
        return len(self._watches)

    def _endpoints(self, namespace: str, name: str) -> list[Endpoint]:
        found = []
        for body in self._cache.owned(Key(CONTROLLER_GROUP.kind, namespace, name), POD):
            pod = pod_view(body)
            if pod.ip is not None and not pod.finished:
                trust = self._trust(namespace, name, names.member_secret(body))
                found.append(Endpoint(pod.name, pod.ip, names.CONTROLLER_HTTP_PORT, trust))
        return sorted(found, key=lambda endpoint: endpoint.pod)

    def _trust(self, namespace: str, name: str, secret: str | None) -> SecretTrust | None:
        """The trust in a pod that was given this Secret; None: it speaks no TLS."""
        if secret is None:
            return None
        trusts = self._trusts.setdefault((namespace, name), {})
        if secret not in trusts:
            trusts[secret] = SecretTrust(self._api, namespace, secret)
        trusts[secret].plainly = not self._is_enforced(namespace, name)
        return trusts[secret]

    def _is_enforced(self, namespace: str, name: str) -> bool:
        """Whether the resource wants TLS between members and nothing else."""
        body = self._cache.get(CONTROLLER_GROUP, namespace, name) or {}
        wish = (body.get("spec") or {}).get("memberTls") or {}
        return isinstance(wish, dict) and wish.get("mode") == "Enforcing"

    async def _token(self, namespace: str, name: str, fresh: bool) -> str:
        known = self._tokens.get((namespace, name))
        if known is not None and not fresh:
            return known
        secret = names.admin_secret(name)
        try:
            body = await self._api.get(SECRET, namespace, secret)
            encoded = (body.get("data") or {})[names.TOKEN_KEY]
            token = base64.b64decode(encoded, validate=True).decode().strip()
        except ApiError as error:
            raise QuorumUnreachableError(f"Secret {secret} cannot be read: {error}.") from error
        except (KeyError, binascii.Error, ValueError) as error:
            raise QuorumUnreachableError(
                f"Secret {secret} has no usable key {names.TOKEN_KEY!r}: delete it and it is made "
                "again."
            ) from error
        self._tokens[namespace, name] = token
        return token
