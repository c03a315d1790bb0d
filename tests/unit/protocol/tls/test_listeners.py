"""TLS of listeners: what their settings say, and certificates that come late."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.door.settings import DoorSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import load_settings
from gantry_protocol.tls.listeners import (
    ListenerChoice,
    ListenerSettings,
    ListenerTls,
    ListenerTlsCollector,
    listener_tls,
    parse_listener_tls,
)
from gantry_protocol.tls.process import Tls
from gantry_protocol.tls.settings import TlsMode, TlsSettings
from prometheus_client import CollectorRegistry
from support.certificates import Authority, Pair

PORTS = {"listeners": "outside=1,inside=2"}
PAIR = {"tls_cert_file": "/tls.crt", "tls_key_file": "/tls.key"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def put(authority: Authority, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    authority.issue("brokers", into=Pair(directory / "tls.crt", directory / "tls.key"))


def test_a_listener_has_a_mode_and_perhaps_a_directory() -> None:
    assert parse_listener_tls(" a=enforcing:/etc/a:b, b-2=disabled,c=permissive,") == {
        "a": ListenerChoice(TlsMode.ENFORCING, Path("/etc/a:b")),
        "b-2": ListenerChoice(TlsMode.DISABLED),
        "c": ListenerChoice(TlsMode.PERMISSIVE),
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (PORTS | {"listener_tls": "outside"}, "'outside' is not name=mode:directory"),
        (PORTS | {"listener_tls": "outside=strict:/x"}, "modes are disabled, permissive, enf"),
        (PORTS | {"listener_tls": "Out=enforcing:/x"}, "is not name=mode:directory"),
        (PORTS | {"listener_tls": "a=disabled,a=disabled"}, "has its TLS already"),
        (PORTS | {"listener_tls": "other=enforcing:/x"}, "names other, which has no port"),
        (PORTS | {"listener_tls": "outside=permissive"}, "of outside is permissive without a cert"),
        (PORTS | {"listener_tls": "outside=enforcing"}, "of outside is enforcing without a cert"),
        ({"listeners": "outside"}, "'outside' is not name=port"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(ListenerSettings, given, {})


def test_a_listener_without_its_own_has_that_of_the_process() -> None:
    given = PORTS | PAIR | {"listener_tls": "inside=disabled"}
    settings = load_settings(ListenerSettings, given, {})
    process = Tls(settings)
    found = listener_tls(settings, process)
    assert found["outside"] is process
    assert process.mode is TlsMode.PERMISSIVE
    assert found["inside"].mode is TlsMode.DISABLED
    assert not found["inside"].is_served


def test_the_mode_of_a_listener_may_differ_with_the_same_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    put(authority, tmp_path)
    settings = TlsSettings(
        tls_cert_file=tmp_path / "tls.crt",
        tls_key_file=tmp_path / "tls.key",
        tls_ca_file=authority.file,
        tls_client_ca_file=authority.file,
    )
    own = ListenerTls("outside", ListenerChoice(TlsMode.ENFORCING), settings)
    own.load()
    assert own.mode is TlsMode.ENFORCING
    assert own.for_server().pem == (tmp_path / "tls.crt").read_bytes()
    assert own.for_server().client_ca_pem is not None, "clients show theirs at every port"
    assert own.for_client() is None, "nobody is dialled by it"


def test_a_certificate_may_come_late(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = ListenerChoice(TlsMode.ENFORCING, tmp_path / "late")
    own = ListenerTls("outside", choice, TlsSettings())
    own.load()
    assert own.expires_s == 0
    with pytest.raises(ConfigError, match=r"late/tls\.crt cannot be read"):
        own.server_context()
    put(authority, tmp_path / "late")
    assert own.server_context() is own.server_context()
    assert own.expires_s > 0
    assert own.reload_failures == 0


def test_figures_are_by_listener(authority: Authority, tmp_path: Path) -> None:
    put(authority, tmp_path / "own")
    given = PORTS | {"listener_tls": f"outside=enforcing:{tmp_path / 'own'}"}
    settings = load_settings(ListenerSettings, given, {})
    found = listener_tls(settings, Tls(settings))
    found["outside"].plain_refused, found["outside"].handshakes = 3, 2
    registry = CollectorRegistry()
    registry.register(ListenerTlsCollector(found))

    def figure(name: str) -> float | None:
        return registry.get_sample_value(f"gantry_listener_tls_{name}", {"listener": "outside"})

    assert figure("plain_refused_total") == 3
    assert figure("handshakes_total") == 2
    assert figure("handshake_failures_total") == 0
    assert figure("certificate_expires_seconds") == found["outside"].expires_s > 0
    assert not list(ListenerTlsCollector({"inside": found["inside"]}).collect())


@pytest.mark.parametrize("model", [BrokerSettings, DoorSettings])
def test_brokers_and_doors_take_them(model: type[ListenerSettings]) -> None:
    given = PORTS | {"group": "g", "controllers": "c", "listener_tls": "inside=disabled"}
    assert load_settings(model, given, {}).listener_ports == {"outside": 1, "inside": 2}


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        ("outside=11101", "group 'g_1' would listen at port 11101, which this process needs"),
        ("outside=11097", "group 'g_0' would listen at port 11100, which this process needs"),
        ("outside=65533", "listeners would end at port 65536"),
        ("outside=11200,other=11203", "listeners would share ports: begin them 4 apart"),
    ],
)
def test_ports_of_many_groups_are_apart(listeners: str, said: str) -> None:
    given = {"groups": "g_[0-3]", "controllers": "c", "remoting_port": "11100"}
    for good in ("outside=11104", "outside=11200,other=11204", "outside=0,other=0"):
        assert load_settings(BrokerSettings, given | {"listeners": good}, {}).port_map
    with pytest.raises(ConfigError, match=said):
        load_settings(BrokerSettings, given | {"listeners": listeners}, {})
