"""Whatever is wrong with a tier: uploads stop and say why, clients are served, nothing is deleted.

What a broker meets in the bucket (damaged, newer, another's), and what the store does to it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result
from gantry_broker.member import administration
from gantry_cli.commands.tier import tier
from gantry_protocol.errors import GantryError
from gantry_protocol.process import log
from gantry_protocol.tier import manifests
from gantry_protocol.tier.keys import ManKey, MetaKey, Shard
from support.broker_cluster import eventually, pull_command
from support.fault_proxy import Strike, fault_proxy
from support.moto_server import make_bucket, moto_server
from support.patience import PATIENCE_S
from support.tier_directory import TierDirectory, messages
from support.tiered_cluster import PLACE, TieredCluster, send

BEFORE, AFTER = 5, 7  # messages


def status(cluster: TieredCluster) -> dict[str, Any]:
    """What the master's /status says of its tier."""
    found = administration.status(cluster.master.group, cluster.master.member.router)["tier"]
    assert isinstance(found, dict)
    return found


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".tmp" not in path.parts
    }


def versions(found: dict[str, bytes]) -> set[str]:
    return {name for name in found if "/man/" in name}


async def verify(url: str, *options: str) -> Result:
    """`gantry tier verify`, which has a loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, tier, ["verify", url, *options])


async def serves(cluster: TieredCluster, count: int) -> None:
    """Send, and read everything back: ``count`` messages in all."""
    await send(cluster, AFTER)
    client = await cluster.client(cluster.master)
    read = 0
    while read < count + AFTER:
        answer = await client.call(pull_command(read))
        assert answer.code == 0, answer.remark
        read = int(answer.ext["nextBeginOffset"])


@asynccontextmanager
async def refusing(
    cluster: TieredCluster, state: str, words: str, caplog: pytest.LogCaptureFixture, sent: int
) -> AsyncIterator[None]:
    """Within the block the fault is there; at its end it was told everywhere and harmed nothing."""
    yield
    await eventually(
        lambda: re.search(words, status(cluster)["reason"]) is not None,
        f"/status says {words}; it says {status(cluster)}",
        PATIENCE_S,
    )
    assert status(cluster)["state"] in (state, "claiming")
    lines = [log.LineFormatter("broker").format(one) for one in caplog.records]
    told = [line for line in lines if "event=upload" in line and re.search(words, line)]
    assert told, lines
    assert all(" level=warning " in line for line in told)
    await serves(cluster, sent)


# ---- what lies in the bucket


class Lie(NamedTuple):
    """An object that is not what it should be, in the place of the next version or another."""

    name: str
    make: Callable[[TieredCluster], bytes]
    words: str
    exit_words: str  # of a line of `gantry tier verify`
    is_owner: bool = False  # in the place of meta.json
    stray: str = ""  # the name of one that has no place


def another_group() -> Shard:
    return Shard(PLACE.cluster, "another-group")


def sound_append(cluster: TieredCluster, place: Shard = PLACE) -> dict[str, Any]:
    """The next version as a plain object, of ``place``."""
    found = TierDirectory(cluster.directory / "elsewhere", uid=place.uid, cluster=place.cluster)
    found.claim(1)
    found.append(messages("orders", 2))
    value: dict[str, Any] = json.loads(found.path(str(ManKey(2))).read_bytes())
    return value


def owner(group: str, place: Shard = PLACE, **changes: object) -> bytes:
    made = manifests.Owner(
        shard=place.uid, cluster=place.cluster, group=group, created_ms=1, **changes
    )
    return manifests.encode(manifests.seal(made))


def flipped(data: bytes) -> bytes:
    at = data.index(b'"crc32c":"') + 10
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


LIES = (
    Lie(
        "truncated",
        lambda cluster: manifests.canonical(sound_append(cluster))[:40],
        r"man/0{19}\d is cut short at byte 40: the JSON object does not end",
        r"fault T4: \S+man/0{19}\d byte 40: the JSON object does not end",
    ),
    Lie(
        "flipped",
        lambda cluster: flipped(manifests.canonical(sound_append(cluster))),
        r"man/0{19}\d is damaged at byte 0: its crc32c says",
        r"fault T4: \S+man/0{19}\d byte 0: its crc32c says",
    ),
    Lie(
        "newer",
        lambda cluster: manifests.canonical(sound_append(cluster) | {"format": 2}),
        r"man/0{19}\d is of a newer version \(byte 0\): it has format 2",
        r"fault newer: \S+man/0{19}\d byte 0: it has format 2",
    ),
    Lie(
        "foreign",
        lambda cluster: manifests.canonical(sound_append(cluster, another_group())),
        r"man/0{19}\d is not what belongs there \(byte 0\): it is of shard another-group",
        r"fault foreign: \S+man/0{19}\d byte 0: it is of shard another-group",
    ),
    Lie(
        "stray",
        lambda _cluster: b"hello",
        r"man/notes.txt is not what belongs there \(byte 0\): the key has no form",
        r"fault foreign: \S+man/notes.txt byte 0: the key has no form",
        stray="man/notes.txt",
    ),
    Lie(
        "prefix-of-another-group",
        lambda _cluster: owner("payments"),
        r"meta.json is not what belongs there .*: it belongs to \S+/payments/",
        "",  # the name alone says nothing to somebody who has only the bucket
        is_owner=True,
    ),
    Lie(
        "flipped-owner",
        lambda _cluster: flipped(owner("orders")),
        r"meta.json is damaged at byte 0: its crc32c says",
        r"fault T4: \S+meta.json byte 0: its crc32c says",
        is_owner=True,
    ),
    Lie(
        "newer-owner",
        lambda _cluster: manifests.canonical({"format": 2}),
        r"meta.json is of a newer version \(byte 0\): it has format 2",
        r"fault newer: \S+meta.json byte 0: it has format 2",
        is_owner=True,
    ),
)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
async def test_what_a_broker_cannot_believe_halts_its_uploads(
    lie: Lie, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = TieredCluster(tmp_path)
    meta = cluster.bucket / PLACE.key(MetaKey())
    if lie.is_owner:
        meta.parent.mkdir(parents=True)
        meta.write_bytes(lie.make(cluster))
    async with cluster:
        if not lie.is_owner:
            await send(cluster, BEFORE)
            await eventually(cluster.caught_up, "the tier reaches confirm")
        sent = 0 if lie.is_owner else BEFORE
        async with refusing(cluster, "halted", lie.words, caplog, sent):
            if not lie.is_owner:
                name = lie.stray or str(ManKey(cluster.chain().v + 1))
                (cluster.bucket / PLACE.key(name)).write_bytes(lie.make(cluster))
            before = files(cluster.bucket)
            await send(cluster, 1)
        after = files(cluster.bucket)
        assert {name: after.get(name) for name in before} == before
        if not lie.stray:
            assert versions(after) == versions(before)
    result = await verify(cluster.bucket.as_uri())
    if lie.exit_words:
        assert result.exit_code == 1, result.output
        assert re.search(lie.exit_words, result.stdout), result.stdout


async def test_a_missing_pack_is_named_and_uploads_go_on(tmp_path: Path) -> None:
    """The master never reads old packs; whoever verifies finds it."""
    async with TieredCluster(tmp_path) as cluster:
        await send(cluster, BEFORE)
        await eventually(cluster.caught_up, "the tier reaches confirm")
        pack = cluster.chain().packs[0]
        (cluster.bucket / PLACE.key(pack.key)).unlink()
        await send(cluster, 1)
        await eventually(cluster.caught_up, "the tier reaches confirm again")
        await serves(cluster, BEFORE + 1)
    result = await verify(cluster.bucket.as_uri())
    assert result.exit_code == 1
    assert f"fault T4: {PLACE.key(pack.key)} offset {pack.lo}: it is missing; " in result.stdout


# ---- what the store does


class Refusal(NamedTuple):
    """A store that does not do what it should."""

    name: str
    words: str
    strike: Strike | None = None
    method: str = ""  # that it strikes; empty: any
    bucket: str = ""  # instead of one that exists
    exit_code: int = 2  # of `gantry tier verify`
    told: str = ""  # by it; empty: the same words


REFUSALS = (
    Refusal("denied", r"s3://\S+: 403 Forbidden \(AccessDenied\)", Strike.DENIED),
    Refusal(
        "read-only",
        r"meta.json in s3://\S+: 403 Forbidden \(AccessDenied\)",
        Strike.DENIED,
        "PUT",
        told="holds no group's tier",
    ),
    Refusal("wrong-keys", r"403 Forbidden \(InvalidAccessKeyId\)", Strike.WRONG_KEYS),
    Refusal("no-bucket", r"404 Not Found \(NoSuchBucket\)", bucket="nobody-made-it"),
    Refusal(
        "overwrites",
        r"s3://\S+ overwrites objects that exist: it ignores If-None-Match",
        Strike.UNCONDITIONAL,
        exit_code=1,
        told=r"fault T1: \S+: there is no manifest version at all",
    ),
    Refusal(
        "hangs",
        r"meta.json in s3://\S+ had no answer within 5 s",
        Strike.BLACK_HOLE,
        exit_code=75,
        told=r"Listing the keys in s3://\S+ had no answer within 5 s",
    ),
)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as port:
        yield port


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
async def test_a_store_that_refuses_stops_uploads_and_nothing_else(
    refusal: Refusal,
    moto: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENGbPxRfiCY")
    bucket = refusal.bucket or make_bucket(moto)
    async with fault_proxy(moto) as proxy:
        proxy.always, proxy.always_on = refusal.strike, refusal.method
        endpoint = f"http://127.0.0.1:{proxy.port}"
        cluster = TieredCluster(tmp_path, tier_url=f"s3://{bucket}/mq", tier_endpoint=endpoint)
        async with cluster:
            async with refusing(cluster, "backoff", refusal.words, caplog, 0):
                await send(cluster, 1)
            assert not any(
                "wJalrXUtnFEMIK7MDENGbPxRfiCY" in one.getMessage() + str(one.__dict__)
                for one in caplog.records
            )
            url = f"s3://{bucket}/mq"
            result = await verify(url, "--endpoint", endpoint)
            told = result.output
            if isinstance(result.exception, GantryError):
                assert result.exception.exit_code == refusal.exit_code
                told = str(result.exception)
            else:
                assert result.exit_code == refusal.exit_code
            assert re.search(refusal.told or refusal.words, told), told
            proxy.always = None
            if not refusal.bucket:  # whoever removes the reason has uploads again
                await eventually(cluster.caught_up, "the tier reaches confirm", PATIENCE_S)


class Nowhere(NamedTuple):
    """A place that is none."""

    name: str
    url: str
    words: str


NOWHERES = (
    Nowhere("scheme", "ftp://host/mq", r"'ftp://host/mq' is no store: write file:///DIRECTORY"),
    Nowhere("keys-in-url", "s3://key:secret@bucket", r"The store's URL holds credentials"),
    Nowhere("no-directory", "file:///no/such/directory", r"/no/such/directory is no directory"),
)


@pytest.mark.parametrize("nowhere", NOWHERES, ids=lambda nowhere: nowhere.name)
async def test_a_place_that_is_none_stops_uploads_and_nothing_else(
    nowhere: Nowhere, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        TieredCluster(tmp_path, tier_url=nowhere.url) as cluster,
        refusing(cluster, "backoff", nowhere.words, caplog, 0),
    ):
        await send(cluster, 1)
    result = await verify(nowhere.url)
    assert isinstance(result.exception, GantryError)
    assert result.exception.exit_code == 2
    assert re.search(nowhere.words, str(result.exception))


async def test_a_full_directory_stops_uploads_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with TieredCluster(tmp_path) as cluster:
        await send(cluster, BEFORE)
        await eventually(cluster.caught_up, "the tier reaches confirm")
        before = files(cluster.bucket)

        def full(_path: Path, _data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr("gantry_broker.tier.stores.posix._write", full)
            words = r"nor shows it: \S+/pack/.*: No space left on device"
            async with refusing(cluster, "backoff", words, caplog, BEFORE):
                await send(cluster, 1)
            assert files(cluster.bucket) == before
        await eventually(cluster.caught_up, "the tier reaches confirm again", PATIENCE_S)
    assert (await verify(cluster.bucket.as_uri())).exit_code == 0
