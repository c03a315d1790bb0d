"""MessageUsers under the real operator: users and their rules, and where secrets may be seen."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest
from gantry_controller.metadata.events import DeleteUser, PutRules, UpdateUser
from gantry_local.apiserver.errors import StatusError
from gantry_operator.api.kinds import EVENT, MESSAGE_USER, SECRET
from gantry_operator.plan import entities as plan
from gantry_operator.reconcile import tables, users
from gantry_protocol.access.rules import User, make_rule
from integration.operator.operator_world import World

Json = dict[str, Any]
CLUSTER = "gantry"
RULE: Json = {"resource": "Topic:orders*", "actions": ["Sub", "Pub"], "sources": ["10.0.0.7/8"]}
OWN = "hush-hush-hush"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others change is seen within a moment."""
    monkeypatch.setattr(tables, "LOOK_S", 0.1)
    monkeypatch.setattr(tables, "FRESH_S", 0.05)
    monkeypatch.setattr(users.UserHand, "check_s", 0.3)
    monkeypatch.setattr(plan, "UNHEARD_CHECK_S", 0.3)


def wish(world: World, name: str = "shop", **spec: Any) -> Json:
    return world.apply(
        {
            "apiVersion": MESSAGE_USER.api_version,
            "kind": MESSAGE_USER.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def keep(world: World, text: str, name: str = "own", key: str = "secretKey") -> None:
    """Somebody makes a Secret."""
    data = {key: base64.b64encode(text.encode()).decode()}
    meta = {"name": name}
    world.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})


def held(world: World, name: str = "shop") -> User | None:
    found: User | None = world.quorum.metadata.state.users.get((CLUSTER, name))
    return found


def secret(world: World, name: str = "shop-user") -> dict[str, str]:
    data = world.require(SECRET, name)["data"]
    return {key: base64.b64decode(text).decode() for key, text in data.items()}


def ready(world: World, name: str = "shop") -> Json:
    return world.condition("Ready", name, MESSAGE_USER)


async def in_place(world: World, name: str = "shop") -> None:
    await world.until(lambda: world.is_true("Ready", name, MESSAGE_USER), f"{name} in place")


def notes(world: World) -> list[str]:
    return [body["message"] for body in world.all(EVENT) if body["reason"] == "DriftUndone"]


