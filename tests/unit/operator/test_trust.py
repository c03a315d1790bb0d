"""The controllers that the operator believes, and which of their pods it asks by TLS."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, cast

import pytest
from gantry_operator import names
from gantry_operator.api.errors import ApiError
from gantry_operator.api.kinds import CONTROLLER_GROUP, POD, SECRET
from gantry_operator.builders import controller_objects
from gantry_operator.cache import Cache
from gantry_operator.quorums.directory import Directory
from gantry_operator.quorums.trust import FRESH_S, SecretTrust
from gantry_protocol.errors import ConfigError
from support.certificates import MemberAuthority
from unit.operator.fake_api import FakeApi
from unit.operator.world import controllers

NAME = "members"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> MemberAuthority:
    return MemberAuthority(tmp_path_factory.mktemp("members"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> MemberAuthority:
    return MemberAuthority(tmp_path_factory.mktemp("others"), "others")


def secret(authority: MemberAuthority, uri: str = "gantry://mq/controller") -> dict[str, str]:
    """The entries of a Secret with a new certificate."""
    pair = authority.issue("controllers", uri)
    files = {"tls.crt": pair.cert, "tls.key": pair.key, "ca.crt": authority.file}
    return {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}


class World:
    """A Secret, and the trust in whoever was given it."""

    def __init__(self, data: dict[str, str] | None) -> None:
        self.api = FakeApi()
        self.put(data)
        self.trust = SecretTrust(cast(Any, self.api), "mq", NAME)

    def put(self, data: dict[str, str] | None) -> None:
        self.api.objects.pop((SECRET.kind, "mq", NAME), None)
        if data is not None:
            self.api.have(SECRET, NAME, data=data)

    @property
    def reads(self) -> int:
        return len(self.api.calls)


async def test_context_stays_while_the_authority_does(authority: MemberAuthority) -> None:
    """So that connections are used again, whatever certificate is new."""
    world = World(secret(authority))
    first = await world.trust.context(fresh=False)
    world.put(secret(authority))
    assert await world.trust.context(fresh=True) is first
    assert await world.trust.context(fresh=False) is first
    assert world.reads == 2


@pytest.mark.looptime
async def test_authority_that_was_taken_out_is_believed_for_a_minute_at_most(
    authority: MemberAuthority, other: MemberAuthority
) -> None:
    world = World(secret(authority))
    first = await world.trust.context(fresh=False)
    world.put(secret(other))
    await asyncio.sleep(FRESH_S - 1)
    assert await world.trust.context(fresh=False) is first
    await asyncio.sleep(1)
    assert await world.trust.context(fresh=False) is not first
    assert world.reads == 2


@pytest.mark.parametrize("change", ["another authority", "another domain"])
async def test_change_is_seen_by_who_looks_again(
    authority: MemberAuthority, other: MemberAuthority, change: str
) -> None:
    world = World(secret(authority))
    first = await world.trust.context(fresh=False)
    is_domain = change == "another domain"
    world.put(secret(authority, "gantry://b/controller") if is_domain else secret(other))
    assert await world.trust.context(fresh=True) is not first


BAD: list[tuple[dict[str, Any] | None, str]] = [
    (None, "Secret members cannot be read"),
    ({"ca.crt": None}, "The Secret members has no entry 'ca.crt'"),
    ({"tls.crt": None}, "The Secret members has no entry 'tls.crt'"),
    ({"ca.crt": "%%%"}, "The Secret members is no good"),
    ({"ca.crt": ""}, r"Entry ca.crt of the Secret members holds no certificate in PEM"),
    ({"ca.crt": base64.b64encode(b"x").decode()}, "Entry ca.crt of the Secret members holds no"),
    ({"tls.crt": base64.b64encode(b"x").decode()}, "it holds no certificate in PEM"),
]


def spoilt(authority: MemberAuthority, spoil: dict[str, Any] | None) -> dict[str, str] | None:
    if spoil is None:
        return None
    changed = secret(authority) | spoil
    return {name: text for name, text in changed.items() if text is not None}


@pytest.mark.parametrize(("spoil", "said"), BAD)
async def test_secret_that_is_no_good_is_said_in_a_sentence(
    authority: MemberAuthority, spoil: dict[str, Any] | None, said: str
) -> None:
    world = World(spoilt(authority, spoil))
    with pytest.raises(ConfigError, match=said):
        await world.trust.context(fresh=False)
    world.put(secret(authority))
    await world.trust.context(fresh=False)  # once it is good


@pytest.mark.parametrize("spoil", [spoil for spoil, _ in BAD])
async def test_secret_that_is_spoilt_later_leaves_the_last_good_one(
    authority: MemberAuthority, spoil: dict[str, Any] | None
) -> None:
    world = World(secret(authority))
    first = await world.trust.context(fresh=False)
    world.put(spoilt(authority, spoil))
    assert await world.trust.context(fresh=True) is first


async def test_certificate_of_no_member_is_not_taken(authority: MemberAuthority) -> None:
    world = World(secret(authority, "https://example.org/"))
    with pytest.raises(ConfigError, match="The certificate in the Secret members names no member"):
        await world.trust.context(fresh=False)


async def test_api_server_that_fails_costs_no_trust(authority: MemberAuthority) -> None:
    world = World(secret(authority))
    first = await world.trust.context(fresh=False)
    world.api.refuse("get", SECRET, ApiError(500, "InternalError", "no"))
    assert await world.trust.context(fresh=True) is first


# Of which pods


class Pods:
    """A ControllerGroup and its pods, and the operator's way to them."""

    def __init__(self, mode: str | None) -> None:
        self.cache = Cache()
        self._version = 0
        self.wish(mode)
        self.directory = Directory(
            self.cache, cast(Any, FakeApi()), cast(Any, None), lambda *_: None, lambda *_: None
        )

    def wish(self, mode: str | None) -> None:
        spec = {} if mode is None else {"memberTls": {"secretName": NAME, "mode": mode}}
        self._put(CONTROLLER_GROUP, "gantry", {"spec": spec})

    def pod(self, ordinal: int, **spec: Any) -> None:
        """As the StatefulSet of such a spec makes it."""
        (made,) = [
            one["spec"]["template"]
            for one in controller_objects(controllers(**spec), image="gantry:1")
            if one["kind"] == "StatefulSet"
        ]
        self._put(
            POD,
            f"gantry-controller-{ordinal}",
            {"spec": made["spec"], "status": {"podIP": f"10.0.0.{ordinal}"}},
            labels=made["metadata"]["labels"],
        )

    def _put(self, kind: Any, name: str, body: dict[str, Any], **meta: Any) -> None:
        self._version += 1
        made = {"name": name, "namespace": "mq", "uid": f"u-{name}"}
        made |= {"resourceVersion": str(self._version)}
        self.cache.put(kind, body | {"metadata": made | meta})

    def asked(self) -> list[tuple[str, str | None, bool | None]]:
        """Each pod, the Secret by which it is believed, and whether TLS may be left out."""
        found = self.directory._endpoints("mq", "gantry")
        secrets = {
            id(trust): name for name, trust in self.directory._trusts[("mq", "gantry")].items()
        }
        return [
            (
                endpoint.pod.removeprefix("gantry-controller-"),
                None if endpoint.trust is None else secrets[id(endpoint.trust)],
                None if endpoint.trust is None else endpoint.trust.plainly,
            )
            for endpoint in found
        ]


