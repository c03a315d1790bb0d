"""`gantry tier`: look into the object store that broker groups upload to."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from gantry_protocol.errors import ConfigError, GantryError

from gantry_cli.options import asynchronous, json_option
from gantry_cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_broker.tier.stores.contract import Store
    from gantry_protocol.tier.findings import Finding
    from gantry_protocol.tier.judgement import Judgement

    from gantry_cli.tier.reading import Contents, Tiered
    from gantry_cli.tier.verifying import TierVerdict, VerifyProgress

DAMAGED = 1
TELL_EVERY_S = 10.0  # of a verification that nobody watches on a terminal


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """URL, endpoint and region, also from the variables that brokers read."""
    for option in (
        click.option(
            "--region",
            metavar="NAME",
            envvar=["GANTRY_TIER_REGION", "AWS_REGION"],
            help="Region of the bucket. [env: GANTRY_TIER_REGION, AWS_REGION]",
        ),
        click.option(
            "--endpoint",
            metavar="URL",
            envvar=["GANTRY_TIER_ENDPOINT", "AWS_ENDPOINT_URL"],
            help="http(s)://HOST:PORT of an S3 service that is not AWS. "
            "[env: GANTRY_TIER_ENDPOINT, AWS_ENDPOINT_URL]",
        ),
        click.argument("url", envvar="GANTRY_TIER_URL"),
    ):
        command = option(command)
    return command


@click.group(
    epilog="""\b
Examples:
  gantry tier ls file:///var/lib/gantry-tier
  gantry tier show s3://backups/mq --group orders --endpoint http://127.0.0.1:9000
  gantry tier verify s3://backups/mq                every object of every group
  gantry tier verify s3://backups/mq --json | jq .verdict.findings
  gantry tier find order-4711 s3://backups/mq --topic orders

\b
URL is file:///DIRECTORY or s3://BUCKET/PREFIX, as in spec.tier.url; without it GANTRY_TIER_URL.
Keys are read as brokers read them: from the files in GANTRY_TIER_CREDENTIALS_DIR (a mounted
Secret), else from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; without any,
requests are not signed. Nothing is ever written.

\b
Exit codes: 0 nothing is wrong, 1 something in the tier is, 2 the command cannot be meant or the
store refuses it, 75 the store did not answer, so that nothing is known.""",
)
def tier() -> None:
    """List, show, verify and search what broker groups uploaded."""


@tier.command()
@store_options
@json_option("Print a JSON array.")
@asynchronous
async def ls(url: str, endpoint: str | None, region: str | None, as_json: bool) -> None:
    """List the groups in the store, and how far each is uploaded.

    Only names and manifests are read; a chain with a fault is listed as far as it is sound, and
    'verify' says what is wrong.
    """
    from gantry_cli.tier.reading import contents, read_chain

    store = _open(url, endpoint, region)
    rows = []
    for found in (await contents(store)).groups:
        chain = await read_chain(store, found.place)
        state = chain.state
        rows.append(
            {
                "group": found.group,
                "cluster": found.place.cluster,
                "shard": found.place.uid,
                "version": state.v,
                "epoch": state.pair.epoch,
                "uploader": state.writer,
                "start": state.first,
                "end": state.end,
                "packs": len(state.packs),
                "bytes": sum(entry.size for entry in state.packs),
                "faults": len(chain.faults),
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
                "FAULTS",
            ),
            [tuple(row.values()) for row in rows],
        )


@tier.command()
@store_options
@click.option(
    "--group", metavar="NAME", help="Which group, by name or UID. [default: the only one]"
)
@json_option("Print one JSON object.")
@asynchronous
async def show(
    url: str, endpoint: str | None, region: str | None, group: str | None, as_json: bool
) -> None:
    """Show one group's chain: who uploaded when, and its objects."""
    from gantry_cli.tier.reading import contents, read_chain

    store = _open(url, endpoint, region)
    chosen = _choose(store, await contents(store), group)
    chain = await read_chain(store, chosen.place)
    state = chain.state
    if as_json:
        print_json(
            {
                "group": chosen.group,
                "shard": chosen.place.uid,
                "state": _state(chain),
                "claims": chain.claims,
                "findings": chain.findings,
            }
        )
    else:
        owner = f", taken over by group {state.taker}" if state.taker else ""
        click.echo(f"{chosen.name}: [{state.first}, {state.end}) in version {state.v}{owner}")
        print_table(
            ("FROM VERSION", "EPOCH", "START", "UPLOADER", "AT OFFSET", "WHEN"),
            [
                (claim.v, claim.epoch, claim.inc, claim.writer, claim.end, _when(claim.at_ms))
                for claim in chain.claims
            ],
        )
        print_table(
            ("PACK", "FROM", "TO", "RECORDS", "BYTES"),
            [(pack.key, pack.lo, pack.hi, pack.count, pack.size) for pack in state.packs],
        )
        for finding in chain.findings:
            click.echo(str(finding))
    if chain.faults:
        sys.exit(DAMAGED)


