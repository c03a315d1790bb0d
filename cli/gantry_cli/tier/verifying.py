"""Whether a tier is sound, from its objects alone: the chain, every pack, every byte.

Rule protected: every finding names the object, the offset in it and the reason, in the words of the
decoder that brokers and the pipeline use. Objects that no version names are told and are no fault:
an upload whose commit failed leaves them behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_broker.tier.stores.packs import read_pack
from gantry_protocol.tier.damage import TierObjectError

from gantry_cli.tier.reading import listed, read_chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_broker.tier.stores.contract import Store
    from gantry_protocol.tier.keys import Shard
    from gantry_protocol.tier.manifests import PackEntry


class Finding(msgspec.Struct, frozen=True):
    """One fault."""

    object: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.object}: at byte {self.offset}: {self.reason}"


class Verdict(msgspec.Struct, frozen=True):
    """What was found in one group's tier.

    Attributes:
        v: the newest sound version.
        start, end: the tier holds [start, end).
        packs, records, bytes: what was read.
        findings: faults; none when the tier is sound.
        orphans: objects that no version names.
    """

    v: int
    start: int
    end: int
    packs: int
    records: int
    bytes: int
    findings: tuple[Finding, ...]
    orphans: tuple[str, ...]


async def verify(store: Store, place: Shard, progress: Callable[[int, int], None]) -> Verdict:
    """Read everything of a group; `progress(done, all)` after every pack.

    Raises:
        StoreError: there is no answer.
    """
    chain = await read_chain(store, place)
    state = chain.state
    findings: list[Finding] = []
    if chain.fault:
        findings.append(Finding(place.key(f"man/{state.v + 1:020d}"), 0, chain.fault))
    records = size = 0
    for number, entry in enumerate(state.packs):
        fault = await _pack_fault(store, place, entry)
        if fault is not None:
            findings.append(fault)
        else:
            records, size = records + entry.count, size + entry.size
        progress(number + 1, len(state.packs))
    named = {place.key(entry.key) for entry in state.packs}
    orphans = [found.key async for found in listed(store, place, "pack/") if found.key not in named]
    return Verdict(
        v=state.v,
        start=state.start,
        end=state.end,
        packs=len(state.packs),
        records=records,
        bytes=size,
        findings=tuple(findings),
        orphans=tuple(orphans),
    )


async def _pack_fault(store: Store, place: Shard, entry: PackEntry) -> Finding | None:
    try:
        await read_pack(store, place, entry)
    except TierObjectError as error:
        return Finding(error.key, error.offset, error.reason)
    return None
