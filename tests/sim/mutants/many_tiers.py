"""Bugs in the tiers of a process of many groups (ADR 0029)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

TIER = "gantry_broker.tier"
CALLS, ROOM, SERVICE, UPLOADER, SETTINGS = (
    f"unit/broker/tier/test_{name}.py"
    for name in ("calls", "room", "service", "uploader", "settings")
)
KEYS = "unit/protocol/tier/test_keys.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edit = Edit(place, text, other)
    return Mutant(name, "many tiers", what, (edit,), UnitTests(killer))


MUTANTS = (
    _mutant(
        "all-groups-at-one-place",
        "the groups of a process write over each other's tier, or halt",
        "gantry_broker.host.server:_tier",
        "shared_uid(uid, group) if settings.hosts_many else uid",
        "uid",
        SETTINGS,
    ),
    _mutant(
        "one-name-for-all-odd-names",
        "two groups whose names cannot be part of a key share a place",
        "gantry_protocol.tier.keys:shared_uid",
        "sha256(group.encode())",
        "sha256(uid.encode())",
        KEYS,
    ),
    _mutant(
        "a-pack-needs-no-room",
        "hundreds of groups have a pack in memory at once",
        f"{TIER}.calls:Calls._cut_in_room",
        "await self._room.take(size_bytes)",
        "self._room.used_bytes += size_bytes",
        CALLS,
    ),
    _mutant(
        "a-pack-that-was-sent-keeps-its-room",
        "after two packs no group uploads any more",
        f"{TIER}.calls:Calls._run",
        "self.settle(holds_pack=False)",
        "pass",
        CALLS,
    ),
    _mutant(
        "a-pack-that-cannot-be-cut-keeps-its-room",
        "a log that rotted ends the uploads of all groups",
        f"{TIER}.calls:Calls._cut_in_room",
        "self._room.give_back(size_bytes)",
        "pass",
        CALLS,
    ),
    _mutant(
        "a-pack-in-hand-has-no-room",
        "packs that wait to be sent are not counted",
        f"{TIER}.calls:Calls.settle",
        "if not holds_pack:",
        "if True:",
        CALLS,
    ),
    _mutant(
        "a-pack-that-was-given-up-keeps-its-room",
        "a demotion takes room from all other groups for ever",
        f"{TIER}.uploader:Uploader._step",
        "self._calls.settle(holds_pack=self.role.holds_pack)",
        "pass",
        UPLOADER,
    ),
    _mutant(
        "a-group-that-ended-keeps-its-room",
        "a group that begins anew leaves less room each time",
        f"{TIER}.uploader:Uploader.stop",
        "self._calls.settle(holds_pack=False)",
        "pass",
        UPLOADER,
    ),
    _mutant(
        "small-packs-first",
        "a large pack waits for as long as small ones come",
        f"{TIER}.room:PackRoom.take",
        "not self._waiting and ",
        "",
        ROOM,
    ),
    _mutant(
        "a-pack-larger-than-the-room-never-goes",
        "a group with large packs uploads nothing",
        f"{TIER}.room:PackRoom._fits",
        "not self.used_bytes or ",
        "",
        ROOM,
    ),
    _mutant(
        "who-gave-up-keeps-room",
        "a group that was demoted in its turn takes room for ever",
        f"{TIER}.room:PackRoom.take",
        "self.give_back(size_bytes)",
        "pass",
        ROOM,
    ),
    _mutant(
        "uploads-wait-at-their-deadlines",
        "calls of many groups time out because of each other",
        f"{TIER}.calls:Calls.run",
        "async with self._line:",
        "if True:",
        CALLS,
    ),
    _mutant(
        "each-index-has-the-whole-memory",
        "three hundred indexes take three hundred times what one may",
        f"{TIER}.shared:SharedTier.runs_left",
        "reader.index.runs.size for reader in self._readers",
        "0 for reader in self._readers",
        SERVICE,
    ),
    _mutant(
        "an-index-that-ended-counts",
        "groups that ended leave less memory for the others",
        f"{TIER}.shared:SharedTier.ends",
        "self._readers.discard(reader)",
        "pass",
        SERVICE,
    ),
    _mutant(
        "all-chains-followed-at-once",
        "a start reads the chains of hundreds of groups into memory together",
        f"{TIER}.reader:TierReader._run",
        "async with self._looks:",
        "if True:",
        SERVICE,
    ),
)
