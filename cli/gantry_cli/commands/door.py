"""`gantry door`: clients' connections beside a broker, in this process."""

from __future__ import annotations

import click
from gantry_broker.door import DoorSettings, serve
from gantry_protocol.process.config import settings_options

from gantry_cli.process import run_process


@click.command(
    epilog="""\b
Examples:
  gantry door --group orders --cluster gantry --controllers 127.0.0.1:9878 --port 10910"""
)
@settings_options(DoorSettings)
def door(**flags: object) -> int:
    """Run a door: take clients' connections and pass them on to the group's master.

    Run one beside each broker and let clients connect to it. When a broker's process is killed or
    stands still, connections through the door stay: while there is no master it holds them, for at
    most 2.5 s, and gives the next master what the last one left unanswered. It learns of the master
    from the controllers, keeps nothing on a disk, and needs no quorum key.

    GET /readyz at http_port holds from the first master on; /status and /metrics say more. On
    SIGTERM it ends every connection with an answer, within 1.5 s.
    """
    return run_process("door", DoorSettings, serve, flags)
