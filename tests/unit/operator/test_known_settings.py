"""What `spec.config` may name is what the processes take, and nothing that the operator owns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from gantry_broker.host.settings import BrokerSettings
from gantry_controller.settings import ControllerSettings
from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.models.base import Metadata, Model
from gantry_operator.models.broker_group import BrokerGroupSpec
from gantry_operator.models.known_settings import (
    BROKER,
    CONTROLLER,
    FIELDS,
    Definitions,
    limits_of,
    settings_of,
    wrong_settings,
)
from gantry_operator.models.parts import FAMILIES, RESERVED_SETTINGS
from gantry_operator.models.retention import Retention
from gantry_operator.models.settings_page import _OPERATORS
from gantry_protocol.process.config import Settings
from gantry_protocol.settings.broker import BrokerTuning, RetentionSettings
from pydantic.fields import FieldInfo
from unit.operator.world import brokers, controllers


def leaves(part: type[Model], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The plain fields of a spec by their path, in the words of settings."""
    for name, info in part.model_fields.items():
        kinds = [kind for kind in (info.annotation, *get_args(info.annotation)) if kind]
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, Model)]
        if inner:
            yield from leaves(inner[0], f"{path}{name}_")
        else:
            yield path + name, info


def test_a_family_of_settings_is_reserved_as_a_whole() -> None:
    """The rule that refuses them names a family once."""
    every = BrokerSettings.model_fields.keys() | ControllerSettings.model_fields.keys()
    of_families = {name for name in every if name.startswith(FAMILIES)}
    assert of_families <= set(RESERVED_SETTINGS)
    assert {"tls_mode", "tier_url", "retention_hours", "member_tls_mode"} <= of_families


@pytest.mark.parametrize(
    ("model", "people"),
    [
        pytest.param(BrokerSettings, FIELDS | BROKER, id="broker"),
        pytest.param(ControllerSettings, CONTROLLER, id="controller"),
    ],
)
def test_a_setting_is_defined_where_the_operator_sees_it(
    model: type[Settings], people: Definitions
) -> None:
    """What a process adds of its own is who it is and where it listens, and nobody's to set."""
    own = set(model.model_fields) - set(people)
    assert own <= set(RESERVED_SETTINGS) - set(people)
    for name, info in people.items():
        assert model.model_fields[name].default == info.default, name
        assert limits_of(model.model_fields[name]) == limits_of(info), name
        assert info.description, name


def test_a_field_of_a_spec_that_is_a_setting_says_what_the_setting_says() -> None:
    """No range and no text of its own; a range may be narrower, and `url` tells of Secrets."""
    fields = dict(leaves(BrokerGroupSpec))
    given = set(FIELDS) - set(_OPERATORS)
    assert given <= set(fields)
    for name in given:
        setting, limits = FIELDS[name], limits_of(fields[name])
        said = (fields[name].description or "").startswith(setting.description or "-")
        assert said or name == "tier_url", name
        assert limits | {"ge": 0} == limits_of(setting) | {"ge": 0}, name
        assert limits.get("ge", 0) >= limits_of(setting).get("ge", 0), name


def test_choices_are_taken_as_resources_write_them() -> None:
    """And told in lower case, which is all that older brokers take."""
    told = settings_of(Retention(when_full="Refuse"), "retention")
    assert told == {"retention_when_full": "refuse"}
    for text in ("Refuse", "refuse"):
        assert RetentionSettings.model_validate({"retention_when_full": text}) == (
            RetentionSettings(retention_when_full="refuse")
        )


def test_what_the_operator_sets_is_reserved() -> None:
    """By the variables that its pods are given."""
    made = [
        *broker_objects(brokers(), controllers(), image="i", replicas=3),
        *controller_objects(controllers(), image="i"),
    ]
    variables = {
        entry["name"].removeprefix("GANTRY_").lower()
        for body in made
        if body["kind"] == "StatefulSet"
        for entry in body["spec"]["template"]["spec"]["containers"][0]["env"]
        if entry["name"].startswith("GANTRY_")
    } - {"config"}
    assert variables <= set(RESERVED_SETTINGS)
    assert {"groups", "store", "store_port", "join", "rejoin"} <= set(RESERVED_SETTINGS)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"log_segment_byte": "1"}, "did you mean log_segment_bytes?"),
        ({"zzz": "1"}, "there are access_log, "),
        ({"log_segment_bytes": "1 GiB"}, "a whole number is needed (got '1 GiB')"),
        ({"log_segment_bytes": "1"}, "at least 65536 is needed"),
        ({"log_segment_bytes": "2147483649"}, "at most 2147483648 is possible"),
        ({"transaction_timeout_s": "0"}, "more than 0 is needed"),
        ({"transaction_timeout_s": "nan"}, "is needed"),
        ({"delay_levels": "1s " * 400}, "at most 1024 characters"),
        ({"tracing_endpoint": "collector:4318"}, "a text of the form ^https?://"),
        ({"tracing_ratio": "2"}, "at most 1 is possible"),
        ({"access_log": "some"}, "input should be 'denied' or 'all' (got 'some'); change it."),
        ({"log_level": "loud"}, "spec.config.log_level: input should be 'debug', 'info', "),
        ({"delay_levels": "1s 2y"}, "spec.config.delay_levels: '2y' is no delay like 500ms, "),
        ({"quotas": '{"perTennant": {}}'}, "unknown field `perTennant`"),
        ({"quotas": '{"perTenant": {"sendsPerSecond": -1}}'}, "perTenant has a negative number"),
        ({"quotas": "x" * 200}, f"(got '{'x' * 64}…'); change it."),
        (
            {"disk_take_percent": "95", "disk_refuse_percent": "80"},
            "spec.config: disk_take_percent 95 must be below disk_refuse_percent 80; change one",
        ),
        (
            {"heartbeat_timeout_ms": "800"},
            "heartbeat_timeout_ms 800 must be at least twice heartbeat_interval_ms 500",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(config: dict[str, str], text: str) -> None:
    meta = Metadata(name="orders")
    assert text in wrong_settings(meta, config, BrokerTuning)
    right = {"access_log": "All", "log_level": "Debug", "quotas": '{"tenants": {"a": {}}}'}
    right |= {"log_segment_bytes": "67108864", "tracing_endpoint": "http://collector:4318"}
    assert wrong_settings(meta, right, BrokerTuning) == ""
    other = Metadata(name="orders", annotations={names.ANNOTATION_UNCHECKED: "true"})
    assert wrong_settings(other, config, BrokerTuning) == ""
