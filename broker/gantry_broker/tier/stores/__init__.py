"""Object stores behind one small contract: a directory, S3.

``contract`` says what the tier needs, ``opening`` makes a store of a URL, ``owner`` proves that the
prefix is ours and that the store creates only once.
"""

from gantry_broker.tier.stores.contract import (
    CREATED,
    DATA_TIMEOUT_S,
    LIST_LIMIT_MAX,
    MANIFEST_TIMEOUT_S,
    Created,
    Creation,
    Found,
    Maybe,
    Store,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from gantry_broker.tier.stores.credentials import Credentials
from gantry_broker.tier.stores.opening import open_store
from gantry_broker.tier.stores.owner import own_prefix
from gantry_broker.tier.stores.posix import PosixStore

__all__ = [
    "CREATED",
    "DATA_TIMEOUT_S",
    "LIST_LIMIT_MAX",
    "MANIFEST_TIMEOUT_S",
    "Created",
    "Creation",
    "Credentials",
    "Found",
    "Maybe",
    "PosixStore",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "open_store",
    "own_prefix",
]
