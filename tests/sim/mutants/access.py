"""Bugs in who may do what: somebody is served who must not be, or a cluster is locked."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

RULES, SIGNED = "unit/protocol/access/test_judgement.py", "unit/protocol/test_admission.py"
GATE, STATE = "unit/broker/clients/test_access.py", "unit/controller/metadata/test_users.py"
TOLD = "unit/controller/remoting/test_user_requests.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "access", what, (Edit(place, text, other),), UnitTests(killer), quick=True)


MUTANTS = (
    _mutant(
        "a-prefix-before-a-name",
        "a rule on all topics counts before the one that denies this topic",
        "gantry_protocol.access.judgement:_Compiled.__init__",
        "self._is_prefix,",
        "not self._is_prefix,",
        RULES,
    ),
    _mutant(
        "one-demand-is-enough",
        "who may consume a topic consumes it in anybody's group",
        "gantry_protocol.access.judgement:Judge.refused",
        "if not self._allows(demand, address):",
        "if not self._allows(demand, address) and demand.kind is ResourceKind.TOPIC:",
        RULES,
    ),
    _mutant(
        "disabled-users-go-on",
        "a user that was disabled goes on reading and writing",
        "gantry_protocol.remoting.admission:Users.judged",
        "if not user.is_enabled:",
        "if False:",
        SIGNED,
    ),
    _mutant(
        "any-secret-will-do",
        "whoever knows a user's name is this user",
        "gantry_protocol.remoting.admission:Users.not_signed",
        "if user is not None and has_signed(user):",
        "if user is not None:",
        SIGNED,
    ),
    _mutant(
        "retry-topics-of-others",
        "a consumer of one group reads what another group failed at",
        "gantry_protocol.remoting.demands:topic",
        "if name is not None and name.startswith(RETRY_PREFIX):",
        "if name is not None and name.startswith(RETRY_PREFIX) and PUB in actions:",
        SIGNED,
    ),
    _mutant(
        "unknown-means-open",
        "a broker that has just started serves everybody until it hears of users",
        "gantry_broker.clients.access:Gate.is_ready",
        "return self._access.is_known",
        "return True",
        GATE,
    ),
    _mutant(
        "no-gate-before-the-processor",
        "requests are served whoever made them",
        "gantry_broker.clients.routing:ClientRouter.handle",
        "return self._objection(conn, request) or processor(conn, request)",
        "return processor(conn, request)",
        GATE,
    ),
    _mutant(
        "super-users-for-later",
        "while access is off anybody makes a super user, who is there once it is on",
        "gantry_broker.clients.users:UserRequests.pass_on",
        "if objection is not None:",
        "if objection is not None and self._access.enabled:",
        GATE,
    ),
    _mutant(
        "half-messages-for-strangers",
        "a user without rules registers as a producer and is shown messages of transactions",
        "gantry_broker.clients.access:ClusterUsers.may_be_asked",
        "return user == ACCESS_KEY or self.users.may(",
        "return True or self.users.may(",
        GATE,
    ),
    _mutant(
        "transactions-of-other-topics-end",
        "who may send to one topic rolls back what is sent to another",
        "gantry_broker.clients.transactions:Transactions._end",
        "if half is not None and not may_end(",
        "if False and not may_end(",
        "unit/broker/clients/test_transactions.py",
    ),
    _mutant(
        "secrets-for-strangers",
        "whoever reaches the controllers of an open quorum is told the users' secrets",
        "gantry_controller.remoting.users:UserRequests._access",
        "users_of(self._machine.state, cluster) if is_trusted else {}",
        "users_of(self._machine.state, cluster)",
        TOLD,
    ),
    _mutant(
        "super-users-of-an-open-quorum",
        "while a key is rolled out, whoever reaches the controllers makes a super user, or turns"
        " access off",
        "gantry_controller.remoting.guard:Guard.objection",
        "self.is_open and not (self.has_key and command.code in OF_USERS)",
        "self.is_open",
        TOLD,
    ),
    _mutant(
        "secrets-by-way-of-a-follower",
        "who has shown no key asks a follower, and the leader believes the follower",
        "gantry_controller.remoting.users:UserRequests._access",
        "is_trusted = exchange.connection.believed and not header.no_secrets",
        "is_trusted = exchange.connection.believed",
        TOLD,
    ),
    _mutant(
        "one-topic-named-another-made",
        "a static topic is made in the body, and the header names one that the user may make",
        "gantry_protocol.remoting.demands:_static_topic",
        "(topic(decode_body(_TopicName, command.body).topic, CREATE),)",
        "_fields(CREATE, topics='topic')(command, _)",
        SIGNED,
    ),
    _mutant(
        "consumers-delete-retry-topics",
        "a consumer deletes its group's retry topic, and all that waits there",
        "gantry_protocol.remoting.demands:topic",
        "actions if _OF_CLIENTS.isdisjoint(actions) else (SUB,)",
        "(SUB,)",
        SIGNED,
    ),
    _mutant(
        "who-names-nothing-may-all",
        "a request whose header names no resource needs no rule",
        "gantry_protocol.remoting.demands:_named",
        "return named or (",
        "return named if named is not None else (",
        SIGNED,
    ),
    _mutant(
        "a-denial-for-each-invented-name",
        "a stranger fills the log by signing each request as another user",
        "gantry_protocol.remoting.known_users:KnownUsers.note",
        'who = f"({denied.reason})" if denied.reason in NOBODYS else user',
        "who = user",
        GATE,
    ),
    _mutant(
        "all-topics-but-the-denied-one",
        "who may read all topics but one reads it by the places of its messages",
        "gantry_protocol.access.judgement:_Compiled.fits",
        "if self._name and self.allows:",
        "if self._name:",
        RULES,
    ),
    _mutant(
        "the-last-super-user-goes",
        "a cluster whose clients need users has nobody left who could change anything",
        "gantry_controller.metadata.users:_locks",
        "return _supers(users_of(state, cluster)) == [name]",
        "return False",
        STATE,
    ),
)
