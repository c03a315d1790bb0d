"""Options of a broker's part in its group's tier, and the uploader made from them."""

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple

from gantry_protocol.errors import ConfigError
from gantry_protocol.tier.keys import Shard, shard

from gantry_broker.log.commit_log import CommitLog
from gantry_broker.tier.calls import Calls
from gantry_broker.tier.core.role import UploadRole
from gantry_broker.tier.core.values import LocalLog, TierLimits
from gantry_broker.tier.room import PackRoom
from gantry_broker.tier.stores.calls import DeadlineCalls
from gantry_broker.tier.stores.contract import Store
from gantry_broker.tier.stores.credentials import CredentialFiles, Credentials
from gantry_broker.tier.stores.late import LateStore
from gantry_broker.tier.stores.opening import open_store
from gantry_broker.tier.uploader import SystemEntropy, Uploader, UploadObserver

_KEYS_IN_URL = re.compile(r"//[^/@]*@")


class TierOptions(NamedTuple):
    """The place of the group's tier, and the cutting of packs.

    Attributes:
        url: of the store, see ``stores.opening``.
        place: of the group in it.
        credentials: for S3.
        limits: how much at once, how long to wait.
        local_bytes: how much of the confirmed log stays on the disk; None keeps everything.
        groups: how many share the process.
        owner: uid of the group, where it takes the tier of another one over; empty for the place's.
        former: uid of the group that owned the tier before; empty for the place's.
    """

    url: str
    place: Shard
    credentials: Credentials | CredentialFiles
    endpoint: str | None
    region: str | None
    limits: TierLimits
    local_bytes: int | None = None
    groups: int = 1
    owner: str = ""
    former: str = ""


def tier_place(cluster: str, uid: str) -> Shard:
    """The group's place in a store.

    Raises:
        ConfigError: one of the names cannot be part of a key.
    """
    try:
        return shard(cluster, uid)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def open_tier(options: TierOptions, calls: DeadlineCalls) -> Store:
    """The store of the tier, with bounds of its own. Whatever is wrong with it, its calls say."""

    def opening() -> Store:
        return open_store(
            options.url,
            options.credentials,
            endpoint=options.endpoint,
            region=options.region,
            calls=calls,
        )

    return LateStore(_KEYS_IN_URL.sub("//", options.url), calls, opening)


def make_uploader(
    options: TierOptions,
    store: Store,
    *,
    group: str,
    writer: str,
    log: CommitLog,
    local: Callable[[], LocalLog],
    observer: UploadObserver,
    failed: Callable[[BaseException], None],
    seen: Callable[[], str],
    line: asyncio.Semaphore,
    room: PackRoom,
) -> Uploader:
    """The uploader of one member; it asks the store nothing before a promotion."""
    role = UploadRole(
        shard=options.place.uid,
        writer=writer,
        entropy=SystemEntropy(),
        limits=options.limits,
        owner=options.owner,
    )
    calls = Calls(store, options.place, group, log, seen, line=line, room=room)
    return Uploader(role, calls, local, observer, failed)
