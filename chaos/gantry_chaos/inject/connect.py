"""One attempt to connect, started inside a namespace: prints `ok MILLISECONDS` or `failed REASON`.

python -m gantry_chaos.inject.connect ADDRESS PORT TIMEOUT_S
"""

from __future__ import annotations

import socket
import sys
import time


def connect(address: str, port: int, timeout_s: float) -> str:
    """Connect and close; what is printed about it."""
    began_s = time.monotonic()
    try:
        with socket.create_connection((address, port), timeout=timeout_s):
            return f"ok {(time.monotonic() - began_s) * 1000:.2f}"
    except OSError as error:
        return f"failed {error}"


def main() -> None:
    """Read the arguments, try, print."""
    address, port, timeout_s = sys.argv[1:]
    sys.stdout.write(f"{connect(address, int(port), float(timeout_s))}\n")


if __name__ == "__main__":
    main()
