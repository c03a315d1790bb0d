"""One HTTP request from inside a network namespace; prints the body of the answer.

python -m gantry_chaos.inject.ask METHOD URL TIMEOUT_S

Pods of kind cannot be reached from the machine that runs the nodes, but their namespaces can be
entered there. Ends with 1 and a sentence on stderr when there is no answer with status 200.
"""

from __future__ import annotations

import sys
from http.client import HTTPException
from urllib.request import ProxyHandler, Request, build_opener

BODY_BYTES_MAX = 64 << 20


def ask(method: str, url: str, timeout_s: float) -> bytes:
    """The body of the answer.

    Raises:
        OSError: nobody answered, or not with status 200.
    """
    if not url.startswith("http://"):
        raise OSError(f"{url} is no http:// address")
    opener = build_opener(ProxyHandler({}))  # the machine's proxy knows no pods
    request = Request(url, method=method)  # noqa: S310 -- the scheme was checked
    try:
        with opener.open(request, timeout=timeout_s) as response:
            body: bytes = response.read(BODY_BYTES_MAX)
    except HTTPException as error:
        raise OSError(f"{url} did not speak HTTP: {error!r}") from error
    return body


def main() -> None:
    """Read the arguments, ask, print."""
    method, url, timeout_s = sys.argv[1:]
    try:
        body = ask(method, url, float(timeout_s))
    except OSError as error:
        sys.exit(f"{url} was not answered: {error}")
    sys.stdout.buffer.write(body)


if __name__ == "__main__":
    main()
