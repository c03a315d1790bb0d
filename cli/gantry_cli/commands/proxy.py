"""`gantry proxy`: clients that speak gRPC, on every group of a cluster."""

from __future__ import annotations

import click
from gantry_protocol.process.config import settings_options
from gantry_proxy import ProxySettings, serve

from gantry_cli.process import run_process


@click.command(
    epilog="""\b
Examples:
  gantry proxy --nameserver 10.0.0.1:9876 --bind 10.0.0.9
  gantry proxy --nameserver gantry-nameserver:9876 --bind 0.0.0.0 --grpc-port 8081"""
)
@settings_options(ProxySettings)
def proxy(**flags: object) -> int:
    """Run a proxy: serve clients that speak gRPC on every broker group of a cluster.

    These are the clients of RocketMQ 5 in Java, Python, Go, Node, Rust, C# and C++; their endpoint
    is this process's gRPC port. It keeps nothing: run as many as the load needs, and end any of
    them at any time. A receipt handle that one proxy gave is good at every other one.

    GET /readyz, /status and /metrics are served at http_port.
    """
    return run_process("proxy", ProxySettings, serve, flags)
