"""A door's settings: one frozen model, read from flags, ``GANTRY_*`` variables or TOML."""

from typing import Annotated

from gantry_protocol.tls.listeners import ListenerSettings
from gantry_protocol.tls.settings import demand_ca
from pydantic import Field, field_validator, model_validator

from gantry_broker.control.addresses import checked_ip, controller_addresses

DOOR_PORT = 10910
HTTP_PORT = 10920

Port = Annotated[int, Field(ge=0, le=65535)]


class DoorSettings(ListenerSettings):
    """Everything a door can be told."""

    name: str = Field(
        default="door-0", min_length=1, description="Name of this process: its pod's name."
    )
    group: str = Field(
        min_length=1,
        max_length=127,
        description="Name of the broker group (brokerName) whose master clients are led to.",
    )
    cluster: str = Field(
        default="gantry", min_length=1, max_length=127, description="Name of its cluster."
    )
    controllers: list[str] = Field(
        min_length=1, description="host:port of every controller; the port defaults to 9878."
    )
    bind: str = Field(default="127.0.0.1", description="IP address to listen on.")
    port: Port = Field(default=DOOR_PORT, description="Port for clients; 0 picks a free one.")
    http_port: Port = Field(
        default=HTTP_PORT, description="Port of probes, metrics and status; 0 picks a free one."
    )

    @field_validator("bind")
    @classmethod
    def _must_be_ip(cls, value: str) -> str:
        return checked_ip(value)

    @model_validator(mode="after")
    def _must_reach_masters(self) -> "DoorSettings":
        demand_ca(self)
        return self

    @field_validator("controllers")
    @classmethod
    def _must_be_addresses(cls, value: list[str]) -> list[str]:
        return controller_addresses(value)
