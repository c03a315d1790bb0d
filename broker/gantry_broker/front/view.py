"""A broker group as a front knows it: by what the master of its store says."""

from gantry_protocol.codes import ResponseCode

from gantry_broker.remote.store import RemoteStore
from gantry_broker.store.contract import Refusal

_SILENT = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. the store has not said yet whether it accepts writes",
)


class FrontView:
    """Implements ``SendView`` over a ``RemoteStore``.

    Args:
        store: whose tables have been told.
        cluster: of the group.
        store_host: where its master can be asked for a record by its offset id.
    """

    def __init__(self, store: RemoteStore, *, cluster: str, store_host: tuple[str, int]) -> None:
        self.store = store
        self.cluster = cluster
        self.store_host = store_host

    def accepting_writes(self) -> Refusal | None:
        """None when the storage process said last that it accepts them; it decides for each."""
        state = self.store.state
        return _SILENT if state is None else state.refusal
