"""A volume that holds nothing is filled from a tier: whole, once, and at every crash again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gantry_broker.log.disk import Disks
from gantry_broker.member import lineage_file, restoring
from gantry_broker.member.options import GroupOptions
from gantry_broker.member.recovery import recover
from gantry_broker.member.restoring import Restoring
from gantry_broker.queues import MessageStore
from gantry_broker.replica import Lineage, StoredState
from gantry_broker.tier.core.values import TierLimits
from gantry_broker.tier.options import TierOptions
from gantry_broker.tier.seen import Seen
from gantry_broker.tier.stores.credentials import Credentials
from gantry_protocol.tier import chain
from gantry_protocol.tier.chain import ChainState, fold
from gantry_protocol.tier.keys import ManKey, PackKey, Pair, parse_key
from gantry_protocol.tier.manifests import Owner, Version, decode_version, encode, seal
from gantry_protocol.tier.packs import encode_pack, rebuild_log
from gantry_protocol.types import Epoch, EpochEntry, Offset
from support import stores
from support.broker_cluster import eventually
from support.memory_store import Fault, MemoryStore
from support.tier_logs import PLACE

LINEAGE = (EpochEntry(Epoch(2), Offset(0)), EpochEntry(Epoch(5), Offset(1000)))
PAIR = Pair(5, 1)
GROUP = "orders"


class Tier:
    """The tier of a group of which nothing else is left.

    Attributes:
        store: the bucket.
        log: the bytes of [start, end), which were uploaded.
        rows: everything that was derived from the log.
    """

    def __init__(self, directory: Path, *, from_file: int = 0, with_state: bool = False) -> None:
        former = stores.open_store(directory)
        for number in range(300):
            stores.put(
                former, stores.message(body=b"%4d" % number * 100, queue_id=number % 3, tag="t")
            )
        if with_state:
            stores.confirm(former)
            stores.put(former, *(former.state_records() or ()))
        for number in range(100):
            stores.put(former, stores.message(body=b"%4d" % number * 10))
        stores.confirm(former)
        assert len(former.log.starts) > 2
        self.start, self.end = former.log.starts[from_file], former.log.end
        self.log = read(former)[self.start :]
        self.rows = stores.derived(former)
        former.close()
        self.store = MemoryStore()
        owner = seal(Owner(shard=PLACE.uid, cluster="demo", group=GROUP, created_ms=1))
        self.store.objects[PLACE.key("meta.json")] = encode(owner)
        state = self.committed(
            chain.empty(PLACE),
            chain.claim(
                chain.empty(PLACE), pair=PAIR, writer="w", nonce="0" * 32, at_ms=1, start=self.start
            ),
        )
        lo = self.start
        while lo < self.end:
            state = self.appended(state, lo)
            lo = Offset(state.end)

    def appended(self, state: ChainState, lo: int) -> ChainState:
        """One pack of about 20,000 bytes."""
        hi, data = lo, self.log[lo - self.start :]
        while hi < self.end and hi < lo + 20_000:
            hi += int.from_bytes(data[hi - lo : hi - lo + 4], "big")
        key = PackKey(PAIR, lo, hi, 9, f"{lo:032x}")
        pack = encode_pack(data[: hi - lo], PLACE, key, LINEAGE)
        self.store.objects[PLACE.key(key)] = bytes(pack.data)
        version = chain.append(
            state,
            [pack.entry],
            lineage=LINEAGE,
            tail=pack.tail,
            writer="w",
            nonce=f"{lo:032x}",
            at_ms=1,
        )
        return self.committed(state, version)

    def committed(self, state: ChainState, version: Version) -> ChainState:
        self.store.objects[PLACE.key(ManKey(version.v))] = encode(version)
        return chain.apply(state, version)

    @property
    def chain(self) -> ChainState:
        keys = sorted(key for key in self.store.objects if "/man/" in key)
        return fold(
            PLACE,
            [decode_version(self.store.objects[key], PLACE, at + 1) for at, key in enumerate(keys)],
        )

    @property
    def packs(self) -> list[str]:
        return sorted(
            key for key in self.store.objects if isinstance(parse_key(PLACE, key), PackKey)
        )


def read(store: MessageStore) -> bytes:
    data, offset = b"", store.log.log_start
    while offset < store.log.end:
        part = store.log.read(offset, 1 << 20)
        data += part
        offset = Offset(offset + len(part))
    return data


class Volume:
    """The volume of a member, and what it was told to wait for."""

    def __init__(self, directory: Path, owner: str = "new", former: str = PLACE.uid) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.said: list[str] = []
        self.options = GroupOptions(
            cluster="demo",
            group=GROUP,
            directory=directory,
            advertise="127.0.0.1",
            remoting_port=1,
            log_segment_bytes=stores.SEGMENT_BYTES,
            tier=TierOptions(
                url="memory:",
                place=PLACE,
                credentials=Credentials(),
                endpoint=None,
                region=None,
                limits=TierLimits(),
                owner=owner,
                former=former,
            ),
        )

    def restoring(self, store: MemoryStore) -> Restoring:
        assert self.options.tier is not None
        return Restoring(self.options, self.options.tier, store, self.said.append)

    async def fill(self, store: MemoryStore) -> None:
        await self.restoring(store).run()

    @contextmanager
    def found(self) -> Iterator[tuple[MessageStore, StoredState]]:
        """As a start of the broker reads it."""
        disks = Disks()
        try:
            store, stored = recover(self.directory, stores.SEGMENT_BYTES, disks)
            yield store, stored
            store.close()
        finally:
            disks.close()

    def assert_filled(self, tier: Tier) -> None:
        with self.found() as (store, stored):
            assert read(store) == tier.log
            assert (store.log.log_start, store.log.end) == (tier.start, tier.end)
            assert stored.confirm == store.log.confirm_floor == tier.end
            taken = EpochEntry(Epoch(tier.chain.pair.epoch), Offset(tier.end))
            assert (stored.epoch, stored.lineage) == (taken.epoch, Lineage([*LINEAGE, taken]))
            assert stores.derived(store) == tier.rows
        assert self.options.tier is not None
        assert Seen(self.directory, "memory:", PLACE).why
        assert not (self.directory / restoring.STAGED).exists()


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier(tmp_path / "former")


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "WAIT_FIRST_S", 0.001)
    monkeypatch.setattr(restoring, "WAIT_LAST_S", 0.005)


async def refused(volume: Volume, store: MemoryStore, reason: str) -> None:
    """It waits, says why, and leaves volume and bucket as they are."""
    before = dict(store.objects)
    running = asyncio.create_task(volume.fill(store))
    await eventually(lambda: any(reason in said for said in volume.said), f"it says {reason!r}")
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert store.objects == before
    assert not (volume.directory / "store").exists()
    assert not lineage_file.load(volume.directory).epoch


async def test_the_log_and_all_that_follows_from_it_are_the_same(
    tier: Tier, tmp_path: Path
) -> None:
    volume, before = Volume(tmp_path / "v"), dict(tier.store.objects)
    await volume.fill(tier.store)
    volume.assert_filled(tier)
    assert tier.chain.owner == "new"
    changed = {key for key, data in tier.store.objects.items() if before.get(key) != data}
    assert changed == {PLACE.key(ManKey(tier.chain.taken_v))}, "one version more, nothing less"
    assert before.keys() <= tier.store.objects.keys()


async def test_all_members_begin_with_one_take(tier: Tier, tmp_path: Path) -> None:
    volumes = [Volume(tmp_path / f"v{number}") for number in range(3)]
    await asyncio.gather(*(volume.fill(tier.store) for volume in volumes))
    for volume in volumes:
        volume.assert_filled(tier)
    assert tier.chain.taken_v == tier.chain.v


async def test_a_tier_that_begins_later_is_taken_with_a_whole_state(tmp_path: Path) -> None:
    tier = Tier(tmp_path / "former", from_file=1, with_state=True)
    assert tier.start > 0
    volume = Volume(tmp_path / "v")
    await volume.fill(tier.store)
    with volume.found() as (store, _):
        assert (store.log.log_start, read(store)) == (tier.start, tier.log)
        assert store.is_whole


async def test_a_tier_that_begins_later_without_a_state_is_refused(tmp_path: Path) -> None:
    tier = Tier(tmp_path / "former", from_file=1)
    volume = Volume(tmp_path / "v")
    running = asyncio.create_task(volume.fill(tier.store))
    await eventually(lambda: any("no whole state" in said for said in volume.said), "it says so")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not (volume.directory / "store").exists()


async def test_a_volume_that_holds_a_log_is_left_as_it_is(tier: Tier, tmp_path: Path) -> None:
    volume, before = Volume(tmp_path / "v"), dict(tier.store.objects)
    own = stores.open_store(volume.directory / "store")
    stores.put(own, stores.message(body=b"mine"))
    stores.confirm(own)
    log = read(own)
    own.close()
    lineage_file.save(
        volume.directory,
        StoredState(Epoch(1), Lineage([EpochEntry(Epoch(1), Offset(0))]), Offset(0)),
    )
    await volume.fill(tier.store)
    with volume.found() as (store, stored):
        assert (read(store), stored.epoch) == (log, 1)
    assert tier.store.objects == before, "nor is anything taken"


async def test_a_store_without_a_byte_is_filled(tier: Tier, tmp_path: Path) -> None:
    volume = Volume(tmp_path / "v")
    stores.open_store(volume.directory / "store").close()
    await volume.fill(tier.store)
    volume.assert_filled(tier)


async def test_once_a_master_of_the_group_has_claimed_a_member_begins_empty(
    tier: Tier, tmp_path: Path
) -> None:
    await Volume(tmp_path / "first").fill(tier.store)
    state = tier.chain
    pair = Pair(state.pair.epoch + 1, 1)
    tier.committed(state, chain.claim(state, pair=pair, writer="w", nonce="a" * 32, at_ms=1))
    late = Volume(tmp_path / "late")
    (late.directory / restoring.STAGED).mkdir()
    await late.fill(tier.store)
    assert sorted(late.directory.iterdir()) == []


@pytest.mark.parametrize("former", [PLACE.uid, "somebody"])
async def test_a_second_group_is_refused(tier: Tier, tmp_path: Path, former: str) -> None:
    await Volume(tmp_path / "first").fill(tier.store)
    second = Volume(tmp_path / "second", owner="second", former=former)
    await refused(second, tier.store, f"belongs to group new, not to {former}")


async def test_a_group_that_knows_the_last_owner_takes_it_from_there(
    tier: Tier, tmp_path: Path
) -> None:
    await Volume(tmp_path / "first").fill(tier.store)
    second = Volume(tmp_path / "second", owner="second", former="new")
    await second.fill(tier.store)
    second.assert_filled(tier)
    assert tier.chain.owner == "second"


async def test_an_empty_tier_is_refused(tmp_path: Path) -> None:
    await refused(Volume(tmp_path / "v"), MemoryStore(), "holds nothing")


async def test_the_tier_of_a_group_of_another_name_is_refused(tier: Tier, tmp_path: Path) -> None:
    volume = Volume(tmp_path / "v")
    volume.options = volume.options._replace(group="payments")
    await refused(volume, tier.store, "it belongs to demo/orders")


async def test_a_volume_that_is_too_small_is_refused(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Volume(tmp_path / "first").fill(tier.store)  # so that nothing is left to take
    usage = shutil.disk_usage(tmp_path)._replace(free=len(tier.log))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    await refused(Volume(tmp_path / "v"), tier.store, "give it a larger volume")


def _removed(objects: dict[str, bytes], key: str) -> None:
    del objects[key]


def _damaged(objects: dict[str, bytes], key: str) -> None:
    objects[key] = objects[key][:100] + b"x" + objects[key][101:]


def _another(objects: dict[str, bytes], key: str) -> None:
    """A sound pack of this name that is not the one that was committed: one tag is another."""
    found = parse_key(PLACE, key)
    assert isinstance(found, PackKey)
    log = bytearray(rebuild_log(objects[key], PLACE, found))
    log[-2:-1] = b"u"
    objects[key] = bytes(encode_pack(bytes(log), PLACE, found, LINEAGE).data)


@pytest.mark.parametrize("harm", [_removed, _damaged, _another], ids=["gone", "damaged", "other"])
async def test_a_pack_that_cannot_be_read_is_waited_for(
    tier: Tier, tmp_path: Path, harm: Callable[[dict[str, bytes], str], None]
) -> None:
    key = tier.packs[2]
    sound = tier.store.objects[key]
    harm(tier.store.objects, key)
    volume = Volume(tmp_path / "v")
    running = asyncio.create_task(volume.fill(tier.store))
    await eventually(lambda: any(key in said for said in volume.said), "it names the pack")
    assert not running.done()
    assert not (volume.directory / "store").exists()
    tier.store.objects[key] = sound
    await running
    volume.assert_filled(tier)


async def test_an_outage_of_the_store_is_waited_for(tier: Tier, tmp_path: Path) -> None:
    volume = Volume(tmp_path / "v")
    failed: set[tuple[str, str]] = set()

    def each_once(operation: str, key: str) -> Fault | None:
        if (operation, key) in failed:
            return None
        failed.add((operation, key))
        return Fault.UNHEARD

    tier.store.fault = each_once
    await volume.fill(tier.store)
    volume.assert_filled(tier)


@pytest.mark.parametrize(
    ("where", "step"),
    [
        pytest.param(Restoring, "_append", id="copying"),
        pytest.param(Restoring, "_finish", id="copied"),
        pytest.param(lineage_file, "save", id="before-the-lineage"),
        pytest.param(Restoring, "_rename", id="before-the-rename"),
    ],
)
async def test_a_crash_at_any_step_is_begun_again(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, step: str
) -> None:
    class Crash(BaseException):
        """Nothing after it happens."""

    def crash(*_: object) -> None:
        raise Crash

    volume = Volume(tmp_path / "v")
    with monkeypatch.context() as patch:
        patch.setattr(where, step, staticmethod(crash))
        with pytest.raises(Crash):
            await volume.fill(tier.store)
    assert not (volume.directory / "store").exists()
    await volume.fill(tier.store)
    volume.assert_filled(tier)


async def test_what_another_copy_left_half_done_is_not_gone_on_with(
    tier: Tier, tmp_path: Path
) -> None:
    volume = Volume(tmp_path / "v")
    other = stores.open_store(volume.directory / restoring.STAGED)
    stores.put(other, *(stores.message(body=b"of another tier") for _ in range(9)))
    stores.confirm(other)
    other.close()
    await volume.fill(tier.store)
    volume.assert_filled(tier)


async def test_a_filled_volume_is_not_filled_again(tier: Tier, tmp_path: Path) -> None:
    volume = Volume(tmp_path / "v")
    await volume.fill(tier.store)
    tier.store.fault = lambda operation, key: Fault.DENIED
    await volume.fill(tier.store)
    volume.assert_filled(tier)
