"""`gantry tier`: look into the object store that broker groups upload to."""

from __future__ import annotations

import datetime as dt
import os
import sys
from typing import TYPE_CHECKING, Any

import click
from gantry_protocol.errors import ConfigError, GantryError

from gantry_cli.options import asynchronous, json_option
from gantry_cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_broker.tier.stores.contract import Store

    from gantry_cli.tier.reading import Tiered
    from gantry_cli.tier.verifying import Verdict

DAMAGED = 1


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """URL, endpoint and region; keys come from the environment, as for every S3 tool."""
    for option in (
        click.option("--region", metavar="NAME", help="Region of the bucket."),
        click.option(
            "--endpoint",
            metavar="URL",
            help="http(s)://host:port of an S3 service that is not AWS.",
        ),
        click.argument("url"),
    ):
        command = option(command)
    return command


@click.group(
    epilog="""\b
Examples:
  gantry tier ls file:///var/lib/gantry-tier
  gantry tier show s3://backups/mq --group orders --endpoint http://127.0.0.1:9000
  gantry tier verify s3://backups/mq                every object of every group

\b
URL is file:///DIRECTORY or s3://BUCKET/PREFIX. Keys are read from AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY. Nothing is ever written.""",
)
def tier() -> None:
    """List, show and verify what broker groups uploaded."""


@tier.command()
@store_options
@json_option("Print a JSON array.")
@asynchronous
async def ls(url: str, endpoint: str | None, region: str | None, as_json: bool) -> None:
    """List the groups in the store, and how far each is uploaded."""
    from gantry_cli.tier.reading import groups, read_chain

    store = _open(url, endpoint, region)
    rows = []
    for found in await groups(store):
        state = (await read_chain(store, found.place)).state
        rows.append(
            {
                "group": found.group,
                "cluster": found.place.cluster,
                "shard": found.place.uid,
                "version": state.v,
                "epoch": state.pair.epoch,
                "uploader": state.writer,
                "start": state.start,
                "end": state.end,
                "packs": len(state.packs),
                "bytes": sum(entry.size for entry in state.packs),
            }
        )
    if as_json:
        print_json(rows)
    else:
        print_table(
            (
                "GROUP",
                "CLUSTER",
                "SHARD",
                "VERSION",
                "EPOCH",
                "UPLOADER",
                "START",
                "END",
                "PACKS",
                "BYTES",
            ),
            [tuple(row.values()) for row in rows],
        )


@tier.command()
@store_options
@click.option("--group", metavar="NAME", help="Which group. [default: the only one]")
@json_option("Print one JSON object.")
@asynchronous
async def show(
    url: str, endpoint: str | None, region: str | None, group: str | None, as_json: bool
) -> None:
    """Show one group's chain: who uploaded when, and its objects."""
    from gantry_cli.tier.reading import read_chain

    store = _open(url, endpoint, region)
    chosen = await _choose(store, group)
    chain = await read_chain(store, chosen.place)
    if as_json:
        print_json({"group": chosen.group, "shard": chosen.place.uid, "chain": chain})
        return
    state = chain.state
    click.echo(f"{chosen.group}: [{state.start}, {state.end}) in version {state.v}")
    print_table(
        ("FROM VERSION", "EPOCH", "START", "UPLOADER", "AT OFFSET", "WHEN"),
        [
            (one.v, one.epoch, one.inc, one.writer, one.end, _when(one.at_ms))
            for one in chain.reigns
        ],
    )
    print_table(
        ("PACK", "FROM", "TO", "RECORDS", "BYTES"),
        [(one.key, one.lo, one.hi, one.count, one.size) for one in state.packs],
    )
    if chain.fault:
        raise GantryError(chain.fault)


@tier.command()
@store_options
@click.option("--group", metavar="NAME", help="Only this group. [default: all]")
@json_option("Print one JSON object per group.")
@asynchronous
async def verify(
    url: str, endpoint: str | None, region: str | None, group: str | None, as_json: bool
) -> None:
    """Read every object and check every byte.

    Exit code 1 when anything is damaged or missing; each fault is named by object and offset.
    """
    from gantry_cli.tier.reading import groups
    from gantry_cli.tier.verifying import verify as verify_group

    store = _open(url, endpoint, region)
    chosen = [await _choose(store, group)] if group else await groups(store)
    if not chosen:
        raise GantryError(f"{store.url} holds no group's tier.")
    damaged = False
    for found in chosen:
        verdict = await verify_group(store, found.place, _progress(found.group))
        damaged |= bool(verdict.findings)
        if as_json:
            print_json({"group": found.group, "shard": found.place.uid, "verdict": verdict})
        else:
            _tell(found, verdict)
    if damaged:
        sys.exit(DAMAGED)


def _open(url: str, endpoint: str | None, region: str | None) -> Store:
    from gantry_broker.tier.stores.credentials import Credentials
    from gantry_broker.tier.stores.opening import open_store

    keys = Credentials.from_environment(os.environ)
    return open_store(url, keys, endpoint=endpoint, region=region)


async def _choose(store: Store, group: str | None) -> Tiered:
    from gantry_cli.tier.reading import groups

    found = await groups(store)
    chosen = [one for one in found if group in (None, one.group)]
    if len(chosen) == 1:
        return chosen[0]
    there = ", ".join(sorted(f"{one.group} ({one.place.uid})" for one in found)) or "none"
    raise ConfigError(
        f"{store.url} holds {len(chosen)} groups {f'named {group}' if group else ''}; "
        f"name one of: {there}."
    )


def _progress(group: str) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{group}: {done} of {total} packs", nl=done == total, err=True)

    return tell


def _tell(found: Tiered, verdict: Verdict) -> None:
    for fault in verdict.findings:
        click.echo(str(fault))
    for orphan in verdict.orphans:
        click.echo(f"{orphan}: no version names it (left by an upload that was not committed)")
    word = "damaged" if verdict.findings else "sound"
    click.echo(
        f"{found.group}: {word}; [{verdict.start}, {verdict.end}) in {verdict.packs} packs, "
        f"{verdict.records} records, {verdict.bytes} bytes, version {verdict.v}."
    )


def _when(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="seconds")
