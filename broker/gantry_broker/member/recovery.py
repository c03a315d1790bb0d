"""Recovery of a volume at start: the store, and who wrote which part of it.

Rule protected: a log without its lineage, or shorter than what was confirmed on it, is refused. To
cut it or to guess would turn records that were acknowledged into records that never were.
"""

from pathlib import Path

from gantry_protocol.errors import CorruptionError
from gantry_protocol.types import Offset

from gantry_broker.log.disk import Disks
from gantry_broker.member import lineage_file
from gantry_broker.queues import MessageStore
from gantry_broker.queues.recent_keys import RecentKeys
from gantry_broker.replica import StoredState


def recover(
    directory: Path, segment_size_bytes: int, disks: Disks, recent: RecentKeys | None = None
) -> tuple[MessageStore, StoredState]:
    """The store and the state beside it; blocks while the log is read.

    ``disks``: see ``CommitLog.open``. ``recent``: see ``MessageStore.open``.

    Raises:
        CorruptionError: the volume is damaged.
        DataDirError: it holds something this version cannot read.
    """
    stored = lineage_file.load(directory)
    store = MessageStore.open(
        directory / "store",
        segment_size_bytes,
        confirm_floor=stored.confirm,
        disks=disks,
        recent=recent,
    )
    return store, _checked(directory, store, stored)


def _checked(directory: Path, store: MessageStore, stored: StoredState) -> StoredState:
    """What was stored, with the log's own knowledge of confirm.

    Raises:
        CorruptionError: the log ends below what was confirmed, or nobody knows who wrote it.
    """
    log, path = store.log, directory / lineage_file.FILE
    if log.end > log.log_start and stored.lineage.entry_at(log.log_start) is None:
        raise CorruptionError(
            path, 0, f"no epoch in it covers the log, which reaches from {log.log_start} on"
        )
    confirm = max(stored.confirm, log.confirm_floor, log.log_start)
    if confirm > log.end:
        reason = f"everything below {confirm} was confirmed, and the log ends at {log.end}"
        raise CorruptionError(path, 0, reason)
    return StoredState(stored.epoch, stored.lineage, Offset(confirm))
