"""Settings of the name service: all of a change or nothing; a default is not kept."""

import pytest
from gantry_controller.metadata.events import ChangeSettings
from gantry_controller.metadata.names import ORDER_IN_ROUTES, ORDER_TO_BROKERS, setting
from gantry_controller.metadata.results import Result
from gantry_protocol.codes import ResponseCode
from support.metadata_world import World

NOT_LIVE = (
    "'supportActingMaster' does not change while name servers run; what does is: "
    "orderMessageEnable, returnOrderTopicConfigToBroker"
)


def change(world: World, **settings: str) -> Result:
    return world.apply(ChangeSettings(settings=settings))


def test_defaults_are_upstreams() -> None:
    state = World().state
    assert not setting(state, ORDER_IN_ROUTES)
    assert setting(state, ORDER_TO_BROKERS)


def test_there_and_back() -> None:
    world = World()
    assert change(world, orderMessageEnable="True", returnOrderTopicConfigToBroker="false").changed
    assert setting(world.state, ORDER_IN_ROUTES)
    assert not setting(world.state, ORDER_TO_BROKERS)
    assert not change(world, orderMessageEnable="true").changed
    assert change(world, orderMessageEnable="false", returnOrderTopicConfigToBroker="true").changed
    assert world.state.settings == {}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("orderMessageEnable", "yes", "orderMessageEnable is true or false, not 'yes'"),
        ("orderMessageEnable", "", "orderMessageEnable is true or false, not ''"),
        ("supportActingMaster", "true", NOT_LIVE),
        ("kvConfigPath", "/", "Can not update config in black list."),
        ("configStorePath", "/", "Can not update config in black list."),
        ("rocketmqHome", "/", "Can not update config in black list."),
        ("configBlackList", "", "Can not update config in black list."),
    ],
)
def test_refusal_changes_nothing(name: str, value: str, told: str) -> None:
    world = World()
    result = change(world, returnOrderTopicConfigToBroker="false", **{name: value})
    assert (result.code, result.remark) == (ResponseCode.NO_PERMISSION, told)
    assert world.state.settings == {}


def test_nothing_to_change_is_no_mistake() -> None:
    result = change(World())
    assert (result.ok, result.changed) == (True, False)
