"""Whom a master serves from its store: fronts of its group that knew no newer one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gantry_broker.clients.claim import Claim
from gantry_broker.ha.wire import Frames
from gantry_broker.remote import messages as wire
from gantry_broker.remote import serving
from gantry_broker.remote.connecting import StoreConnection
from gantry_broker.remote.link import StoreLink
from gantry_broker.remote.metrics import StoreCollector
from gantry_broker.remote.reading import ReadSession
from gantry_broker.remote.serving import StoreServer
from gantry_protocol.errors import WireError
from gantry_protocol.member_tls.names import Names
from gantry_protocol.member_tls.process import MemberTls
from gantry_protocol.quorum_key import KeyFile, Purpose
from gantry_protocol.remoting.client import open_connection
from gantry_protocol.types import BrokerId, Epoch
from support.certificates import MemberAuthority

if TYPE_CHECKING:
    from pathlib import Path

HELLO = wire.Hello("c", "g", Epoch(5), "10.0.0.9:10911")


class Host:
    """A group in epoch 5."""

    claim = Claim(BrokerId(1), Epoch(5), "i")

    def __init__(self, name: str = "g") -> None:
        self.serving = self.takes_requests = True
        self.view = type("View", (), {"cluster": "c", "broker_name": name})()


class Link:
    """A front's link; what is told, and whether it was closed."""

    peer = "p"
    names: Names | None = None  # of its certificate

    def __init__(self, server: StoreServer) -> None:
        self.told: list[wire.FromStore] = []
        self._server: Any = server
        server._opened(self)  # type: ignore[arg-type]

    def says(self, message: wire.FromFront) -> None:
        for frame in Frames().feed(wire.encode(message)):
            self._server._received(self, frame)

    def send(self, frame: bytes) -> None:
        self.told += [wire.from_store(one) for one in Frames().feed(frame)]

    def close(self, reason: str) -> None:
        self._server._lost(self, reason)


class Session:
    """Of one front."""

    unanswered = 3

    def __init__(self, host: Any, send: Any, traced: Any = None) -> None:
        self.host = host
        self.heard: list[wire.FromFront] = []
        self.ended = 0

    def open(self) -> None:
        """Nothing is told."""

    def received(self, message: wire.FromFront) -> None:
        self.heard.append(message)

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    """Of the groups `g` and `h`."""
    monkeypatch.setattr(serving, "Session", Session)
    made = StoreServer()
    for name in ("g", "h"):
        host: Any = Host(name)
        made.add(name, host)
    return made


def greeted(server: StoreServer, group: str) -> tuple[Link, Any]:
    """A front of a group, and its session."""
    link = Link(server)
    link.says(wire.Hello("c", group, Epoch(5), "10.0.0.9:10911"))
    return link, server.sessions(group)[-1]


@pytest.mark.parametrize(
    ("mode", "uri", "reason"),
    [
        ("enforcing", "gantry://mq/front/c", None),
        ("enforcing", "gantry://mq/front/d", "certificate is not for that cluster"),
        ("enforcing", None, "certificate is not for that cluster"),
        ("permissive", "gantry://mq/front/d", "certificate is not for that cluster"),
        ("permissive", None, None),
    ],
)
async def test_front_is_of_the_cluster_in_its_certificate(
    server: StoreServer, tmp_path: Path, mode: str, uri: str | None, reason: str | None
) -> None:
    settings = MemberAuthority(tmp_path).settings("broker", "gantry://mq/broker/c/g", mode=mode)
    server.gate.key = KeyFile(None, MemberTls(settings))
    link = Link(server)
    link.names = None if uri is None else Names.of([uri])
    link.says(HELLO)
    if reason is None:
        assert (len(server.sessions("g")), link.told) == (1, [])
    else:
        (farewell,) = link.told
        assert isinstance(farewell, wire.Farewell)
        assert reason in farewell.reason
        assert not server.sessions("g")
        assert server.gate.key.tls.refused["name"] == 1


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        pytest.param(HELLO, None, id="this epoch"),
        pytest.param(wire.Hello("c", "g", Epoch(4), ""), None, id="an older one"),
        pytest.param(wire.Hello("c", "g", Epoch(6), ""), "epoch 5", id="a newer one"),
        pytest.param(wire.Hello("c", "i", Epoch(5), ""), "group i is not open", id="another group"),
        pytest.param(wire.Hello("d", "g", Epoch(5), ""), "you serve d/g", id="another cluster"),
    ],
)
def test_who_is_served(server: StoreServer, hello: wire.Hello, reason: str | None) -> None:
    link = Link(server)
    link.says(hello)
    if reason is None:
        assert (len(server.sessions("g")), link.told) == (1, [])
    else:
        (farewell,) = link.told
        assert isinstance(farewell, wire.Farewell)
        assert reason in farewell.reason
        assert (server.sessions(hello.group), server.refused) == ([], 1)


