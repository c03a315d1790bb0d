"""Certificates that follow their files: what is taken, what is not, and what is said of it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from gantry_protocol.errors import ConfigError
from gantry_protocol.tls.contexts import LOOK_S, Certificate, Followed, client_context
from gantry_protocol.tls.process import NO_TLS, Tls, TlsCollector
from gantry_protocol.tls.settings import TlsFiles
from gantry_protocol.tls.validity import not_after
from support.certificates import Authority, Pair, locked_key


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Clock:
    """Seconds that tests make."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def later(self) -> None:
        self.now_s += LOOK_S


def test_end_of_a_certificate_is_what_a_library_says(authority: Authority) -> None:
    for days in (1, 20_000):  # UTCTime, and GeneralizedTime from 2050 on
        pair = authority.issue("ends", days=days)
        read = x509.load_pem_x509_certificate(pair.cert.read_bytes())
        assert not_after(pair.cert.read_text()) == read.not_valid_after_utc


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMIT/////\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        not_after(text)


def test_every_cut_of_a_certificate_is_refused(authority: Authority) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.file.read_text())
    for size in range(120):  # its end of validity lies behind
        with pytest.raises(ValueError, match=r"."):
            not_after(ssl.DER_cert_to_PEM_cert(der[:size]))


def rsa_key(directory: Path) -> Path:
    """A key of another kind than those that `Authority` makes."""
    key = rsa.generate_private_key(65537, 2048)
    file = directory / "rsa.key"
    form = serialization.PrivateFormat.PKCS8
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    return file


def test_files_that_are_no_good_are_one_sentence_without_the_key(
    authority: Authority, tmp_path: Path
) -> None:
    good, other = authority.issue("good"), authority.issue("other")
    words = tmp_path / "words"
    words.write_text("no certificate")
    cases = [
        (Pair(good.cert, other.key), "is not that of the certificate"),
        (Pair(good.cert, rsa_key(tmp_path)), "is not that of the certificate"),
        (Pair(tmp_path / "none", good.key), "none cannot be read: No such file"),
        (Pair(good.cert, tmp_path / "none"), "none cannot be read: No such file"),
        (Pair(words, good.key), "words is no good: it holds no certificate"),
        (Pair(good.cert, words), "words holds no private key"),
        (locked_key(good, tmp_path), "does not read"),
    ]
    secret = good.key.read_text().splitlines()[1]
    for pair, said in cases:
        with pytest.raises(ConfigError, match=said) as error:
            Certificate(*pair, None)
        assert secret not in str(error.value)
        assert "None" not in str(error.value)
        assert str(error.value).endswith(".")
    with pytest.raises(ConfigError, match="words holds no certificate"):
        client_context(words, None, None, None)


def test_versions_below_1_2_are_not_spoken(authority: Authority) -> None:
    server = Certificate(*authority.issue("v"), None).context
    assert server.minimum_version is ssl.TLSVersion.TLSv1_2
    assert client_context(authority.file, None, None, None).minimum_version is (
        ssl.TLSVersion.TLSv1_2
    )


def test_name_is_checked_where_one_is_expected(authority: Authority) -> None:
    named = client_context(authority.file, None, None, "brokers")
    unnamed = client_context(authority.file, None, None, None)
    assert named.check_hostname
    assert not unnamed.check_hostname
    assert named.verify_mode is unnamed.verify_mode is ssl.CERT_REQUIRED


def follow(pair: Pair) -> tuple[Followed[Certificate], Clock]:
    clock = Clock()
    return Followed(pair, lambda: Certificate(*pair, None), clock), clock


def test_changed_pair_is_taken_at_the_next_look(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("old", into=Pair(tmp_path / "crt", tmp_path / "key"))
    followed, clock = follow(pair)
    first = followed.newest()
    authority.issue("new", into=pair)
    assert followed.newest() is first, "looked at once a second at most"
    clock.later()
    second = followed.newest()
    assert second is not first
    clock.later()
    assert followed.newest() is second, "nothing changed"
    assert followed.failures == 0


def test_link_that_leads_elsewhere_is_a_change(authority: Authority, tmp_path: Path) -> None:
    data = tmp_path / "..data"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        authority.issue("linked", into=Pair(tmp_path / name / "crt", tmp_path / name / "key"))
    data.symlink_to("one")
    followed, clock = follow(Pair(data / "crt", data / "key"))
    first = followed.newest()
    data.unlink()
    data.symlink_to("two")
    clock.later()
    assert followed.newest() is not first


def test_broken_replacement_leaves_the_last_good_one(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.issue("old", into=Pair(tmp_path / "crt", tmp_path / "key"))
    followed, clock = follow(pair)
    first = followed.newest()
    pair.cert.write_bytes(authority.issue("half").cert.read_bytes())
    for _ in range(3):
        clock.later()
        assert followed.newest() is first
    assert followed.failures == 1, "once for the change, not for each look"
    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "not that of the certificate" in str(line.__dict__["facts"]["reason"])
    pair.key.unlink()
    clock.later()
    assert followed.newest() is first
    assert followed.failures == 2
    authority.issue("new", into=pair)
    clock.later()
    assert followed.newest() is not first
    assert followed.failures == 2


def test_start_with_a_bad_pair_fails(authority: Authority, tmp_path: Path) -> None:
    settings = TlsFiles(
        tls_cert_file=authority.issue("mine").cert, tls_key_file=authority.issue("yours").key
    )
    with pytest.raises(ConfigError, match="is not that of the certificate"):
        Tls(settings).load()
    with pytest.raises(ConfigError, match="cannot be read"):
        Tls(TlsFiles(tls_ca_file=tmp_path / "none")).load()


def test_metrics_say_when_it_ends_and_what_went_wrong(authority: Authority) -> None:
    pair = authority.issue("counted")
    tls = Tls(TlsFiles(tls_cert_file=pair.cert, tls_key_file=pair.key))
    tls.handshakes, tls.plain_refused = 3, 2
    samples = [sample for family in TlsCollector(tls).collect() for sample in family.samples]
    found = {sample.name: sample.value for sample in samples}
    assert found["gantry_tls_certificate_expires_seconds"] == (
        not_after(pair.cert.read_text()).timestamp()
    )
    assert found["gantry_tls_handshakes_total"] == 3
    assert found["gantry_tls_plain_refused_total"] == 2
    nothing = [family.samples[0].value for family in TlsCollector(NO_TLS).collect()]
    assert nothing == [0] * len(nothing)
