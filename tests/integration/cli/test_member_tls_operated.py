"""`spec.memberTls` as a person sets it: the operator takes a cluster to it while clients write."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml
from support.certificates import MemberAuthority
from support.cli_cluster import ROOT, CliCluster, fronts, settled
from support.tls_cluster import is_ready, metric

pytestmark = pytest.mark.timeout(900)

NAMES = {
    "controllergroup": "gantry://mq/controller",
    "frontgroup": "gantry://mq/front/gantry",
    "brokergroup": "gantry://mq/broker/gantry/orders",
}
KINDS = ("controllergroups", "brokergroups", "frontgroups")
PORTS = {"controller": 9880, "broker": 10913, "front": 10921}


class MemberCluster(CliCluster):
    """The example's cluster with two fronts, and an authority of its members."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.authority = MemberAuthority(state_dir.with_name("authority"))

    def renew(self) -> None:
        """New certificates, in the Secrets."""
        for kind, name in NAMES.items():
            pair = self.authority.issue(kind, name)
            files = {"tls.crt": pair.cert, "tls.key": pair.key, "ca.crt": self.authority.file}
            data = {
                key: base64.b64encode(file.read_bytes()).decode() for key, file in files.items()
            }
            self.gantry_applies(
                yaml.safe_dump(
                    {
                        "apiVersion": "v1",
                        "kind": "Secret",
                        "metadata": {"name": f"{kind}-member"},
                        "type": "kubernetes.io/tls",
                        "data": data,
                    }
                )
            )

    def wish(self, mode: str | None) -> None:
        """Have all members speak TLS in this mode; None: they speak none."""
        for kind in NAMES:
            text = (ROOT / f"examples/{kind}.yaml").read_text("utf-8")
            body = yaml.safe_load(fronts() if kind == "frontgroup" else text)
            if mode is not None:
                body["spec"]["memberTls"] = {"secretName": f"{kind}-member", "mode": mode}
            self.gantry_applies(yaml.safe_dump(body))

    def is_everywhere(self, mode: str) -> bool:
        """Whether all pods run in this mode, and every resource is as it is wished."""
        told = [
            {item["name"]: item.get("value") for item in container["env"]}.get(
                "GANTRY_MEMBER_TLS_MODE"
            )
            for pod in self.object("pods")["items"]
            for container in pod["spec"]["containers"]
            if container["name"] != "door"
        ]
        resources = [one for kind in KINDS for one in (self.object(kind) or {"items": []})["items"]]
        return set(told) == {mode.lower()} and all(map(is_ready, resources))

    def figures(self, name: str) -> dict[str, float]:
        """A metric of each member's pod."""
        found = {}
        for pod in self.object("pods")["items"]:
            (port,) = [port for part, port in PORTS.items() if part in pod["metadata"]["name"]]
            address = pod["status"]["podIP"]
            found[pod["metadata"]["name"]] = metric(address, port, f"gantry_member_tls_{name}")
        return found


def test_operator_takes_members_to_tls_while_clients_write(tmp_path: Path) -> None:
    cluster = MemberCluster(tmp_path / "local")
    try:
        cluster.gantry("local", "up")
        cluster.renew()
        cluster.wish(None)
        cluster.wait_until(settled)
        cluster.wait_for(cluster.fronts_are_ready, "clients are led to fronts")
        sent = 0
        for mode in ("Permissive", "Enforcing"):
            cluster.wish(mode)
            done = False
            while not done:
                done = cluster.is_everywhere(mode)
                did = cluster.run("produce", "t", "--count", "30", "--json")
                if did.returncode and "not in leader state" in did.stderr:
                    continue  # it asked for a route while the controllers' leader restarted
                assert did.returncode == 0, did.stderr
                sent += json.loads(did.stdout)["acknowledged"]
        cluster.wait_for(cluster.fronts_serve, "fronts answer by the stores' port")
        plainly = 'refused_total{reason="plain"}'  # also what the operator asks controllers
        for name in (
            *("plain_dials_total", "plain_accepted_total", "reload_failures_total"),
            plainly,
        ):
            assert set(cluster.figures(name).values()) == {0.0}, name
        for pod, count in cluster.figures("handshakes_total").items():
            assert count > 0 or "controller" not in pod, pod

        ends = cluster.figures("certificate_expires_seconds")
        cluster.renew()
        cluster.wait_for(
            lambda: all(
                end > ends[pod]
                for pod, end in cluster.figures("certificate_expires_seconds").items()
            ),
            "every member has the new certificate",
        )
        assert cluster.figures("certificate_expires_seconds").keys() == ends.keys()
        lines = cluster.gantry("controllers", "list").splitlines()
        assert [line.split()[2] for line in lines[1:]].count("leader") == 1, lines
        assert set(cluster.figures(plainly).values()) == {0.0}
        before = cluster.wait_until(settled)
        cluster.gantry("local", "kill", cluster.master_pod())
        did = cluster.gantry("produce", "t", "--count", "20", "--json")
        sent += json.loads(did)["acknowledged"]
        assert cluster.wait_until(settled)["masterEpoch"] > before["masterEpoch"]
        got = cluster.gantry("consume", "t", "--count", str(sent))
        assert len(got.splitlines()) == sent
    finally:
        cluster.gantry("local", "down", "--purge")
