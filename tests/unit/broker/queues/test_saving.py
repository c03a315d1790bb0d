"""What a store does in the background: whoever waits for it hears of its failure."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.queues.saving import Saver


class BrokenStore:
    def flush(self) -> None:
        raise OSError(5, "Input/output error")


def test_rows_that_could_not_be_saved_are_told_of_for_ever() -> None:
    store: Any = BrokenStore()
    saver = Saver(store)
    saver.begin()
    for call in (saver.join, saver.begin, saver.join):
        with pytest.raises(OSError, match="Input/output"):
            call()
