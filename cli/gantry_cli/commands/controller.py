"""`gantry controller`: one member of a controller quorum, in this process."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click
from gantry_controller.server import serve
from gantry_controller.settings import ControllerSettings
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import CONFIG_VARIABLE, settings_options
from gantry_protocol.process.live_settings import SettingsFile

from gantry_cli.process import run_process

SIZE_FILE = "quorum-size"
"""A file of its own, since an older program refuses what it does not know in the other one."""


@click.command(
    epilog="""\b
Examples:
  export GANTRY_QUORUM_KEY_FILE=/etc/gantry/quorum-key       the same for all, and for brokers
  gantry controller --data-dir /var/lib/gantry               a quorum of one, on loopback
  gantry controller --name c-0 --bind 10.0.0.1 --cluster-uid 5f3a \\
    --peers 1=c-0.c,2=c-1.c,3=c-2.c --data-dir /var/lib/gantry

\b
Ways to start:
  --peers     a quorum's founders, each with the same list; and again at each later start
  --join      a member that the others take in later (gantry controllers add)
  --rejoin    a member whose log is damaged, once, beside what it is started with otherwise"""
)
@settings_options(ControllerSettings)
def controller(**flags: object) -> int:
    """Run one member of a controller quorum.

    It keeps the metadata of broker groups in a replicated log, elects masters, and answers name
    service requests. It ends on SIGTERM, and hands leadership over before. A data directory belongs
    to one member of one quorum. Operating a quorum, step by step: docs/controllers.md.
    """
    file = flags.get("config") or os.environ.get(CONFIG_VARIABLE)
    size = _size_beside(str(file)) if file else None
    otherwise = {} if size is None else {"quorum_size": size}
    watched = SettingsFile.of(ControllerSettings, flags, "controller", lambda _: otherwise)
    return run_process(
        "controller",
        ControllerSettings,
        partial(serve, file=watched),
        flags,
        otherwise=lambda _: otherwise,
    )


def _size_beside(file: str) -> str | None:
    """The text of the file with the quorum's size beside a configuration file.

    Raises:
        ConfigError: it is there and cannot be read.
    """
    path = Path(file).with_name(SIZE_FILE)
    try:
        return path.read_text("utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The file {path} cannot be read: {error}.") from error
