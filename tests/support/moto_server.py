"""A real S3 server on loopback for tests: moto, in the environment that `make venv` made for it.

It keeps everything in memory, answers 412 to the loser of a conditional put, and checks no
credentials. What it never does (409, 503, lost answers, denials) is ``fault_proxy``'s part.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gantry_lab.bench.ports import free_ports

PYTHON = Path(sys.prefix) / "moto" / "bin" / "python"
MAIN = Path(__file__).with_name("moto_main.py")
START_TIMEOUT_S = 60
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"}


@contextmanager
def moto_server(log: Path) -> Iterator[int]:
    """The port of a server that ends with the block; its output goes to ``log``."""
    assert PYTHON.exists(), f"{PYTHON} is missing; run make venv."
    (port,) = free_ports(1)
    with log.open("wb") as output:
        command = [str(PYTHON), str(MAIN), str(port)]
        process = subprocess.Popen(command, stdout=output, stderr=output, env=ENVIRONMENT)
        try:
            _wait(process, port, log)
            yield port
        finally:
            process.kill()
            process.wait()


def make_bucket(port: int, name: str = "") -> str:
    """A new bucket's name, if none is given."""
    bucket = name or f"bucket-{uuid.uuid4().hex}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_TIMEOUT_S)
    try:
        connection.request("PUT", f"/{bucket}")
        assert connection.getresponse().status == 200
    finally:
        connection.close()
    return bucket


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        assert process.poll() is None, f"moto ended: {log.read_text(errors='replace')[-2000:]}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"moto did not listen within {START_TIMEOUT_S} s")
