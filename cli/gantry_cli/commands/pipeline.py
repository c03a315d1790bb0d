"""`gantry pipeline`: Spark jobs over what broker groups uploaded.

Spark is started by the command and ends with it. Credentials of a bucket come from the environment
alone: what is on a command line is seen by every process of the machine.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from gantry_protocol.errors import ConfigError, GantryError

from gantry_cli.options import json_option
from gantry_cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_pipeline.jobs.audit import Account
    from gantry_pipeline.session import Where
    from gantry_pipeline.source.tier import Wanted

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")
FOUND_SOMETHING = 1
_MIB = {"m": 1, "g": 1024}


def _memory(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """`2g` or `1500m` as MiB."""
    if value is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,5})([mg])", value.lower())
    if found is None or (mib := int(found[1]) * _MIB[found[2]]) < 512:
        raise click.BadParameter(f"{value!r} is no size; write 2g or 1500m, at least 512m.")
    return mib


def tier_options(command: CommandT) -> CommandT:
    """Options that choose a tier and a part of it."""
    for option in reversed(
        (
            click.option(
                "--tier",
                "url",
                required=True,
                envvar="GANTRY_TIER",
                metavar="URL",
                help="file:///DIRECTORY or s3://BUCKET/PREFIX that the broker groups upload to. "
                "[env: GANTRY_TIER]",
            ),
            click.option("--cluster", default="", help="Only the groups of this cluster."),
            click.option("--shard", default="", help="Only the broker group with this UID."),
            click.option(
                "--endpoint",
                envvar="AWS_ENDPOINT_URL",
                help="http(s)://HOST:PORT of an S3 service that is not AWS. "
                "[env: AWS_ENDPOINT_URL]",
            ),
            click.option("--region", envvar="AWS_REGION", help="Of the bucket. [env: AWS_REGION]"),
            click.option(
                "--anonymous",
                is_flag=True,
                help="Ask the bucket without credentials. Otherwise AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY are needed.",
            ),
        )
    ):
        command = option(command)
    return command


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for Spark's place and memory: the parameter ``where`` of the command."""

    @functools.wraps(command)
    def with_where(
        *args: Any,
        master: str,
        memory_mib: int | None,
        executors: int | None,
        executor_memory_mib: int | None,
        executor_secret: str | None,
        **kwargs: Any,
    ) -> Any:
        from gantry_pipeline.kubernetes import MEMORY_MIB, Executors
        from gantry_pipeline.session import Where

        asked = (executors, executor_memory_mib, executor_secret) != (None, None, None)
        pods = Executors(executors or 2, executor_memory_mib or MEMORY_MIB, executor_secret or "")
        where = Where(master, memory_mib, pods if asked else None)
        return command(*args, where=where, **kwargs)

    for option in reversed(
        (
            click.option(
                "--master",
                default="local[*]",
                show_default=True,
                help="Spark's master; local[2] takes two cores of this machine, k8s://URL runs "
                "executors as pods.",
            ),
            click.option(
                "--driver-memory",
                "memory_mib",
                callback=_memory,
                metavar="SIZE",
                help="Heap of Spark's JVM, as 2g or 1500m. [default: a quarter of the memory, 1g "
                "to 8g]",
            ),
            click.option(
                "--executors",
                type=click.IntRange(1, 100),
                help="Pods, with k8s://. [default: 2]",
            ),
            click.option(
                "--executor-memory",
                "executor_memory_mib",
                callback=_memory,
                metavar="SIZE",
                help="Heap of each; 1g for Python comes on top. [default: 1g]",
            ),
            click.option(
                "--executor-secret",
                metavar="NAME",
                help="Secret with the bucket's accessKeyId and secretAccessKey, for executors.",
            ),
        )
    ):
        with_where = option(with_where)
    return with_where


def _wanted(
    url: str, cluster: str, shard: str, endpoint: str | None, region: str | None, *, anonymous: bool
) -> Wanted:
    """The options of the data source. Refuses what no store can be, before Spark starts."""
    from gantry_pipeline import session

    session.java()
    session.pyspark_version()
    from gantry_pipeline.source.tier import wanted

    options = {
        "path": url,
        "cluster": cluster,
        "shard": shard,
        "endpoint": endpoint,
        "region": region,
        "anonymous": "true" if anonymous else None,
    }
    found = wanted({name: value for name, value in options.items() if value})
    found.open()
    return found


@click.group(
    epilog="""\b
Examples:
  gantry pipeline doctor
  gantry pipeline audit --tier file:///srv/tier
  gantry pipeline run report --tier s3://bucket/prefix --out tier.html"""
)
def pipeline() -> None:
    """Judge, ingest and report what broker groups uploaded, with Spark."""


@pipeline.command(
    epilog="""\b
Exit codes: 0 nothing is wrong, 1 something is (each finding is a line), 2 the command cannot be
meant, 75 the store or Spark failed, so that nothing is known.

\b
Examples:
  gantry pipeline audit --tier file:///srv/tier
  gantry pipeline audit --tier s3://bucket/prefix --level runs --json | jq .findings"""
)
@tier_options
@click.option(
    "--level",
    type=click.Choice(["messages", "runs"]),
    default="messages",
    show_default=True,
    help="messages reads every byte; runs only the packs' footers.",
)
@click.option(
    "--confirm",
    metavar="OFFSET",
    type=click.IntRange(min=0),
    help="The group's confirm offset as 'gantry status' shows it: bytes above it are a fault. "
    "Read it while nobody writes. Needs --shard.",
)
@spark_options
@json_option("Print the account as one JSON object.")
def audit(
    url: str,
    cluster: str,
    shard: str,
    endpoint: str | None,
    region: str | None,
    anonymous: bool,
    level: str,
    confirm: int | None,
    where: Where,
    as_json: bool,
) -> int:
    """Say whether the tier holds what was committed, all of it, once.

    Judged are manifest chains, names, every pack that a manifest names, and queue offsets from one
    pack to the next. Objects that no manifest names are noted, and are not wrong: an interrupted
    upload leaves them.
    """
    if confirm is not None and not shard:
        raise ConfigError("A confirm offset belongs to one group: give --shard, too.")
    wanted = _wanted(url, cluster, shard, endpoint, region, anonymous=anonymous)
    from gantry_pipeline import session
    from gantry_pipeline.jobs.audit import audit as run_audit

    _say("Starting Spark")
    with session.running("audit", where, java_options=session.LIGHT_JVM) as spark:
        confirmed = None if confirm is None else {shard: confirm}
        account = run_audit(spark, wanted, level=level, confirmed=confirmed, say=_say)
    if as_json:
        print_json(account)
    else:
        _print_account(account)
    return 0 if account.clean else FOUND_SOMETHING