async def test_a_user_gets_a_secret_and_its_rules_and_goes_with_its_resource(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with world.operator():
        await world.up()
        wish(world, rules=[RULE])
        await in_place(world)
        made = secret(world)
        assert made["accessKey"] == "shop"
        user = held(world)
        assert user is not None
        assert user.secret == made["secretKey"]
        assert len(user.secret) >= 40
        assert user.rules == (make_rule("Topic:orders*", ["Pub", "Sub"], ["10.0.0.0/8"]),)
        assert world.require(MESSAGE_USER, "shop")["status"]["secret"] == "shop-user"
        wish(world, rules=[{"resource": "Group:billing", "actions": ["Sub"]}], disabled=True)
        await world.until(lambda: held(world) != user, "changed")
        await in_place(world)
        changed = held(world)
        assert changed is not None
        assert ([rule.resource for rule in changed.rules], changed.status) == (
            ["Group:billing"],
            "disable",
        )
        shown = json.dumps([world.all(MESSAGE_USER), world.all(EVENT)]) + caplog.text
        assert made["secretKey"] not in shown
        world.delete(MESSAGE_USER, "shop")
        await world.until(lambda: world.get(MESSAGE_USER, "shop") is None, "the resource goes")
        assert held(world) is None


async def test_a_secret_of_the_owner_is_used_and_followed(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, secretRef={"name": "own", "key": "password"})
        await world.until(lambda: ready(world)["reason"] == "SecretNotUsable", "no Secret")
        assert "create it with the key password" in ready(world)["message"]
        keep(world, "short", key="password")
        await world.until(lambda: "8 to 128" in ready(world)["message"], "too short")
        assert "short" not in ready(world)["message"]
        keep(world, OWN + "\n", key="password")
        await in_place(world)
        assert held(world) == User(OWN)
        keep(world, OWN + "-2", key="password")
        await world.until(lambda: held(world) == User(OWN + "-2"), "followed")
        assert notes(world) == []
        assert world.get(SECRET, "shop-user") is None


async def test_what_others_change_of_a_user_is_undone(world: World) -> None:
    async with world.operator():
        await world.up()
        keep(world, OWN)
        wish(world, secretRef={"name": "own"}, rules=[RULE])
        await in_place(world)
        good = held(world)
        metadata = world.quorum.metadata
        metadata.apply(UpdateUser(cluster=CLUSTER, user="shop", secret="stolen-secret"))
        await world.until(lambda: held(world) == good, "the secret")
        metadata.apply(PutRules(cluster=CLUSTER, user="shop", rules=(make_rule("*", ["All"]),)))
        await world.until(lambda: held(world) == good, "the rules")
        metadata.apply(DeleteUser(cluster=CLUSTER, user="shop"))
        await world.until(lambda: held(world) == good, "the user")
        await world.until(lambda: len(notes(world)) == 3, "each is told")
        assert not any("stolen" in note or OWN in note for note in notes(world))


async def test_a_foreign_secret_and_the_quorums_own_are_not_taken(world: World) -> None:
    async with world.operator():
        await world.up()
        keep(world, OWN, "shop-user")
        wish(world)
        await world.until(lambda: ready(world)["reason"] == "SecretNotUsable", "a stranger's")
        assert "not of this resource" in ready(world)["message"]
        wish(world, "thief", secretRef={"name": "gantry-admin", "key": "token"})
        await world.until(lambda: "quorum's own" in ready(world, "thief")["message"], "refused")
        assert (held(world), held(world, "thief")) == (None, None)


async def test_a_restart_asks_and_writes_nothing(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, rules=[RULE])
        await in_place(world)
    metadata = world.quorum.metadata
    writes = metadata.writes
    version = world.require(MESSAGE_USER, "shop")["metadata"]["resourceVersion"]
    metadata.asked.clear()
    async with world.operator():
        await world.until(
            lambda: sum("/access" in line for line in metadata.asked) > 5, "looked at"
        )
    assert metadata.writes == writes
    assert world.require(MESSAGE_USER, "shop")["metadata"]["resourceVersion"] == version
    assert sum("/check" in line for line in metadata.asked) == 1


async def test_the_last_super_user_is_not_taken_from_a_cluster_that_needs_it(world: World) -> None:
    from gantry_controller.metadata.events import SetAccess

    async with world.operator():
        await world.up()
        wish(world, "root", type="Super")
        await in_place(world, "root")
        world.quorum.metadata.apply(SetAccess(cluster=CLUSTER, enabled=True))
        world.delete(MESSAGE_USER, "root")
        await world.until(lambda: "last super user" in ready(world, "root")["message"], "refused")
        world.quorum.metadata.apply(SetAccess(cluster=CLUSTER, enabled=False))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"userName": "a b"}, "userName"),
        ({"userName": "gantry"}, "quorum's key"),
        ({"type": "Root"}, "type"),
        ({"rules": [{"resource": "Queue:a", "actions": ["Pub"]}]}, "resource"),
        ({"rules": [{"resource": "Topic:a", "actions": []}]}, "actions"),
        ({"rules": [{"resource": "Topic:a", "actions": ["Send"]}]}, "actions"),
        ({"rules": [RULE, RULE]}, "rules"),
        ({"secretRef": {"key": "x"}}, "name"),
    ],
)
async def test_what_cannot_be_a_user_is_refused_when_it_is_applied(
    world: World, spec: Json, why: str
) -> None:
    with pytest.raises(StatusError, match=why):
        wish(world, **spec)


async def test_what_only_the_operator_can_read_is_told(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, rules=[RULE | {"sources": ["300.0.0.1"]}])
        await world.until(lambda: ready(world)["reason"] == "InvalidSpec", "refused")
        assert "IP addresses or networks" in ready(world)["message"]
