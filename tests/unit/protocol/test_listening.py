"""Listening sockets and their errors."""

import pytest
from gantry_protocol.errors import GantryError, PortInUseError
from gantry_protocol.process.listening import bind


def test_a_port_in_use_is_named() -> None:
    with bind("127.0.0.1", 0, purpose="HTTP") as first:
        port = first.getsockname()[1]
        with pytest.raises(PortInUseError) as refusal:
            bind("127.0.0.1", port, purpose="HTTP")
    assert refusal.value.exit_code == 75
    assert str(refusal.value) == (
        f"Port {port} on 127.0.0.1 is in use, so HTTP cannot be served at 127.0.0.1:{port}; "
        f"stop the other process or choose another port."
    )


def test_a_foreign_address_is_an_operating_error() -> None:
    with pytest.raises(GantryError, match=r"Cannot listen for HTTP at 192\.0\.2\.1:0"):
        bind("192.0.2.1", 0, purpose="HTTP")
