"""Port forwarding as the API server and the kubelet do it with WebSockets, to this machine's ports.

Every pod's loopback address is that of this machine, unless `pods` names another for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import WSMsgType, web

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
CHUNK_BYTES = 32 * 1024


async def forward(
    request: web.Request, pods: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """GET …/portforward?ports=PORT"""
    if request.headers.get("Accept", "*/*") != "*/*":
        raise web.HTTPNotAcceptable(text="406: Not Acceptable", content_type="text/plain")
    (port,) = [int(text) for text in request.query.getall("ports")]
    socket = web.WebSocketResponse(protocols=(PROTOCOL,))
    await socket.prepare(request)
    assert socket.ws_protocol == PROTOCOL, "nothing else is understood"
    for channel in (DATA, ERROR):
        await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
    try:
        host = (pods or {}).get(request.path.split("/")[-2], "127.0.0.1")
        reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        await socket.send_bytes(bytes([ERROR]) + f"an error occurred forwarding: {error}".encode())
        await socket.close()
        return socket

    async def down() -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await socket.send_bytes(bytes([DATA]) + chunk)
        await socket.close()

    back = asyncio.create_task(down())
    try:
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            assert message.data[0] == DATA, "errors come from the pod's side"
            writer.write(message.data[1:])
    finally:
        back.cancel()
        await asyncio.gather(back, return_exceptions=True)
        writer.close()
    return socket
