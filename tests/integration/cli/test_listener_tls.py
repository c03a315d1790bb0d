"""A listener with TLS of its own, as its owner wishes it: a resource, and a Secret that is late."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.certificates import Pair
from support.cli_cluster import ROOT, settled
from support.tls_cluster import TlsCluster, is_ready

pytestmark = pytest.mark.timeout(600)

SECRET, PUBLIC = "public-tls", "mq.example.com"
LISTENER: dict[str, Any] = {"name": "outside", "type": "NodePort"}
OWN = LISTENER | {"tls": {"secretName": SECRET}}


class Cluster(TlsCluster):
    broker_ports = (10930, 10940)

    def listen(self, listener: dict[str, Any], **group: Any) -> None:
        """Wish for the example's resources with a listener, and with more of the BrokerGroup."""
        for name in ("controllergroup", "brokergroup"):
            body = yaml.safe_load((ROOT / f"examples/{name}.yaml").read_text("utf-8"))
            body["spec"]["clients"] = {"listeners": [listener]}
            if name == "brokergroup":
                body["spec"] |= group
            self.gantry_applies(yaml.safe_dump(body))

    def ports(self) -> list[tuple[str, int]]:
        """All ports of the listener: of doors, of brokers, of controllers."""
        return [
            (pod["ip"], port)
            for name, pod in self.pods().items()
            for port in (self.broker_ports if "broker" in name else (10930,))
        ]

    def services(self) -> list[tuple[str, int]]:
        """All ports of the listener's Services of the BrokerGroup."""
        return [
            (one["spec"]["clusterIP"], port["port"])
            for one in self.object("services")["items"]
            if "orders-at-outside" in one["metadata"]["name"]
            for port in one["spec"]["ports"]
        ]

    def certificates(self, ports: list[tuple[str, int]] | None = None) -> set[str]:
        """The certificates there, or at these ports; "" for none."""
        found = set()
        for port in self.ports() if ports is None else ports:
            try:
                found.add(ssl.get_server_certificate(port))
            except OSError:
                found.add("")
        return found

    def condition(self, kind: str) -> tuple[str, str]:
        (one,) = self.object(kind)["items"]
        for found in (one.get("status") or {}).get("conditions", ()):
            if found["type"] == "ListenersServed":
                return found["reason"], found["message"]
        return "", ""

    def is_told(self, kind: str, reason: str) -> bool:
        return self.condition(kind)[0] == reason

    def is_told_no_more(self, kind: str) -> bool:
        return not self.is_told(kind, "CertificateUnusable")

    def show(self, wished: str) -> bool:
        """Whether every port shows this certificate."""
        return self.certificates() == {wished}

    def all_ready(self) -> bool:
        kinds = ("controllergroups", "brokergroups")
        return all(is_ready(one) for kind in kinds for one in self.object(kind)["items"])

    def produce(self, count: int) -> None:
        """Inside, without TLS."""
        said = self.gantry("produce", "orders-topic", "--count", str(count), "--json")
        assert json.loads(said)["acknowledged"] == count


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "local")
    try:
        made.gantry("local", "up")
        yield made
    finally:
        made.gantry("local", "down", "--purge")


def test_a_listener_comes_to_tls_and_its_certificate_may_be_late(cluster: Cluster) -> None:
    cluster.listen(LISTENER | {"allowPlain": True})
    cluster.wait_until(settled)
    cluster.wait_for(cluster.all_ready, "all is as wished")
    before = cluster.pods()

    cluster.listen(OWN)
    cluster.wait_for(
        lambda: all(pod["uid"] != before[name]["uid"] for name, pod in cluster.pods().items()),
        "pods are replaced",
    )
    cluster.wait_for(cluster.all_ready, "all is as wished, but for the listener")
    for kind in ("brokergroups", "controllergroups"):
        cluster.wait_for(partial(cluster.is_told, kind, "CertificateUnusable"), "its owner is told")
        assert f"Secret {SECRET} does not exist" in cluster.condition(kind)[1]
    assert cluster.certificates() == {""}
    cluster.produce(20)

    pods = cluster.pods()
    for _ in ("made", "renewed"):
        der = ssl.PEM_cert_to_DER_cert(cluster.renew(SECRET, PUBLIC).cert.read_text())
        wished = ssl.DER_cert_to_PEM_cert(der)
        cluster.wait_for(partial(cluster.show, wished), "every port shows the certificate")
    assert cluster.pods() == pods, "nothing restarted"
    for kind in ("brokergroups", "controllergroups"):
        cluster.wait_for(partial(cluster.is_told_no_more, kind), "it is told")
    for ip, port in cluster.ports():
        with socket.create_connection((ip, port), 5) as plain:
            plain.sendall(b"\0\0\0\1")
            assert plain.recv(1) == b"", "who speaks no TLS is not heard"
    cluster.produce(20)


def test_shards_show_it_at_each_port_and_keep_it_when_a_wrong_key_comes(cluster: Cluster) -> None:
    cluster.broker_ports = (11200, 11201)
    cluster.renew(SECRET, PUBLIC)
    cluster.listen(OWN, shards=2)
    cluster.wait_for(cluster.all_ready, "all is as wished")
    pods, services = cluster.pods(), cluster.services()
    assert {port for _, port in services} == {11100, 11101}
    assert len(services) == 2 * (1 + 3)

    der = ssl.PEM_cert_to_DER_cert(cluster.renew(SECRET, PUBLIC).cert.read_text())
    wished = ssl.DER_cert_to_PEM_cert(der)
    cluster.wait_for(partial(cluster.show, wished), "every port of a pod shows the certificate")
    assert cluster.certificates(services) == {wished}, "and so does every one of a Service"

    other = cluster.authority.issue("other").key
    cluster.put(SECRET, Pair(cluster.authority.issue(PUBLIC).cert, other))
    for kind in ("brokergroups", "controllergroups"):
        cluster.wait_for(partial(cluster.is_told, kind, "CertificateUnusable"), "its owner is told")
        assert "its tls.key is not the key of its tls.crt: put" in cluster.condition(kind)[1]
    assert cluster.certificates() == {wished}, "the last good one stays"
    cluster.produce(20)
    assert cluster.pods() == pods, "nothing restarted"
