"""Bugs in TLS between members (``gantry_protocol.member_tls`` and who asks it)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

TLS = "gantry_protocol.member_tls"
HANDSHAKES = "unit/protocol/member_tls/test_handshakes.py"
PROCESS = "unit/protocol/member_tls/test_process.py"
NAMES = "unit/protocol/member_tls/test_names.py"
GUARD = "unit/controller/remoting/test_guard_members.py"
GATE = "gantry_controller.remoting.guard"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edits = (Edit(place, text, other),)
    return Mutant(name, "member tls", what, edits, UnitTests(killer))


MUTANTS = (
    _mutant(
        "any-member-will-do",
        "a front, or a broker of any group, is believed at the port of controllers",
        f"{TLS}.process:MemberTls.judge",
        "if not any(names.has(item) for item in expected):",
        "if not names.members:",
        f"{HANDSHAKES}::test_listener_hears_nothing_of_a_hostile_dialler",
    ),
    _mutant(
        "members-of-all-domains",
        "members of another quorum whose authority is the same are believed",
        f"{TLS}.process:MemberTls.judge",
        "if names.domain != domain:",
        "if False:",
        f"{HANDSHAKES}::test_listener_hears_nothing_of_a_hostile_dialler",
    ),
    _mutant(
        "listeners-are-not-judged",
        "whoever takes a master's address hears what its replicas tell it",
        f"{TLS}.dialling:_Dialled.shaken",
        "self._tls.judge(self._secure, (self._expected,))",
        "self._tls.judge(self._secure, ()) if False else None",
        f"{HANDSHAKES}::test_dialler_tells_another_group_nothing",
    ),
    _mutant(
        "plain-words-of-members-while-enforced",
        "who shows no certificate is heard between members although that is enforced",
        f"{TLS}.arriving:_Arrived._open",
        "elif tls.is_enforced:",
        "elif False:",
        f"{HANDSHAKES}::test_plain_words_are_heard_while_permissive_only",
    ),
    _mutant(
        "enforced-and-yet-dialled-plainly",
        "a member that enforces TLS tells all to a listener that speaks none",
        f"{TLS}.dialling:dial_member",
        "if tls.is_enforced:",
        "if False:",
        "unit/broker/ha/test_links_tls.py::test_modes_that_go_together",
    ),
    _mutant(
        "permissive-members-do-not-meet",
        "the first member with a certificate reaches none of the others",
        f"{TLS}.dialling:dial_member",
        "if tls.is_enforced:",
        "if tls.is_on:",
        "unit/broker/ha/test_links_tls.py::test_modes_that_go_together",
    ),
    _mutant(
        "handshakes-take-as-long-as-they-like",
        "strangers amid their handshakes fill the ports of members for ever",
        f"{TLS}.arriving:_Arrived._late",
        'self.refuse("time"',
        'self._note("time"',
        f"{HANDSHAKES}::test_stalled_handshake_is_ended",
    ),
    _mutant(
        "a-crowd-keeps-members-out",
        "one address takes all places, and every member is turned away for it",
        f"{TLS}.arriving:MemberPort.arrived",
        "crowd.most_common(1)",
        "crowd.most_common()[-1:]",
        f"{HANDSHAKES}::test_crowd_of_one_address_gives_way_to_others",
    ),
    _mutant(
        "handshakes-fill-the-loop",
        "strangers' handshakes hold up heartbeats",
        f"{TLS}.turns:HandshakeTurns._turn",
        "if self._clock() >= until_s:",
        "if False:",
        f"{HANDSHAKES}::test_handshakes_take_turns_by_address_and_leave_time",
    ),
    _mutant(
        "members-wait-behind-a-flood",
        "a member's handshake waits for all of one address that floods",
        f"{TLS}.turns:HandshakeTurns._turn",
        "del self._rows[address]",
        "pass",
        f"{HANDSHAKES}::test_handshakes_take_turns_by_address_and_leave_time",
    ),
    _mutant(
        "certificate-of-another-process",
        "a process starts with the certificate of another, and is refused everywhere",
        f"{TLS}.process:_own_names",
        "if names is None or not names.has(item)",
        "if names is None",
        f"{PROCESS}::test_process_does_not_start_with_the_certificate_of_another",
    ),
    _mutant(
        "prefix-of-a-group-is-the-group",
        "a certificate for orders is good for orders2, too",
        f"{TLS}.names:_is_named",
        "return pattern.endswith(ANY) and name",
        "return name",
        f"{NAMES}::test_certificate_is_for_whom_it_names",
    ),
    _mutant(
        "key-does-where-certificates-are-enforced",
        "who has the key and no certificate moves masterships",
        f"{TLS}.process:MemberTls.takes",
        "not self.is_enforced if names is None",
        "True if names is None",
        f"{GUARD}::test_key_alone_does_not_do_where_certificates_are_enforced",
    ),
    _mutant(
        "broker-speaks-for-all-groups",
        "a broker of one group registers, and is elected, in another one",
        f"{GATE}:Guard._members_objection",
        "MemberName(kind, cluster, group)",
        "MemberName(kind)",
        f"{GUARD}::test_nobody_speaks_for_another_group",
    ),
    _mutant(
        "group-of-any-cluster",
        "a broker that leaves the cluster out speaks for the group of its name in another one",
        f"{GATE}:name_cluster",
        "if cluster:",
        "if False:",
        f"{GUARD}::test_request_without_a_cluster_is_of_the_cluster_in_the_certificate",
    ),
    _mutant(
        "no-group-is-any-group",
        "a broker that names no group is heard as one of all",
        f"{GATE}:Guard._members_objection",
        "wanted = [CONTROLLER]",
        "pass",
        f"{GUARD}::test_who_names_no_group_is_heard_of_none",
    ),
    _mutant(
        "first-row-stands-for-all",
        "a heartbeat of many rows keeps members of other groups alive",
        "gantry_controller.remoting.control:ControllerRequests._heartbeats",
        "row.broker_name):\n",
        "body.rows[0].broker_name):\n",
        f"{GUARD}::test_each_row_of_a_heartbeat_is_judged",
    ),
    _mutant(
        "signed-elections-are-sent-again",
        "whoever has read a signed election moves the mastership back with it",
        f"{GATE}:Guard._members_objection",
        "if names is None and not spoken_by and",
        "if names is None and",
        f"{GUARD}::test_people_sign_and_move_no_mastership",
    ),
    _mutant(
        "replica-of-any-group",
        "a broker of another group copies this one's log",
        "gantry_broker.ha.listener:ReplicaListener._received",
        "if not self._tls.takes(link.names, member):",
        "if False:",
        "unit/broker/ha/test_links_tls.py"
        "::test_replica_with_the_certificate_of_another_group_is_refused",
    ),
    _mutant(
        "front-of-any-cluster",
        "a front of another cluster reads and appends here",
        "gantry_broker.remote.serving:StoreServer._disbelief",
        "if tls.takes(",
        "if tls or tls.takes(",
        "unit/broker/remote/test_serving.py::test_front_is_of_the_cluster_in_its_certificate",
    ),
)
