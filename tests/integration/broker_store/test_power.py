"""Processes that are killed while rows are on their way to the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import KeyRead
from gantry_protocol.types import Offset
from support import stores

WRITER = """
import sys
from pathlib import Path
from gantry_broker.queues import MessageStore, dispatcher, message_store
from support import stores

dispatcher.BATCH_ENTRIES = 37
message_store.CHECKPOINT_BYTES = 20_000
store = MessageStore.open(Path(sys.argv[1]), 1 << 16)
store.take_mastership()
number = store.max_offset("T", 0)
while True:
    records = [stores.message("T", 0, b"%d" % number)]
    records += [stores.message(f"Q{number % 5}", number % 40) for _ in range(3)]
    records[0].properties = f"KEYS\\x01k{number}\\x02"
    stores.put(store, *records)
    stores.confirm(store)
    number += 1
    if number % 50 == 0:
        print(number, store.dispatched, flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    """Nothing that was dispatched is missing, and the rows are those of a replay of the log."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    confirmed = (0, 0)
    for round_ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert process.stdout is not None
        for _ in range(2 + (seed + round_) % 3):
            number, offset = process.stdout.readline().split()
            confirmed = int(number), int(offset)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        store = MessageStore.open(tmp_path / "store", 1 << 16, confirm_floor=Offset(confirmed[1]))
        assert store.max_offset("T", 0) >= confirmed[0]
        for wanted in (0, confirmed[0] - 1):
            found = store.find(KeyRead("T", f"k{wanted}", 5, 0, 1 << 62))
            assert found.count == 1
        rows = stores.derived(store)
        floor = store.dispatched
        store.close()
    stores.forget_derived(tmp_path / "store")
    again = MessageStore.open(tmp_path / "store", 1 << 16, confirm_floor=floor)
    assert again.dispatched == floor
    assert stores.derived(again) == rows
    again.close()
