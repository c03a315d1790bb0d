"""The certificates of listeners, read from their Secrets by name.

The operator may not list or watch Secrets, so each is read when its resource is looked at, and not
again for `FRESH_S`. Of what is read a judgement is kept: no byte of a key or a certificate.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.process import log
from gantry_protocol.tls.pairs import pair_fault

from gantry_operator.api.errors import ApiError, NotFound
from gantry_operator.api.kinds import SECRET
from gantry_operator.plan.listener_tls import judged
from gantry_operator.plan.observed import CertificateView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.api.protocol import Api

FRESH_S = 20.0
KNOWN_MAX = 10_000
_log = log.get("secrets")


class Certificates:
    """Judgements of certificates, those read last if there are very many.

    Args:
        api: where they are read.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[tuple[str, str], tuple[float, CertificateView]] = {}

    async def of(self, namespace: str, secrets: Iterable[str]) -> tuple[CertificateView, ...]:
        """The judgement of each Secret."""
        return tuple([await self._judged(namespace, name) for name in secrets])

    async def _judged(self, namespace: str, name: str) -> CertificateView:
        now_s = asyncio.get_running_loop().time()
        known = self._known.get((namespace, name))
        if known is not None and now_s - known[0] < FRESH_S:
            return known[1]
        found = await self._read(namespace, name)
        if found.state == "Unread" and known is not None:
            found = known[1]
        self._known.pop((namespace, name), None)
        self._known[namespace, name] = now_s, found
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return found

    async def _read(self, namespace: str, name: str) -> CertificateView:
        try:
            body = await self._api.get(SECRET, namespace, name)
        except NotFound:
            return CertificateView(name, "Missing")
        except ApiError as error:
            _log.debug("certificate not read", namespace=namespace, secret=name, error=error)
            return CertificateView(name, "Unread")
        return judged(name, body.get("data") or {}, pair_fault)
