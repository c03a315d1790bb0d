"""Bugs in TLS at ports for clients (``gantry_protocol.tls``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

TLS = "gantry_protocol.tls"
TESTS = "unit/protocol/tls"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    killed_by = UnitTests(f"{TESTS}/{killer}")
    return Mutant(name, "tls", what, (Edit(place, text, other),), killed_by)


MUTANTS = (
    _mutant(
        "certificates-for-ever",
        "a certificate that was renewed ends all the same, until the process restarts",
        f"{TLS}.contexts:Followed.newest",
        "if _stamp(self._files) != self._stamp:",
        "if False:",
        "test_contexts.py::test_changed_pair_is_taken_at_the_next_look",
    ),
    _mutant(
        "half-a-pair-ends-service",
        "a Secret that is half written has every client refused",
        f"{TLS}.contexts:Followed.newest",
        "except ConfigError as error:",
        "except ZeroDivisionError as error:",
        "test_contexts.py::test_broken_replacement_leaves_the_last_good_one",
    ),
    _mutant(
        "enforced-and-yet-plain",
        "who is told to enforce TLS passes messages on without it, if somebody is between",
        f"{TLS}.process:Tls.__init__",
        "self.mode is TlsMode.PERMISSIVE",
        "self.mode is not TlsMode.DISABLED",
        "test_settings.py::test_only_a_permissive_process_dials_without_tls",
    ),
    _mutant(
        "any-client-will-do",
        "clients without a certificate are served where certificates are demanded",
        f"{TLS}.contexts:server_context",
        "context.verify_mode = ssl.CERT_REQUIRED",
        "context.verify_mode = ssl.CERT_OPTIONAL",
        "test_transport.py::test_client_without_a_certificate_is_not_heard",
    ),
    _mutant(
        "plain-words-where-tls-is-enforced",
        "whoever speaks no TLS is served where it is enforced",
        "gantry_protocol.remoting.tls_transport:TlsTransport._open",
        "self._tls.mode is TlsMode.ENFORCING",
        "self._tls.mode is TlsMode.DISABLED",
        "test_transport.py::test_plain_words_are_not_heard_where_tls_is_enforced",
    ),
    _mutant(
        "one-record-of-many",
        "a request of more than 16 KiB is served in part, or ends its connection",
        f"{TLS}.layer:TlsLayer._read",
        'b"".join(pieces)',
        "pieces[-1]",
        "test_transport.py::test_request_is_answered",
    ),
    _mutant(
        "preamble-before-the-handshake-is-lost",
        "a client behind a balancer is passed on to a door, and from there round and round",
        "gantry_protocol.remoting.tls_transport:TlsTransport.shaken",
        "if self._begun:",
        "if False:",
        "test_transport.py::test_preamble_before_the_handshake_names_the_client",
    ),
    _mutant(
        "records-without-end",
        "a stranger's tiny records keep the loop from everybody else",
        f"{TLS}.layer:TlsLayer._read",
        "if len(pieces) == RECORDS_MAX:",
        "if False:",
        "test_transport.py::test_many_small_records_are_not_decrypted_at_once",
    ),
)
