"""Verification of a tier from its objects alone: the chain, every pack, every byte.

The judgement is the protocol's, the same that the audit and the experiments pass; here is only
read. Objects that no version names are notes and no faults: an upload whose commit failed leaves
them behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_broker.tier.stores.contract import DATA_TIMEOUT_S
from gantry_protocol.tier.findings import FAULT, Finding, sort_key
from gantry_protocol.tier.footer import MAX_PACK_BYTES
from gantry_protocol.tier.judgement import Queues, judge_pack, missing_pack

from gantry_cli.tier.reading import listed, read_chain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_broker.tier.stores.contract import Store
    from gantry_protocol.tier.footer import Footer
    from gantry_protocol.tier.judgement import Judgement, Listed
    from gantry_protocol.tier.keys import Shard
    from gantry_protocol.tier.manifests import Claim


class VerifyProgress(msgspec.Struct, frozen=True):
    """The progress of a verification."""

    packs: int
    packs_all: int
    bytes: int
    bytes_all: int


class TierVerdict(msgspec.Struct, frozen=True):
    """The findings in one group's tier.

    Attributes:
        v: the newest sound version.
        start, end: the tier holds [start, end).
        packs, records, bytes: that are named, and that were read and are sound.
        findings: faults; none when the tier is sound.
        notes: what is worth knowing, as packs that no version names.
        claims: every claim, in order: who uploaded from which version and offset on.
    """

    v: int
    start: int
    end: int
    packs: int
    records: int
    bytes: int
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    claims: tuple[Claim, ...]


async def verify(
    store: Store,
    place: Shard,
    progress: Callable[[VerifyProgress], None],
    *,
    confirm: Callable[[], Awaitable[int]] | None = None,
) -> TierVerdict:
    """Read everything of a group; ``progress`` is told after every pack.

    Args:
        store: where the tier is.
        place: of the group in it.
        progress: told after every pack.
        confirm: tells the group's confirm offset, and is asked after the versions were read, since
            both rise all the time; None if it is not known.

    Raises:
        StoreError: there is no answer.
    """
    judgement = await read_chain(store, place)
    judgement.objects([(found.key, found.size) async for found in listed(store, place)])
    if confirm is not None:
        judgement.confirmed(await confirm())
    records, size = await _judge_packs(store, judgement, progress)
    found = sorted(judgement.findings, key=sort_key)
    state = judgement.state
    return TierVerdict(
        v=state.v,
        start=state.first,
        end=state.end,
        packs=len(judgement.packs),
        records=records,
        bytes=size,
        findings=tuple(item for item in found if item.grade == FAULT),
        notes=tuple(item for item in found if item.grade != FAULT),
        claims=tuple(judgement.claims),
    )


async def _judge_packs(
    store: Store, judgement: Judgement, progress: Callable[[VerifyProgress], None]
) -> tuple[int, int]:
    """Read and judge pack by pack; records and bytes of those that are sound."""
    queues = Queues(judgement.place)
    there = {pack.entry.key for pack in judgement.there}
    bytes_all = sum(pack.entry.size for pack in judgement.packs)
    records = size = looked_at = 0
    for number, pack in enumerate(judgement.packs):
        judged = await _judged(store, judgement, pack) if pack.entry.key in there else None
        if judged is None:
            queues.unjudged()
        elif isinstance(judged, Finding):
            judgement.findings.append(judged)
            queues.unjudged()
        else:
            judgement.findings.extend(queues.take(pack, judged))
            records, size = records + pack.entry.count, size + pack.entry.size
        looked_at += pack.entry.size
        progress(VerifyProgress(number + 1, len(judgement.packs), looked_at, bytes_all))
    return records, size


async def _judged(store: Store, judgement: Judgement, pack: Listed) -> Footer | Finding:
    place = judgement.place
    key = place.key(pack.entry.key)
    data = await store.get(key, max_bytes=MAX_PACK_BYTES, timeout_s=DATA_TIMEOUT_S)
    if data is None:  # it went missing after it was listed
        return missing_pack(place, pack)
    return judge_pack(data, place, pack, judgement.state.tail)
