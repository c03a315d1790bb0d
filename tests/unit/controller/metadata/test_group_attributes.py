"""Attributes of consumer groups: values that are refused."""

from __future__ import annotations

import pytest
from gantry_controller.metadata.attributes import AttributesError
from gantry_controller.metadata.group_attributes import changed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lite.sub.model", "Both"),
        ("lite.sub.client.quota", "-2"),
        ("lite.sub.client.quota", "many"),
        ("lite.bind.topic", ""),
        ("lite.sub.reset.offset.exclusive", "yes"),
    ],
)
def test_a_value_that_is_none_is_refused(name: str, value: str) -> None:
    with pytest.raises(AttributesError, match=name):
        changed({}, {f"+{name}": value})
