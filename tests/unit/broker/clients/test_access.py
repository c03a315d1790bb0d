"""The gate before clients' requests, and how a process learns who may pass."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.access import MAY, USER_CODES, ClusterUsers, Gate, stand_before
from gantry_broker.clients.users import UserRequests
from gantry_broker.host.hosting import _ABOUT_MEMBER
from gantry_protocol.access.rules import User, make_rule
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.access import ClusterAccess
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.quorum_key import NO_KEY, KeyFile, read_keys, write_key
from gantry_protocol.remoting import demands, known_users
from gantry_protocol.remoting.admission import BEHALF_FIELD, SOURCE_FIELD, signed
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.signatures import SIGNATURE_FIELD, is_signed
from msgspec.structs import replace
from support.group_view import FakeConnection
from support.routed_member import Member, ask, until

SECRET = "secret-of-ada"
SEND = RequestCode.SEND_MESSAGE_V2
DENIED = ResponseCode.NO_PERMISSION


class Controllers:
    """They note what they are asked; the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[RemotingCommand, Callable[[Outcome], None], float]] = []

    def ask(
        self,
        command: RemotingCommand,
        done: Callable[[Outcome], None],
        timeout_s: float,
        held_s: float = 0.0,
    ) -> None:
        self.asked.append((command, done, held_s))

    def say(self, body: ClusterAccess | Outcome) -> None:
        command, done, _ = self.asked[-1]
        is_body = isinstance(body, ClusterAccess)
        done(reply(command, body=encode_body(body)) if is_body else body)


def told(*, enabled: bool = True, index: int = 1, **users: User) -> ClusterAccess:
    return ClusterAccess(index, enabled, is_news=True, users=users)


ADA = User(SECRET, rules=(make_rule("Topic:t", ["Pub"]), make_rule("Group:g", ["Sub"])))


@pytest.fixture
def controllers() -> Controllers:
    return Controllers()


def start(controllers: Controllers, key: KeyFile = NO_KEY, **named: bool) -> ClusterUsers:
    users = ClusterUsers("c", controllers, key, **named)
    users.start()
    return users


class Visitor(FakeConnection):
    believed = False


def visit(users: ClusterUsers, command: RemotingCommand, **attrs: object) -> int | None:
    visitor = Visitor()
    visitor.attrs.update(attrs)
    answer = Gate(users).judged(visitor, command)  # type: ignore[arg-type]
    return None if answer is None else answer.code


def send(topic: str = "t", user: str = "ada") -> RemotingCommand:
    return signed(request(SEND, {"b": topic}), user, SECRET.encode())


async def test_nobody_passes_before_the_controllers_have_said_who_may(
    controllers: Controllers,
) -> None:
    users = start(controllers)
    gate = Gate(users)
    assert not gate.is_ready
    assert visit(users, send()) == ResponseCode.SERVICE_NOT_AVAILABLE
    controllers.say(RequestTimeout("they are away"))
    assert not gate.is_ready
    controllers.say(told(enabled=False))
    assert gate.is_ready
    users.stop()


