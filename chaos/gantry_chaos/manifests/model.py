"""Parts of every object of Chaos Mesh v1alpha1: names, selectors; strict models.

The rule protected here: what is accepted means what it means upstream. Fields that exist upstream
and are not supported here are refused like unknown ones, never ignored, and so are combinations
that Chaos Mesh's own webhooks refuse. The kinds of chaos are in `gantry_chaos.kinds`.
"""

import math
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from pydantic.alias_generators import to_camel

API_VERSION = "chaos-mesh.org/v1alpha1"
NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
NAME_MAX = 253

Mode = Literal["one", "all", "fixed", "fixed-percent", "random-max-percent"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]


class Model(BaseModel):
    """A part of a manifest: unknown fields are errors, values do not change."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        strict=True,
    )


class LabelRequirement(Model):
    """One entry of `expressionSelectors`: a key, an operator and its values."""

    key: str = Field(min_length=1)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []

    @model_validator(mode="after")
    def _values_as_the_operator_wants(self) -> Self:
        if self.operator in ("In", "NotIn") and not self.values:
            raise ValueError(f"operator {self.operator} needs values")
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            raise ValueError(f"operator {self.operator} takes no values")
        return self


class Selector(Model):
    """A choice of pods. When `pods` is given, everything else is ignored, as upstream.

    Attributes:
        namespaces: empty: the namespace of the object itself.
        pods: namespace to names.
    """

    namespaces: list[str] = []
    label_selectors: dict[str, str] = {}
    expression_selectors: list[LabelRequirement] = []
    annotation_selectors: dict[str, str] = {}
    nodes: list[str] = []
    pod_phase_selectors: list[Phase] = []
    pods: dict[str, list[str]] = {}


class PodSelector(Model):
    """A selector and how many of the pods it matches.

    Attributes:
        value: for `fixed` a number of pods, for the percentages a string from 0 to 100.
    """

    mode: Mode
    value: str = ""
    selector: Selector

    @model_validator(mode="after")
    def _value_as_the_mode_wants(self) -> Self:
        if self.mode in ("one", "all"):
            if self.value:
                raise ValueError(f"mode {self.mode} takes no value, got {self.value!r}")
            return self
        if not (self.value.isascii() and self.value.isdigit()):
            raise ValueError(f"mode {self.mode} needs a whole number as value, got {self.value!r}")
        number = int(self.value)
        if self.mode == "fixed" and number == 0:
            raise ValueError("mode fixed with value '0' selects no pod")
        if self.mode != "fixed" and not 1 <= number <= 100:
            raise ValueError(f"mode {self.mode} needs a value from '1' to '100', got {number}")
        return self

    def count(self, matching: int) -> tuple[int, int]:
        """The fewest and the most pods to take of `matching` ones."""
        match self.mode:
            case "one":
                return 1, 1
            case "all":
                return matching, matching
            case "fixed":
                number = min(int(self.value), matching)
                return number, number
            case "fixed-percent":
                number = math.ceil(matching * int(self.value) / 100)
                return number, number
            case "random-max-percent":
                return 0, math.ceil(matching * int(self.value) / 100)


class Metadata(Model):
    """A name, and optionally a namespace, labels and annotations."""

    name: str = Field(pattern=NAME, max_length=NAME_MAX)
    namespace: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Object(Model):
    """The fields of every object."""

    api_version: Literal["chaos-mesh.org/v1alpha1"]
    metadata: Metadata
    _where: str = PrivateAttr(default="")

    @property
    def where(self) -> str:
        """File and document that it was read from, for errors."""
        return self._where
