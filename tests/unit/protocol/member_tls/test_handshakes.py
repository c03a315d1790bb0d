"""Members that meet: who is believed, by both sides, and what a stranger gets out of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gantry_protocol.member_tls import arriving, process
from gantry_protocol.member_tls.arriving import PEER_NAMES, REFUSED
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.member_tls.process import MemberTls
from gantry_protocol.member_tls.turns import SLICE_S, HandshakeTurns
from support.certificates import MemberAuthority
from support.member_pipe import BROKER, BROKER_URI, Arrival, Caller, Impostor
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPIRED = timedelta(hours=-1)
HOSTILE = {
    "another kind": ("members", "gantry://mq/front/prod", timedelta(days=1), "name"),
    "another domain": ("members", "gantry://other/broker/prod/orders", timedelta(days=1), "name"),
    "no name of ours": ("members", "https://example.org/", timedelta(days=1), "name"),
    "a malformed name": ("members", "gantry://mq/broker", timedelta(days=1), "name"),
    "another authority": ("strangers", BROKER_URI, timedelta(days=1), "certificate"),
    "expired": ("members", BROKER_URI, EXPIRED, "certificate"),
}


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MemberAuthority]:
    directory = tmp_path_factory.mktemp("authorities")
    return {name: MemberAuthority(directory, name) for name in ("members", "strangers")}


@pytest.fixture(scope="module")
def authority(authorities: dict[str, MemberAuthority]) -> MemberAuthority:
    return authorities["members"]


def member(authority: MemberAuthority, *, mode: str = "enforcing") -> MemberTls:
    tls = MemberTls(authority.settings("broker", BROKER_URI, mode=mode), [BROKER])
    tls.load()
    return tls


@pytest.fixture(params=HOSTILE)
def hostile(
    request: pytest.FixtureRequest, authorities: dict[str, MemberAuthority]
) -> tuple[Impostor, str]:
    whose, uri, ends, kind = HOSTILE[request.param]
    pair = authorities[whose].issue("hostile", uri, ends=ends)
    return Impostor(pair, authorities["members"].file), kind


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Facts of the warnings that are logged."""
    found: list[dict[str, Any]] = []
    log = SimpleNamespace(warning=lambda phrase, **facts: found.append({"phrase": phrase, **facts}))
    monkeypatch.setattr(process, "_log", log)
    return found


def refused(tls: MemberTls) -> Mapping[str, int]:
    return {kind: count for kind, count in tls.refused.items() if count}


async def test_members_meet_and_speak(authority: MemberAuthority) -> None:
    tls = member(authority)
    arrival, caller = Arrival(tls), Caller(member(authority))
    assert await caller.meet(arrival) == ""
    (behind,) = arrival.behind
    caller.inner.transport.write(b"ask")
    behind.transport.writelines([b"an", b"swer"])
    asked, caller.end.said = caller.end.said, b""
    assert b"ask" not in asked
    caller.layer.data_received(await arrival.hear(asked))
    assert (behind.heard, caller.inner.heard) == (b"ask", b"answer")
    for side in (behind, caller.inner):
        assert side.transport.get_extra_info(PEER_NAMES).has(BROKER)
    assert len(arrival.port) == 0
    assert (tls.handshakes, refused(tls)) == (1, {})
    caller.inner.transport.close()
    await arrival.hear(caller.end.said)
    assert behind.has_ended


async def test_listener_hears_nothing_of_a_hostile_dialler(
    authority: MemberAuthority, hostile: tuple[Impostor, str]
) -> None:
    tls = member(authority)
    arrival, caller = Arrival(tls), Caller(hostile[0])
    assert await caller.meet(arrival) != ""
    assert not arrival.behind
    assert arrival.end.is_closed
    assert refused(tls) == {hostile[1]: 1}
    assert len(arrival.port) == 0


async def test_dialler_tells_a_hostile_listener_nothing(
    authority: MemberAuthority, hostile: tuple[Impostor, str]
) -> None:
    arrival, caller = Arrival(hostile[0]), Caller(member(authority))
    assert await caller.meet(arrival) != ""
    assert not hasattr(caller.inner, "transport")
    assert caller.end.is_closed


async def test_dialler_tells_another_group_nothing(authority: MemberAuthority) -> None:
    bills = MemberName(MemberKind.BROKER, "prod", "bills")
    caller = Caller(member(authority), bills)
    why = await caller.meet(Arrival(member(authority)))
    assert why == f"its certificate is for {BROKER_URI}, and not for gantry://mq/broker/prod/bills"
    assert not hasattr(caller.inner, "transport")


async def test_dialler_is_told_why_it_is_not_believed(authorities: Any) -> None:
    front = authorities["members"].issue("front", "gantry://mq/front/prod")
    caller = Caller(Impostor(front, authorities["members"].file))
    why = await caller.meet(Arrival(member(authorities["members"])))
    assert "it says: its certificate is for gantry://mq/front/prod, and not for" in why