@tier.command()
@store_options
@click.option("--group", metavar="NAME", help="Only this group, by name or UID. [default: all]")
@click.option(
    "--confirm",
    metavar="OFFSET",
    type=click.IntRange(min=0),
    help="The group's confirm offset as 'gantry status' shows it: bytes above it are a fault. "
    "Read it while nobody writes. Needs --group.",
)
@json_option("Print one JSON object per group.")
@asynchronous
async def verify(
    url: str,
    endpoint: str | None,
    region: str | None,
    group: str | None,
    confirm: int | None,
    as_json: bool,
) -> None:
    """Read every object and check every byte.

    Each finding is a line with the rule that is broken (docs/tier-format.md), the object, the byte
    in it and the offset in the log. Notes are no faults: an interrupted upload leaves packs that no
    version names, and nothing deletes them.
    """
    from gantry_cli.tier.reading import contents
    from gantry_cli.tier.verifying import verify as verify_group

    if confirm is not None and group is None:
        raise ConfigError("A confirm offset belongs to one group: give --group, too.")
    store = _open(url, endpoint, region)
    found = await contents(store)
    chosen = [_choose(store, found, group)] if group else found.groups
    strays = () if group else found.strays
    if not chosen and not strays:
        raise GantryError(f"{store.url} holds no group's tier.")
    for stray in strays:
        _print(stray, as_json=as_json)
    damaged = bool(strays)
    for item in chosen:
        verdict = await verify_group(
            store,
            item.place,
            _progress(item.name),
            confirm=None if confirm is None else _known(confirm),
        )
        damaged |= bool(verdict.findings)
        if as_json:
            print_json({"group": item.group, "shard": item.place.uid, "verdict": verdict})
        else:
            _tell(item, verdict)
    if damaged:
        sys.exit(DAMAGED)


