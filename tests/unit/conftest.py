"""Files of unit tests lie in memory where there is room.

What is done to a file is the same there, and so is what the tests look at; only that nobody waits
for the medium, which took two thirds of their time. What a medium does to files is tested where it
can be made to do it: in the simulator, and by integration tests on a real disk.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 * 1024**3

with suppress(OSError):
    if shutil.disk_usage(MEMORY).free >= ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
