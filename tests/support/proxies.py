"""Proxies of Gantry's for clients that speak gRPC: as a process, and in the test's own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from urllib.request import urlopen

from gantry_proxy.server import ProxyServer
from gantry_proxy.settings import ProxySettings
from support.broker_cluster import eventually
from support.cli_cluster import ROOT, CliCluster
from support.patience import PATIENCE_S


@contextmanager
def proxy(
    cluster: CliCluster, ports: Sequence[int], *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """One that serves gRPC and HTTP at these ports, once it is ready."""
    grpc_port, http_port = ports
    command = [sys.executable, "-m", "gantry_cli", "proxy", "--local"]
    command += ["--grpc-port", str(grpc_port), "--http-port", str(http_port), *options]
    env = os.environ | cluster.place
    del env["GANTRY_QUORUM_KEY_FILE"]  # ``options`` say whether it has the key
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not _is_ready(http_port):
            assert process.poll() is None, "the proxy ended"
            assert time.monotonic() < deadline_s, "the proxy is not ready"
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def served_proxy(cluster: CliCluster, **settings: object) -> AsyncIterator[ProxyServer]:
    """One in this process, at free ports, once it listens."""
    named = {"nameserver": cluster.name_servers.split(";"), "grpc_port": 0, "http_port": 0}
    server = ProxyServer(ProxySettings(**named, **settings))  # type: ignore[arg-type]
    stop = asyncio.Event()
    task = asyncio.create_task(server.run(stop))
    try:
        await eventually(lambda: server.grpc_port > 0 or task.done(), "it listens")
        yield server
    finally:
        stop.set()
        await task


def _is_ready(http_port: int) -> bool:
    """Whether a proxy says so."""
    try:
        with urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