@tier.command()
@click.argument("key")
@store_options
@click.option("--topic", metavar="NAME", required=True, help="Topic of the messages.")
@click.option(
    "--group", metavar="NAME", help="Which group, by name or UID. [default: the only one]"
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="End after so many messages.",
)
@json_option("Print one JSON object per message.")
@asynchronous
async def find(
    key: str,
    url: str,
    endpoint: str | None,
    region: str | None,
    topic: str,
    group: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find the messages with a key, or with a unique key, the newest first.

    The tier has no index: every run of the topic is read, so a search costs as much as the topic
    has bytes. Brokers find what is in their own logs by themselves.

    Exit codes: 0 all was searched, or N were found; 1 some of the tier could not be read, and
    stderr says what.
    """
    from gantry_cli.tier.finding import find as find_messages
    from gantry_cli.tier.reading import contents, read_chain

    store = _open(url, endpoint, region)
    chosen = _choose(store, await contents(store), group)
    chain = await read_chain(store, chosen.place)
    unread = list(map(str, chain.faults))
    found = 0
    async for hit in find_messages(
        store, chain, topic, key, lambda error: unread.append(str(error))
    ):
        if as_json:
            print_json(hit)
        else:
            click.echo(
                f"{_when(hit.stored_ms)}  {topic} queue {hit.queue} offset {hit.offset}  "
                f"{hit.bytes} bytes  {' '.join(hit.keys)}  {hit.pack}"
            )
        found += 1
        if found == limit:
            return
    for reason in unread:
        click.echo(reason, err=True)
    if unread:
        sys.exit(DAMAGED)
    if not found:
        click.echo(
            f"No message of {topic} in the tier of {chosen.name} has the key {key}.", err=True
        )


def _state(chain: Judgement) -> dict[str, Any]:
    """A chain as far as it is sound, with names that need no page of the format."""
    state = chain.state
    return {
        "version": state.v,
        "epoch": state.pair.epoch,
        "start": state.first,
        "end": state.end,
        "lineage": state.lineage,
        "packs": [
            {
                "key": chain.place.key(pack.entry.key),
                "from": pack.entry.lo,
                "to": pack.entry.hi,
                "records": pack.entry.count,
                "bytes": pack.entry.size,
                "crc32c": pack.entry.crc,
                "version": pack.v,
                "epoch": pack.epoch,
                "uploader": pack.writer,
            }
            for pack in chain.packs
        ],
    }


def _open(url: str, endpoint: str | None, region: str | None) -> Store:
    from gantry_broker.tier.stores.credentials import CredentialFiles, Credentials
    from gantry_broker.tier.stores.opening import open_store

    keys: Credentials | CredentialFiles
    if directory := os.environ.get("GANTRY_TIER_CREDENTIALS_DIR"):
        keys = CredentialFiles(Path(directory))
    else:
        keys = Credentials.from_environment(os.environ)
    return open_store(url, keys, endpoint=endpoint, region=region)


def _known(confirm: int) -> Callable[[], Awaitable[int]]:
    async def tell() -> int:
        return confirm

    return tell


def _choose(store: Store, found: Contents, group: str | None) -> Tiered:
    chosen = [item for item in found.groups if group in (None, item.group, item.place.uid)]
    if len(chosen) == 1:
        return chosen[0]
    there = ", ".join(sorted(map(str, found.groups))) or "none"
    raise ConfigError(
        f"{store.url} holds {len(chosen)} groups {f'named {group}' if group else ''}; "
        f"name one of: {there}."
    )


def _progress(group: str) -> Callable[[VerifyProgress], None]:
    """On a terminal one line that changes; else a line now and then, if it takes long."""
    live = sys.stderr.isatty()
    told_s = time.monotonic()

    def tell(now: VerifyProgress) -> None:
        nonlocal told_s
        line = (
            f"{group}: {now.packs} of {now.packs_all} packs, {now.bytes / 1e6:.0f} of "
            f"{now.bytes_all / 1e6:.0f} MB"
        )
        if live:
            click.echo(f"\r{line}", nl=now.packs == now.packs_all, err=True)
        elif time.monotonic() >= told_s + TELL_EVERY_S:
            told_s = time.monotonic()
            click.echo(line, err=True)

    return tell


def _tell(found: Tiered, verdict: TierVerdict) -> None:
    for finding in (*verdict.findings, *verdict.notes):
        click.echo(str(finding))
    word = "damaged" if verdict.findings else "sound"
    click.echo(
        f"{found.name}: {word}; [{verdict.start}, {verdict.end}) in {verdict.packs} packs, "
        f"{verdict.records} records, {verdict.bytes} bytes, version {verdict.v}."
    )


def _print(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        print_json({"stray": finding})
    else:
        click.echo(str(finding))


def _when(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="seconds")
