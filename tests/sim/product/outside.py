"""A person who leads clients into the cluster from outside, and gives and spoils certificates.

A cloud gives the Services of listeners their addresses after a while. Clients outside ask at that
of the quorum, and are led to those of the group, which serve them. Where the quorum has no such
listener, or the Secret of a listener is missing, unreadable or has ended, the status says so; a
good one ends that, and no pod goes for a Secret.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from functools import cache
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gantry_cli.client.session import session
from gantry_local.apiserver.admission import Options
from gantry_operator import names
from gantry_operator.plan.reasons import Reason
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, GROUP
from sim.product.line import TOPIC
from sim.product.operated import BROKERS, MERGE
from sim.product.operated_faults import NAMESPACE
from sim.product.people import LOOK_S, People

if TYPE_CHECKING:
    from random import Random

LISTENER = "outside"
SECRET = "public"
CLOUD = "10.97.1."
WITHIN_S = 1.0
ENDED, ENDS = dt.datetime(2001, 1, 1, tzinfo=dt.UTC), dt.datetime(2049, 1, 1, tzinfo=dt.UTC)


@cache
def certificate(ends: dt.datetime) -> dict[str, str]:
    """The entries of a Secret; always the same bytes."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "outside.test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(ends)
        .sign(key, None)
    )
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    files = {"tls.crt": made.public_bytes(serialization.Encoding.PEM), "tls.key": text}
    return {file: base64.b64encode(data).decode() for file, data in files.items()}


class Outside(People):
    """See the module."""

    async def _lead_outside(self, rng: Random) -> None:
        """Raises Violation."""
        tls = {"tls": {"mode": "Permissive", "secretName": SECRET}} if rng.random() < 0.7 else {}
        way = {"name": LISTENER, "type": "LoadBalancer", "allowPlain": True}
        self._listen("brokergroups", GROUP, [way | tls])
        await self._is_told("False", Reason.LISTENER_UNKNOWN if not tls else None)
        self._listen("controllergroups", CLUSTER, [way])
        if tls:
            await self._spoil_certificates()
        await self._serve()
        await self._come_in()
        self._cluster.world.count(f"led-outside{'-tls' if tls else ''}")
        self._listen("brokergroups", GROUP, None)
        self._listen("controllergroups", CLUSTER, None)
        await self._until("no Service to be left", lambda: not self._services())
        await self._until("nobody to be led outside", lambda: not self._given())

    def _listen(self, plural: str, name: str, listeners: list[dict[str, Any]] | None) -> None:
        self._cluster.change(plural, name, {"spec": {"clients": {"listeners": listeners}}})

    async def _is_told(self, status: str, reason: str | None) -> None:
        await self._until(
            f"{LISTENER} to be {status}, {reason}",
            lambda: (
                (found := self._condition(GROUP, "ListenersServed")) is not None
                and (found[0], reason or found[1]) == (status, found[1])
            ),
        )

    async def _spoil_certificates(self) -> None:
        """A Secret that is missing, is none, has ended, and is good. Raises Violation."""
        cluster = self._cluster
        await self._is_told("False", Reason.CERTIFICATE_UNUSABLE)
        await self._until(f"{GROUP} to have its port", lambda: self._is_ready(GROUP))
        uids = self._uids()
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": NAMESPACE},
            "data": {"tls.crt": base64.b64encode(b"nothing").decode()},
        }
        cluster.create("", "secrets", manifest)
        await self._until("a bad Secret to be told", lambda: "no tls.key" in self._said())
        cluster.change("secrets", SECRET, {"data": {"tls.key": manifest["data"]["tls.crt"]}}, "")
        await self._until("no certificate to be told", lambda: "no certificate" in self._said())
        cluster.change("secrets", SECRET, {"data": certificate(ENDED)}, "")
        await self._until("an end to be told", lambda: "ended at 2001" in self._said())
        cluster.change("secrets", SECRET, {"data": certificate(ENDS)}, "")
        await self._until("no fault to be told", lambda: "Secret" not in self._said())
        if self._uids() != uids:
            raise Violation(f"outside: pods go for a Secret: {uids}, {self._uids()}")

    def _uids(self) -> set[str]:
        found = self._cluster.objects("pods")
        return {
            one["metadata"]["uid"]
            for one in found
            if one["metadata"]["name"].startswith(f"{BROKERS}-")
        } - self._cluster.deleted_by_people

    def _said(self) -> str:
        found = self._status(GROUP).get("conditions") or ()
        return next((str(one["message"]) for one in found if one["type"] == "ListenersServed"), "")

    async def _serve(self) -> None:
        """A cloud gives addresses, until all are told."""
        await self._is_told("False", Reason.WAITING_FOR_ADDRESS)
        self.waits_for = "clients to be led outside"
        while self._condition(GROUP, "ListenersServed") != ("True", Reason.LISTENERS_SERVED):
            self._give_addresses()
            await asyncio.sleep(LOOK_S)
        told = {one["name"]: one["addresses"] for one in self._status(GROUP)["listeners"]}
        if not told.get(LISTENER) or not all(one.startswith(CLOUD) for one in told[LISTENER]):
            raise Violation(f"outside: clients are said to be led to {told}")

    def _give_addresses(self) -> None:
        registry = self._cluster.registry
        assert registry is not None
        resource = registry.catalogue.type("", "services")
        services = sorted(self._services(), key=lambda one: str(one["metadata"]["name"]))
        for number, service in enumerate(services):
            if (service.get("status") or {}).get("loadBalancer"):
                continue
            given = {"loadBalancer": {"ingress": [{"ip": f"{CLOUD}{number + 1}"}]}}
            name = service["metadata"]["name"]
            registry.patch(
                resource,
                NAMESPACE,
                name,
                MERGE,
                {"status": given},
                Options(manager="cloud"),
                subresource="status",
            )

    async def _come_in(self) -> None:
        """A client from outside sends. Raises Violation: it is led to an address inside."""
        name = names.listener_service(CLUSTER, LISTENER)
        entry = next(one for one in self._services() if one["metadata"]["name"] == name)
        host = entry["status"]["loadBalancer"]["ingress"][0]["ip"]
        async with session([f"{host}:{names.NAMESERVER_PORT}"]) as client:
            self.waits_for = "a client from outside to be served"
            for _ in range(100):
                try:
                    route = await client.routes.fetch(TOPIC)
                    addresses = {one.address for one in route.writable}
                    inside = [one for one in addresses if not one.startswith(CLOUD)]
                    if inside:
                        raise Violation(f"outside: a client is led to {inside}")
                    if await self._is_served(client, sorted(addresses)):
                        return
                except GantryError:
                    pass
                await asyncio.sleep(LOOK_S)
        raise Violation("outside: nobody serves a client from outside")

    async def _is_served(self, client: Any, addresses: list[str]) -> bool:
        for address in addresses:
            asked = request(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
            answer = await client.calls.call(address, asked, WITHIN_S)
            if answer.code != ResponseCode.SUCCESS:
                return False
        return bool(addresses)

    def _services(self) -> list[dict[str, Any]]:
        found = self._cluster.objects("services")
        label = names.LABEL_LISTENER
        return [one for one in found if label in (one["metadata"].get("labels") or {})]

    def _given(self) -> Any:
        """The addresses that the controllers give clients of the listener."""
        state = self._state()
        group = None if state is None else state.groups.get((CLUSTER, GROUP))
        return group is not None and group.declaration.listeners
