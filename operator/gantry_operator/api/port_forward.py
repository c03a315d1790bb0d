"""One HTTP request to a port of a pod, through the API server's port forwarding.

It reaches what listens on the pod's loopback address alone, which is the point: neither other pods
nor a NetworkPolicy have a say, only the API server, by the right to `pods/portforward`. This is the
form with WebSockets: each message begins with a byte for its channel, 0 for the data of the first
port and 1 for its errors, and the first message of each channel repeats the port.

https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/cri/streaming/portforward/websocket.go
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import aiohttp

from gantry_operator.api.errors import Unavailable, error_of

if TYPE_CHECKING:
    from gantry_operator.api.errors import ApiError

PROTOCOL: Final = "v4.channel.k8s.io"
DATA: Final = 0
_PORT_BYTES: Final = 2
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_LENGTH = re.compile(rb"\r\nContent-Length: *(\d{1,12})\r\n", re.IGNORECASE)


class ForwardedAnswer:
    """The answer to a request, as its messages come.

    Args:
        what: the request, for errors.
        bytes_max: of the whole answer.
    """

    def __init__(self, what: str, bytes_max: int) -> None:
        self._what = what
        self._bytes_max = bytes_max
        self._begun: set[int] = set()
        self._data = bytearray()

    def take(self, message: bytes) -> bool:
        """Takes a message; whether the answer is complete.

        Raises:
            Unavailable: nobody listens there, or it is larger than allowed.
        """
        channel, data = message[0] if message else DATA, message[1:]
        if channel not in self._begun:
            self._begun.add(channel)
            data = data[_PORT_BYTES:]
        if channel == DATA:
            self._data += data
            if len(self._data) > self._bytes_max:
                raise self._broken(f"is larger than {self._bytes_max} bytes")
        elif data:
            raise self._broken(f"was not passed on: {data[:200].decode('utf-8', 'replace')}")
        head, _, body = self._data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        return length is not None and len(body) >= int(length[1])

    def body(self) -> bytes:
        """The body of a complete answer.

        Raises:
            ApiError: it is not complete, or a refusal.
        """
        head, end, body = self._data.partition(b"\r\n\r\n")
        status, length = _STATUS.match(head), _LENGTH.search(head + b"\r\n")
        if not end or status is None or length is None or len(body) < int(length[1]):
            raise self._broken("broke off")
        if int(status[1]) >= 300:
            raise error_of(int(status[1]), bytes(body), {})
        return bytes(body)

    def _broken(self, why: str) -> ApiError:
        return Unavailable(0, "NoConnection", f"the answer to {self._what} {why}")


async def ask(
    forwarded: aiohttp.ClientWebSocketResponse, path: str, answer: ForwardedAnswer
) -> bytes:
    """Asks for a path on an open connection, and gives the body of the answer.

    Raises:
        ApiError: there is no complete answer, or a refusal.
    """
    # HTTP/1.0: nothing comes in chunks, and whoever answers ends the connection.
    await forwarded.send_bytes(
        bytes([DATA]) + f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode()
    )
    async for message in forwarded:
        if message.type is aiohttp.WSMsgType.BINARY and answer.take(message.data):
            break
    return answer.body()
