"""`gantry broker`: one member of a broker group, in this process."""

from __future__ import annotations

from functools import partial

import click
from gantry_broker.host import guard
from gantry_broker.host.server import serve
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.process.config import settings_options
from gantry_protocol.process.live_settings import SettingsFile

from gantry_cli.process import run_process


@click.command(
    epilog="""\b
Examples:
  gantry broker --group orders --cluster gantry --controllers 127.0.0.1:9878 \\
    --data-dir /var/lib/gantry --quorum-key-file /etc/gantry/quorum-key"""
)
@settings_options(BrokerSettings)
def broker(**flags: object) -> int:
    """Run one member of a broker group.

    It gets its id from the controllers and keeps it in its data directory. As master it takes
    writes and replicates them; otherwise it copies the master's log and passes clients on to it.
    On SIGTERM a master hands over to an in-sync replica before it ends.
    """
    return run_process(
        "broker",
        BrokerSettings,
        partial(serve, file=SettingsFile.of(BrokerSettings, flags, "broker")),
        flags,
        before=lambda settings: guard.stand(settings.frozen_end_ms),
    )
