"""Entry point of `python -m gantry_lab`: the table of its commands."""

from __future__ import annotations

import click
from gantry_cli.lazy import CommandEntry, LazyGroup
from gantry_cli.main import run

NAME = "python -m gantry_lab"

COMMANDS = (
    CommandEntry("bench", "gantry_lab.commands.bench:bench", "Measure Gantry on this machine."),
    CommandEntry(
        "soak",
        "gantry_lab.commands.soak:soak",
        "Send and consume for as long as you like, then say what was kept.",
    ),
    CommandEntry(
        "chaos",
        "gantry_lab.commands.chaos:chaos",
        "Strike a cluster with faults from manifests, and judge what clients saw.",
    ),
    CommandEntry(
        "simulate",
        "gantry_lab.commands.simulate:simulate",
        "Run simulated clusters under faults, by seed.",
    ),
)


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  python -m gantry_lab bench failover --runs 20
  python -m gantry_lab soak checks --duration 60
  python -m gantry_lab chaos plan e2e/scenarios/kill-master.yaml
  python -m gantry_lab simulate --seeds 1000""",
)
def lab() -> None:
    """Gantry's workshop: measure it, strike it, simulate it."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    run(lab, NAME)