def _print_account(account: Account) -> None:
    rows = [
        (
            *(group.cluster, group.group or "?", group.shard, group.version),
            *(f"{group.epoch}.{group.inc}", f"[{group.start}, {group.end})"),
            *(group.packs, group.records, group.bytes),
        )
        for group in account.groups
    ]
    headings = (
        "CLUSTER",
        "GROUP",
        "SHARD",
        "VERSION",
        "EPOCH",
        "RANGE",
        "PACKS",
        "RECORDS",
        "BYTES",
    )
    print_table(headings, rows)
    for found in account.findings:
        click.echo(str(found))
    click.echo(
        f"{account.faults} faults, {account.notes} notes at level {account.level} "
        f"in {account.seconds:.1f} s"
    )


@pipeline.group()
def run() -> None:
    """Run a job that leaves something behind: a table, a page."""


@run.command(
    epilog="""\b
Examples:
  gantry pipeline run ingest --tier file:///srv/tier --table /srv/messages
  gantry pipeline run ingest --tier s3://bucket/prefix --table messages --every 60"""
)
@tier_options
@click.option(
    "--table",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the Parquet table; made if it is missing, continued if it is not.",
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="Go on, and look for new versions that often. [default: end when all is read]",
)
@spark_options
@json_option("Print what was added as one JSON object.")
def ingest(
    url: str,
    cluster: str,
    shard: str,
    endpoint: str | None,
    region: str | None,
    anonymous: bool,
    table: Path,
    every_s: float | None,
    where: Where,
    as_json: bool,
) -> None:
    """Write the messages as Parquet by topic and day, each exactly once.

    May be repeated and interrupted: the table knows which manifest versions it holds.
    """
    wanted = _wanted(url, cluster, shard, endpoint, region, anonymous=anonymous)
    from gantry_pipeline import session
    from gantry_pipeline.jobs.ingest import ingest as run_ingest

    _say("Starting Spark")
    with session.running("ingest", where) as spark:
        done = run_ingest(spark, wanted, table.absolute(), every_s=every_s, say=_say)
    if as_json:
        print_json(done)
        return
    upto = ", ".join(f"{uid} version {v}" for uid, v in sorted(done.versions.items()))
    click.echo(f"{done.messages} messages added to {table}, which goes up to {upto or 'nothing'}.")


@run.command(
    epilog="""\b
Examples:
  gantry pipeline run report --tier file:///srv/tier --out tier.html
  gantry pipeline run report --tier file:///srv/tier --out tier.html --json | jq .queues"""
)
@tier_options
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The page; it needs no other file and fetches nothing.",
)
@spark_options
@json_option("Also print the figures as one JSON object.")
def report(
    url: str,
    cluster: str,
    shard: str,
    endpoint: str | None,
    region: str | None,
    anonymous: bool,
    out: Path,
    where: Where,
    as_json: bool,
) -> None:
    """Draw traffic, hot queues and the tier's growth on one HTML page.

    Reads manifests and the packs' footers, no message.
    """
    wanted = _wanted(url, cluster, shard, endpoint, region, anonymous=anonymous)
    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"The directory of {out} does not exist.", param_hint="--out")
    from gantry_pipeline import session
    from gantry_pipeline.jobs.report import figures, rendered

    _say("Starting Spark")
    with session.running("report", where, java_options=session.LIGHT_JVM) as spark:
        found = figures(spark, wanted, _say)
    try:
        out.write_text(rendered(found), encoding="utf-8")
    except OSError as error:
        raise GantryError(f"{out} cannot be written: {error.strerror}.") from error
    if as_json:
        print_json(found)
    else:
        click.echo(f"{out}: {found.messages} messages of {len(found.groups)} broker groups.")


@pipeline.command(
    epilog="""\b
Examples:
  gantry pipeline doctor
  gantry pipeline doctor --json"""
)
@json_option("Print one JSON object.")
def doctor(as_json: bool) -> int:
    """Say whether Spark can run here: Java, Python, packages, memory."""
    from gantry_pipeline.doctor import checks

    found = checks()
    if as_json:
        print_json(found)
    else:
        print_table(
            ("CHECK", "FOUND", ""),
            [(item.name, item.found, "ok" if item.ok else "!") for item in found],
        )
    for item in found:
        if item.advice:
            click.echo(f"gantry: {item.advice}", err=True)
    return 0 if all(item.ok for item in found) else FOUND_SOMETHING


@pipeline.command(hidden=True)
def executor() -> None:
    """Become an executor. Spark starts this, in the pods that it makes."""
    from gantry_pipeline import kubernetes, session

    java, _ = session.java()
    session.pyspark_version()
    command = kubernetes.executor_command(java, kubernetes.jars(), os.environ)
    os.execv(java, command)  # noqa: S606 - no shell is wanted


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{text} …", err=True)
