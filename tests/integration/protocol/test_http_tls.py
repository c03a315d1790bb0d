"""TLS at an HTTP port: probes and metrics without it, everything else with it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from gantry_protocol.errors import MemberRefused
from gantry_protocol.member_tls import asking
from gantry_protocol.member_tls.asking import FileTrust
from gantry_protocol.process import strangers
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.tls import contexts
from support.certificates import MemberAuthority
from support.http_site import LARGE, TOKEN, URI, Site, serving
from support.patience import PATIENCE_S


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_probes_and_metrics_need_no_tls_and_have_it(
    tmp_path: Path, mode: str, path: str
) -> None:
    async with serving(Site(tmp_path, mode)) as site:
        assert (await site.ask("GET", path))[0] == 200
        assert (await site.ask("GET", path, tls=await site.context()))[0] == 200
        assert site.tls.refused["plain"] == site.tls.plain_accepted == 0


async def test_admin_request_without_tls_is_refused_while_enforced(tmp_path: Path) -> None:
    """Whatever token it shows: nobody is to learn by it whether that is the right one."""
    async with serving(Site(tmp_path, "enforcing")) as site:
        for headers in (TOKEN, {"Authorization": "Bearer wrong"}, {}):
            status, body = await site.ask("POST", "/v1/echo", data=b"a", headers=headers)
            assert (status, b"TLS_NEEDED" in body) == (403, True)
            assert b"--member-tls-ca-file" in body
        assert site.tls.refused["plain"] == 3
        assert site.tls.plain_accepted == 0


async def test_admin_request_without_tls_is_served_and_counted_while_permissive(
    tmp_path: Path,
) -> None:
    async with serving(Site(tmp_path, "permissive")) as site:
        assert await site.ask("POST", "/v1/echo", data=b"a", headers=TOKEN) == (200, b"a")
        assert (await site.ask("POST", "/v1/echo", data=b"a"))[0] == 401
        assert (site.tls.plain_accepted, site.tls.refused["plain"]) == (1, 0)


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_admin_request_by_tls_needs_the_token_and_nothing_else(
    tmp_path: Path, mode: str
) -> None:
    async with serving(Site(tmp_path, mode)) as site:
        tls = await site.context()
        got = await site.ask("POST", "/v1/echo", tls=tls, data=LARGE, headers=TOKEN)
        assert got == (200, LARGE)
        assert (await site.ask("POST", "/v1/echo", tls=tls, data=b"a"))[0] == 401
        assert site.tls.plain_accepted == 0


async def test_older_tls_of_scrapers_is_spoken(tmp_path: Path) -> None:
    async with serving(Site(tmp_path, "enforcing")) as site:
        context = ssl.create_default_context(cafile=str(site.authority.file))
        context.check_hostname = False
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert (await site.ask("GET", "/metrics", tls=context))[0] == 200


async def test_stream_by_tls_goes_on_and_ends_with_its_reader(tmp_path: Path) -> None:
    async with serving(Site(tmp_path, "enforcing")) as site:
        url = f"https://127.0.0.1:{site.port}/v1/stream"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, ssl=await site.context(), headers=TOKEN) as answer,
        ):
            for _ in range(20):
                assert await answer.content.readline() == b"a line\n"
            answer.close()
        await until(lambda: site.server.connections == 0)


async def test_new_certificate_is_shown_from_the_next_connection_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "LOOK_S", 0.0)
    async with serving(Site(tmp_path, "enforcing")) as site:
        url = f"https://127.0.0.1:{site.port}/v1/echo"
        tls = await site.context()

        def shown(answer: aiohttp.ClientResponse) -> str:
            assert answer.connection is not None
            assert answer.connection.transport is not None
            peer = answer.connection.transport.get_extra_info("peercert")
            return str(cast(dict[str, Any], peer)["serialNumber"])

        seen = []
        async with aiohttp.ClientSession() as old:
            for _ in range(2):
                for session in (old, aiohttp.ClientSession()):
                    async with session.post(url, data=LARGE, headers=TOKEN, ssl=tls) as answer:
                        seen.append(shown(answer))
                        assert await answer.read() == LARGE
                    if session is not old:
                        await session.close()
                site.authority.issue("c-0", URI, into=site.pair)
        first, second, same, other = seen
        assert first == second == same
        assert other != first
        assert site.tls.reload_failures == 0


async def test_who_does_not_believe_the_controller_leaves_and_is_counted(tmp_path: Path) -> None:
    """asyncio's own TLS leaves without a word, so nobody can tell more of it here."""
    strangers_file = MemberAuthority(tmp_path / "other").file
    async with serving(Site(tmp_path, "enforcing")) as site:
        tls = await FileTrust(strangers_file, "mq").context(fresh=False)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await site.ask("GET", "/v1/echo", tls=tls, headers=TOKEN)
        await until(lambda: site.tls.refused["left"] + site.tls.refused["certificate"] == 1)


