"""What `spec.config` may name is what the processes take, and nothing that the operator owns."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.host.settings import BrokerSettings
from gantry_controller.settings import ControllerSettings
from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.models.base import Metadata
from gantry_operator.models.known_settings import BROKER, CONTROLLER, Setting, wrong_settings
from gantry_operator.models.parts import RESERVED_SETTINGS
from gantry_protocol.process.config import Settings
from unit.operator.world import brokers, controllers

MODELS = [
    pytest.param(BrokerSettings, BROKER, id="broker"),
    pytest.param(ControllerSettings, CONTROLLER, id="controller"),
]


def declared(model: type[Settings]) -> dict[str, Setting]:
    """The settings of a model that are not the operator's."""
    result = {}
    for name, node in model.model_json_schema()["properties"].items():
        if name in RESERVED_SETTINGS:
            continue
        facts: dict[str, Any] = node.get("anyOf", [node])[0]
        assert "enum" not in facts, "the table knows no choices"
        result[name] = Setting(
            facts["type"],
            facts.get("minimum"),
            facts.get("maximum"),
            facts.get("exclusiveMinimum"),
            facts.get("maxLength"),
        )
    return result


@pytest.mark.parametrize(("model", "known"), MODELS)
def test_the_table_is_what_the_processes_say(
    model: type[Settings], known: dict[str, Setting]
) -> None:
    """A new setting is the operator's own, and reserved, or people's, and in the table."""
    assert known == declared(model)


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
        ({"zzz": "1"}, "there are delay_levels, "),
        ({"log_segment_bytes": "1 GiB"}, "a whole number is needed (got '1 GiB')"),
        ({"log_segment_bytes": "1"}, "at least 65536 is needed"),
        ({"log_segment_bytes": "2147483649"}, "at most 2147483648 is possible"),
        ({"transaction_timeout_s": "0"}, "more than 0 is needed"),
        ({"transaction_timeout_s": "nan"}, "is needed"),
        ({"delay_levels": "1s " * 400}, "at most 1024 characters"),
    ],
)
def test_a_wrong_setting_is_one_sentence(config: dict[str, str], text: str) -> None:
    meta = Metadata(name="orders")
    assert text in wrong_settings(meta, config, BROKER)
    assert wrong_settings(meta, {"log_segment_bytes": "67108864"}, BROKER) == ""
    other = Metadata(name="orders", annotations={names.ANNOTATION_UNCHECKED: "true"})
    assert wrong_settings(other, config, BROKER) == ""
