"""One request to a pod by way of the API server: what is asked, and what may fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from gantry_operator.api import kube
from gantry_operator.api.credentials import Credentials
from gantry_operator.api.errors import Denied, NotFound, Unavailable
from gantry_operator.api.kube import KubeApi
from support.port_forward import CHUNK_BYTES, forward
from unit.operator.test_api import kubeconfig

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY = bytes(range(256)) * 1000
"""Of more than one message."""


class Pod:
    """What listens in a pod, and the API server before it."""

    def __init__(self) -> None:
        self.port = 0
        self.url = ""
        self.asked: list[str] = []
        self.refusal = 0
        self.answer: Handler = self.whole

    async def whole(self, _: web.Request) -> web.StreamResponse:
        return web.Response(body=BODY)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        return await self.answer(request)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        assert request.headers["Authorization"] == "Bearer one"
        if self.refusal:
            return web.json_response({"kind": "Status"}, status=self.refusal)
        return await forward(request)


async def started(handler: Handler) -> tuple[web.AppRunner, int]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    found = Pod()
    inside, found.port = await started(found.serve)
    server, port = await started(found.forward)
    found.url = f"http://127.0.0.1:{port}"
    yield found
    await server.cleanup()
    await inside.cleanup()


@pytest.fixture
async def api(pod: Pod, tmp_path: Path) -> AsyncIterator[KubeApi]:
    credentials = Credentials(kubeconfig(tmp_path / "config", pod.url))
    await credentials.load()
    client = KubeApi(credentials)
    yield client
    await client.close()


async def ask(api: KubeApi, pod: Pod, bytes_max: int = 10**6) -> bytes:
    return await api.ask_port("mq", "op-0", pod.port, "/decisions?namespace=a", bytes_max=bytes_max)


async def test_an_answer_of_many_messages(api: KubeApi, pod: Pod) -> None:
    assert len(BODY) > 2 * CHUNK_BYTES
    assert await ask(api, pod) == BODY
    assert pod.asked == [
        f"/api/v1/namespaces/mq/pods/op-0/portforward?ports={pod.port}",
        "/decisions?namespace=a",
    ]


async def test_an_answer_that_is_too_large(api: KubeApi, pod: Pod) -> None:
    with pytest.raises(Unavailable, match="of pod mq/op-0 is larger than 1000 bytes"):
        await ask(api, pod, bytes_max=1000)


async def test_nobody_listens_there(api: KubeApi, pod: Pod) -> None:
    pod.port = 1
    with pytest.raises(Unavailable, match="was not passed on: an error occurred forwarding"):
        await ask(api, pod)


async def test_without_the_right_to_it(api: KubeApi, pod: Pod) -> None:
    pod.refusal = 403
    with pytest.raises(Denied) as caught:
        await ask(api, pod)
    assert caught.value.status == 403


async def test_a_refusal_from_the_pod(api: KubeApi, pod: Pod) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404: Not Found")

    pod.answer = refuse
    with pytest.raises(NotFound, match="404: Not Found"):
        await ask(api, pod)


async def test_an_answer_that_breaks_off(api: KubeApi, pod: Pod) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"x" * 100)
        assert request.transport is not None
        request.transport.close()
        return response

    pod.answer = half
    with pytest.raises(Unavailable, match="broke off"):
        await ask(api, pod)


async def test_an_answer_that_does_not_come(
    api: KubeApi, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError("nobody waits for so long")

    pod.answer = wait
    monkeypatch.setattr(kube, "REQUEST_TIMEOUT_S", 0.2)
    with pytest.raises(Unavailable, match="had no answer within"):
        await ask(api, pod)
