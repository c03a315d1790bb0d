"""The tier after a run: what the manifest chain promises against what is known otherwise. Pure.

The tier by itself (no hole, no overlap, one writer per pair, every pack there and sound, no byte
above confirm, queues that go on) is judged by the protocol, as ``gantry tier verify`` and the audit
do. Here it is compared: with the group's own lineage (nothing was uploaded that a later master cut
off), with who was master (only the master of an epoch commits under it), and with the logs of
replicas (the same bytes).

Packs that no version names are orphans: uploads that lost a race. They are told, and are no fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.tier.findings import NOTE, Finding
from gantry_protocol.tier.judgement import Judgement, Queues, judge_pack, missing_pack
from gantry_protocol.tier.keys import MetaKey, PackKey, parse_name
from gantry_protocol.tier.packs import rebuild_log

from gantry_chaos.checkers.verdicts import Verdict, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gantry_protocol.tier.chain import ChainState
    from gantry_protocol.tier.damage import TierObjectError
    from gantry_protocol.tier.judgement import Listed
    from gantry_protocol.tier.keys import Shard
    from gantry_protocol.tier.manifests import Version
    from gantry_protocol.types import EpochEntry

NAME = "tier"


class Truth(msgspec.Struct, frozen=True):
    """Facts about a group besides its tier, after the run.

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
    versions: Sequence[Version | TierObjectError],
    listing: Sequence[str],
    get: Callable[[str], bytes | None],
    truth: Truth,
) -> Verdict:
    """Whether the tier of one group is what it should be.

    Args:
        place: of the group in the bucket.
        versions: every manifest version, from the first on; an error for one that cannot be read.
        listing: the keys of all objects below the group's prefix.
        get: reads an object; None: there is none.
        truth: what is known otherwise.
    """
    judgement = judge(place, versions, listing, get, truth)
    violations = [_sentence(finding) for finding in judgement.faults]
    sound = [item for item in versions if not isinstance(item, Exception)][: judgement.state.v]
    for version in sound:
        violations += _writer(version, truth)
    violations += _lineage(judgement.state, truth)
    for pack in judgement.there:
        violations += _replicas(place, pack, get, truth)
    if not judgement.packs:
        violations.append("The tier holds no pack, so nothing is known of uploads.")
    figures: dict[str, int | float | str | bool | None] = {
        "versions": len(versions),
        "packs": len(judgement.packs),
        "start": judgement.state.start,
        "end": judgement.state.end,
        "confirmOffset": truth.confirm_offset,
        "claims": len(judgement.claims),
        "orphans": sum(finding.grade == NOTE for finding in judgement.findings),
    }
    return verdict(NAME, figures, violations)


def judge(
    place: Shard,
    versions: Sequence[Version | TierObjectError],
    listing: Sequence[str],
    get: Callable[[str], bytes | None],
    truth: Truth,
) -> Judgement:
    """The tier by itself, and against the confirm offset. Arguments as :func:`check`."""
    judgement = Judgement(place)
    judgement.owner(get(place.key(MetaKey())))
    judgement.versions(versions)
    judgement.objects((key, 0) for key in listing)
    judgement.confirmed(truth.confirm_offset)
    queues = Queues(place)
    there = {pack.entry.key for pack in judgement.there}
    for pack in judgement.packs:
        if pack.entry.key not in there:
            queues.unjudged()
            continue
        data = get(place.key(pack.entry.key))
        judged = (
            missing_pack(place, pack)
            if data is None
            else judge_pack(data, place, pack, judgement.state.tail)
        )
        if isinstance(judged, Finding):
            judgement.findings.append(judged)
            judgement.there.remove(pack)
            queues.unjudged()
        else:
            judgement.findings.extend(queues.take(pack, judged))
    return judgement


def _sentence(finding: Finding) -> str:
    at = "" if finding.byte is None else f" at byte {finding.byte}"
    at += "" if finding.offset is None else f" at offset {finding.offset}"
    return f"{finding.object}{at} ({finding.rule}): {finding.reason}."


def _writer(version: Version, truth: Truth) -> Iterator[str]:
    master = truth.masters.get(version.epoch)
    if master is not None and master != version.writer:
        yield (
            f"Version {version.v} was committed by {version.writer} under epoch {version.epoch}, "
            f"whose master was {master}."
        )


def _lineage(state: ChainState, truth: Truth) -> Iterator[str]:
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


def _replicas(
    place: Shard, pack: Listed, get: Callable[[str], bytes | None], truth: Truth
) -> Iterator[str]:
    """Where a pack that is sound differs from what replicas hold."""
    entry, key = pack.entry, place.key(pack.entry.key)
    near = {
        replica: (start, local)
        for replica, (start, local) in truth.logs.items()
        if max(start, entry.lo) < min(start + len(local), entry.hi)
    }
    name, data = parse_name(entry.key), get(key) if near else None
    if data is None or not isinstance(name, PackKey):
        return
    log = rebuild_log(data, place, name)
    for replica, (start, local) in near.items():
        lo, hi = max(start, entry.lo), min(start + len(local), entry.hi)
        if local[lo - start : hi - start] != log[lo - entry.lo : hi - entry.lo]:
            at = next(n for n in range(lo, hi) if local[n - start] != log[n - entry.lo])
            yield f"{key} differs from the log of {replica} at offset {at}."