async def test_what_is_known_stays_while_controllers_are_away(controllers: Controllers) -> None:
    users = start(controllers)
    controllers.say(told(ada=ADA))
    for outcome in (RequestTimeout("away"), reply(request(1), ResponseCode.SYSTEM_BUSY),
                    reply(request(1), ResponseCode.NO_PERMISSION),
                    reply(request(1), ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
                    reply(request(1), body=b"{")):  # fmt: skip
        controllers.say(outcome)
        assert visit(users, send()) is None
        assert visit(users, send("other")) == DENIED
    controllers.say(ClusterAccess(1, enabled=True))  # no news
    assert visit(users, send()) is None
    controllers.say(told(index=2, bob=ADA))
    assert visit(users, send()) == DENIED
    users.stop()


async def test_controllers_of_an_older_version_know_no_users(controllers: Controllers) -> None:
    users = start(controllers)
    controllers.say(reply(request(1), ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    assert users.is_known
    assert not users.enabled
    controllers.say(told(ada=ADA))
    assert users.enabled
    users.stop()


@pytest.mark.parametrize("enabled", [True, False])
async def test_users_are_nobodys_to_change_without_a_user(
    controllers: Controllers, enabled: bool, tmp_path: Path
) -> None:
    key = KeyFile(write_key(tmp_path / "key"))
    users = start(controllers, key)
    controllers.say(told(enabled=enabled, ada=ADA, root=User(SECRET, "Super")))
    requests = UserRequests(users)

    def ask_for(code: int, user: str = "", secret: bytes = SECRET.encode()) -> int | None:
        asked = request(code, {"username": "x"})
        answer = requests.pass_on(Visitor(), signed(asked, user, secret) if user else asked)  # type: ignore[arg-type]
        return None if answer is None else answer.code

    for code in sorted(USER_CODES):
        before = len(controllers.asked)
        assert ask_for(code) == ask_for(code, "ada") == DENIED
        assert ask_for(code, "gantry", b"not the quorum's key") == DENIED
        assert len(controllers.asked) == before
        assert ask_for(code, "root") is None
        assert ask_for(code, "gantry", read_keys(key.file)[0]) is None
        assert len(controllers.asked) == before + 2
        assert SIGNATURE_FIELD not in (controllers.asked[-1][0].ext or {})
    users.stop()


async def test_who_has_the_quorums_key_is_one_of_ours(
    controllers: Controllers, tmp_path: Path
) -> None:
    key = KeyFile(write_key(tmp_path / "key"))
    users = start(controllers, key)
    controllers.say(told(ada=ADA))
    ours = users.sign(request(SEND, {"b": "any", "AccessKey": "ada", SIGNATURE_FIELD: "x"}))
    assert is_signed(ours, key.keys())
    assert visit(users, ours) is None
    assert users.denied == {}
    controllers.say(told(enabled=False, index=2))
    plain = request(SEND, {"b": "any"})
    assert users.sign(plain) is plain
    assert plain.ext == {"b": "any"}
    users.stop()


async def test_a_proxy_may_do_what_the_user_may_that_it_names(
    controllers: Controllers, tmp_path: Path
) -> None:
    key = KeyFile(write_key(tmp_path / "key"))
    users = start(controllers, key)
    near = make_rule("Topic:near", ["Pub"], ["10.0.0.0/8"])
    ada = replace(ADA, rules=(*ADA.rules, near))
    off = User(SECRET, "Super", "disable")
    controllers.say(told(ada=ada, off=off, root=User(SECRET, "Super")))

    def asked(name: str, topic: str = "t", source: str = "10.0.0.9") -> RemotingCommand:
        return request(SEND, {"b": topic, BEHALF_FIELD: name, SOURCE_FIELD: source})

    assert visit(users, users.sign(asked("ada"))) is None
    assert visit(users, users.sign(asked("root", "any"))) is None
    assert visit(users, users.sign(asked("ada", "near"))) is None
    denied = [
        asked("ada", "other"),
        asked("ada", "near", "11.0.0.9"),  # the broker's own peer is in the network
        asked("off"),
        asked("nobody"),
        asked(""),
    ]
    assert [visit(users, users.sign(command)) for command in denied] == [DENIED] * len(denied)
    assert users.denied == {"rules": 2, "disabled": 1, "unknown": 2}
    # A user that names another one is itself and nobody else.
    assert visit(users, signed(asked("root", "any"), "ada", SECRET.encode())) == DENIED
    assert visit(users, signed(asked("root"), "ada", SECRET.encode())) is None
    back = request(RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "g", BEHALF_FIELD: "ada"})
    visitor = Visitor()
    assert Gate(users).objection(visitor, users.sign(back)) is None  # type: ignore[arg-type]
    assert not visitor.attrs[MAY]("t")  # the message that is at the place which it names
    users.stop()


async def test_the_key_is_read_now_and_then(
    controllers: Controllers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = KeyFile(write_key(tmp_path / "key"))
    users = start(controllers, key)
    controllers.say(told(ada=ADA))
    now_s = 100.0
    monkeypatch.setattr(known_users.time, "monotonic", lambda: now_s)
    first = users.sign(request(SEND, {"b": "any"}))
    assert visit(users, first) is None
    assert key.file is not None
    key.file.write_text("another key, as long as it has to be\n")
    assert visit(users, first) is None
    now_s += known_users.KEY_AGE_S
    assert visit(users, first) == DENIED
    assert visit(users, users.sign(request(SEND, {"b": "any"}))) is None
    users.stop()


async def test_what_a_member_reads_is_asked_of_the_user_that_sends_it_back(
    controllers: Controllers,
) -> None:
    users = start(controllers)
    controllers.say(told(ada=ADA, root=User(SECRET, "Super")))
    back = request(RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "g"})
    visitor = Visitor()
    gate = Gate(users)
    assert gate.objection(visitor, signed(back, "ada", SECRET.encode())) is None  # type: ignore[arg-type]
    may_read = visitor.attrs[MAY]
    assert may_read("%RETRY%g")
    assert not may_read("t")  # it may send there, and not read
    assert gate.objection(visitor, signed(back, "root", SECRET.encode())) is None  # type: ignore[arg-type]
    assert MAY not in visitor.attrs
    end = request(RequestCode.END_TRANSACTION, {"topic": "t"})
    assert gate.objection(visitor, signed(end, "ada", SECRET.encode())) is None  # type: ignore[arg-type]
    may_end = visitor.attrs[MAY]
    assert may_end("t")
    assert not may_end("other")
    users.stop()


async def test_a_half_message_is_shown_to_none_who_may_not_send_there(
    controllers: Controllers,
) -> None:
    """Anybody may say that it is a producer of some group."""
    users = start(controllers)
    controllers.say(told(ada=ADA, root=User(SECRET, "Super"), eve=User(SECRET)))
    beat = request(RequestCode.HEART_BEAT, body=b'{"clientID":"c","producerDataSet":[]}')
    producers = {name: Visitor() for name in ("ada", "root", "eve", "nobody")}
    for name in ("ada", "root", "eve"):
        asked = signed(replace(beat), name, SECRET.encode())
        assert Gate(users).objection(producers[name], asked) is None  # type: ignore[arg-type]

    def shown(topic: str = "t") -> list[str]:
        return [name for name, conn in producers.items() if users.may_be_asked(conn, topic)]  # type: ignore[arg-type]

    assert shown() == ["ada", "root"]
    assert shown("other") == ["root"]
    disabled = User(SECRET, status="disable", rules=ADA.rules)
    controllers.say(told(index=2, ada=disabled, root=User(SECRET, "Super")))
    assert shown() == ["root"]
    controllers.say(told(enabled=False, index=3))
    assert shown() == list(producers)
    users.stop()


async def test_a_denial_is_logged_once_a_second_with_those_between(
    controllers: Controllers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = start(controllers)
    controllers.say(told(ada=ADA))
    caplog.set_level(logging.INFO, "gantry.access")
    caplog.clear()
    now_s = 100.0
    monkeypatch.setattr(known_users.time, "monotonic", lambda: now_s)
    for _ in range(5):
        visit(users, send("other"))
        visit(users, request(SEND))
    assert len(caplog.records) == 2
    now_s += 1.5
    visit(users, send("other"))
    facts = caplog.records[-1].facts  # type: ignore[attr-defined]
    assert (facts["user"], facts["why"], facts["unsaid"]) == ("ada", "rules", 4)
    assert users.denied == {"rules": 6, "unsigned": 5}
    now_s, logged = now_s + 1.5, len(caplog.records)
    for number in range(3 * known_users.LOGGED_USERS_MAX):
        visit(users, send(user=f"stranger-{number}"))
    assert len(caplog.records) == logged + 1, "strangers fill no disk by inventing names"
    controllers.say(told(index=2, **{f"u{number}": User(SECRET) for number in range(600)}))
    for number in range(600):
        visit(users, send(user=f"u{number}"))
    assert len(users._quiet) <= known_users.LOGGED_USERS_MAX
    users.stop()


async def test_every_decision_can_be_logged(
    controllers: Controllers, caplog: pytest.LogCaptureFixture
) -> None:
    users = start(controllers, logs_all=True)
    controllers.say(told(ada=ADA))
    caplog.set_level(logging.INFO, "gantry.access")
    caplog.clear()
    for _ in range(3):
        visit(users, send())
        visit(users, send("other"))
    assert [record.message for record in caplog.records] == [
        "request allowed",
        "request denied",
    ] * 3
    assert users.allowed == 3
    assert SECRET not in caplog.text
    users.stop()


async def test_a_question_waits_for_news_only_where_it_may(controllers: Controllers) -> None:
    """A front asks all controllers that owe no answer for a new master."""
    for may_wait in (True, False):
        users = start(controllers, may_wait=may_wait)
        assert controllers.asked[-1][2] == 0
        controllers.say(told(enabled=False))
        users._ask()
        assert (controllers.asked[-1][2] > 0) is may_wait
        users.stop()


def test_no_code_that_brokers_serve_is_missing_from_the_table(processor: ClientProcessor) -> None:
    served = {*processor._handlers, *_ABOUT_MEMBER, RequestCode.GANTRY_PASSED_ON, *USER_CODES}
    rows = {*demands.TABLE, *demands.SUPER_USERS, *demands.OPEN}
    assert {int(code) for code in served} == {int(code) for code in rows}
    assert not demands.TABLE.keys() & (demands.SUPER_USERS | demands.OPEN)


# ---- at a router


@pytest.fixture
async def member(controllers: Controllers):
    made = await Member("one").start()
    users = ClusterUsers("c", controllers)
    users.start()
    forget = stand_before(made.router, users)
    yield made
    forget()
    assert not users._listeners
    users.stop()
    await made.stop()


async def test_requests_wait_until_it_is_known_who_may_pass(
    member: Member, controllers: Controllers
) -> None:
    member.become_master()
    client = await member.client()
    found: list[object] = []
    client.call_nowait(request(SEND), found.append, 5)
    await until(lambda: member.router.held == 1)
    assert not found
    controllers.say(told(enabled=False))
    await until(lambda: bool(found))
    assert await ask(client) == "one"


async def test_a_denied_request_is_not_served(member: Member, controllers: Controllers) -> None:
    controllers.say(told(ada=ADA))
    member.become_master()
    client = await member.client()
    assert (await client.call(request(SEND, {"b": "t"}))).code == DENIED
    assert not member.peers
    assert (await client.call(send())).remark == "one"
    member.router.about_member = {int(RequestCode.GET_BROKER_HA_STATUS): reply}
    assert (await client.call(request(RequestCode.GET_BROKER_HA_STATUS))).code == DENIED


async def test_asides_are_left_to_the_master_where_access_is_on(
    member: Member, controllers: Controllers
) -> None:
    member.router.aside = lambda pipe, glimpse: True
    assert member.router.open_aside is None
    controllers.say(told(enabled=False))
    assert member.router.open_aside is not None
    controllers.say(told(index=2))
    assert member.router.open_aside is None
