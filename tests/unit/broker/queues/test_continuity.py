"""A power cut took the newest sums, and in their bytes a bit flipped that no record notices."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import google_crc32c
import msgspec
import pytest
from gantry_broker.log import sums
from gantry_broker.log.checked import DamagedError
from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import ReadLimits
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset
from support import logs, stores

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 64 * 1024
QUEUE_ID_OFFSET, QUEUE_OFFSET_OFFSET = 12, 20  # in a record
ALL = ReadLimits(32, 1 << 20)


class Volume:
    """A store with records of a queue, a flush each, that lost its power and its newest sums."""

    def __init__(self, directory: Path) -> None:
        store = MessageStore.open(directory / "first", SEGMENT_BYTES)
        store.take_mastership()
        self.places: list[Offset] = []
        for _ in range(3):
            self._put(store, stores.message())
        store.dispatch(self.places[2])
        for item in (stores.message(), stores.message("U"), stores.message(), stores.message()):
            self._put(store, item)
        self.directory = logs.clone(store.log.directory.parent, directory / "again")
        self.path = self.directory / "commitlog" / f"{0:020d}"
        self.sound = self.path.read_bytes()
        self.end = store.log.end
        shutil.rmtree(self.directory / "kv", ignore_errors=True)
        store.close()

    def _put(self, store: MessageStore, record: MessageRecord) -> None:
        self.places.append(stores.put(store, record)[0].offset)
        store.log.flush()

    def lose_sums(self, kept: int) -> None:
        """All but the oldest ``kept``."""
        path = sums.sums_path(self.path)
        path.write_bytes(path.read_bytes()[: sums.HEADER_BYTES + kept * sums.ENTRY_BYTES])

    def open(self, confirm: int) -> MessageStore:
        """At its next start."""
        return MessageStore.open(self.directory, SEGMENT_BYTES, confirm_floor=Offset(confirm))


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


@pytest.mark.parametrize(
    ("record", "byte"),
    [
        pytest.param(3, QUEUE_ID_OFFSET + 3, id="its queue, which is new by that"),
        pytest.param(3, QUEUE_OFFSET_OFFSET + 7, id="its number"),
        pytest.param(3, QUEUE_OFFSET_OFFSET, id="its number, far away"),
        pytest.param(4, QUEUE_OFFSET_OFFSET + 7, id="the number of the first in its queue"),
        pytest.param(6, QUEUE_ID_OFFSET + 3, id="the last one"),
        pytest.param(4, -1, id="the name of its topic"),
    ],
)
@pytest.mark.parametrize("confirmed", [2, 6])
def test_what_does_not_go_on_is_wanted_anew_at_every_start(
    volume: Volume, record: int, byte: int, confirmed: int
) -> None:
    start = volume.places[record]
    at = start + byte if byte >= 0 else volume.sound.index(b"U", start)
    logs.flip(volume.path, at)
    volume.lose_sums(3)
    for _ in range(2):  # also after a start that noted it
        store = volume.open(volume.places[confirmed])
        (damage,) = store.log.checks.damage.values()
        assert (damage.start, damage.end) == (volume.places[3], volume.end)
        assert damage.crc == sums.UNKNOWN
        assert store.dispatched == volume.places[min(confirmed, 3)]
        assert store.log.end == volume.end
        assert store.get("T", 0, 0, ALL).count == min(confirmed, 3)
        store.take_mastership()
        assert store.in_the_way is not None
        store.close()
    store = volume.open(volume.places[confirmed])
    with pytest.raises(DamagedError):
        store.dispatch(volume.end)
    (damage,) = store.log.checks.damage.values()
    data = volume.sound[damage.start : damage.end]
    assert store.log.mending.overwrite(damage, data)
    store.log.mending.state(damage, google_crc32c.value(data))
    store.log.compare(damage.start, damage.end)
    store.dispatch(volume.end)
    assert store.get("T", 0, 0, ALL).count == 6
    assert store.get("U", 0, 0, ALL).count == 1
    store.close()
    store = volume.open(volume.end)
    assert not store.log.checks.damage
    assert store.dispatched == volume.end
    store.close()


def test_sound_bytes_get_their_sums_again(volume: Volume) -> None:
    volume.lose_sums(1)
    store = volume.open(volume.places[2])
    assert not store.log.checks.damage
    store.dispatch(volume.end)
    assert store.get("T", 0, 0, ALL).count == 6
    store.close()
    assert sums.load(sums.sums_path(volume.path), 0).covered == volume.end


def test_what_has_sums_is_not_doubted(volume: Volume) -> None:
    """It goes on from itself or it is a bug of ours; asking others for the same would hide it."""
    logs.flip(volume.path, volume.places[1] + QUEUE_OFFSET_OFFSET + 7)
    volume.lose_sums(3)
    store = volume.open(volume.places[6])
    (damage,) = store.log.checks.damage.values()
    assert (damage.start, damage.end) == (volume.places[1], volume.places[2])
    assert damage.crc != sums.UNKNOWN
    store.close()


def test_a_segment_of_a_mapped_queue_begins_anywhere(tmp_path: Path) -> None:
    """It was taken for damage, and what had been acknowledged was not served any more."""
    store = MessageStore.open(tmp_path / "first", SEGMENT_BYTES)
    store.take_mastership()
    store.first_offset = lambda topic, queue_id: 40 if queue_id else 0
    stores.put(store, stores.message())
    store.log.flush()
    came = msgspec.structs.replace(stores.message(), queue_id=MAPPED_QUEUES_MAX)
    for _ in range(2):
        stores.put(store, came)
    store.log.flush()
    end = store.log.end
    directory = logs.clone(store.log.directory.parent, tmp_path / "again")
    shutil.rmtree(directory / "kv", ignore_errors=True)
    store.close()
    path = sums.sums_path(directory / "commitlog" / f"{0:020d}")
    path.write_bytes(path.read_bytes()[: sums.HEADER_BYTES])
    again = MessageStore.open(directory, SEGMENT_BYTES, confirm_floor=end)
    again.dispatch(end)
    assert not again.log.checks.damage
    assert again.max_offset(came.topic, MAPPED_QUEUES_MAX) == 42
    again.close()
