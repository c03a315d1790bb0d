"""The two kinds of bodies of the admin API, and those that several of its bodies have within.

What people and operators send refuses unknown keys, so that a typing error cannot be mistaken for a
default. What the controller answers may grow: an older reader ignores keys it does not know.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class AdminRequest(BaseModel):
    """A body that people and operators send."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,  # every process imports all of these, and most need one or two
    )

    def to_json(self) -> str:
        """The wire form."""
        return self.model_dump_json(by_alias=True)


class AdminView(BaseModel):
    """A body that the controller answers."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )

    def to_json(self) -> str:
        """The wire form."""
        return self.model_dump_json(by_alias=True)


class PreferredPlace(AdminView):
    """The members of a group that live in one of the zones its master is wished in."""

    zone: Annotated[str, Field(min_length=1, max_length=63)]
    broker_ids: Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=128)]
