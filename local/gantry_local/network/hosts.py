"""Cluster DNS as a file, for processes that read GANTRY_HOSTS: the names a real cluster resolves.

Pods with a hostname and subdomain have the name ``<pod>.<service>.<namespace>.svc`` while they are
Ready or their Service publishes them anyway; Services have their ClusterIP. A headless Service's
own name stands for its first address, since a file maps a name to one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantry_local.controllers.endpoints import SERVICE_LABEL, SERVICES, SLICES
from gantry_local.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_local.apiserver.store import Event, Store

Object = dict[str, Any]
CLUSTER_DOMAIN: Final = "cluster.local"


def names(services: list[Object], slices: list[Object]) -> dict[str, str]:
    """Name → address, every spelling a process may use from another namespace."""
    table: dict[str, str] = {}
    for service in services:
        meta = service["metadata"]
        address = service["spec"].get("clusterIP", "None")
        if address != "None":
            _add(table, f"{meta['name']}.{meta['namespace']}", address)
    headless = {
        (s["metadata"]["namespace"], s["metadata"]["name"])
        for s in services
        if s["spec"].get("clusterIP") == "None"
    }
    for item in slices:
        namespace = item["metadata"]["namespace"]
        service_name = (item["metadata"].get("labels") or {}).get(SERVICE_LABEL, "")
        for endpoint in item.get("endpoints") or []:
            if not endpoint["conditions"]["ready"]:
                continue
            address = endpoint["addresses"][0]
            domain = f"{service_name}.{namespace}"
            if "hostname" in endpoint:
                _add(table, f"{endpoint['hostname']}.{domain}", address)
            if (namespace, service_name) in headless and domain not in table:
                _add(table, domain, address)
    return table


def _add(table: dict[str, str], name: str, address: str) -> None:
    table[name] = table[f"{name}.svc"] = table[f"{name}.svc.{CLUSTER_DOMAIN}"] = address


class HostsWriter:
    """Rewrites the hosts file after every change that matters, once per turn of the event loop."""

    def __init__(self, store: Store, path: Path) -> None:
        self._store = store
        self._path = path
        self._written: dict[str, str] | None = None
        self._scheduled = False

    def start(self) -> None:
        """Write now and after every change (for the life of the store)."""
        self.write()
        self._store.subscribe(self._on_event, name="hosts", resync=self.write)

    def _on_event(self, event: Event) -> None:
        if event.record.resource in {SERVICES, SLICES} and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.write)

    def write(self) -> None:
        """Write the file if its content changed."""
        self._scheduled = False
        services = [record.obj for record in self._store.records(SERVICES)]
        slices = [record.obj for record in self._store.records(SLICES)]
        table = names(services, slices)
        if table != self._written:
            replace_file(self._path, msgspec.json.format(msgspec.json.encode(table)))
            self._written = table
