"""Reading a tier in a bucket of a real S3 server: everything, damage, and a server that is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gantry_broker.tier.locate import Queue
from gantry_broker.tier.reader import TierReader
from gantry_broker.tier.reading import Local, Messages, Trouble, Wanted
from gantry_broker.tier.stores import CREATED, Credentials, open_store
from gantry_protocol.records import decode_records
from gantry_protocol.types import Offset
from support.moto_server import make_bucket, moto_server
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
        async with asyncio.timeout(20):
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
