"""What packages of the chart are judged with: Helm, Kustomize, a registry, OLM's own validators."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from gantry_lab.bench.ports import free_ports
from support import go_programs
from support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "e2e/cluster/lib.sh"
REGISTRY = "github.com/distribution/distribution/v3/cmd/registry"
KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5"


def path_with_helm() -> str:
    """A search path with helm: that of the test cluster's tools, built if it has to be."""
    script = (
        f"source {LIB}; command -v helm >/dev/null || $CLUSTER_DIR/binaries.sh tools >&2; "
        "command -v helm"
    )
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    return f"{Path(done.stdout.strip()).parent}{os.pathsep}{os.environ['PATH']}"


def kustomized(folder: Path) -> str:
    """What Kustomize makes of a folder."""
    return said(go_programs.built("kustomize", KUSTOMIZE), "build", str(folder))


def judged(bundle: Path) -> list[str]:
    """The findings of OLM's validators, each with its weight."""
    command = [go_programs.built("olm"), str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if line]


def said(*command: str, **more: str) -> str:
    """What a program prints; ``more`` is added to its environment."""
    environment = {**os.environ, **more}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def registry(directory: Path) -> Iterator[str]:
    """An OCI registry on loopback, which keeps what it has in ``directory``; its host and port."""
    directory.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {"addr": address},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    command = [go_programs.built("registry", REGISTRY), "serve", str(directory / "config.yaml")]
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    pytest.fail(f"the registry is not ready: {(directory / 'log').read_text()}")
                time.sleep(0.1)
            yield address
        finally:
            process.kill()
            process.wait()


def _answers(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/v2/", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
