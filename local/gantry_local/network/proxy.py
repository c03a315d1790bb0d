"""Services: a TCP listener per ClusterIP and port, following the Ready endpoints.

Each connection goes to a random endpoint and stays there until either side closes, as with
kube-proxy: a changed endpoint moves later connections, never existing ones. Without endpoints the
listener is closed, so that a client is refused at once instead of accepted and cut.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from gantry_protocol.process import log
from gantry_protocol.process.listening import bind

from gantry_local.controllers.endpoints import SERVICE_LABEL, SERVICES, SLICES
from gantry_local.network.pipe import Address, Front

if TYPE_CHECKING:
    from gantry_local.apiserver.store import Event, Store

Object = dict[str, Any]
ServiceKey = tuple[str, str]
MAX_CONNECTIONS: Final = 4096
"""Proxied connections of the whole cluster; more are cut at once."""

_log = log.get("local.proxy")


def wanted(service: Object, slices: list[Object]) -> dict[Address, list[Address]]:
    """Listener → backends of a Service; listeners without backends are left out."""
    address = service["spec"].get("clusterIP", "None")
    if address == "None":
        return {}
    table: dict[Address, list[Address]] = {}
    for port in service["spec"].get("ports") or []:
        backends = _backends(port.get("name", ""), slices)
        if backends and port.get("protocol", "TCP") == "TCP":
            table[address, port["port"]] = backends
    return table


def _backends(name: str, slices: list[Object]) -> list[Address]:
    """Where a Service's port leads in each slice: its number may differ from pod to pod."""
    return [
        (endpoint["addresses"][0], port["port"])
        for item in slices
        for port in item.get("ports") or []
        if port.get("name", "") == name
        for endpoint in item.get("endpoints") or []
        if endpoint["conditions"]["ready"]
    ]


class Listener:
    """One open (address, port)."""

    def __init__(self, proxies: Proxies, backends: list[Address]) -> None:
        self.backends = backends
        self._proxies = proxies
        self._server: asyncio.Server | None = None

    async def open(self, address: Address) -> None:
        """Listen; raises OSError or GantryError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        listening = bind(*address, purpose="a Service")
        self._server = await loop.create_server(self._front, sock=listening)

    def close(self) -> None:
        """Stop accepting; connections go on."""
        if self._server is not None:
            self._server.close()

    def _front(self) -> Front:
        return Front(self._choose, self._proxies.opened, self._proxies.closed)

    def _choose(self, failed: set[Address]) -> Address | None:
        left = [backend for backend in self.backends if backend not in failed]
        return random.choice(left) if left else None  # noqa: S311  # load spreading, no secret


class Proxies:
    """All listeners of the cluster, kept in step with Services and EndpointSlices."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: dict[ServiceKey, dict[Address, Listener]] = {}
        self._dirty: dict[ServiceKey, None] = {}
        self._wake = asyncio.Event()
        self._connections: set[Front] = set()

    async def run(self) -> None:
        """Until cancelled; then every listener and connection is closed."""
        unsubscribe = self._store.subscribe(self._on_event, name="proxies", resync=self._resync)
        self._resync()
        try:
            while True:
                while self._dirty:
                    key = next(iter(self._dirty))
                    del self._dirty[key]
                    await self._sync(key)
                self._wake.clear()
                await self._wake.wait()
        finally:
            unsubscribe()
            self._close_all()

    def opened(self, front: Front) -> bool:
        """Count a connection; False when there are too many."""
        if len(self._connections) >= MAX_CONNECTIONS:
            return False
        self._connections.add(front)
        return True

    def closed(self, front: Front) -> None:
        """Forget a connection."""
        self._connections.discard(front)

    def _resync(self) -> None:
        """Look at every Service, and at every one that has listeners."""
        keys = [record.key for record in self._store.records(SERVICES)]
        self._dirty.update(dict.fromkeys([*keys, *self._listeners]))
        self._wake.set()

    def _on_event(self, event: Event) -> None:
        record = event.record
        if record.resource == SERVICES:
            self._dirty[record.key] = None
        elif record.resource == SLICES:
            name = (record.obj["metadata"].get("labels") or {}).get(SERVICE_LABEL)
            if name is None:
                return
            self._dirty[record.key[0], name] = None
        else:
            return
        self._wake.set()

    async def _sync(self, key: ServiceKey) -> None:
        service = self._store.get(SERVICES, key)
        table = {} if service is None else wanted(service.obj, self._slices(service.uid))
        current = self._listeners.setdefault(key, {})
        for address in current.keys() - table.keys():
            current.pop(address).close()
        for address, backends in table.items():
            if address in current:
                current[address].backends = backends
                continue
            listener = Listener(self, backends)
            try:
                await listener.open(address)
            except Exception as error:  # noqa: BLE001  # one Service must not stop the others
                _log.exception("service cannot listen", error, service="/".join(key))
                continue
            current[address] = listener
        if not current:
            del self._listeners[key]

    def _slices(self, service_uid: str) -> list[Object]:
        owned = self._store.owned_by(service_uid)
        return [record.obj for record in owned if record.resource == SLICES]

    def _close_all(self) -> None:
        for listeners in self._listeners.values():
            for listener in listeners.values():
                listener.close()
        for front in tuple(self._connections):
            if front.transport is not None:
                front.transport.abort()
