"""TLS of single listeners: ports for clients from outside that have a certificate of their own.

A listener has a mode, and a directory with `tls.crt` and `tls.key` as a Secret of the type
kubernetes.io/tls is mounted, or the certificate of the process. Whoever is passed on from there to
a master goes the way of the process: only the side that is served is here.

Rule protected: what is wrong with the files of a listener ends nothing but handshakes at it. Other
ports are served, and the process starts without them and takes them when they come.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import Field, field_validator, model_validator

from gantry_protocol.errors import ConfigError
from gantry_protocol.names import LISTENER_NAME, LISTENERS_MAX
from gantry_protocol.process import log
from gantry_protocol.tls.process import Tls
from gantry_protocol.tls.settings import TlsMode, TlsSettings

CERT_FILE, KEY_FILE = "tls.crt", "tls.key"
PORT_MAX = 65535

_PORT = re.compile(rf"({LISTENER_NAME})=([0-9]{{1,5}})")
_TLS = re.compile(rf"({LISTENER_NAME})=({'|'.join(TlsMode)})(?::(.+))?")

_log = log.get("tls")


class ListenerChoice(NamedTuple):
    """The TLS that a listener is to have; no directory: the certificate of the process."""

    mode: TlsMode
    directory: Path | None = None


def parse_listeners(text: str) -> dict[str, int]:
    """The port of each listener that ``name=port,…`` names.

    Raises:
        ValueError: a part is malformed, a name comes twice, or there are too many.
    """
    found: dict[str, int] = {}
    for part in _parts(text):
        match = _PORT.fullmatch(part)
        if match is None or int(match.group(2)) > PORT_MAX:
            raise ValueError(f"{part!r} is not name=port, as in outside=10930")
        if match.group(1) in found:
            raise ValueError(f"{part!r}: a listener of that name has a port already")
        found[match.group(1)] = int(match.group(2))
    if len(found) > LISTENERS_MAX:
        raise ValueError(f"there are {len(found)} listeners, and {LISTENERS_MAX} at most")
    return found


def written(ports: Mapping[str, int]) -> dict[str, str]:
    """The ports of listeners as a fact for a log line; no fact without any."""
    text = ",".join(f"{name}={port}" for name, port in ports.items())
    return {"listeners": text} if text else {}


def parse_listener_tls(text: str) -> dict[str, ListenerChoice]:
    """The TLS of each listener that ``name=mode:directory,name=mode,…`` names.

    Raises:
        ValueError: a part is malformed, or a name comes twice.
    """
    found: dict[str, ListenerChoice] = {}
    for part in _parts(text):
        match = _TLS.fullmatch(part)
        if match is None:
            raise ValueError(
                f"{part!r} is not name=mode:directory, as in outside=enforcing:/etc/outside-tls; "
                f"modes are {', '.join(TlsMode)}"
            )
        name, mode, directory = match.groups()
        if name in found:
            raise ValueError(f"{part!r}: a listener of that name has its TLS already")
        found[name] = ListenerChoice(TlsMode(mode), Path(directory) if directory else None)
    return found


def _parts(text: str) -> Iterator[str]:
    return filter(None, (piece.strip() for piece in text.split(",")))


class ListenerSettings(TlsSettings):
    """The ports of listeners, and their TLS where it is not that of the process."""

    listeners: str = Field(
        default="",
        description="Further ports for clients, from outside of the cluster, as "
        "name=port,name=port; what is served is the same. At most 4.",
    )
    listener_tls: str = Field(
        default="",
        description="TLS of listeners where it is not that of the process, as "
        "name=mode:directory,name=mode. The directory has tls.crt and tls.key; without one the "
        "certificate is that of the process. Files that are missing, or no good, end handshakes "
        "at this listener and nothing else, until good ones are there.",
    )

    @field_validator("listeners")
    @classmethod
    def _must_be_listeners(cls, value: str) -> str:
        parse_listeners(value)
        return value

    @field_validator("listener_tls")
    @classmethod
    def _must_be_listener_tls(cls, value: str) -> str:
        parse_listener_tls(value)
        return value

    @model_validator(mode="after")
    def _must_have_ports_and_certificates(self) -> Self:
        ports = self.listener_ports
        for name, choice in self.listener_choices.items():
            if name not in ports:
                raise ValueError(f"listener_tls names {name}, which has no port in listeners")
            if choice.mode is TlsMode.DISABLED or choice.directory is not None:
                continue
            if self.tls_cert_file is None:
                raise ValueError(
                    f"listener_tls of {name} is {choice.mode} without a certificate: name a "
                    "directory with one, or give tls_cert_file and tls_key_file"
                )
        return self

    @property
    def listener_ports(self) -> dict[str, int]:
        """The port of each listener."""
        return parse_listeners(self.listeners)

    @property
    def listener_choices(self) -> dict[str, ListenerChoice]:
        """The TLS of those listeners that have their own."""
        return parse_listener_tls(self.listener_tls)


class ListenerTls(Tls):
    """The TLS of one listener: of those who come; nobody is dialled by it.

    Args:
        name: of the listener.
        choice: what it is to have.
        settings: of the process, whose certificate it may be, and whose `tls_client_ca_file` holds
            here, too.
    """

    def __init__(self, name: str, choice: ListenerChoice, settings: TlsSettings) -> None:
        """Nothing is read before ``load``, or the first connection."""
        super().__init__(_settings_of(choice, settings))
        self.name = name

    @property
    def expires_s(self) -> float:
        """End of the certificate in use, in seconds since 1970; 0 without one."""
        try:
            return super().expires_s
        except ConfigError:
            return 0.0

    def load(self) -> None:
        """Read all files, when a process starts; what is no good is said, and read again later."""
        if not self.is_served:
            return
        try:
            self.for_server()
        except ConfigError as error:
            _log.warning(
                "a listener has no certificate, handshakes there fail until it has",
                listener=self.name,
                reason=error,
            )


def _settings_of(choice: ListenerChoice, process: TlsSettings) -> TlsSettings:
    cert, key = process.tls_cert_file, process.tls_key_file
    client_ca = process.tls_client_ca_file
    if choice.directory is not None:
        cert, key = choice.directory / CERT_FILE, choice.directory / KEY_FILE
    if choice.mode is TlsMode.DISABLED:
        cert = key = client_ca = None
    return TlsSettings(
        tls_cert_file=cert, tls_key_file=key, tls_client_ca_file=client_ca, tls_mode=choice.mode
    )


def listener_tls(settings: ListenerSettings, process: Tls) -> dict[str, Tls]:
    """The TLS of each listener, ``process`` where it has none of its own."""
    choices = settings.listener_choices
    return {
        name: ListenerTls(name, choices[name], settings) if name in choices else process
        for name in settings.listener_ports
    }


class ListenerTlsCollector(Collector):
    """The metrics of listeners that have TLS of their own."""

    def __init__(self, listeners: Mapping[str, Tls]) -> None:
        """Nothing is counted here."""
        self._own = [tls for tls in listeners.values() if isinstance(tls, ListenerTls)]

    def collect(self) -> Iterator[Metric]:
        """As of now; nothing where no listener has its own."""
        if not self._own:
            return
        expires = GaugeMetricFamily(
            "gantry_listener_tls_certificate_expires_seconds",
            "When the listener's certificate in use ends, in seconds since 1970; 0 without one.",
            labels=["listener"],
        )
        for tls in self._own:
            expires.add_metric([tls.name], tls.expires_s)
        yield expires
        for name, text, values in (
            (
                "reload_failures",
                "Changes of a listener's certificate files that could not be used.",
                [tls.reload_failures for tls in self._own],
            ),
            (
                "handshakes",
                "TLS handshakes at the listener that ended well.",
                [tls.handshakes for tls in self._own],
            ),
            (
                "handshake_failures",
                "TLS handshakes at the listener that failed.",
                [tls.handshake_failures for tls in self._own],
            ),
            (
                "plain_refused",
                "Connections ended since the listener enforces TLS and they began without.",
                [tls.plain_refused for tls in self._own],
            ),
        ):
            counted = CounterMetricFamily(f"gantry_listener_tls_{name}", text, labels=["listener"])
            for tls, value in zip(self._own, values, strict=True):
                counted.add_metric([tls.name], value)
            yield counted