async def test_dialler_without_a_certificate_is_refused(
    authority: MemberAuthority, said: list[dict[str, Any]]
) -> None:
    impostor = Impostor(authority.issue("none", "https://none"), authority.file)
    context = process.client_context(authority.file, None, None, None)
    context.set_alpn_protocols([process.ALPN])
    impostor.certificate().dialling = context
    tls = member(authority)
    arrival, caller = Arrival(tls), Caller(impostor)
    assert await caller.meet(arrival) != ""
    assert refused(tls) == {"certificate": 1}
    assert not arrival.behind
    assert said[0]["reason"] == "it shows no certificate"


async def test_who_does_not_speak_as_a_member_is_refused(authority: MemberAuthority) -> None:
    impostor = Impostor(authority.issue("silent", BROKER_URI), authority.file)
    pair = authority.issue("silent", BROKER_URI)
    impostor.certificate().dialling = process.client_context(
        authority.file, pair.cert, pair.key, None
    )
    tls = member(authority)
    arrival = Arrival(tls)
    await Caller(impostor).meet(arrival)
    assert refused(tls) == {"name": 1}
    assert not arrival.behind


@pytest.mark.parametrize("words", [b"GKEY\x01", b"\x00\x00\x00\x05hello"])
async def test_plain_words_are_heard_while_permissive_only(
    authority: MemberAuthority, words: bytes
) -> None:
    tls = member(authority, mode="permissive")
    arrival = Arrival(tls)
    await arrival.hear(words)
    assert arrival.behind[0].heard == words
    assert (tls.plain_accepted, refused(tls), len(arrival.port)) == (1, {}, 0)
    tls = member(authority)
    arrival = Arrival(tls)
    await arrival.hear(words)
    assert not arrival.behind
    assert arrival.end.is_closed
    assert (tls.plain_accepted, refused(tls)) == (0, {"plain": 1})


async def test_certificate_is_judged_while_permissive_too(
    authority: MemberAuthority, hostile: tuple[Impostor, str]
) -> None:
    tls = member(authority, mode="permissive")
    arrival = Arrival(tls)
    await Caller(hostile[0]).meet(arrival)
    assert not arrival.behind
    assert refused(tls) == {hostile[1]: 1}


async def test_stalled_handshake_is_ended(
    authority: MemberAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "SHAKE_WITHIN_S", 0.0)
    tls = member(authority)
    silent, amid = Arrival(tls), Arrival(tls)
    amid.end.protocol.data_received(Caller(member(authority)).end.said[:50])
    await asyncio.sleep(0.01)
    assert silent.end.is_closed
    assert amid.end.is_closed
    assert refused(tls) == {"time": 2}
    assert len(amid.port) == 0


async def test_crowd_of_one_address_gives_way_to_others(
    authority: MemberAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "SHAKING_MAX", 3)
    tls = member(authority)
    other = Arrival(tls, "10.0.0.9")
    crowd = [Arrival(tls, "10.0.0.1", other.port) for _ in range(5)]
    assert [item.end.is_closed for item in crowd] == [True] * 3 + [False] * 2
    assert not other.end.is_closed
    assert refused(tls) == {"crowd": 3}
    assert await Caller(member(authority)).meet(crowd[-1]) == ""
    other.port.close()
    assert other.end.is_closed


async def test_endless_handshake_is_ended(authority: MemberAuthority) -> None:
    tls = member(authority)
    arrival = Arrival(tls)
    record = b"\x16\x03\x01\x40\x00"
    arrival.end.protocol.data_received(record)
    arrival.end.protocol.data_received(bytes(arriving.SHAKING_BYTES_MAX))
    assert arrival.end.is_closed
    assert refused(tls) == {"certificate": 1}


async def test_refusals_are_logged_once_a_second(
    authority: MemberAuthority, said: list[dict[str, Any]]
) -> None:
    tls = member(authority)
    for _ in range(20):
        await Arrival(tls).hear(b"GET / HTTP/1.1")
    assert len(said) == 1
    assert said[0]["peer"] == "10.0.0.1"
    assert refused(tls) == {"plain": 20}


def test_refusal_is_bounded() -> None:
    words = arriving.refusal("x" * 10_000)
    assert words == REFUSED + b"x" * arriving.WHY_BYTES_MAX


class Turn:
    def __init__(self, name: str, served: list[str], clock: list[float]) -> None:
        self._name, self._served, self._clock = name, served, clock

    def take_turn(self) -> None:
        self._served.append(self._name)
        self._clock[0] += SLICE_S / 2


async def test_handshakes_take_turns_by_address_and_leave_time() -> None:
    served: list[str] = []
    clock = [0.0]
    turns = HandshakeTurns(lambda: clock[0])
    for number in range(6):
        turns.wait(Turn(f"flood-{number}", served, clock), "10.0.0.1")
    turns.wait(Turn("member", served, clock), "10.0.0.9")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert served == ["flood-0", "member"]  # then the loop has its time
    assert len(turns) == 5
    async with asyncio.timeout(PATIENCE_S):
        while len(turns):
            await asyncio.sleep(0.001)
    assert served[2:] == [f"flood-{number}" for number in range(1, 6)]


async def test_peer_that_leaves_amid_its_handshake_is_counted(authority: MemberAuthority) -> None:
    tls = member(authority)
    arrival = Arrival(tls)
    caller = Caller(member(authority))
    await arrival.hear(caller.end.said)
    arrival.end.protocol.connection_lost(None)
    assert refused(tls) == {"left": 1}
    assert len(arrival.port) == 0
