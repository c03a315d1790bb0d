"""The evidence of local retention: nothing is deleted by a chain this log does not continue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import pytest
from gantry_broker.log import CutRefusedError
from gantry_broker.queues import MessageStore
from gantry_broker.retention.core.pins import Pins, pins
from gantry_broker.store.contract import Refusal, SendOutcome
from gantry_broker.tier.core.values import ChainHead, LocalLog, State, Status
from gantry_broker.tier.local_retention import LocalRetention
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import MessageRecord
from gantry_protocol.tier import chain
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.tier.keys import Pair, shard
from gantry_protocol.tier.manifests import Tail
from gantry_protocol.types import Offset
from support import stores
from support.upload_harness import lineage

SEGMENT_BYTES = 2048


class FakeRole:
    """Vouches for what it is told, or for nothing."""

    def __init__(self) -> None:
        self.state = State.STANDBY
        self.status = Status(state=State.STANDBY, reason="why")
        self.vouches = True

    def end_for_trim(self, hint: ChainHead | None) -> Offset | None:
        return hint.end if self.vouches and hint is not None else None


class Host:
    """A member with a real store; confirms at once."""

    def __init__(self, directory: Path) -> None:
        self.store = MessageStore.open(directory, SEGMENT_BYTES)
        self.store.take_mastership()
        self.store_host = stores.HOST
        self.serving = True
        self.refusal: Refusal | None = None
        self.outcome = ResponseCode.SUCCESS
        self.pinned: tuple[Offset, ...] = ()
        self.trimmed: list[Offset] = []
        self.lineage = lineage((1, 0))

    def local_log(self) -> LocalLog:
        log = self.store.log
        return LocalLog(
            log_start=log.log_start,
            end=log.end,
            flushed=log.flushed,
            confirm=self.store.dispatched,
            lineage=self.lineage,
        )

    def pins(self) -> Pins:
        return pins(transactions=self.pinned, parked=None)

    def accepting_writes(self) -> Refusal | None:
        return self.refusal

    def append(self, records: list[MessageRecord], done: Callable[[SendOutcome], None]) -> None:
        self.store.put(records, now_ms=1)
        stores.confirm(self.store)
        done(SendOutcome(self.outcome, "because"))

    def log_trimmed(self, start: Offset) -> None:
        self.trimmed.append(start)


class Bench:
    """A retention with everything it asks."""

    def __init__(self, directory: Path) -> None:
        self.host = Host(directory)
        for _ in range(40):
            stores.put(self.host.store, stores.message(body=bytes(200)))
        stores.confirm(self.host.store)
        self.role = FakeRole()
        self.chain: ChainState = chain.empty(shard("c", "u"))
        self.uploaded()
        self.failed: list[BaseException] = []
        self.retention = LocalRetention(
            self.host,
            self.role,
            chain=lambda: self.chain,
            readable_end=lambda: Offset(self.chain.end),
            local_bytes=0,
            failed=self.failed.append,
        )

    def uploaded(self, **changes: Any) -> None:
        """The tier has everything that is confirmed."""
        store = self.host.store
        offset = store.dispatched
        at = Offset(store._dispatcher.offset)
        units = store._dispatcher.parse(
            store.log.read(store.log.starts[-1], 1 << 20), store.log.starts[-1]
        )
        at, unit = units[-1]
        crc = f"{google_crc32c.value(store.log.read(Offset(at), unit.size)):08x}"
        known = {
            "v": self.chain.v + 2,
            "pair": Pair(1, 1),
            "end": offset,
            "tail": Tail(at=at, size=unit.size, crc=crc),
            "lineage": lineage((1, 0)).entries,
        }
        self.chain = msgspec.structs.replace(self.chain, **{**known, **changes})


@pytest.fixture
def bench(tmp_path: Path):
    made = Bench(tmp_path / "store")
    yield made
    made.host.store.close()


async def test_the_state_is_written_and_then_the_log_trimmed(bench: Bench) -> None:
    store = bench.host.store
    await bench.retention.look()
    assert (bench.retention.states, store.whole_from is not None) == (1, True)
    bench.uploaded()
    await bench.retention.look()
    assert bench.host.trimmed == [store.log.log_start]
    assert 0 < store.log.log_start <= store.whole_from
    assert store.log.log_start == store.log.starts[0]
    assert len(list(store.log.directory.glob("*.sums"))) == len(store.log.starts)
    assert store.local_min_offset("T", 0) > 0
    assert (bench.retention.reason, bench.retention.trims) == ("", 1)


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        pytest.param(lambda b: setattr(b.role, "vouches", False), "standby: why", id="role"),
        pytest.param(lambda b: b.uploaded(lineage=lineage((2, 0)).entries), "differ", id="lineage"),
        pytest.param(lambda b: b.uploaded(end=1 << 30), "lacks", id="shorter than the tier"),
        pytest.param(
            lambda b: b.uploaded(tail=msgspec.structs.replace(b.chain.tail, crc="00000000")),
            "compare them",
            id="other bytes",
        ),
        pytest.param(lambda b: b.uploaded(tail=None), "holds nothing", id="no tail"),
        pytest.param(lambda b: setattr(b.host, "pinned", (Offset(5),)), "from 5", id="pinned"),
    ],
)
async def test_what_keeps_the_log(bench: Bench, spoil: Callable[[Bench], None], word: str) -> None:
    spoil(bench)
    for _ in range(3):
        await bench.retention.look()
    assert word in bench.retention.reason
    assert (bench.host.trimmed, bench.host.store.log.log_start) == ([], 0)
    assert bench.retention.states == 0


async def test_a_replica_waits_for_the_masters_state(bench: Bench) -> None:
    bench.host.serving = False
    await bench.retention.look()
    assert "master" in bench.retention.reason
    assert bench.host.store.log.log_start == 0


async def test_an_unconfirmed_state_is_written_again(bench: Bench) -> None:
    bench.host.outcome = ResponseCode.FLUSH_SLAVE_TIMEOUT
    await bench.retention.look()
    assert "because" in bench.retention.reason
    bench.host.outcome = ResponseCode.SUCCESS
    bench.retention._state_bytes = 0
    bench.host.store._dispatcher.whole_from = None
    await bench.retention.look()
    assert bench.retention.states == 2


async def test_a_fault_ends_the_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from gantry_broker.retention import loop

    monkeypatch.setattr(loop, "LOOK_S", 0)
    bench.chain = None
    await bench.retention._run()
    assert isinstance(bench.failed[0], AttributeError)


async def test_the_tail_is_compared_again_with_every_version(bench: Bench) -> None:
    """That one version was ours does not say that the next is."""
    await bench.retention.look()
    tail = bench.chain.tail
    assert tail is not None
    bench.uploaded(tail=msgspec.structs.replace(tail, crc="00000000"))
    await bench.retention.look()
    assert "compare them" in bench.retention.reason
    assert bench.host.trimmed == []


async def test_a_tail_that_is_not_confirmed_here_is_no_evidence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.retention.look()
    bench.uploaded()
    local = bench.host.local_log()
    tail = bench.chain.tail
    assert tail is not None
    monkeypatch.setattr(
        bench.host,
        "local_log",
        lambda: msgspec.structs.replace(local, confirm=Offset(tail.at + tail.size - 1)),
    )
    await bench.retention.look()
    assert "is not in the confirmed part of this log" in bench.retention.reason
    assert bench.host.trimmed == []


async def test_what_changes_while_queues_are_gone_through_stops_the_trim(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that was told meanwhile to read from the beginning finds it."""
    await bench.retention.look()
    bench.uploaded()
    raise_minimums = bench.host.store.raise_minimums

    def raising(start: Offset):
        bench.host.pinned = (Offset(0),)
        yield from raise_minimums(start)

    monkeypatch.setattr(bench.host.store, "raise_minimums", raising)
    await bench.retention.look()
    assert (bench.host.trimmed, bench.host.store.log.log_start) == ([], 0)
    assert bench.retention.trims == 0


async def test_a_cut_that_is_refused_is_told_and_decided_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gantry_broker.retention import loop

    async def refused() -> None:
        if looks:
            raise RuntimeError("the second look")
        looks.append(1)
        raise CutRefusedError("no file begins there")

    looks: list[int] = []
    monkeypatch.setattr(loop, "LOOK_S", 0)
    monkeypatch.setattr(bench.retention, "look", refused)
    await bench.retention._run()
    assert bench.retention.reason == "no file begins there"
    assert [str(error) for error in bench.failed] == ["the second look"]
