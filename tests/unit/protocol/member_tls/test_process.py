"""The certificate of a member: what it must name, when it is taken anew, and its end."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gantry_broker.front.settings import FrontSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_controller.settings import ControllerSettings
from gantry_protocol.errors import ConfigError
from gantry_protocol.member_tls import process
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.member_tls.process import NO_MEMBER_TLS, MemberTls, MemberTlsCollector
from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.process.config import load_settings
from gantry_protocol.tls import contexts
from gantry_protocol.tls.settings import TlsMode
from support.certificates import MemberAuthority, Pair
from support.member_pipe import BROKER, BROKER_URI

FILES = {
    "member_tls_cert_file": "/tls.crt",
    "member_tls_key_file": "/tls.key",
    "member_tls_ca_file": "/ca.crt",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> MemberAuthority:
    return MemberAuthority(tmp_path_factory.mktemp("members"))


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, TlsMode.DISABLED),
        (FILES, TlsMode.PERMISSIVE),
        (FILES | {"member_tls_mode": "enforcing"}, TlsMode.ENFORCING),
        (FILES | {"member_tls_mode": "disabled"}, TlsMode.DISABLED),
    ],
)
def test_mode_is_permissive_with_a_certificate(given: dict[str, str], mode: TlsMode) -> None:
    settings = load_settings(MemberTlsSettings, given, {})
    assert settings.member_mode is mode
    tls = MemberTls(settings)
    assert (tls.is_on, tls.is_enforced) == (
        mode is not TlsMode.DISABLED,
        mode is TlsMode.ENFORCING,
    )


@pytest.mark.parametrize("missing", FILES)
def test_half_of_the_files_is_refused(missing: str) -> None:
    given = {name: file for name, file in FILES.items() if name != missing}
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        load_settings(MemberTlsSettings, given, {})


def test_mode_without_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="member_tls_mode is enforcing without a certificate"):
        load_settings(MemberTlsSettings, {"member_tls_mode": "enforcing"}, {})


@pytest.mark.parametrize("settings", [BrokerSettings, FrontSettings, ControllerSettings])
def test_members_have_the_settings(settings: type[MemberTlsSettings]) -> None:
    assert set(MemberTlsSettings.model_fields) <= set(settings.model_fields)


@pytest.mark.parametrize(
    ("uris", "said"),
    [
        ([], "must be the URI gantry://DOMAIN/broker/prod/orders, and it names no member"),
        (["gantry://mq/broker/prod/bills"], "gantry://mq/broker/prod/orders, and it has gantry://"),
        (["gantry://mq/broker"], "is no good: its name 'gantry://mq/broker' is none of"),
    ],
)
def test_process_does_not_start_with_the_certificate_of_another(
    authority: MemberAuthority, uris: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        MemberTls(authority.settings("other", *uris), [BROKER]).load()
    assert str(error.value).endswith(".")


def test_process_of_many_groups_needs_all_names(authority: MemberAuthority) -> None:
    groups = [MemberName(MemberKind.BROKER, "prod", f"shard-{number}") for number in range(3)]
    MemberTls(authority.settings("all", "gantry://mq/broker/prod/shard-*"), groups).load()
    uris = [group.in_domain("mq") for group in groups]
    MemberTls(authority.settings("each", *uris), groups).load()
    with pytest.raises(ConfigError, match="shard-2, and it has"):
        MemberTls(authority.settings("two", *uris[:2]), groups).load()


def test_files_that_are_missing_are_one_sentence(
    authority: MemberAuthority, tmp_path: Path
) -> None:
    settings = authority.settings("gone", BROKER_URI)
    settings = settings.model_copy(update={"member_tls_ca_file": tmp_path / "none"})
    with pytest.raises(ConfigError, match="none cannot be read: No such file"):
        MemberTls(settings, [BROKER]).load()


def test_only_a_replacement_for_this_process_is_taken(
    authority: MemberAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "LOOK_S", 0.0)
    pair = Pair(tmp_path / "crt.pem", tmp_path / "key.key")
    tls = MemberTls(authority.settings("broker", BROKER_URI, into=pair), [BROKER])
    tls.load()
    first = tls.certificate()
    authority.issue("bills", "gantry://mq/broker/prod/bills", into=pair)
    assert tls.certificate() is first
    assert tls.reload_failures == 1
    authority.issue("renewed", BROKER_URI, into=pair, ends=timedelta(days=60))
    assert tls.certificate() is not first
    assert tls.expires_s > first.expires_s
    assert tls.reload_failures == 1


@pytest.mark.parametrize(("days", "warned"), [(8, 0), (6, 1), (-1, 1)])
def test_end_of_a_certificate_is_warned_of_once_an_hour(
    authority: MemberAuthority, monkeypatch: pytest.MonkeyPatch, days: int, warned: int
) -> None:
    said: list[dict[str, Any]] = []
    log = SimpleNamespace(warning=lambda phrase, **facts: said.append(facts))
    monkeypatch.setattr(process, "_log", log)
    settings = authority.settings("ends", BROKER_URI, ends=timedelta(days=90))
    now_s = [0.0]
    tls = MemberTls(settings, [BROKER], wall_clock=lambda: now_s[0])
    tls.load()
    now_s[0] = tls.expires_s - days * 86_400
    said.clear()
    for _ in range(3):
        tls.certificate()
    assert [facts["days_left"] for facts in said] == [float(days)] * warned
    now_s[0] += process.WARN_EVERY_S
    tls.certificate()
    assert len(said) == 2 * warned


def test_what_is_without_a_certificate_is_taken_while_not_enforced(
    authority: MemberAuthority,
) -> None:
    assert NO_MEMBER_TLS.takes(None, BROKER)
    assert MemberTls(authority.settings("p", BROKER_URI)).takes(None, BROKER)
    enforced = MemberTls(authority.settings("e", BROKER_URI, mode="enforcing"))
    assert not enforced.takes(None, BROKER)


def test_metrics_have_zeros_without_a_certificate() -> None:
    samples = [
        item for family in MemberTlsCollector(NO_MEMBER_TLS).collect() for item in family.samples
    ]
    assert {item.value for item in samples} == {0.0}
    assert {item.labels.get("reason") for item in samples} == {None, *process.REASONS}


def test_members_speak_the_newest_version_and_tools_another_one(
    authority: MemberAuthority,
) -> None:
    made = MemberTls(authority.settings("versions", BROKER_URI)).certificate()
    assert made.listening.minimum_version is made.dialling.minimum_version
    assert made.listening.minimum_version is ssl.TLSVersion.TLSv1_3
    assert made.optional.minimum_version is ssl.TLSVersion.TLSv1_2
    assert made.listening.verify_mode is made.dialling.verify_mode is ssl.CERT_REQUIRED
    assert made.listening.num_tickets == made.optional.num_tickets == 0
