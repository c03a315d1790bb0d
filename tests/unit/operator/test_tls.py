"""`spec.tls`: every process that serves clients gets the Secret and settings that it takes."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.door import DoorSettings
from gantry_broker.front import FrontSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_controller.settings import ControllerSettings
from gantry_operator.builders import broker_objects, controller_objects, front_objects
from gantry_operator.models import InvalidSpecError
from gantry_protocol.process.config import Settings, load_settings
from gantry_protocol.tls.settings import TlsMode, TlsSettings
from unit.operator.world import brokers, controllers, fronts

SECRET = "cluster-tls"
TLS = {"secretName": SECRET}
ENFORCING = {**TLS, "mode": "Enforcing"}
MODELS: dict[str, type[Settings]] = {
    "broker": BrokerSettings,
    "door": DoorSettings,
    "front": FrontSettings,
    "controller": ControllerSettings,
}
PLACE = "/etc/gantry/tls"


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
    found = {one["name"]: one for pod in pods(**spec) for one in pod["containers"]}
    assert found.keys() == MODELS.keys()
    return found


def told(container: dict[str, Any]) -> TlsSettings:
    """The settings of a process with this environment."""
    env = {item["name"]: item.get("value", "10.0.0.1") for item in container["env"]}
    env = {name: text.replace("$(POD_IP)", "10.0.0.1") for name, text in env.items()}
    settings = load_settings(MODELS[container["name"]], {}, env | {"GANTRY_CONFIG": ""})
    assert isinstance(settings, TlsSettings)
    return settings


@pytest.mark.parametrize(
    ("tls", "mode"), [(TLS, TlsMode.PERMISSIVE), (ENFORCING, TlsMode.ENFORCING)]
)
def test_every_process_is_told_where_its_certificate_is(tls: dict[str, str], mode: TlsMode) -> None:
    for container in containers(tls=tls).values():
        settings = told(container)
        assert settings.mode is mode
        assert str(settings.tls_cert_file) == f"{PLACE}/tls.crt"
        assert str(settings.tls_key_file) == f"{PLACE}/tls.key"
        assert str(settings.tls_ca_file) == f"{PLACE}/ca.crt"
        assert {"name": "tls", "mountPath": PLACE, "readOnly": True} in container["volumeMounts"]


def test_secret_is_mounted_whole_for_the_pods_group() -> None:
    """Whole, so that the kubelet replaces it when it changes; not by `subPath`."""
    for pod in pods(tls=TLS):
        (volume,) = [one for one in pod["volumes"] if one["name"] == "tls"]
        assert volume["secret"] == {"secretName": SECRET, "defaultMode": 0o440}


def test_without_it_nothing_is_said_of_tls() -> None:
    for pod in pods():
        assert "tls" not in [one["name"] for one in pod["volumes"]]
    for container in containers().values():
        assert told(container).mode is TlsMode.DISABLED
        assert not [item for item in container["env"] if "TLS" in item["name"]]
    assert "volumeMounts" not in containers()["door"]


def test_settings_of_tls_are_no_config() -> None:
    for make in (brokers, controllers):
        with pytest.raises(InvalidSpecError, match="config must not name a setting"):
            make(config={"tls_mode": "enforcing"})


@pytest.mark.parametrize("tls", [{}, {"secretName": ""}, {"secretName": "a", "mode": "disabled"}])
def test_wish_that_cannot_be_is_refused(tls: dict[str, str]) -> None:
    for make in (brokers, controllers, fronts):
        with pytest.raises(InvalidSpecError, match="tls"):
            make(tls=tls)
