"""The Secrets of quorums: never written twice, and back as they were after a deletion."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from gantry_operator.api.errors import Unavailable
from gantry_operator.api.kinds import CONTROLLER_GROUP, SECRET
from gantry_operator.cache import Cache, Key
from gantry_operator.reconcile import quorum_secrets
from gantry_operator.reconcile.quorum_secrets import LOOK_INTERVAL_S, Secrets
from gantry_protocol.quorum_key import read_keys
from unit.operator.fake_api import FakeApi
from unit.operator.world import controllers

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
GANTRY = Key("ControllerGroup", "mq", "gantry")
KEY, TOKEN = "gantry-quorum-key", "gantry-admin"


def text(line: str) -> str:
    return base64.b64encode(line.encode()).decode()


def data(api: FakeApi, name: str) -> dict[str, str]:
    found = api.find(SECRET, name)
    assert found is not None
    content: dict[str, str] = found["data"]
    return content


def delete(api: FakeApi, name: str) -> None:
    del api.objects["Secret", "mq", name]


async def made(api: FakeApi, secrets: Secrets) -> None:
    for name in (await secrets.survey("mq", "gantry")).missing:
        await secrets.ensure(controllers(), name)


async def test_a_new_quorum_gets_a_token_and_a_key_of_its_own(tmp_path: Path) -> None:
    api = FakeApi()
    secrets = Secrets(api)
    assert (await secrets.survey("mq", "gantry")).missing == (TOKEN, KEY)
    await made(api, secrets)
    assert (await secrets.survey("mq", "gantry")).missing == ()
    key = base64.b64decode(data(api, KEY)["key"])
    assert data(api, TOKEN)["token"] != text(key.decode())
    file = tmp_path / "key"
    file.write_bytes(key)
    assert read_keys(file) == (key,), "what controllers and brokers read"


@pytest.mark.parametrize(("name", "entry"), [(TOKEN, "token"), (KEY, "key")])
async def test_a_deleted_secret_comes_back_as_it_was(name: str, entry: str) -> None:
    """The processes still have the old content mounted; another one would split them."""
    api = FakeApi()
    secrets = Secrets(api)
    await made(api, secrets)
    before = data(api, name)
    delete(api, name)
    await made(api, secrets)
    assert data(api, name) == before


async def test_what_a_person_wrote_is_what_comes_back() -> None:
    api = FakeApi()
    api.have(SECRET, KEY, data={"key": text("a key that was chosen")})
    secrets = Secrets(api)
    await made(api, secrets)
    assert data(api, KEY) == {"key": text("a key that was chosen")}, "it existed, so it stays"
    api.have(SECRET, KEY, data={"key": text("the old one\nthe new one")})
    assert (await secrets.survey("mq", "gantry")).missing == ()
    delete(api, KEY)
    await made(api, secrets)
    assert data(api, KEY) == {"key": text("the old one\nthe new one")}


async def test_one_that_was_emptied_and_deleted_comes_back_as_the_processes_have_it() -> None:
    api = FakeApi()
    secrets = Secrets(api)
    await made(api, secrets)
    before = data(api, KEY)
    api.have(SECRET, KEY, data={"key": ""})
    assert (await secrets.survey("mq", "gantry")).missing == ()
    delete(api, KEY)
    await made(api, secrets)
    assert data(api, KEY) == before


async def test_an_operator_that_never_saw_it_makes_another() -> None:
    api = FakeApi()
    await made(api, Secrets(api))
    before = data(api, KEY)
    delete(api, KEY)
    await made(api, Secrets(api))
    assert data(api, KEY) != before


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_secrets, "KNOWN_MAX", 3)
    api = FakeApi()
    secrets = Secrets(api)
    await made(api, secrets)
    before = data(api, TOKEN)
    for name in (await secrets.survey("mq", "second")).missing:
        await secrets.ensure(controllers("second"), name)
    delete(api, TOKEN)
    await made(api, secrets)
    assert data(api, TOKEN) != before, "the one read longest ago is forgotten"


async def test_a_deletion_is_seen_within_seconds_and_nothing_else_is() -> None:
    api, cache = FakeApi(), Cache()
    secrets = Secrets(api)
    cache.put(CONTROLLER_GROUP, api.have(CONTROLLER_GROUP, "gantry"))
    await made(api, secrets)
    heard: list[Key] = []
    watching = asyncio.create_task(secrets.watch(cache, heard.append))
    await asyncio.sleep(5 * LOOK_INTERVAL_S)
    assert heard == []
    api.refuse("get", SECRET, Unavailable(0, "Timeout", "no answer"))
    await asyncio.sleep(5 * LOOK_INTERVAL_S)
    assert heard == [], "not being told is no deletion"
    api.refuse("get", SECRET, Unavailable(0, "Timeout", "no answer"), times=0)
    delete(api, TOKEN)
    await asyncio.sleep(2 * LOOK_INTERVAL_S)
    assert heard
    assert set(heard) == {GANTRY}
    watching.cancel()


async def test_many_quorums_are_asked_for_at_a_bounded_pace() -> None:
    api, cache = FakeApi(), Cache()
    for n in range(300):
        cache.put(CONTROLLER_GROUP, api.have(CONTROLLER_GROUP, f"gantry-{n}"))
    watching = asyncio.create_task(Secrets(api).watch(cache, lambda _: None))
    await asyncio.sleep(20.0)
    asked = [call for call in api.calls if call.startswith("get Secret")]
    assert len(asked) <= 20 * 20 + 2
    watching.cancel()
