"""Bugs in TLS of the admin API (``gantry_protocol.member_tls.http``, ``asking``, and who asks)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

ASKING = "gantry_protocol.member_tls.asking"
QUORUM = "gantry_protocol.admin_client.quorum"
DIRECTORY = "gantry_operator.quorums.directory:Directory"
SITE = "integration/protocol/test_http_tls.py"
CLIENT = "unit/protocol/test_admin_client_tls.py"
TRUST = "unit/operator/test_trust.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "admin tls", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "plain-admin-requests-while-enforced",
        "tokens go on to cross the network in clear although that is over",
        "gantry_protocol.member_tls.http:HttpCover.refuses",
        "return self._tls.is_enforced",
        "return False",
        f"{SITE}::test_admin_request_without_tls_is_refused_while_enforced",
    ),
    _mutant(
        "probes-need-tls",
        "kubelets and Prometheus reach no controller once TLS is enforced",
        "gantry_protocol.process.probes:_covered",
        "if not (request.secure or is_open(request)):",
        "if not request.secure:",
        f"{SITE}::test_probes_and_metrics_need_no_tls_and_have_it",
    ),
    _mutant(
        "plain-admin-requests-are-not-counted",
        "nobody can tell whether TLS may be enforced yet",
        "gantry_protocol.member_tls.http:HttpCover.served",
        "plain_accepted += 1",
        "plain_accepted += 0",
        f"{SITE}::test_admin_request_without_tls_is_served_and_counted_while_permissive",
    ),
    _mutant(
        "a-brokers-certificate-is-a-controllers",
        "a broker that takes a controller's address is shown the token",
        f"{ASKING}:check_controller",
        "not names.has(CONTROLLER) or",
        "",
        f"{CLIENT}::test_who_is_not_believed_hears_no_token",
    ),
    _mutant(
        "controllers-of-all-domains",
        "controllers of another quorum whose authority is the same are shown the token",
        f"{ASKING}:check_controller",
        "domain not in (None, names.domain)",
        "False",
        f"{CLIENT}::test_who_is_not_believed_hears_no_token",
    ),
    _mutant(
        "enforced-and-yet-asked-plainly",
        "whoever breaks the handshake is shown the token in clear",
        f"{QUORUM}:Quorum._request",
        "not trust.plainly or",
        "",
        f"{CLIENT}::test_only_permissive_members_are_asked_without_tls",
    ),
    _mutant(
        "permissive-controllers-are-not-reached",
        "the operator does nothing for a quorum that is on its way to TLS",
        f"{QUORUM}:Quorum._request",
        "if not trust.plainly or",
        "if True or",
        f"{CLIENT}::test_only_permissive_members_are_asked_without_tls",
    ),
    _mutant(
        "authorities-are-read-once",
        "the operator reaches no controller after their authority was changed",
        f"{QUORUM}:Quorum._request",
        "trust.context(fresh=True)",
        "trust.context(fresh=False)",
        f"{CLIENT}::test_authorities_that_have_changed_are_read_anew",
    ),
    _mutant(
        "authority-is-believed-for-ever",
        "an authority that was taken out is believed as long as the operator runs",
        "gantry_operator.quorums.trust:SecretTrust.context",
        "or now_s - self._read_at_s >= FRESH_S",
        "",
        f"{TRUST}::test_authority_that_was_taken_out_is_believed_for_a_minute_at_most",
    ),
    _mutant(
        "spoilt-secret-is-no-trust",
        "the operator loses its controllers by a typing error that these do not mind",
        "gantry_operator.quorums.trust:SecretTrust.context",
        "if self._context is None:\n                raise",
        "if True:\n                raise",
        f"{TRUST}::test_secret_that_is_spoilt_later_leaves_the_last_good_one",
    ),
    _mutant(
        "operator-may-always-leave-tls-out",
        "the operator shows its token in clear although TLS is enforced",
        f"{DIRECTORY}._trust",
        "not self._is_enforced(namespace, name)",
        "True",
        f"{TRUST}::test_pods_are_asked_as_they_were_started_while_the_group_changes",
    ),
    _mutant(
        "pods-are-asked-as-the-resource-says",
        "the operator does not reach the pods that are still without a certificate",
        f"{DIRECTORY}._endpoints",
        "names.member_secret(body)",
        '"members"',
        f"{TRUST}::test_pods_are_asked_as_they_were_started_while_the_group_changes",
    ),
)
