"""Addresses in settings: where a process listens, and the controllers that it asks."""

import ipaddress

from gantry_protocol.errors import ResolveError
from gantry_protocol.hosts import join_address, split_address

CONTROLLER_PORT = 9878


def checked_ip(value: str) -> str:
    """An address to listen on.

    Raises:
        ValueError: it is a name, or nothing.
    """
    try:
        ipaddress.ip_address(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is not an IP address") from error
    return value


def controller_addresses(value: list[str]) -> list[str]:
    """``host:port`` of each, with the port that controllers have by default.

    Raises:
        ValueError: which one is none.
    """
    try:
        return [join_address(*split_address(item, CONTROLLER_PORT)) for item in value]
    except ResolveError as error:
        raise ValueError(str(error)) from error
