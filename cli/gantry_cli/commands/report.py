"""`gantry kube report`: a support bundle of a namespace, without secrets."""

from __future__ import annotations

import datetime as dt
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
from gantry_operator.preview.client import inspecting, named_file, namespace_of
from gantry_operator.support.bundle import packed
from gantry_operator.support.report import Limits
from gantry_operator.support.report import report as bundle_of
from gantry_protocol.errors import GantryError

from gantry_cli.kube_view import kube_options
from gantry_cli.options import asynchronous

if TYPE_CHECKING:
    from gantry_operator.support.bundle import Bundle

MIB = 1024 * 1024
STDOUT = Path("-")


@click.command(
    epilog="""\b
Examples:
  kubectl gantry report -n mq                    gantry-report-mq-20261129T120000Z.tar.gz
  kubectl gantry report -n mq -o /tmp/r.tar.gz
  kubectl gantry report -o - | tar -tz           what would be in it
  tar -xzOf r.tar.gz gantry-report/manifest.json | jq '.redacted, .unread, .cut'

\b
It may read what you may read. What you may not is listed in the bundle, and is no error."""
)
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; - is standard output. [default: gantry-report-NAMESPACE-TIME.tar.gz]",
)
@click.option(
    "--operator-namespace",
    default="",
    help="Where the operator runs. [default: it is looked for]",
)
@click.option(
    "--log-size",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="MIB",
    help="Of each run of a container, so much of the end of its log.",
)
@click.option(
    "--size",
    "total",
    type=click.IntRange(8, 512),
    default=32,
    show_default=True,
    metavar="MIB",
    help="Of all files together, before they are packed. What does not fit is listed.",
)
@kube_options
@asynchronous
async def report(
    output: Path | None,
    operator_namespace: str,
    log_size: int,
    total: int,
    kubeconfig: str | None,
    namespace: str | None,
) -> None:
    """Collect what somebody needs who is to help, in one file, without secrets.

    In it are the groups with their status, StatefulSets, pods, events, claims, Services, budgets,
    ConfigMaps, CRDs, webhooks, the operator with its Lease, versions, and the logs of all
    containers, also of the run before a restart. Nothing in the cluster is changed.

    Secrets are never read. All else is searched for keys, tokens, passwords and what looks like
    one, which is taken out; the bundle's manifest.json lists what, where and how often, what could
    not be read, and what was cut. Look through it before you send it.
    """
    file = named_file(kubeconfig)
    home = namespace or namespace_of(file)
    now = dt.datetime.now(dt.UTC)
    target = output or Path(f"gantry-report-{home}-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if target != STDOUT and target.exists():
        raise GantryError(f"{target} exists and is kept: give -o another name.")
    async with inspecting(file) as api:
        bundle = await bundle_of(
            api,
            home,
            lambda text: click.echo(text, err=True),
            now=now,
            version=version("gantry"),
            operator_namespace=operator_namespace,
            limits=Limits(log_bytes=log_size * MIB, total_bytes=total * MIB),
        )
    data = packed(bundle)
    if target == STDOUT:
        sys.stdout.buffer.write(data)
    else:
        _write(target, data)
    click.echo(_told(bundle, target, len(data)), err=True)


def _write(target: Path, data: bytes) -> None:
    """A file for its owner alone, that was not there before.

    Raises:
        GantryError: it cannot be written.
    """
    try:
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
    except FileExistsError as error:
        raise GantryError(f"{target} exists and is kept: give -o another name.") from error
    except OSError as error:
        raise GantryError(f"{target} cannot be written: {error.strerror or error}.") from error


def _told(bundle: Bundle, target: Path, size: int) -> str:
    redacted = sum(one.count for one in bundle.found)
    lines = [f"Redacted: {redacted}. Could not be read: {len(bundle.unread)}."]
    lines += [f"  {what}: {why}" for what, why in bundle.unread[:10]]
    if len(bundle.unread) > 10:
        lines.append(f"  and {len(bundle.unread) - 10} more, in manifest.json")
    if bundle.cut:
        lines.append(f"Cut or left out: {len(bundle.cut)}, see manifest.json.")
    where = "standard output" if target == STDOUT else target
    lines.append(f"{len(bundle.files)} files, {size // 1024} KiB, are in {where}.")
    return "\n".join(lines)
