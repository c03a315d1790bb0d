"""Reading a tier in a bucket of a real S3 server: everything, damage, and a server that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from gantry_broker.tier import reader as reader_module
from gantry_broker.tier.core.locate import Gone, Queue
from gantry_broker.tier.core.losses import Patience
from gantry_broker.tier.core.reading import Answer, Local, Messages, Trouble, Wanted
from gantry_broker.tier.reader import TierReader
from gantry_broker.tier.stores import CREATED, Credentials, open_store
from gantry_protocol.records import decode_records
from gantry_protocol.tier.keys import ManKey
from gantry_protocol.types import Offset
from support.fault_proxy import Strike, fault_proxy
from support.moto_server import make_bucket, moto_server
from support.patience import PATIENCE_S
from support.tier_directory import TierDirectory, messages

CREDENTIALS = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMIK7MDENGbPxRfiCY")
QUEUE = Queue("orders", 1)
PACKS = 5


async def test_a_bucket_is_read_back(tmp_path: Path) -> None:
    files = TierDirectory(tmp_path / "tier")
    files.claim(1)
    packs = [files.append(messages("orders", 40)) for _ in range(PACKS)]
    with moto_server(tmp_path / "log") as port:
        bucket = make_bucket(port)
        store = open_store(f"s3://{bucket}/tier", CREDENTIALS, endpoint=f"http://127.0.0.1:{port}")
        broken = files.place.key(packs[2].key)
        for path in (tmp_path / "tier").rglob("*"):
            if path.is_file():
                name, data = str(path.relative_to(tmp_path / "tier")), path.read_bytes()
                if name == broken:
                    data = data.replace(b"orders-1" * 3, b"orders-x" * 3)
                assert await store.create(name, data) is CREATED
        failed: list[BaseException] = []
        reader = TierReader(
            store, files.place, follow_s=0.1, moved=lambda _chain: None, failed=failed.append
        )
        reader.start()
        async with asyncio.timeout(PATIENCE_S):
            while reader.index.covered < files.state.end:
                await asyncio.sleep(0.01)

        bodies: dict[int, bytes] = {}
        refused = 0
        for offset in range(20 * PACKS):
            answer = await reader.read(
                QUEUE, Wanted(offset, 1, 1 << 20, None), Local(Offset(files.state.end), 1 << 40)
            )
            if isinstance(answer, Messages):
                (record,) = decode_records(answer.body)
                bodies[record.queue_offset] = record.body
            else:
                assert isinstance(answer, Trouble)
                assert answer.lasting
                assert broken in answer.reason
                refused += 1
        assert refused == 20, "a run is refused as a whole"
        said = [sent.body for sent in messages("orders", 40) if sent.queue_id == 1] * PACKS
        assert bodies == {at: said[at] for at in bodies}
        assert len(bodies) + refused == 20 * PACKS
        assert failed == []

    reader.cache._values.clear()
    answer = await reader.read(QUEUE, Wanted(0, 1, 1, None), Local(Offset(0), 1 << 40))
    assert isinstance(answer, Trouble)
    assert not answer.lasting
    await reader.stop()


async def test_a_bucket_that_errs_and_loses_its_oldest_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals, busy answers and broken ones pass; a hole is waited for; a lost beginning ends."""
    monkeypatch.setattr(reader_module, "TROUBLE_S", 0.05)
    files = TierDirectory(tmp_path / "tier")
    files.claim(1)
    packs = [files.append(messages("orders", 8)) for _ in range(PACKS)]
    names = [files.place.key(pack.key) for pack in packs]
    with moto_server(tmp_path / "log") as port:
        async with fault_proxy(port) as proxy:
            url = f"s3://{make_bucket(port)}/tier"
            direct = open_store(url, CREDENTIALS, endpoint=f"http://127.0.0.1:{port}")
            struck = open_store(url, CREDENTIALS, endpoint=f"http://127.0.0.1:{proxy.port}")
            for path in (tmp_path / "tier").rglob("*"):
                if path.is_file():
                    name = str(path.relative_to(tmp_path / "tier"))
                    assert await direct.create(name, path.read_bytes()) is CREATED
            hole = files.path(str(packs[2].key)).read_bytes()
            await direct.delete(names[2])
            proxy.strike("GET", Strike.DENIED, Strike.BUSY_BEFORE, Strike.HALF_ANSWER)
            proxy.strike("GET", *[Strike.CUT_BEFORE] * 4)
            failed: list[BaseException] = []
            reader = TierReader(
                struck,
                files.place,
                follow_s=0.1,
                moved=lambda _chain: None,
                failed=failed.append,
                patience=Patience(first_s=0.05, last_s=0.1, looks=3, over_s=0.3, removed_s=0.1),
            )
            reader.start()

            async def read(offset: int) -> Answer:
                local = Local(Offset(files.state.end), 1 << 40)
                return await reader.read(QUEUE, Wanted(offset, 1, 1 << 20, None), local)

            async def until(holds: Callable[[], bool]) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while not holds():
                        await asyncio.sleep(0.01)

            await until(lambda: reader.index.covered == files.state.end)
            assert isinstance(await read(9), Trouble)
            assert isinstance(await read(4), Messages)
            assert isinstance(await read(12), Messages)
            assert await direct.create(names[2], hole) is CREATED
            await until(lambda: not reader.readable.complaint)
            assert isinstance(await read(9), Messages)

            for name in (names[0], names[1], files.place.key(str(ManKey(1)))):
                await direct.delete(name)
            reader.cache._values.clear()
            assert isinstance(await read(0), Trouble)
            await until(lambda: reader.readable.is_shortened)
            assert await read(0) == Gone(8)
            assert isinstance(await read(8), Messages)
            await reader.stop()
            assert failed == []
