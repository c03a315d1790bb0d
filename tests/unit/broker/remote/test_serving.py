"""Whom a storage process serves from its store: the master, one broker, of its group, not older."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.clients.consumers import Claim
from gantry_broker.remote import messages as wire
from gantry_broker.remote.connecting import StoreConnection
from gantry_broker.remote.metrics import StoreCollector
from gantry_broker.remote.serving import StoreServer
from gantry_protocol.errors import WireError
from gantry_protocol.types import BrokerId, Epoch

HELLO = wire.Hello("c", "g", Epoch(5), "10.0.0.9:10911")


class Host:
    """A group in epoch 5."""

    claim = Claim(BrokerId(1), Epoch(5), "i")

    def __init__(self) -> None:
        self.serving = self.takes_requests = True
        self.view = type("View", (), {"cluster": "c", "broker_name": "g"})()


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        pytest.param(HELLO, None, id="this epoch"),
        pytest.param(wire.Hello("c", "g", Epoch(4), ""), None, id="an older one"),
        pytest.param(wire.Hello("c", "g", Epoch(6), ""), "epoch 5", id="a newer one"),
        pytest.param(wire.Hello("c", "h", Epoch(5), ""), "you serve c/h", id="another group"),
        pytest.param(wire.Hello("d", "g", Epoch(5), ""), "you serve d/g", id="another cluster"),
    ],
)
def test_who_is_served(hello: wire.Hello, reason: str | None) -> None:
    objection = StoreServer(Host(), lambda: None)._objection(hello)
    assert (objection is None) if reason is None else (reason in (objection or ""))


def test_only_the_master_serves_and_one_broker_at_a_time() -> None:
    host = Host()
    server = StoreServer(host, lambda: None)
    server._served, server.address = object(), "10.0.0.8:10911"
    assert server._objection(HELLO) == "the broker at 10.0.0.8:10911 is served"
    host.takes_requests = False
    assert "cut off" in (server._objection(HELLO) or "")
    host.serving = False
    assert server._objection(HELLO) == "this is not the master of its group"


async def test_a_broker_does_not_go_back_to_an_older_master() -> None:
    served: Any = None
    connection = StoreConnection(["10.0.0.1:1"], "c", "g", served)
    connection._hello = HELLO
    with pytest.raises(WireError, match="epoch 4 came after one of 5"):
        connection._welcome(served, wire.Welcome(Epoch(4), 2, "j"))
    connection._welcome(served, wire.Welcome(Epoch(5), 2, "j"))
    assert connection.claim == Claim(BrokerId(2), Epoch(5), "j")


def test_what_is_said_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    server = StoreServer(Host(), lambda: None)

    def values() -> dict[str, float]:
        found = StoreCollector(lambda: server).collect()
        return {
            one.name.removeprefix("gantry_broker_store_"): one.samples[0].value for one in found
        }

    assert set(values().values()) == {0.0}
    link: Any = type("Link", (), {"send": print, "close": print, "peer": "p"})()
    monkeypatch.setattr(server, "_dismiss", lambda link, reason: None)
    server._refuse(link, "too late")
    server.sessions += 1
    server._session = type("Session", (), {"unanswered": 3, "stale_rows": 2})()  # type: ignore[assignment]
    assert values() == {
        "served": 1,
        "requests": 3,
        "sessions": 1,
        "refused": 1,
        "stale_offsets": 2,
    }
    assert {one.samples[0].value for one in StoreCollector(lambda: None).collect()} == {0.0}


async def test_the_session_of_a_broker_that_was_lost_ends() -> None:
    told: list[str] = []
    server = StoreServer(Host(), lambda: told.append("changed"))
    link: Any = type("Link", (), {"peer": "p"})()
    session: Any = type("Session", (), {"end": lambda _: told.append("end"), "stale_rows": 2})()
    server._links[link] = None
    server._served, server._session, server.address = link, session, "10.0.0.8:10911"
    server._lost(link, "gone")
    assert told == ["end", "changed"]
    assert (server.is_serving, server.address, server.stale_rows) == (False, "", 2)