async def test_who_holds_a_brokers_certificate_hears_nothing(tmp_path: Path) -> None:
    async with serving(Site(tmp_path, "enforcing", "gantry://mq/broker/prod/orders")) as site:
        with pytest.raises(aiohttp.ClientConnectorCertificateError) as refused:
            await site.ask("POST", "/v1/echo", tls=await site.context(), headers=TOKEN)
        assert "not for gantry://mq/controller" in str(refused.value.certificate_error)
        assert site.tokens == []


async def test_connections_amid_their_handshake_count_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "HEAD_WITHIN_S", 2.0)
    async with serving(Site(tmp_path, "enforcing")) as site:
        stalled = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(5)]
        for _, writer in stalled:
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        await until(lambda: site.server.connections == len(stalled))
        for reader, writer in stalled:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        await until(lambda: site.server.connections == 0)
        assert site.tls.refused["left"] == len(stalled)


async def test_handshake_that_is_none_ends_the_connection(tmp_path: Path) -> None:
    async with serving(Site(tmp_path, "enforcing")) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"\x16GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        await until(lambda: site.server.connections == 0)
        assert site.tls.refused["certificate"] == 1
        assert (await site.ask("GET", "/livez"))[0] == 200


async def test_tls_where_none_is_spoken_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before a head that does not end would."""
    monkeypatch.setattr(strangers, "HEAD_WITHIN_S", 10 * PATIENCE_S)
    server = HttpServer(ready=lambda: (True, ""), token="secret")
    port = await server.start("127.0.0.1", 0)
    tls = await FileTrust(MemberAuthority(tmp_path).file, None).context(fresh=False)
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_S):
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"https://127.0.0.1:{port}/livez", ssl=tls)
    await server.stop()


@pytest.mark.parametrize(
    ("uri", "domain", "said"),
    [
        ("gantry://mq/controller", "mq", ""),
        ("gantry://mq/controller", None, ""),
        ("gantry://other/controller", None, ""),
        ("gantry://other/controller", "mq", "it is for gantry://other/controller, and not for"),
        ("gantry://mq/broker/prod/orders", "mq", "and not for gantry://mq/controller"),
        ("gantry://mq/front/prod", None, "and not for gantry://DOMAIN/controller"),
        ("https://example.org/", None, "it names no member"),
        ("gantry://mq/broker", "mq", "is none of gantry://DOMAIN/controller"),
    ],
)
def test_controllers_are_told_by_their_names(
    tmp_path: Path, uri: str, domain: str | None, said: str
) -> None:
    pair = MemberAuthority(tmp_path).issue("x", uri)
    der = ssl.PEM_cert_to_DER_cert(pair.cert.read_text())
    if not said:
        asking.check_controller(der, domain)
        return
    with pytest.raises(MemberRefused, match=said):
        asking.check_controller(der, domain)
