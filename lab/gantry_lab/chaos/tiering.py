"""The tier of a group after a run, judged against what its brokers say.

The rule protected here: the truth comes from the brokers and from what was observed during the run,
never from the tier itself. What it refuses: a group whose brokers do not answer; nothing is known
of its tier then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from gantry_broker.tier.stores.contract import DATA_TIMEOUT_S, LIST_LIMIT_MAX
from gantry_broker.tier.stores.opening import open_store
from gantry_chaos.checkers import tier
from gantry_chaos.history.observations import RoleSeen
from gantry_operator import names
from gantry_protocol.errors import EXIT_TEMPORARY, GantryError
from gantry_protocol.hosts import join_address
from gantry_protocol.tier.footer import MAX_PACK_BYTES
from gantry_protocol.tier.keys import ManKey, Shard, parse_key, shard
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, decode_version
from gantry_protocol.types import Epoch, EpochEntry, Offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gantry_broker.tier.stores.contract import Store
    from gantry_broker.tier.stores.credentials import Credentials
    from gantry_chaos.checkers.verdicts import Verdict
    from gantry_chaos.history.observations import Observation
    from gantry_protocol.tier.manifests import Version

OBJECTS_MAX = 100_000  # of one group; a run of minutes makes hundreds
MASTER = "master"
STATUS_TIMEOUT_S = 3.0
_LATER_S = 30.0  # for one object that the checker asks for


class Question(msgspec.Struct, frozen=True, rename="camel"):
    """A question for judgement, as it crosses to a place from which the store can be reached.

    Attributes:
        url, endpoint, region: of the store; None: not given.
        uid: of the group.
        brokers: where each of them tells its status.
        masters: who was master of each epoch, by the name that writers go by.
    """

    url: str
    endpoint: str | None
    region: str | None
    uid: str
    brokers: list[str]
    masters: dict[int, str]


def question(
    wish: Mapping[str, Any],
    uid: str,
    addresses: Iterable[str],
    seen: Iterable[Observation],
) -> Question:
    """The uploads of a group, and those who know better.

    Args:
        wish: `spec.tier` of the group.
        uid: of the group.
        addresses: of its brokers' pods.
        seen: during the run.
    """
    return Question(
        url=wish["url"],
        endpoint=wish.get("endpoint"),
        region=wish.get("region"),
        uid=uid,
        brokers=[
            f"http://{join_address(address, names.BROKER_HTTP_PORT)}/status"
            for address in addresses
        ],
        masters={
            item.epoch: item.broker
            for item in seen
            if isinstance(item, RoleSeen) and item.role == MASTER
        },
    )


async def judge(asked: Question, keys: Credentials) -> Verdict:
    """The verdict of the tier checker.

    The brokers are asked after the tier was read: uploads may go on, and confirm only grows.

    Raises:
        GantryError: the store gives no answer, or no broker calls itself master.
    """
    store = open_store(asked.url, keys, endpoint=asked.endpoint, region=asked.region)
    place = shard((await _master(asked.brokers))["cluster"], asked.uid)
    listing = await _listing(store, place)
    versions = [await _version(store, place, key) for key in listing if _is_version(place, key)]
    master = await _master(asked.brokers)
    loop = asyncio.get_running_loop()

    def get(key: str) -> bytes | None:
        reading = store.get(key, max_bytes=MAX_PACK_BYTES, timeout_s=DATA_TIMEOUT_S)
        return asyncio.run_coroutine_threadsafe(reading, loop).result(_LATER_S)

    truth = tier.Truth(
        Offset(master["confirmOffset"]),
        tuple(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in master["lineage"]),
        asked.masters,
    )
    return await asyncio.to_thread(tier.check, place, versions, listing, get, truth)


async def _master(brokers: Sequence[str]) -> dict[str, Any]:
    """What the newest master says of itself; a broker that does not answer is none."""
    timeout = aiohttp.ClientTimeout(total=STATUS_TIMEOUT_S)
    found: list[dict[str, Any]] = []
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for url in brokers:
            with suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                async with session.get(url) as response:
                    found.append(await response.json())
    return newest(found)


def newest(documents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The status of the master of the highest epoch.

    Raises:
        GantryError: no broker calls itself master.
    """
    masters = [document for document in documents if document.get("role") == MASTER]
    if not masters:
        error = GantryError("No broker calls itself master, so the tier cannot be judged.")
        error.exit_code = EXIT_TEMPORARY
        raise error
    return max(masters, key=lambda item: int(item["epoch"]))


async def _listing(store: Store, place: Shard) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while len(found) < OBJECTS_MAX:
        page = await store.list_keys(place.prefix, after=after, limit=LIST_LIMIT_MAX)
        found += [item.key for item in page]
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
