"""Entry point of the `gantry` command: the table of commands, and how errors reach people.

Whatever a person can cause (a flag, a port, a file, a peer that is away) ends in one sentence on
stderr and an exit code that is not 0. A traceback means a defect of Gantry itself.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from gantry_cli.lazy import CommandEntry, LazyGroup

TRY = "Try it"
LOCAL = "A cluster on this machine"
MESSAGES = "Messages"
TIER = "Stored messages"
KUBERNETES = "A Kubernetes cluster"
PROCESSES = "Processes (what the containers run)"

COMMANDS = (
    CommandEntry(
        "demo",
        "gantry_cli.commands.demo:demo",
        "Start a cluster, take its master away three times under load, show what a client saw.",
        TRY,
        local=True,
    ),
    CommandEntry(
        "local",
        "gantry_cli.commands.local:local",
        "Run a cluster without Docker: pods are processes.",
        LOCAL,
        local=True,
    ),
    CommandEntry(
        "status",
        "gantry_cli.commands.status:status",
        "Show who leads, epochs, in-sync sets and offsets.",
        LOCAL,
    ),
    CommandEntry(
        "controllers",
        "gantry_cli.commands.controllers:controllers",
        "Show and change who takes part in the controller quorum, and who leads it.",
        LOCAL,
    ),
    CommandEntry(
        "forget",
        "gantry_cli.commands.forget:forget",
        "Take a member that is gone, or a retired group, off the record.",
        LOCAL,
    ),
    CommandEntry(
        "drain",
        "gantry_cli.commands.drain:drain",
        "Have a broker group take no new messages, and serve those that it has.",
        LOCAL,
    ),
    CommandEntry(
        "elect",
        "gantry_cli.commands.elect:elect",
        "Show why GROUP has no master; with --accept-loss end the wait.",
        LOCAL,
    ),
    CommandEntry(
        "adopt",
        "gantry_cli.commands.adopt:adopt",
        "Take over the copies of GROUP from a quorum that is gone.",
        LOCAL,
    ),
    CommandEntry(
        "queues",
        "gantry_cli.commands.queues:queues",
        "Make mapped topics, show where their queues are, and move them.",
        LOCAL,
    ),
    CommandEntry(
        "fronts",
        "gantry_cli.commands.fronts:fronts",
        "Show and change where clients of a cluster are led to.",
        LOCAL,
    ),
    CommandEntry(
        "access",
        "gantry_cli.commands.access:access",
        "Show and change whether clients of a cluster need users.",
        LOCAL,
    ),
    CommandEntry(
        "users",
        "gantry_cli.commands.access:users",
        "List, show, create, update and delete users.",
        LOCAL,
    ),
    CommandEntry(
        "acl",
        "gantry_cli.commands.access:acl",
        "Say what users may do: list, allow, deny and remove rules.",
        LOCAL,
    ),
    CommandEntry(
        "kube",
        "gantry_cli.commands.kube:kube",
        "Look at resources in a Kubernetes cluster and operate them, through the API server alone.",
        KUBERNETES,
    ),
    CommandEntry("produce", "gantry_cli.commands.produce:produce", "Send messages.", MESSAGES),
    CommandEntry("consume", "gantry_cli.commands.consume:consume", "Receive messages.", MESSAGES),
    CommandEntry(
        "topics",
        "gantry_cli.commands.topics:topics",
        "List, show, create, update and delete topics.",
        MESSAGES,
    ),
    CommandEntry(
        "groups",
        "gantry_cli.commands.groups:groups",
        "List, show, create, update and delete consumer groups.",
        MESSAGES,
    ),
    CommandEntry(
        "offsets",
        "gantry_cli.commands.offsets:offsets",
        "Show how far consumer groups have come, and move them.",
        MESSAGES,
    ),
    CommandEntry(
        "log",
        "gantry_cli.commands.log:log",
        "Show and verify the commit log of a broker on this machine.",
        TIER,
    ),
    CommandEntry(
        "tier",
        "gantry_cli.commands.tier:tier",
        "List, show, verify and search what broker groups uploaded.",
        TIER,
    ),
    CommandEntry(
        "pipeline",
        "gantry_cli.commands.pipeline:pipeline",
        "Judge, ingest and report what broker groups uploaded, with Spark.",
        TIER,
    ),
    CommandEntry(
        "controller",
        "gantry_cli.commands.controller:controller",
        "Run one member of a controller quorum.",
        PROCESSES,
    ),
    CommandEntry(
        "broker",
        "gantry_cli.commands.broker:broker",
        "Run one member of a broker group.",
        PROCESSES,
    ),
    CommandEntry(
        "door",
        "gantry_cli.commands.door:door",
        "Run a door: take clients' connections and pass them on to the group's master.",
        PROCESSES,
    ),
    CommandEntry(
        "front",
        "gantry_cli.commands.front:front",
        "Run a front: serve clients on every broker group of a cluster.",
        PROCESSES,
    ),
    CommandEntry(
        "operator",
        "gantry_cli.commands.operator:operator",
        "Run the Kubernetes operator.",
        PROCESSES,
    ),
    CommandEntry(
        "proxy",
        "gantry_cli.commands.proxy:proxy",
        "Run a proxy: serve clients that speak gRPC on every broker group of a cluster.",
        PROCESSES,
    ),
)


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  gantry demo                                    see a failover, start to end, in a minute
  gantry local up                                a cluster: operator, controllers, no Docker
  gantry local apply -f examples/brokergroup.yaml
  gantry status --watch                          who is master, who is in sync
  gantry produce orders --count 1000
  gantry consume orders --count 1000
  gantry local kill orders-broker-0              then watch the status

\b
Each command has its own help: gantry local --help, gantry topics create --help.
Options may also come from GANTRY_* variables and a TOML file (--config); flags win.""",
)
@click.version_option(package_name="gantry", prog_name="gantry")
def cli() -> None:
    """RocketMQ-style messaging that fails over by itself."""


def sentence(error: click.ClickException) -> str:
    """One line that says what is wrong and where help is."""
    text = error.format_message().strip()
    text = text if text.endswith((".", "?", ")")) else f"{text}."
    ctx = getattr(error, "ctx", None)
    if isinstance(error, click.UsageError) and ctx is not None:
        text = f"{text} See {ctx.command_path} --help."
    return text


def main() -> None:
    """Run the command line and end the process with its exit code."""
    run(cli, "gantry")


def kubectl_plugin() -> None:
    """Run `gantry kube` under the name by which kubectl finds it."""
    from gantry_cli.commands.kube import kube

    run(kube, "kubectl gantry")


def run(command: click.Command, name: str) -> NoReturn:
    """Run `command`, which goes by `name`, and end the process with its exit code."""
    from gantry_protocol.errors import GantryError

    try:
        code = command.main(prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"{name}: {sentence(error)}", err=True)
        sys.exit(error.exit_code)
    except GantryError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
