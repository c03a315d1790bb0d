"""A cluster that enforces TLS, as a person has it: a Secret, three resources, commands."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli_cluster import settled
from support.tls_cluster import TlsCluster, tls_cluster

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    with tls_cluster(tmp_path_factory.mktemp("tls") / "local", "Enforcing") as made:
        yield made


def test_commands_speak_tls_and_are_refused_without(cluster: TlsCluster) -> None:
    plain = cluster.run("produce", "orders-topic", "--count", "1", "--patience", "1")
    assert plain.returncode != 0
    said = cluster.gantry("produce", "orders-topic", "--count", "40", "--json", *cluster.options)
    assert json.loads(said)["acknowledged"] == 40
    got = cluster.gantry("consume", "orders-topic", "--count", "40", *cluster.options)
    assert len(got.splitlines()) == 40
    wrong = (*cluster.options[:2], "--tls-server-name", "another")
    refused = cluster.run("topics", "list", *wrong)
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr


def test_clients_go_on_when_the_master_is_killed(cluster: TlsCluster) -> None:
    """A door passes them on by TLS, and so do replicas."""
    before = cluster.wait_until(settled)
    cluster.gantry("local", "kill", cluster.master_pod())
    said = cluster.gantry("produce", "orders-topic", "--count", "20", "--json", *cluster.options)
    assert json.loads(said)["acknowledged"] == 20
    assert cluster.wait_until(settled)["masterEpoch"] > before["masterEpoch"]
    for port in (10913, 10920):
        assert cluster.figure("broker", port, "gantry_tls_plain_dials_total") == 0


def test_files_that_are_no_good_are_one_sentence(cluster: TlsCluster, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    done = cluster.run("topics", "list", "--tls-ca-file", str(file))
    assert done.returncode == 2
    said = f"gantry: The TLS authorities' file {file} holds no certificate in PEM.\n"
    assert done.stderr == said


def test_new_certificate_is_shown_without_a_restart(cluster: TlsCluster) -> None:
    before = cluster.pods()
    shown = ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(cluster.renew().cert.read_text()))
    ports = [
        (pod["ip"], port)
        for name, pod in before.items()
        for port in ((10910, 10911) if "broker" in name else (9876,))
    ]
    assert len(ports) == 9

    def all_show_it() -> bool:
        return all(ssl.get_server_certificate(port) == shown for port in ports)

    cluster.wait_for(all_show_it, "every port shows the new certificate")
    assert cluster.pods() == before
    for part, port in (("broker", 10913), ("broker", 10920), ("controller", 9880)):
        assert cluster.figure(part, port, "gantry_tls_reload_failures_total") == 0


def test_tls_comes_while_clients_go_on(tmp_path: Path) -> None:
    """From plain connections to permissive and enforced TLS, with fronts; no message fails."""
    with tls_cluster(tmp_path / "local", None, fronted=True) as cluster:
        sent = 0
        for mode in ("Permissive", "Enforcing"):
            cluster.wish(mode, fronted=True)
            done = False
            while not done:
                done = cluster.is_everywhere(mode)
                options = () if mode == "Permissive" else cluster.options
                did = cluster.run("produce", "t", "--count", "30", "--json", *options)
                if did.returncode and "not in leader state" in did.stderr:
                    continue  # it asked for a route while the controllers' leader restarted
                assert did.returncode == 0, did.stderr
                sent += json.loads(did.stdout)["acknowledged"]
        got = cluster.gantry("consume", "t", "--count", str(sent), *cluster.options)
        assert len(got.splitlines()) == sent
        assert cluster.run("topics", "list").returncode != 0
