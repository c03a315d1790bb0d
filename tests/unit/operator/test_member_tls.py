"""`spec.memberTls`: every member gets the Secret and settings that it takes; doors get none."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.front import FrontSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_controller.settings import ControllerSettings
from gantry_operator.builders import broker_objects, controller_objects, front_objects
from gantry_operator.models import InvalidSpecError
from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.process.config import Settings, load_settings
from gantry_protocol.tls.settings import TlsMode
from unit.operator.world import brokers, controllers, fronts

SECRET = "members"
MODELS: dict[str, type[Settings]] = {
    "broker": BrokerSettings,
    "front": FrontSettings,
    "controller": ControllerSettings,
}
PLACE = "/etc/gantry/member-tls"


def pods(**spec: Any) -> list[dict[str, Any]]:
    """The pods of one group of each kind."""
    quorum = controllers(**spec)
    built = [
        *broker_objects(brokers(**spec), quorum, image="gantry:1", replicas=3),
        *front_objects(fronts(**spec), quorum, image="gantry:1"),
        *controller_objects(quorum, image="gantry:1"),
    ]
    return [one["spec"]["template"]["spec"] for one in built if "template" in one.get("spec", {})]


def containers(**spec: Any) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for pod in pods(**spec) for one in pod["containers"]}


def told(container: dict[str, Any]) -> MemberTlsSettings:
    """The settings of a process with this environment."""
    env = {item["name"]: item.get("value", "10.0.0.1") for item in container["env"]}
    env = {name: text.replace("$(POD_IP)", "10.0.0.1") for name, text in env.items()}
    settings = load_settings(MODELS[container["name"]], {}, env | {"GANTRY_CONFIG": ""})
    assert isinstance(settings, MemberTlsSettings)
    return settings


@pytest.mark.parametrize(
    ("wish", "mode"), [({}, TlsMode.PERMISSIVE), ({"mode": "Enforcing"}, TlsMode.ENFORCING)]
)
def test_every_member_is_told_where_its_certificate_is(wish: dict[str, str], mode: TlsMode) -> None:
    found = containers(memberTls={"secretName": SECRET, **wish})
    for name in MODELS:
        settings = told(found[name])
        assert settings.member_mode is mode
        assert str(settings.member_tls_cert_file) == f"{PLACE}/tls.crt"
        assert str(settings.member_tls_key_file) == f"{PLACE}/tls.key"
        assert str(settings.member_tls_ca_file) == f"{PLACE}/ca.crt"
        mount = {"name": "member-tls", "mountPath": PLACE, "readOnly": True}
        assert mount in found[name]["volumeMounts"]


def test_secret_is_mounted_whole_for_the_pods_group() -> None:
    """Whole, so that the kubelet replaces it when it changes; not by `subPath`."""
    for pod in pods(memberTls={"secretName": SECRET}):
        (volume,) = [one for one in pod["volumes"] if one["name"] == "member-tls"]
        assert volume["secret"] == {"secretName": SECRET, "defaultMode": 0o440}


def test_door_is_no_member() -> None:
    door = containers(memberTls={"secretName": SECRET})["door"]
    assert "volumeMounts" not in door
    assert not [item for item in door["env"] if "TLS" in item["name"]]


def test_without_it_nothing_is_said_of_it() -> None:
    for pod in pods():
        assert "member-tls" not in [one["name"] for one in pod["volumes"]]
    found = containers()
    for name in MODELS:
        assert told(found[name]).member_mode is TlsMode.DISABLED
        assert not [item for item in found[name]["env"] if "TLS" in item["name"]]


def test_settings_of_it_are_no_config() -> None:
    for make in (brokers, controllers):
        with pytest.raises(InvalidSpecError, match="config must not name a setting"):
            make(config={"member_tls_mode": "enforcing"})


@pytest.mark.parametrize("wish", [{}, {"secretName": ""}, {"secretName": "a", "mode": "disabled"}])
def test_wish_that_cannot_be_is_refused(wish: dict[str, str]) -> None:
    for make in (brokers, controllers, fronts):
        with pytest.raises(InvalidSpecError, match=r"memberTls|member_tls"):
            make(memberTls=wish)
