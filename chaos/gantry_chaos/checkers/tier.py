"""The tier after a run: what the manifest chain promises against what is known otherwise. Pure.

The chain itself (no hole, no overlap, one writer per pair) is checked by folding it. Here it is
compared: with the group's own lineage and confirm offset (nothing was uploaded that was not
confirmed, or that a later master cut off), with who was master (only the master of an epoch commits
under it), with the objects in the bucket (every pack is there and sound), and with the logs of
replicas (the same bytes).

Packs that no version names are orphans: uploads that lost a race. They are told, and are no fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import msgspec
from gantry_protocol.errors import GantryError
from gantry_protocol.tier.chain import advance, empty
from gantry_protocol.tier.keys import PackKey, parse_key, parse_name
from gantry_protocol.tier.packs import rebuild_log

from gantry_chaos.checkers.verdicts import Verdict, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gantry_protocol.tier.chain import ChainState
    from gantry_protocol.tier.keys import Shard
    from gantry_protocol.tier.manifests import PackEntry, Version
    from gantry_protocol.types import EpochEntry

NAME = "tier"


class Truth(msgspec.Struct, frozen=True):
    """What is known of a group besides its tier, after the run.

    Attributes:
        confirm_offset: up to where the group's log is confirmed.
        lineage: of the group's log.
        masters: who was master of each epoch, by the name that writers go by; epochs that are
            missing are not known.
        logs: bytes of replicas' logs by replica: where they begin, and what they are.
    """

    confirm_offset: int
    lineage: tuple[EpochEntry, ...]
    masters: dict[int, str] = {}
    logs: dict[str, tuple[int, bytes]] = {}


def check(
    place: Shard,
    versions: Sequence[Version],
    listing: Sequence[str],
    get: Callable[[str], bytes | None],
    truth: Truth,
) -> Verdict:
    """Whether the tier of one group is what it should be.

    Args:
        place: of the group in the bucket.
        versions: every manifest version, from the first on.
        listing: the keys of all objects below the group's prefix.
        get: reads an object; None: there is none.
        truth: what is known otherwise.
    """
    violations: list[str] = []
    state = empty(place)
    for version in versions:
        try:
            state = advance(state, (version,))
        except GantryError as error:
            violations.append(str(error))
            break
        violations += _writer(version, truth)
    violations += _promises(state, truth)
    for entry in state.packs:
        violations += _pack(place, entry, get, truth)
    names = {place.prefix + entry.key for entry in state.packs}
    packs = [key for key in listing if _is_pack(place, key)]
    violations += _foreign(place, listing)
    if not state.packs:
        violations.append("The tier holds no pack, so nothing is known of uploads.")
    figures: dict[str, int | float | str | bool | None] = {
        "versions": len(versions),
        "packs": len(state.packs),
        "start": state.start,
        "end": state.end,
        "confirmOffset": truth.confirm_offset,
        "claims": len({version.pair for version in versions}),
        "orphans": len(set(packs) - names),
    }
    return verdict(NAME, figures, violations)


def _writer(version: Version, truth: Truth) -> Iterator[str]:
    master = truth.masters.get(version.epoch)
    if master is not None and master != version.writer:
        yield (
            f"Version {version.v} was committed by {version.writer} under epoch {version.epoch}, "
            f"whose master was {master}."
        )


def _promises(state: ChainState, truth: Truth) -> Iterator[str]:
    if state.end > truth.confirm_offset:
        yield f"The tier ends at {state.end}, above the confirm offset {truth.confirm_offset}."
    ours = {entry.epoch: entry.start_offset for entry in truth.lineage}
    for entry in state.lineage:
        start = ours.get(entry.epoch)
        if start != entry.start_offset:
            where = "nowhere" if start is None else f"at {start}"
            yield (
                f"The tier says that epoch {entry.epoch} begins at {entry.start_offset}; in the "
                f"group's lineage it begins {where}."
            )
    told = {entry.epoch for entry in state.lineage}
    for entry in truth.lineage:
        if state.start < entry.start_offset < state.end and entry.epoch not in told:
            yield (
                f"The tier holds bytes from {entry.start_offset} on that are not those of epoch "
                f"{entry.epoch}, which begins there in the group's lineage."
            )


def _pack(
    place: Shard,
    entry: PackEntry,
    get: Callable[[str], bytes | None],
    truth: Truth,
) -> Iterator[str]:
    key = place.prefix + entry.key
    data = get(key)
    if data is None:
        yield f"{key} with the log's [{entry.lo}, {entry.hi}) is missing."
        return
    name = parse_name(entry.key)
    assert isinstance(name, PackKey), "the chain admits no other"
    try:
        log = rebuild_log(data, place, name)
    except GantryError as error:
        yield str(error)
        return
    crc = f"{google_crc32c.value(data):08x}"
    if (len(data), crc) != (entry.size, entry.crc):
        yield (
            f"{key} has {len(data)} bytes with sum {crc}; the manifest says {entry.size} bytes "
            f"with {entry.crc}."
        )
    for replica, (start, local) in truth.logs.items():
        lo, hi = max(start, entry.lo), min(start + len(local), entry.hi)
        if lo < hi and local[lo - start : hi - start] != log[lo - entry.lo : hi - entry.lo]:
            at = next(n for n in range(lo, hi) if local[n - start] != log[n - entry.lo])
            yield f"{key} differs from the log of {replica} at offset {at}."


def _is_pack(place: Shard, key: str) -> bool:
    return isinstance(parse_name(key.removeprefix(place.prefix)), PackKey)


def _foreign(place: Shard, listing: Iterable[str]) -> Iterator[str]:
    for key in listing:
        try:
            parse_key(place, key)
        except GantryError as error:
            yield str(error)
