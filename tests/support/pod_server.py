"""A pod's program for tests: a small HTTP server on POD_IP:8000 whose health is a file.

``/ready`` and ``/live`` answer 200 unless the file DATA/unready or DATA/dead exists; anything else
answers the pod's name and how often it was started on this volume. Arguments: ``stubborn`` ignores
SIGTERM, ``fail`` exits with code 3 at once.
"""

from __future__ import annotations

import http.server
import os
import signal
import sys
from pathlib import Path

DATA = Path(os.environ["DATA"])


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with health or identity."""

    def do_GET(self) -> None:
        """Any path."""
        marker = {"/ready": "unready", "/live": "dead"}.get(self.path)
        code = 503 if marker and (DATA / marker).exists() else 200
        body = f"{os.environ['POD_NAME']} {starts}".encode()
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


if "fail" in sys.argv:
    sys.exit("told to fail")
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
counter = DATA / "starts"
starts = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(starts))
print(f"start {starts} on {os.environ['POD_IP']}", flush=True)
http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8000), Handler).serve_forever()
