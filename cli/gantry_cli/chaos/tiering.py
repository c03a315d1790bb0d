"""The tier of a group after a run, judged against what its brokers say.

The rule protected here: the truth comes from the brokers and from what was observed during the run,
never from the tier itself. What it refuses: a group whose brokers do not answer; nothing is known
of its tier then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from gantry_broker.tier.stores.contract import DATA_TIMEOUT_S, LIST_LIMIT_MAX
from gantry_broker.tier.stores.opening import open_store
from gantry_chaos.checkers import tier
from gantry_chaos.history.observations import RoleSeen
from gantry_protocol.errors import EXIT_TEMPORARY, GantryError
from gantry_protocol.tier.footer import MAX_PACK_BYTES
from gantry_protocol.tier.keys import ManKey, Shard, parse_key, shard
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, decode_version
from gantry_protocol.types import Epoch, EpochEntry, Offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gantry_broker.tier.stores.contract import Store
    from gantry_broker.tier.stores.credentials import Credentials
    from gantry_chaos.checkers.verdicts import Verdict
    from gantry_chaos.history.observations import Observation
    from gantry_protocol.tier.manifests import Version

OBJECTS_MAX = 100_000  # of one group; a run of minutes makes hundreds
MASTER = "master"
_LATER_S = 30.0  # for one object that the checker asks for


class Question(msgspec.Struct, frozen=True, rename="camel"):
    """What is to be judged, as it crosses to where the store can be reached.

    Attributes:
        url, endpoint, region: of the store; None: not given.
        cluster, uid: the place of the group in it.
        confirm_offset, lineage: of the group's log; pairs of epoch and start.
        masters: who was master of each epoch, by the name that writers go by.
    """

    url: str
    endpoint: str | None
    region: str | None
    cluster: str
    uid: str
    confirm_offset: int
    lineage: list[tuple[int, int]]
    masters: dict[int, str]


def question(
    wish: Mapping[str, Any],
    uid: str,
    documents: Iterable[Mapping[str, Any]],
    seen: Iterable[Observation],
) -> Question:
    """What is known of a group besides its tier.

    Args:
        wish: `spec.tier` of the group.
        uid: of the group.
        documents: what its brokers say of themselves.
        seen: during the run.

    Raises:
        GantryError: no broker calls itself master.
    """
    masters = [one for one in documents if one.get("role") == MASTER]
    if not masters:
        error = GantryError("No broker calls itself master, so the tier cannot be judged.")
        error.exit_code = EXIT_TEMPORARY
        raise error
    master = max(masters, key=lambda one: int(one["epoch"]))
    return Question(
        url=wish["url"],
        endpoint=wish.get("endpoint"),
        region=wish.get("region"),
        cluster=master["cluster"],
        uid=uid,
        confirm_offset=master["confirmOffset"],
        lineage=[(epoch, start) for epoch, start in master["lineage"]],
        masters={
            one.epoch: one.broker
            for one in seen
            if isinstance(one, RoleSeen) and one.role == MASTER
        },
    )


async def judge(asked: Question, keys: Credentials) -> Verdict:
    """The verdict of the tier checker.

    Raises:
        GantryError: the store gives no answer.
    """
    store = open_store(asked.url, keys, endpoint=asked.endpoint, region=asked.region)
    place = shard(asked.cluster, asked.uid)
    listing = await _listing(store, place)
    versions = [await _version(store, place, key) for key in listing if _is_version(place, key)]
    loop = asyncio.get_running_loop()

    def get(key: str) -> bytes | None:
        reading = store.get(key, max_bytes=MAX_PACK_BYTES, timeout_s=DATA_TIMEOUT_S)
        return asyncio.run_coroutine_threadsafe(reading, loop).result(_LATER_S)

    truth = tier.Truth(
        Offset(asked.confirm_offset),
        tuple(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in asked.lineage),
        asked.masters,
    )
    return await asyncio.to_thread(tier.check, place, versions, listing, get, truth)


async def _listing(store: Store, place: Shard) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while len(found) < OBJECTS_MAX:
        page = await store.list_keys(place.prefix, after=after, limit=LIST_LIMIT_MAX)
        found += [one.key for one in page]
        if len(page) < LIST_LIMIT_MAX:
            return found
        after = found[-1]
    raise GantryError(f"{store.url} holds more than {OBJECTS_MAX} objects of one group.")


def _is_version(place: Shard, key: str) -> bool:
    try:
        return isinstance(parse_key(place, key), ManKey)
    except GantryError:
        return False  # the checker tells of it


async def _version(store: Store, place: Shard, key: str) -> Version:
    name = parse_key(place, key)
    assert isinstance(name, ManKey), "only those are asked for"
    data = await store.get(key, max_bytes=MAX_OBJECT_BYTES, timeout_s=DATA_TIMEOUT_S)
    return decode_version(data or b"", place, name.v)
