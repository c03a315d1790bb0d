"""Small files that readers must see whole, without the price of a sync.

State that must survive power loss goes through ``gantry_protocol.process.files``; what a restarted
cluster makes anew anyway (names, projected files) goes through here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace ``path``: a reader sees the old bytes or the new ones, never a mixture."""
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # exact, whatever the umask
        file.write(data)
    temporary.replace(path)
