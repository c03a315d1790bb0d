"""`gantry proxy`: clients that speak gRPC, on every group of a cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import settings_options
from gantry_protocol.process.live_settings import SettingsFile
from gantry_proxy import ProxySettings, serve

from gantry_cli.process import run_process
from gantry_cli.target import LocalQuorum, local_quorum

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(
    epilog="""\b
Examples:
  gantry proxy --local                          for programs on this machine, at 127.0.0.1:8081
  gantry proxy --nameserver 10.0.0.1:9876 --bind 10.0.0.9
  gantry proxy --nameserver gantry-nameserver:9876 --bind 0.0.0.0 --grpc-port 8081"""
)
@click.option("--local", is_flag=True, help="Serve the cluster that 'gantry local up' started.")
@settings_options(ProxySettings)
def proxy(*, local: bool, **flags: object) -> int:
    """Run a proxy: serve clients that speak gRPC on every broker group of a cluster.

    These are the clients of RocketMQ 5 in Java, Python, Go, Node, Rust, C# and C++; their endpoint
    is this process's gRPC port. It keeps nothing: run as many as the load needs, and end any of
    them at any time. A receipt handle that one proxy gave is good at every other one.

    With --local it has the cluster's key and controllers, and judges its clients where access is
    on, unless --access-key has all of them be one user.

    GET /readyz, /status and /metrics are served at http_port.
    """
    if not local:
        file = SettingsFile.of(ProxySettings, flags, "proxy")
        return run_process("proxy", ProxySettings, partial(serve, file=file), flags)
    if flags.get("nameserver"):
        raise ConfigError("--local and --nameserver name two clusters; give one of them.")
    found = asyncio.run(local_quorum())
    flags["nameserver"] = list(found.name_servers)
    judging = partial(_judging, found)
    file = SettingsFile.of(ProxySettings, flags, "proxy", judging)
    serving = partial(serve, file=file)
    return run_process("proxy", ProxySettings, serving, flags, otherwise=judging)


def _judging(found: LocalQuorum, given: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the local cluster's proxy judge its clients, unless it is to be one user."""
    if "access_key" in given:
        return {}
    return {
        "controllers": list(found.controllers),
        "quorum_key_file": found.quorum_key_file,
    }
