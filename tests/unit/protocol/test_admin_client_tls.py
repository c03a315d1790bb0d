"""Asking controllers by TLS: the token reaches nobody who was not believed before."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from gantry_protocol.admin_client import quorum
from gantry_protocol.admin_client.admin import Admin
from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import Unreachable
from gantry_protocol.admin_client.quorum import Endpoint, Quorum
from gantry_protocol.admin_client.session import open_session
from gantry_protocol.errors import ConfigError
from gantry_protocol.member_tls.asking import controllers_context
from support.certificates import MemberAuthority
from support.http_site import URI, Site, serving
from support.patience import PATIENCE_S

Asking = Callable[..., Quorum]


class Told:
    """Believes what a test has it believe, the last of it for ever.

    Attributes:
        plainly: see ``Trust``.
        freshly: how often it was to look again.
    """

    def __init__(self, *authorities: MemberAuthority | None, plainly: bool = False) -> None:
        self.plainly = plainly
        self.freshly = 0
        self._contexts = [None if one is None else self._context(one) for one in authorities]

    def _context(self, authority: MemberAuthority) -> ssl.SSLContext:
        return controllers_context(authority.file.read_text(), "mq", "The file")

    async def context(self, *, fresh: bool) -> ssl.SSLContext:
        if fresh:
            self.freshly += 1
            self._contexts = self._contexts[1:] or self._contexts
        found = self._contexts[0]
        if found is None:
            raise ConfigError("Nobody can be believed.")
        return found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with other work, too."""
    for name in ("HANDSHAKE", "ATTEMPT", "CONNECT"):
        monkeypatch.setattr(quorum, f"{name}_TIMEOUT_S", PATIENCE_S)
    for name in ("READ_DEADLINE_S", "DEADLINE_S"):
        monkeypatch.setattr(quorum, name, 2 * PATIENCE_S)


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    session = open_session()

    async def token(fresh: bool) -> str:
        return "secret"

    def made(trust: Told | None, *ports: int) -> Quorum:
        found = [Endpoint(f"c-{n}", "127.0.0.1", port, trust) for n, port in enumerate(ports)]
        return Quorum("gantry", lambda: found, token, session)

    yield made
    await session.close()


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_believed_controller_is_asked_by_tls(
    tmp_path: Path, asking: Asking, mode: str
) -> None:
    async with serving(Site(tmp_path, mode)) as site:
        client = asking(Told(site.authority), site.port)
        assert await client.ask_leader("POST", "/v1/echo", "a") == b"a"
        response = await client.open_stream("/v1/stream")
        assert await response.content.readline() == b"a line\n"
        response.close()
        assert site.tls.plain_accepted == 0
        assert site.tokens == ["Bearer secret"]


@pytest.mark.parametrize(
    ("uri", "of_them", "said"),
    [
        (URI, False, "unable to get local issuer certificate"),
        ("gantry://other/controller", True, "it is for gantry://other/controller, and not for"),
        ("gantry://mq/broker/prod/orders", True, "it is for gantry://mq/broker/prod/orders"),
    ],
    ids=["another authority", "another domain", "a broker"],
)
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_who_is_not_believed_hears_no_token(
    tmp_path: Path, asking: Asking, uri: str, of_them: bool, said: str, mode: str
) -> None:
    """Also no request without TLS, which a permissive one would answer."""
    async with serving(Site(tmp_path / "theirs", mode, uri)) as site:
        other = site.authority if of_them else MemberAuthority(tmp_path, "ours")
        trust = Told(other)
        client = asking(trust, site.port)
        with pytest.raises(QuorumUnreachableError, match=said) as refused:
            await client.ask_leader("POST", "/v1/echo", "a")
        assert "c-0 is not asked, its certificate is not believed" in str(refused.value)
        with pytest.raises(QuorumUnreachableError):
            await client.open_stream("/v1/stream")
        view = await Admin(client, "gantry").view()
        assert isinstance(view, Unreachable)
        assert "its certificate is not believed" in view.reason
        assert site.tokens == []
        assert (site.tls.plain_accepted, site.tls.refused["plain"]) == (0, 0)
        assert trust.freshly == 3, "authorities are read anew once for each question"


async def test_authorities_that_have_changed_are_read_anew(tmp_path: Path, asking: Asking) -> None:
    async with serving(Site(tmp_path / "theirs", "enforcing")) as site:
        trust = Told(MemberAuthority(tmp_path / "old"), site.authority)
        client = asking(trust, site.port)
        assert await client.ask_leader("POST", "/v1/echo", "a") == b"a"
        assert await client.ask_leader("POST", "/v1/echo", "b") == b"b"
        assert trust.freshly == 1


@pytest.mark.parametrize("why", ["it speaks no TLS", "it is not believed", "nobody is believed"])
@pytest.mark.parametrize("plainly", [True, False])
async def test_only_permissive_members_are_asked_without_tls(
    tmp_path: Path, asking: Asking, why: str, plainly: bool
) -> None:
    mode = "disabled" if why == "it speaks no TLS" else "permissive"
    async with serving(Site(tmp_path / "theirs", mode)) as site:
        other = None if why == "nobody is believed" else MemberAuthority(tmp_path, "ours")
        client = asking(Told(other, plainly=plainly), site.port)
        if plainly:
            assert await client.ask_leader("POST", "/v1/echo", "a") == b"a"
            assert site.tls.plain_accepted == (mode == "permissive")
            return
        with pytest.raises(QuorumUnreachableError) as refused:
            await client.ask_leader("POST", "/v1/echo", "a")
        said = str(refused.value)
        words = {
            "it speaks no TLS": "c-0 does not agree to TLS",
            "nobody is believed": "Nobody can",
        }
        assert words.get(why, "its certificate is not believed") in said
        assert said.count(".") == 1, "one sentence"
        assert site.tokens == []


async def test_process_that_is_gone_is_passed_over(tmp_path: Path, asking: Asking) -> None:
    gone = Site(tmp_path / "gone", "enforcing")
    async with serving(gone):
        port = gone.port
    async with serving(Site(tmp_path / "here", "enforcing")) as site:
        client = asking(Told(site.authority, plainly=True), port, site.port)
        assert await client.ask_leader("POST", "/v1/echo", "a") == b"a"
        alone = asking(Told(site.authority, plainly=True), port)
        with pytest.raises(QuorumUnreachableError, match="c-0 cannot be reached"):
            await alone.ask_leader("POST", "/v1/echo", "a")


async def test_who_asks_without_tls_is_told_what_to_do(tmp_path: Path, asking: Asking) -> None:
    async with serving(Site(tmp_path, "enforcing")) as site:
        client = asking(None, site.port)
        with pytest.raises(AdminRefusedError, match=r"TLS_NEEDED.*--member-tls-ca-file"):
            await client.ask_leader("POST", "/v1/echo", "a")
        view = await Admin(client, "gantry").view()
        assert isinstance(view, Unreachable)
        assert "--member-tls-ca-file" in view.reason
