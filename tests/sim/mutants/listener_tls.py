"""Bugs in TLS of single listeners (``gantry_protocol.tls.listeners``, and the operator's part)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

LISTENERS = "gantry_protocol.tls.listeners"
PLAN = "gantry_operator.plan.listener_tls"
SETTINGS = "unit/protocol/tls/test_listeners.py"
SERVED = "integration/protocol/test_listener_tls.py"
OPERATED = "unit/operator/test_listener_tls.py"
SHARDED = "unit/operator/test_shard_listener_tls.py"
PAIRS = "unit/protocol/tls/test_pairs.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "listener tls", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "a-late-certificate-ends-the-process",
        "a Secret that is missing in one listener keeps a broker from everybody",
        f"{LISTENERS}:ListenerTls.load",
        "except ConfigError as error:",
        "except ZeroDivisionError as error:",
        f"{SETTINGS}::test_a_certificate_may_come_late",
    ),
    _mutant(
        "listeners-have-the-tls-of-the-process",
        "those outside are served in clear as those inside are",
        f"{LISTENERS}:listener_tls",
        "if name in choices else process",
        "if False else process",
        f"{SETTINGS}::test_a_listener_without_its_own_has_that_of_the_process",
    ),
    _mutant(
        "anybody-outside-without-a-certificate",
        "clients without a certificate are served at a listener where certificates are demanded",
        f"{LISTENERS}:_settings_of",
        "tls_client_ca_file=client_ca, ",
        "",
        f"{SETTINGS}::test_the_mode_of_a_listener_may_differ_with_the_same_certificate",
    ),
    _mutant(
        "further-ports-have-the-first-ones-tls",
        "a listener's port shows no certificate, or another's",
        "gantry_protocol.remoting.server:RemotingServer._take_from",
        "partial(self._arrived, tls)",
        "partial(self._arrived, self._tls)",
        f"{SERVED}::test_ports_have_their_own_tls_and_all_else_in_common",
    ),
    _mutant(
        "further-ports-outlive-the-server",
        "who is led to a pod that ends is accepted there, and cut",
        "gantry_protocol.remoting.server:RemotingServer.stop_listening",
        "for listener in listeners:",
        "for listener in listeners[:1]:",
        f"{SERVED}::test_ports_have_their_own_tls_and_all_else_in_common",
    ),
    _mutant(
        "no-certificate-is-a-fault-of-ours",
        "a handshake at a listener that waits for its certificate leaves a connection that is open",
        "gantry_protocol.remoting.tls_transport:TlsTransport._begin_tls",
        "self.raw.abort()",
        "pass",
        f"{SERVED}::test_without_a_certificate_only_handshakes_end",
    ),
    _mutant(
        "outside-in-clear",
        "a listener that admits plain connections needs nobody's leave",
        "gantry_operator.models.listeners:are_guarded",
        'listener.tls.mode == "Enforcing"',
        'listener.tls.mode != "Disabled"',
        f"{OPERATED}::test_plain_text_is_judged_by_listener",
    ),
    _mutant(
        "services-lead-to-ports-that-are-not-there",
        "a listener that gets TLS serves nobody until the first pod is replaced",
        f"{PLAN}:shared_listeners",
        "and not (current and",
        "and not (True and",
        f"{OPERATED}::TestChange::test_a_listener_serves_as_before_until_the_change_is_carried_out",
    ),
    _mutant(
        "new-listeners-begin-in-clear",
        "a listener that is to enforce TLS is served without while pods are replaced",
        f"{PLAN}:shared_listeners",
        "and _target(seen, listener.name) in SHARED_PORTS",
        "and _target(seen, listener.name) in (*SHARED_PORTS, None)",
        f"{OPERATED}::TestChange::test_a_new_one_leads_to_its_own_port_at_once",
    ),
    _mutant(
        "nobody-is-told-of-an-end",
        "a listener's certificate ends, and its owner hears it from clients",
        f"{PLAN}:_fault",
        "found.ends <= now.timestamp()",
        "found.ends < 0",
        f"{OPERATED}::TestCertificates::test_one_condition_says_what_to_do",
    ),
    _mutant(
        "one-look-at-a-certificate",
        "what was wrong with a Secret once is said for ever",
        "gantry_operator.reconcile.certificates:Certificates._judged",
        "now_s - known[0] < FRESH_S",
        "known[1].secret",
        f"{OPERATED}::test_secrets_are_read_by_name_and_seldom",
    ),
    _mutant(
        "pods-wait-for-a-listeners-secret",
        "a name that is mistyped in one listener keeps pods from starting",
        "gantry_operator.builders.tls:listener_files",
        '"optional": True,',
        "",
        f"{OPERATED}::TestPods::test_doors_and_brokers_listen_at_ports_of_their_own",
    ),
    _mutant(
        "another-key-is-none-of-our-business",
        "a key of another certificate is told by a log line in a pod, and by no condition",
        f"{PLAN}:judged",
        "(fault := fault_of(cert, key)) is not None",
        "(fault := fault_of(cert, key)) is None and fault is not None",
        f"{OPERATED}::TestCertificates::test_a_key_of_another_certificate_is_said_and_what_to_do",
    ),
    _mutant(
        "only-keys-of-one-kind-are-compared",
        "an RSA key beside an elliptic-curve certificate is said not to read",
        "gantry_protocol.tls.pairs:pair_fault",
        "if error.reason in MISMATCHES:",
        'if error.reason == "KEY_VALUES_MISMATCH":',
        f"{PAIRS}::test_a_key_of_another_certificate_is_said_to_be_one",
    ),
    _mutant(
        "shards-are-served-in-clear-outside",
        "a listener's Services lead to the ports of those inside, where no TLS is spoken",
        "gantry_operator.builders.listeners:_shard_ports",
        "target = number if listener is None else",
        "target = number if True else",
        f"{SHARDED}::TestPods::test_each_shard_has_a_port_for_each_listener_with_its_own",
    ),
    _mutant(
        "listeners-of-shards-run-into-each-other",
        "the second shard of a listener has the port of another listener, and no broker starts",
        "gantry_operator.builders.listeners:own_ports",
        "n * names.MAX_SHARDS",
        "n",
        f"{SHARDED}::TestPods::test_as_many_as_there_may_be_have_ports_apart",
    ),
    _mutant(
        "a-policy-closes-the-ports-of-shards-outside",
        "who comes in by a listener is dropped on the last step of the way",
        "gantry_operator.builders.network:broker_policy",
        "(names.FIRST_SHARD_PORT, *firsts)",
        "(names.FIRST_SHARD_PORT,)",
        f"{SHARDED}::TestPods::test_each_port_is_open_to_clients",
    ),
    _mutant(
        "shards-never-come-to-tls",
        "a listener of shards that gets TLS is served without it for ever",
        f"{PLAN}:_first_port",
        "if shards:",
        "if False:",
        f"{SHARDED}::TestChange::test_a_listener_serves_as_before_until_every_pod_has_its_ports",
    ),
    _mutant(
        "ports-of-listeners-may-overlap",
        "a broker ends at its start with a port in use, its own",
        "gantry_broker.host.settings:BrokerSettings.port_map",
        "if len(set(further)) < len(further):",
        "if False:",
        f"{SETTINGS}::test_ports_of_many_groups_are_apart",
    ),
)
