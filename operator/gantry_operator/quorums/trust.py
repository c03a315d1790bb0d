"""The controllers that the operator believes: those for which the Secret of their pods vouches.

The Secret is read by its name, as the processes' other Secrets are: when it is needed first, when a
controller is not believed, and once in ``FRESH_S``, so that an authority that was taken out is
believed no longer. What cannot be read, or is no good, leaves what was read last in use, as in the
processes themselves. Of its entries `ca.crt` and the name in `tls.crt` count; the key is dropped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.errors import ConfigError
from gantry_protocol.member_tls.asking import SecretEntries
from gantry_protocol.process import log

from gantry_operator.api.errors import ApiError
from gantry_operator.api.kinds import SECRET

if TYPE_CHECKING:
    import ssl

    from gantry_operator.api.protocol import Api

FRESH_S = 60.0
"""About as long as the kubelet takes to bring a changed Secret to the pods."""
_log = log.get("controllers")


class SecretTrust:
    """The trust in controllers whose pods were given one Secret.

    Args:
        api: where it is read.
        namespace: of the Secret.
        name: of it.

    Attributes:
        plainly: whether a controller with which TLS fails is asked without: members are permissive.
    """

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        """Nothing is read."""
        self.plainly = False
        self._api = api
        self._namespace = namespace
        self._name = name
        self._entries: SecretEntries | None = None
        self._context: ssl.SSLContext | None = None
        self._read_at_s = float("-inf")

    async def context(self, *, fresh: bool) -> ssl.SSLContext:
        """For the next connection; the same as long as the Secret says the same.

        Raises:
            ConfigError: the Secret never was any good, or cannot be read; one sentence.
        """
        now_s = asyncio.get_running_loop().time()
        if self._context is None or fresh or now_s - self._read_at_s >= FRESH_S:
            try:
                await self._read()
            except ConfigError as error:
                if self._context is None:
                    raise
                _log.warning("authorities not taken, the last good ones stay", reason=error)
            self._read_at_s = now_s
        assert self._context is not None
        return self._context

    async def _read(self) -> None:
        try:
            body = await self._api.get(SECRET, self._namespace, self._name)
        except ApiError as error:
            raise ConfigError(f"Secret {self._name} cannot be read: {error}.") from error
        entries = SecretEntries.of(body.get("data") or {}, self._name)
        if entries != self._entries:
            self._context = entries.context(self._name)
            self._entries = entries