def test_only_the_master_serves() -> None:
    host: Any = Host()
    assert serving._objection(HELLO, host) is None
    host.takes_requests = False
    assert "cut off" in (serving._objection(HELLO, host) or "")
    host.serving = False
    assert serving._objection(HELLO, host) == "this is not the master of its group"


async def test_a_front_does_not_go_back_to_an_older_master() -> None:
    served: Any = None
    connection = StoreConnection(lambda: "10.0.0.1:1", "c", "g", served)
    connection._hello = HELLO
    with pytest.raises(WireError, match="epoch 4 came after one of 5"):
        connection._welcome(served, wire.Welcome(Epoch(4), "10.0.0.1", 10911))
    connection._welcome(served, wire.Welcome(Epoch(5), "10.0.0.1", 10911))
    assert connection._epoch == 5
    assert connection.store_host == ("10.0.0.1", 10911)


def test_a_link_is_of_the_group_that_it_named(server: StoreServer) -> None:
    (one, of_g), (_, of_h) = greeted(server, "g"), greeted(server, "h")
    assert (of_g.host.view.broker_name, of_h.host.view.broker_name) == ("g", "h")
    one.says(wire.Ping())
    assert (len(of_g.heard), of_h.heard) == (1, [])
    one.says(wire.Hello("c", "h", Epoch(5), ""))  # its session refuses a second one
    assert len(of_g.heard) == 2
    stranger = Link(server)
    with pytest.raises(WireError, match="begins with Hello"):
        stranger.says(wire.Ping())


def test_what_is_said_of_a_store(server: StoreServer) -> None:
    def values(group: str) -> dict[str, float]:
        found = StoreCollector(server, group).collect()
        return {
            one.name.removeprefix("gantry_broker_store_"): one.samples[0].value for one in found
        }

    nothing = {"served": 0, "requests": 0, "sessions": 0}
    assert values("g") == nothing
    greeted(server, "g")
    greeted(server, "g")[0].close("gone")
    assert values("g") == {"served": 1, "requests": 3, "sessions": 2}
    assert values("h") == nothing
    assert {one.samples[0].value for one in StoreCollector(None, "g").collect()} == {0.0}


def test_the_session_of_a_front_that_was_lost_ends_and_no_other(server: StoreServer) -> None:
    (one, its), (_, other) = greeted(server, "g"), greeted(server, "g")
    one.close("gone")
    assert (its.ended, other.ended, server.sessions("g")) == (1, 0, [other])
    one.close("gone")
    assert its.ended == 1


def test_the_fronts_of_a_group_are_dismissed_when_its_mastership_ends(server: StoreServer) -> None:
    fronts = [greeted(server, "g") for _ in range(2)]
    stranger, (_, of_h) = Link(server), greeted(server, "h")
    server.end("g", "no master any more")
    for link, session in fronts:
        assert (session.ended, link.told) == (1, [wire.Farewell("no master any more")])
    assert (of_h.ended, stranger.told, server.sessions("g")) == (0, [], [])
    greeted(server, "g")


def test_a_group_that_takes_no_part_is_not_served_from(server: StoreServer) -> None:
    _, session = greeted(server, "g")
    server.remove("g")
    assert session.ended == 1
    link = Link(server)
    link.says(HELLO)
    assert [type(one) for one in link.told] == [wire.Farewell]
    server.remove("g")


def test_too_many_links_are_refused(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LINKS_MAX", 2)
    links = [Link(server) for _ in range(3)]
    assert [len(link.told) for link in links] == [0, 0, 1]


@pytest.mark.parametrize("is_offered", [True, False])
def test_a_replica_is_read_from_while_it_may_be(server: StoreServer, is_offered: bool) -> None:
    host: Any = server._hosts["g"]
    host.serving = host.takes_requests = False
    host.reads = SimpleNamespace(is_offered=is_offered, topics_version=3)
    link = Link(server)
    link.says(wire.Hello("c", "g", Epoch(0), "", reads=True))
    if is_offered:
        assert link.told[1:] == [wire.Rows(3), wire.State(None, 0, True)]
        assert isinstance(server.sessions("g")[0], ReadSession)
    else:
        assert link.told == [wire.Farewell("this replica serves no reads now")]
    other = Link(server)
    other.says(HELLO)
    assert other.told == [wire.Farewell("this is not the master of its group")]


async def test_permissive_front_is_served_by_an_older_broker(tmp_path: Path) -> None:
    """It has neither a certificate nor a key, and ends what is no frame."""
    settings = MemberAuthority(tmp_path).settings("front", "gantry://mq/front/c")
    key = KeyFile(None, MemberTls(settings))
    older = StoreServer()
    await older.start("127.0.0.1", 0)
    link = StoreLink(
        opened=lambda _: None, received=lambda *_: None, lost=lambda *_: None, holds_back=False
    )
    address = f"127.0.0.1:{older.port}"
    await open_connection(lambda: link, address, 5, key=key, purpose=Purpose.STORE)
    assert key.tls.plain_dials == 1
    link.close("done")
    await older.stop()
