"""A broker without a disk, when its store says that it leaves, and when it is lost."""

from __future__ import annotations

import pytest
from gantry_broker.clients.consumers import Claim
from gantry_broker.host.front import FrontServer
from gantry_broker.host.settings import BrokerSettings
from gantry_broker.remote import messages as wire
from gantry_broker.remote.store import RemoteStore
from gantry_broker.store.contract import Refusal
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch

ACCEPTING = wire.State(None, 0, disk_is_full=False)
LEAVING = wire.State(
    Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "it leaves"), 0, disk_is_full=False
)


@pytest.fixture
async def front(monkeypatch: pytest.MonkeyPatch) -> FrontServer:
    """Served by a store that takes everything and says nothing."""
    made = FrontServer(BrokerSettings(group="g", cluster="c", store=["127.0.0.1:1"]))
    made.store_opened(RemoteStore(lambda _: None), Claim(BrokerId(1), Epoch(3), "i"))
    return made


async def test_offsets_are_written_once_the_store_leaves(
    front: FrontServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(front.processor, "flush_offsets", lambda _: written.append("offsets"))
    for state in (ACCEPTING, ACCEPTING, LEAVING, LEAVING):
        front.state_told(state)
    assert written == ["offsets"]
    front.store_lost()


async def test_who_loses_its_store_serves_nobody(
    front: FrontServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    processor = front.processor
    assert processor is not None
    close = processor.close
    monkeypatch.setattr(processor, "close", lambda: (ended.append("processor"), close()))
    monkeypatch.setattr(front.router, "end_sessions", lambda _: ended.append("sessions"))
    front.store_lost()
    assert ended == ["processor", "sessions"]
    assert (front.processor, front.router.processor) == (None, None)
    front.store_lost()
    assert ended == ["processor", "sessions"], "once"
