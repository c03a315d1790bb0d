"""Names in DNS, and the addresses that hold while it does not answer."""

import asyncio
import socket
from typing import Any

import aiohttp
import pytest
from gantry_protocol import lookups
from gantry_protocol.admin_client.session import open_session
from gantry_protocol.errors import ResolveError
from gantry_protocol.hosts import HOSTS_VARIABLE, resolve
from gantry_protocol.lookups import ANSWER_WITHIN_S, KNOWN_MAX, OLD, UNDER_WAY_MAX

HOST = "gantry-controller-0.gantry-controller.gantry.svc"
SILENT = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
NO_SUCH_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


class Dns:
    """A name server: `says` is an address, an error, or None, with which it stays silent."""

    def __init__(self) -> None:
        self.says: str | OSError | None = "10.0.0.1"
        self.asked: list[str] = []
        self.asking = self.most = 0

    async def getaddrinfo(self, host: str, port: object, **_: object) -> list[Any]:
        self.asked.append(host)
        self.asking += 1
        self.most = max(self.most, self.asking)
        try:
            await asyncio.sleep(0 if self.says is not None else 30)
        finally:
            self.asking -= 1
        if isinstance(self.says, OSError):
            raise self.says
        if self.says is None:
            raise SILENT
        return [(socket.AF_INET, 0, 0, "", (self.says, 0))]


@pytest.fixture
async def dns(monkeypatch: pytest.MonkeyPatch) -> Dns:
    monkeypatch.delenv(HOSTS_VARIABLE, raising=False)
    made = Dns()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", made.getaddrinfo)
    return made


async def test_a_pod_that_moved_is_found_at_once(dns: Dns) -> None:
    assert await resolve(HOST) == "10.0.0.1"
    dns.says = "10.0.0.2"
    assert await resolve(HOST) == "10.0.0.2"
    assert dns.asked == [HOST, HOST]


async def test_a_name_without_an_answer_keeps_its_address(dns: Dns) -> None:
    before = lookups.outcomes[OLD]
    await resolve(HOST)
    dns.says = SILENT
    assert await resolve(HOST) == "10.0.0.1"
    assert lookups.outcomes[OLD] == before + 1
    dns.says = "10.0.0.2"
    assert await resolve(HOST) == "10.0.0.2"


@pytest.mark.looptime
async def test_silence_is_not_waited_for_longer_than_a_moment(dns: Dns) -> None:
    await resolve(HOST)
    dns.says = None
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await resolve(HOST) == "10.0.0.1"
    assert loop.time() - began_s == pytest.approx(ANSWER_WITHIN_S)


@pytest.mark.looptime
async def test_an_answer_that_comes_late_is_the_next_ones(dns: Dns) -> None:
    await resolve(HOST)
    dns.says = None
    await resolve(HOST)
    dns.says = "10.0.0.2"
    await asyncio.sleep(31)  # until the lookup that was left has ended
    dns.says = SILENT
    assert await resolve(HOST) == "10.0.0.2"


async def test_a_name_that_is_gone_has_no_old_address(dns: Dns) -> None:
    await resolve(HOST)
    dns.says = NO_SUCH_NAME
    with pytest.raises(ResolveError, match="has no address"):
        await resolve(HOST)
    dns.says = SILENT
    with pytest.raises(ResolveError, match="has no address"):
        await resolve(HOST)


async def test_a_name_that_was_never_answered_has_none_either(dns: Dns) -> None:
    dns.says = SILENT
    with pytest.raises(ResolveError, match="Temporary failure"):
        await resolve(HOST)


@pytest.mark.looptime
async def test_lookups_are_few_at_a_time_and_one_of_a_name(dns: Dns) -> None:
    dns.says = None
    hosts = [f"host-{n}" for n in range(2 * UNDER_WAY_MAX)] * 3
    found = await asyncio.gather(*map(resolve, hosts), return_exceptions=True)
    assert all(isinstance(item, ResolveError) for item in found)
    assert dns.most == UNDER_WAY_MAX
    assert len(dns.asked) == 2 * UNDER_WAY_MAX


@pytest.mark.looptime
async def test_who_is_cancelled_leaves_the_lookup_to_others(dns: Dns) -> None:
    dns.says = None
    first = asyncio.create_task(resolve(HOST))
    second = asyncio.create_task(resolve(HOST))
    await asyncio.sleep(1)
    first.cancel()
    dns.says = "10.0.0.2"
    assert await second == "10.0.0.2"
    assert dns.asked == [HOST]


async def test_what_is_remembered_has_a_bound(dns: Dns) -> None:
    for number in range(KNOWN_MAX + 1):
        await resolve(f"host-{number}")
    dns.says = SILENT
    assert await resolve("host-1") == "10.0.0.1"
    with pytest.raises(ResolveError):
        await resolve("host-0")


async def test_http_sessions_find_hosts_in_the_same_way(dns: Dns) -> None:
    dns.says = "127.0.0.9"
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.9", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, open_session() as session:
        for says in ("127.0.0.9", SILENT):
            dns.says = says
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.get(f"http://{HOST}:{port}/")
        dns.says = NO_SUCH_NAME
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://{HOST}:{port}/")