def test_pods_are_asked_as_they_were_started_while_the_group_changes() -> None:
    world = Pods("Permissive")
    world.pod(0)
    world.pod(1, memberTls={"secretName": NAME})
    world.pod(2, memberTls={"secretName": "others", "mode": "Enforcing"})
    assert world.asked() == [("0", None, None), ("1", NAME, True), ("2", "others", True)]
    world.wish("Enforcing")
    assert world.asked() == [("0", None, None), ("1", NAME, False), ("2", "others", False)]
    world.wish(None)
    assert world.asked() == [("0", None, None), ("1", NAME, True), ("2", "others", True)]


def test_endpoints_are_the_same_each_time() -> None:
    """A hint to another leader is followed by comparing them."""
    world = Pods("Enforcing")
    world.pod(0, memberTls={"secretName": NAME})
    first, second = (world.directory._endpoints("mq", "gantry") for _ in range(2))
    assert first == second


def test_trust_is_forgotten_with_its_group() -> None:
    world = Pods("Enforcing")
    world.pod(0, memberTls={"secretName": NAME})
    assert world.asked()
    world.directory.drop("mq", "gantry")
    assert not world.directory._trusts


@pytest.mark.parametrize(
    ("spec", "secret_name"),
    [
        ({}, None),
        ({"volumes": None}, None),
        ({"volumes": [{"name": "tls", "secret": {"secretName": "a"}}]}, None),
        ({"volumes": [{"name": "member-tls", "secret": {"secretName": "a"}}]}, "a"),
        ({"volumes": [{"name": "member-tls", "emptyDir": {}}]}, None),
    ],
)
def test_secret_of_a_pod(spec: dict[str, Any], secret_name: str | None) -> None:
    assert names.member_secret({"spec": spec}) == secret_name
