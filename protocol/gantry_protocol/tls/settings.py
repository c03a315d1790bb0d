"""Settings of TLS: of processes that dial ports for clients, and of those that serve them."""

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from gantry_protocol.process.config import Settings

CA_FILE_HELP = (
    "File with the certificates (PEM) of the authorities that vouch for brokers and name servers. "
    "Set: their ports for clients are dialled by TLS, and whoever shows no certificate of them is "
    "not talked to."
)
SERVER_NAME_HELP = (
    "Name that certificates of dialled ports must be for. Not set: any certificate of tls_ca_file "
    "is believed, since routes name pods by addresses that no certificate knows."
)


class TlsMode(StrEnum):
    """The connections that ports for clients take, in upstream's words (``tls.server.mode``)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class TlsFiles(Settings):
    """The certificate of a process, and authorities that it believes."""

    tls_cert_file: Path | None = Field(
        default=None,
        description="File with the certificate (PEM) of this process, those between it and its "
        "authority behind it. Read anew when it changes. Shown to clients, and to servers that "
        "ask for one.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="File with the key (PEM, without a password) of tls_cert_file."
    )
    tls_client_ca_file: Path | None = Field(
        default=None,
        description="File with the certificates (PEM) of the authorities of clients: whoever "
        "speaks TLS must show a certificate of them. Not set: clients show none.",
    )
    tls_ca_file: Path | None = Field(default=None, description=CA_FILE_HELP)
    tls_server_name: str | None = Field(
        default=None, min_length=1, max_length=253, description=SERVER_NAME_HELP
    )

    @model_validator(mode="after")
    def _must_have_both_halves(self) -> Self:
        pair = {"tls_cert_file": self.tls_cert_file, "tls_key_file": self.tls_key_file}
        missing = [name for name, file in pair.items() if file is None]
        if len(missing) == 1:
            (given,) = pair.keys() - set(missing)
            raise ValueError(f"{given} is set without {missing[0]}: set both, or none")
        if missing and self.tls_client_ca_file is not None:
            raise ValueError(
                "tls_client_ca_file is set without tls_cert_file: no port speaks TLS to clients"
            )
        if self.tls_server_name is not None and self.tls_ca_file is None:
            raise ValueError(
                "tls_server_name is set without tls_ca_file: nothing is dialled by TLS"
            )
        return self


class TlsSettings(TlsFiles):
    """The same with the mode of ports that serve TLS and plain connections."""

    tls_mode: TlsMode | None = Field(
        default=None,
        description="Who is served at ports for clients: disabled, plain connections only; "
        "permissive, both; enforcing, TLS only. Default: permissive with a certificate, disabled "
        "without. While permissive, dialled ports that speak no TLS are spoken to plainly.",
    )

    @model_validator(mode="after")
    def _must_have_a_certificate(self) -> Self:
        if self.mode is not TlsMode.DISABLED and self.tls_cert_file is None:
            raise ValueError(
                f"tls_mode is {self.mode} without a certificate: give tls_cert_file and "
                "tls_key_file"
            )
        return self

    @property
    def mode(self) -> TlsMode:
        """The mode in force."""
        if self.tls_mode is not None:
            return self.tls_mode
        return TlsMode.DISABLED if self.tls_cert_file is None else TlsMode.PERMISSIVE


def demand_ca(settings: TlsSettings) -> None:
    """For processes that pass clients on to others of their kind.

    Raises:
        ValueError: those are served by TLS only, and this one could not dial them.
    """
    if settings.mode is TlsMode.ENFORCING and settings.tls_ca_file is None:
        raise ValueError(
            "tls_mode is enforcing without tls_ca_file: clients could not be passed on to masters, "
            "which serve TLS only"
        )
