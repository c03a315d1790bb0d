"""Settings of TLS between members: of controllers, brokers and fronts."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from gantry_protocol.process.config import Settings
from gantry_protocol.tls.settings import TlsMode


class MemberTlsSettings(Settings):
    """The certificate of a member, the authority of all members, and whether it is demanded."""

    member_tls_cert_file: Path | None = Field(
        default=None,
        description="File with the certificate (PEM) that this process shows to other members of "
        "the cluster. Among its alternative names is the URI gantry://DOMAIN/controller, "
        "gantry://DOMAIN/broker/CLUSTER/GROUP or gantry://DOMAIN/front/CLUSTER. Read anew when it "
        "changes.",
    )
    member_tls_key_file: Path | None = Field(
        default=None,
        description="File with the key (PEM, without a password) of member_tls_cert_file.",
    )
    member_tls_ca_file: Path | None = Field(
        default=None,
        description="File with the certificates (PEM) of the authorities of members, and of nobody "
        "else.",
    )
    member_tls_mode: TlsMode | None = Field(
        default=None,
        description="Connections between members: disabled, without TLS; permissive, by TLS where "
        "both sides can; enforcing, by TLS with certificates of both sides only. Default: "
        "permissive with a certificate, disabled without.",
    )

    @model_validator(mode="after")
    def _must_have_all_of_it(self) -> Self:
        files = {
            "member_tls_cert_file": self.member_tls_cert_file,
            "member_tls_key_file": self.member_tls_key_file,
            "member_tls_ca_file": self.member_tls_ca_file,
        }
        missing = [name for name, file in files.items() if file is None]
        if 0 < len(missing) < len(files):
            raise ValueError(
                f"{' and '.join(missing)} is missing: member TLS needs {', '.join(files)}"
            )
        if missing and self.member_mode is not TlsMode.DISABLED:
            raise ValueError(
                f"member_tls_mode is {self.member_mode} without a certificate: give "
                f"{', '.join(files)}"
            )
        return self

    @property
    def member_mode(self) -> TlsMode:
        """The mode in force."""
        if self.member_tls_mode is not None:
            return self.member_tls_mode
        return TlsMode.DISABLED if self.member_tls_cert_file is None else TlsMode.PERMISSIVE
