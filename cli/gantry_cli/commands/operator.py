"""`gantry operator`: the Kubernetes operator, in this process."""

from __future__ import annotations

import click
from gantry_operator.server import serve
from gantry_operator.settings import OperatorSettings
from gantry_protocol.process.config import settings_options

from gantry_cli.process import run_process


@click.command(
    epilog="""\b
Examples:
  gantry operator                                          inside a cluster
  gantry operator --kubeconfig ~/.kube/config --namespaces mq,staging"""
)
@settings_options(OperatorSettings)
def operator(**flags: object) -> int:
    """Run the Kubernetes operator.

    It makes ControllerGroup, BrokerGroup and FrontGroup resources real and reports their state. It
    is not needed for a failover: controllers elect masters by themselves.
    """
    return run_process("operator", OperatorSettings, serve, flags)
