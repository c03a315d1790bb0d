"""`gantry_lab soak`: load for as long as somebody wants, and whether every promise was kept."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from gantry_cli.options import json_option, nameserver_option
from gantry_cli.output import print_json
from gantry_cli.target import admin_of, name_servers
from gantry_cli.trial.load import LoadPace
from gantry_protocol.process import log
from gantry_protocol.process.runtime import run as run_process

from gantry_lab.soak.run import Plan, run
from gantry_lab.soak.views import sentence

if TYPE_CHECKING:
    from gantry_cli.target import Admin

    from gantry_lab.soak.views import SoakOutcome

INTERRUPTED = 130
BROKEN_PROMISE = 1
PORT_MAX = 65535


def _http_address(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    """`HOST:PORT` to listen on, taken apart; port 0 picks a free one."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port[:6]) > PORT_MAX:
        raise click.BadParameter(f"{value!r} is no address; write HOST:PORT.")
    return host, int(port)


@click.command(
    epilog="""\b
HTTP (with --http), JSON; times are seconds on CLOCK_MONOTONIC, shared by all pods of one machine:
  GET  /v1/state                                 counts, flow, group, quorum, masters by epoch
  GET  /v1/gap?sinceS=S[&untilS=S][&stream=writes|commits]      longest gap in that time
  POST /v1/pause?patienceS=S                     stop sending, read everything, count
  POST /v1/resume                                send again
  GET  /v1/history?after=N                       with --record: lines of a history, from N on
  GET  /metrics, /livez, /readyz

\b
Examples:
  python -m gantry_lab soak soak                               until Ctrl-C, then the account
  python -m gantry_lab soak soak --duration 60 --json
  python -m gantry_lab soak soak --http 127.0.0.1:8080 --metadata
  curl -X POST '127.0.0.1:8080/v1/pause?patienceS=10'""",
)
@click.argument("topic")
@click.option(
    "--lanes",
    default=4,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Messages under way at once.",
)
@click.option(
    "--interval-ms",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Pause of a lane after each acknowledgement.",
)
@click.option(
    "--queues",
    default=4,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Queues of the topic, which is created or changed.",
)
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(0, min_open=True),
    help="End after so many seconds. [default: at SIGTERM or Ctrl-C]",
)
@click.option(
    "--patience",
    "patience_s",
    default=20.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds to wait at the end for what is under way; then it counts as lost.",
)
@click.option(
    "--metadata",
    is_flag=True,
    help="Also change the topic TOPIC-commits all the time, to see when nothing can be committed.",
)
@click.option(
    "--controllers",
    envvar="GANTRY_CONTROLLERS_HTTP",
    metavar="HOST:PORT,…",
    help="Admin API of the controllers, to watch --group. [env: GANTRY_CONTROLLERS_HTTP]",
)
@click.option(
    "--admin-token-file",
    "token_file",
    envvar="GANTRY_ADMIN_TOKEN_FILE",
    type=click.Path(path_type=Path),
    help="File with the token of the admin Secret. [env: GANTRY_ADMIN_TOKEN_FILE]",
)
@click.option("--group", help="Broker group to watch: one master per epoch.")
@click.option(
    "--http",
    metavar="HOST:PORT",
    callback=_http_address,
    help="Serve probes, metrics and the API below. Whoever reaches it can stop the load: keep it "
    "on loopback or inside a cluster.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Keep the history that chaos check judges, to be fetched over HTTP (needs --http).",
)
@nameserver_option
@json_option("Print the account as one JSON object.")
def soak(
    topic: str,
    lanes: int,
    interval_ms: float,
    queues: int,
    duration_s: float | None,
    patience_s: float,
    metadata: bool,
    controllers: str | None,
    token_file: Path | None,
    group: str | None,
    http: tuple[str, int] | None,
    record: bool,
    nameservers: str | None,
    as_json: bool,
) -> int:
    """Send and consume for as long as you like, then say what was kept.

    TOPIC should be the soak's own: everything in it is read. It is waited for until the group has a
    master.

    Ends with the account and with exit code 0 only if everything acknowledged was consumed, every
    duplicate has a lost answer that explains it, and no epoch had two masters; otherwise with 1 and
    a sentence for each reason.
    """
    watching = {"--controllers": controllers, "--admin-token-file": token_file, "--group": group}
    missing = [option for option, value in watching.items() if value is None]
    if missing and len(missing) < len(watching):
        raise click.UsageError(
            f"To watch a group, give {', '.join(watching)} together; missing: {', '.join(missing)}."
        )
    if record and http is None:
        raise click.UsageError("--record needs --http: the history is fetched from there.")
    servers, admin = asyncio.run(_targets(nameservers, controllers, token_file))
    plan = Plan(
        name_servers=servers,
        topic=topic,
        pace=LoadPace(lanes, interval_ms / 1000.0),
        queues=queues,
        duration_s=duration_s,
        patience_s=patience_s,
        metadata=metadata,
        admin=admin,
        group=group,
        http=http,
        record=record,
    )
    outcome, code = _soak(plan)
    if outcome is None:
        return code or INTERRUPTED  # a second signal: there is no account
    return _report(outcome, as_json=as_json)


async def _targets(
    nameservers: str | None, controllers: str | None, token_file: Path | None
) -> tuple[tuple[str, ...], Admin | None]:
    servers = await name_servers(nameservers)
    return servers, None if controllers is None else await admin_of(controllers, token_file)


def _soak(plan: Plan) -> tuple[SoakOutcome | None, int]:
    """Run it as a process; the account is None when it did not come to that."""
    log.setup("soak")
    outcome: SoakOutcome | None = None
    show = _show if plan.http is None and sys.stderr.isatty() else None

    async def main(stop: asyncio.Event) -> None:
        nonlocal outcome
        outcome = await run(plan, stop, show)

    code = run_process(main)
    return outcome, code


def _show(text: str) -> None:
    click.echo(text, err=True)


def _report(outcome: SoakOutcome, *, as_json: bool) -> int:
    if as_json:
        print_json(outcome)
    else:
        click.echo(sentence(outcome))
    for reason in outcome.reasons:
        click.echo(f"gantry: {reason}", err=True)
    return 0 if outcome.clean else BROKEN_PROMISE
