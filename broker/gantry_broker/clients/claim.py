"""A mastership, as its reports to the controllers name it."""

from typing import NamedTuple

from gantry_protocol.types import BrokerId, Epoch


class Claim(NamedTuple):
    """By what this broker is the master."""

    broker_id: BrokerId
    epoch: Epoch
    incarnation: str
