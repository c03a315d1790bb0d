"""A local cluster whose processes speak TLS to clients, by a Secret."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml
from support.certificates import Authority, Pair
from support.cli_cluster import ROOT, CliCluster, fronts, settled

SECRET = "cluster-tls"
NAME = "gantry-servers"  # of all certificates


class TlsCluster(CliCluster):
    """The same with an authority of its own.

    Attributes:
        authority: vouches for all processes.
    """

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.authority = Authority(state_dir.with_name(f"{state_dir.name}-authority"))

    @property
    def options(self) -> tuple[str, ...]:
        """Of commands that speak TLS."""
        return "--tls-ca-file", str(self.authority.file), "--tls-server-name", NAME

    def renew(self, secret_name: str = SECRET, name: str = NAME) -> Pair:
        """A new certificate for a name, in the Secret."""
        pair = self.authority.issue(name)
        self.put(secret_name, pair)
        return pair

    def put(self, secret_name: str, pair: Pair) -> None:
        """These files in the Secret."""
        files = {"tls.crt": pair.cert, "tls.key": pair.key, "ca.crt": self.authority.file}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret_name},
            "type": "kubernetes.io/tls",
            "data": {
                name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()
            },
        }
        self.gantry_applies(yaml.safe_dump(secret))

    def pods(self) -> dict[str, dict[str, str]]:
        """By name: uid and address of every pod."""
        return {
            pod["metadata"]["name"]: {"uid": pod["metadata"]["uid"], "ip": pod["status"]["podIP"]}
            for pod in self.object("pods")["items"]
        }

    def figure(self, part: str, port: int, name: str) -> float:
        """A metric, summed over the processes at this port of pods of which this is in the name."""
        total = 0.0
        for pod, where in self.pods().items():
            if part in pod:
                total += metric(where["ip"], port, name)
        return total

    def is_everywhere(self, mode: str) -> bool:
        """Whether all pods run in this mode, and every resource is as it is wished."""
        told = [
            {item["name"]: item.get("value") for item in container["env"]}.get("GANTRY_TLS_MODE")
            for pod in self.object("pods")["items"]
            for container in pod["spec"]["containers"]
        ]
        kinds = ("controllergroups", "brokergroups", "frontgroups")
        resources = [one for kind in kinds for one in (self.object(kind) or {"items": []})["items"]]
        return set(told) == {mode.lower()} and all(map(is_ready, resources))

    def wish(self, mode: str | None, *, fronted: bool = False) -> None:
        """Have all groups speak TLS in this mode; None: they speak none."""
        bodies = [_example("controllergroup"), _example("brokergroup")]
        if fronted:
            bodies.insert(1, yaml.safe_load(fronts()))
        for body in bodies:
            if mode is not None:
                body["spec"]["tls"] = {"secretName": SECRET, "mode": mode}
            self.gantry_applies(yaml.safe_dump(body))


def metric(ip: str, port: int, name: str) -> float:
    """A metric without labels, of the process there."""
    with urlopen(f"http://{ip}:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def is_ready(resource: dict[str, Any]) -> bool:
    """Whether a resource is as it is wished now."""
    status = resource.get("status") or {}
    ready = [one["status"] for one in status.get("conditions", ()) if one["type"] == "Ready"]
    is_seen = status.get("observedGeneration") == resource["metadata"]["generation"]
    return is_seen and ready == ["True"]


def _example(name: str) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((ROOT / f"examples/{name}.yaml").read_text("utf-8"))
    return body


@contextmanager
def tls_cluster(home: Path, mode: str | None, *, fronted: bool = False) -> Iterator[TlsCluster]:
    """One with the example's group, all in sync; stopped and deleted afterwards."""
    cluster = TlsCluster(home)
    try:
        cluster.gantry("local", "up")
        cluster.renew()
        cluster.wish(mode, fronted=fronted)
        cluster.wait_until(settled)
        if mode is not None:
            cluster.wait_for(lambda: cluster.is_everywhere(mode), f"all are {mode}")
        elif fronted:
            cluster.wait_for(cluster.fronts_are_ready, "clients are led to fronts")
        yield cluster
    finally:
        cluster.gantry("local", "down", "--purge")
