"""`gantry front`: clients of every group of a cluster, in this process."""

from __future__ import annotations

from functools import partial

import click
from gantry_broker.front import FrontSettings, serve
from gantry_protocol.process.config import settings_options
from gantry_protocol.process.live_settings import SettingsFile

from gantry_cli.process import run_process


@click.command(
    epilog="""\b
Examples:
  gantry front --controllers 10.0.0.1:9878 --bind 10.0.0.9 --quorum-key-file quorum-key"""
)
@settings_options(FrontSettings)
def front(**flags: object) -> int:
    """Run a front: serve clients on every broker group of a cluster.

    It keeps nothing: run as many as the load needs, and end any of them at any time. Each group has
    a port, the first port plus the group's index, which is the same at every front (`gantry fronts`
    lists them). Sends and pulls are answered here, from the store of the group's master, where the
    brokers have a --store-port; everything else is passed on to the master. When that dies, clients
    keep their connections, and the next master is given what the last one left unanswered.

    GET /readyz at http_port holds from the first master on; /status and /metrics say more. On
    SIGTERM it ends every connection with an answer, within 1.5 s.
    """
    file = SettingsFile.of(FrontSettings, flags, "front")
    return run_process("front", FrontSettings, partial(serve, file=file), flags)
