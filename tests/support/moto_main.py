"""Moto on loopback or a given address, one write at a time; run by the Python of `.venv/moto`.

Moto looks for the object and then writes it, and a thread may come between the two: now and then a
conditional put has two winners. A store that promises to create only once does not do that.
"""

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

_READS = ("GET", "HEAD")


class OneWriteAtATime:
    """A WSGI application around moto's."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in _READS:
            return self._application(environ, start_response)  # type: ignore[no-any-return]
        with self._lock:
            return list(self._application(environ, start_response))


if __name__ == "__main__":
    server = OneWriteAtATime(DomainDispatcherApplication(create_backend_app))
    host = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    run_simple(host, int(sys.argv[1]), server, threaded=True)
