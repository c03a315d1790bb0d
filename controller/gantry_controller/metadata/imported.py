"""A broker that is a member of no group here, as the name service knows it."""

import msgspec


class ImportedBroker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A broker of the old kind, which reports itself to the name service (code 103).

    ``state_version`` is the master epoch its report was made in, 0 outside controller mode.
    """

    broker_id: int
    address: str
    ha_address: str | None = None
    state_version: int = 0
