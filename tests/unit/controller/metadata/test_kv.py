"""Key-values of the name service: kept, struck, and bounded."""

import pytest
from gantry_controller.metadata import names
from gantry_controller.metadata.events import DeleteKv, PutKv
from gantry_controller.metadata.names import ORDER_NAMESPACE
from gantry_controller.metadata.results import Result
from gantry_protocol.codes import ResponseCode
from hypothesis import given
from hypothesis import strategies as st
from support.metadata_world import World


@pytest.fixture
def world() -> World:
    return World()


def put(world: World, namespace: str = "n", key: str = "k", value: str = "v") -> Result:
    return world.apply(PutKv(namespace=namespace, key=key, value=value))


def delete(world: World, namespace: str = "n", key: str = "k") -> Result:
    return world.apply(DeleteKv(namespace=namespace, key=key))


def kept(world: World) -> dict[str, dict[str, str]]:
    return {name: dict(one.entries) for name, one in world.state.kv.items()}


def test_put_and_put_again(world: World) -> None:
    assert put(world).changed
    assert put(world, key="l").changed
    assert put(world, value="w").changed
    assert not put(world, value="w").changed
    assert kept(world) == {"n": {"k": "w", "l": "v"}}
    assert world.state.kv["n"].version == 3


def test_the_last_key_takes_its_namespace_along(world: World) -> None:
    put(world)
    put(world, key="l")
    assert delete(world).changed
    assert kept(world) == {"n": {"l": "v"}}
    assert delete(world, key="l").changed
    assert kept(world) == {}


@pytest.mark.parametrize(("namespace", "key"), [("n", "other"), ("other", "k")])
def test_deleting_what_is_not_there_succeeds(world: World, namespace: str, key: str) -> None:
    put(world)
    result = delete(world, namespace, key)
    assert (result.ok, result.changed) == (True, False)


@pytest.mark.parametrize(
    ("namespace", "key", "value", "told"),
    [
        ("", "k", "v", "A namespace has 1 to 255 characters, not 0."),
        ("n" * 256, "k", "v", "A namespace has 1 to 255 characters, not 256."),
        ("n", "", "v", "A key has 1 to 255 characters, not 0."),
        ("n", "k", "", "A value has 1 to 65536 characters, not 0."),
        ("n", "k", "v" * 65537, "A value has 1 to 65536 characters, not 65537."),
    ],
)
def test_what_is_too_long_or_blank(
    world: World, namespace: str, key: str, value: str, told: str
) -> None:
    before = world.state.digest()
    result = put(world, namespace, key, value)
    assert (result.code, result.remark) == (ResponseCode.INVALID_PARAMETER, told)
    assert world.state.digest() == before


@pytest.mark.parametrize("order", ["broker-a:8", "broker-a:8;broker.b:4", "|x%_1:9999"])
def test_order_of_a_topic(world: World, order: str) -> None:
    assert put(world, ORDER_NAMESPACE, "Orders", order).changed


@pytest.mark.parametrize(
    "order",
    [
        *("broker-a", "broker-a:", ":8", "broker-a:0", "broker-a:-1", "broker-a:+8", "broker-a:x"),
        *("broker-a:8;", ";broker-a:8", "a:8;;b:8", "a:8, b:8", "a: 8", "a:8 ", "a:8:9", "a:10000"),
        *("a:٣", "a:8\n"),
    ],
)
def test_order_that_clients_cannot_read_is_refused(world: World, order: str) -> None:
    """Java's client would throw with each route of the topic that it is told."""
    result = put(world, ORDER_NAMESPACE, "Orders", order)
    assert result.code == ResponseCode.INVALID_PARAMETER
    assert "broker:queues;broker:queues" in str(result.remark)
    assert put(world, "another", "Orders", order).ok


def test_namespaces_are_bounded(world: World) -> None:
    for number in range(names.NAMESPACES_MAX):
        put(world, f"n{number}")
    result = put(world, "one more")
    assert result.code == ResponseCode.SYSTEM_ERROR
    assert result.remark == "There are 256 namespaces, the most there may be"
    assert put(world, "n0", "l").ok
    delete(world, "n1")
    assert put(world, "one more").ok


def test_keys_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "KEYS_MAX", 2)
    put(world, key="a")
    put(world, key="b")
    assert put(world, key="c").remark == "The namespace n has 2 keys, the most it may have"
    assert put(world, key="b", value="another").ok


def test_characters_are_bounded_over_all_namespaces(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "CHARS_MAX", 10)
    assert put(world, "n", "abc", "de").ok
    assert put(world, "m", "abc", "de").ok
    full = put(world, "n", "abc", "def")
    assert full.code == ResponseCode.SYSTEM_ERROR
    assert full.remark == "Key-values may have 10 characters together; delete some"
    assert put(world, "n", "abc", "x").ok
    assert put(world, "m", "abc", "def").ok
    delete(world, "m", "abc")
    assert put(world, "n", "abc", "1234567").ok
    assert sum(one.chars for one in world.state.kv.values()) == 10


SHORT = st.text("ab", max_size=2)


@given(st.lists(st.tuples(SHORT, SHORT, SHORT | st.none()), max_size=60))
def test_whatever_is_told_a_table_of_texts_is_what_is_kept(
    told: list[tuple[str, str, str | None]],
) -> None:
    """Against a plain dictionary; a refusal changes nothing, and what is counted is there."""
    world, expected = World(), dict[tuple[str, str], str]()
    for namespace, key, value in told:
        digest = world.state.digest()
        if value is None:
            result = delete(world, namespace, key)
            expected.pop((namespace, key), None)
        else:
            result = put(world, namespace, key, value)
            if result.ok:
                expected[namespace, key] = value
        assert result.changed or world.state.digest() == digest
        spaces = world.state.kv.items()
        assert {(name, key): one.entries[key] for name, one in spaces for key in one.entries} == (
            expected
        )
        assert all(one.entries for _, one in spaces)
        counted = sum(len(key) + len(value) for (_, key), value in expected.items())
        assert sum(one.chars for _, one in spaces) == counted
