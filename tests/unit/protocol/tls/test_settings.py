"""Settings of TLS: what goes together, and the mode that follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.door.settings import DoorSettings
from gantry_broker.front.settings import FrontSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import Settings, load_settings
from gantry_protocol.tls.process import Tls
from gantry_protocol.tls.settings import TlsFiles, TlsMode, TlsSettings

PAIR = {"tls_cert_file": "/tls.crt", "tls_key_file": "/tls.key"}
CA = {"tls_ca_file": "/ca.crt"}


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, TlsMode.DISABLED),
        (PAIR, TlsMode.PERMISSIVE),
        (PAIR | {"tls_mode": "enforcing"}, TlsMode.ENFORCING),
        (PAIR | {"tls_mode": "disabled"}, TlsMode.DISABLED),
        (CA, TlsMode.DISABLED),
    ],
)
def test_mode_is_permissive_with_a_certificate(given: dict[str, str], mode: TlsMode) -> None:
    settings = load_settings(TlsSettings, given, {})
    assert settings.mode is mode
    assert Tls(settings).is_served == (mode is not TlsMode.DISABLED)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tls_cert_file": "/c"}, "tls_cert_file is set without tls_key_file: set both"),
        ({"tls_key_file": "/k"}, "tls_key_file is set without tls_cert_file: set both"),
        ({"tls_client_ca_file": "/a"}, "tls_client_ca_file is set without tls_cert_file"),
        ({"tls_server_name": "brokers"}, "tls_server_name is set without tls_ca_file"),
        ({"tls_mode": "permissive"}, "tls_mode is permissive without a certificate"),
        ({"tls_mode": "enforcing"}, "tls_mode is enforcing without a certificate"),
        ({"tls_mode": "strict"}, "'disabled', 'permissive' or 'enforcing'"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(TlsSettings, given, {})


@pytest.mark.parametrize(
    ("model", "needed"),
    [
        (BrokerSettings, {"group": "g", "controllers": "c"}),
        (DoorSettings, {"group": "g", "controllers": "c"}),
        (FrontSettings, {"controllers": "c"}),
    ],
)
def test_who_passes_clients_on_must_be_able_to_dial_masters(
    model: type[Settings], needed: dict[str, str]
) -> None:
    wish = needed | PAIR | {"tls_mode": "enforcing"}
    with pytest.raises(ConfigError, match="clients could not be passed on to masters"):
        load_settings(model, wish, {})
    load_settings(model, wish | CA, {})


def test_only_a_permissive_process_dials_without_tls() -> None:
    for mode, plainly in (("permissive", True), ("enforcing", False), ("disabled", False)):
        settings = load_settings(TlsSettings, PAIR | CA | {"tls_mode": mode}, {})
        assert Tls(settings).dials_plainly is plainly
    assert not Tls(TlsFiles(tls_ca_file=Path("/ca.crt"))).dials_plainly
