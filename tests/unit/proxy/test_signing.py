"""The proxy as a user of the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_protocol.access.rules import User
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.remoting.admission import Admitted, Users
from gantry_protocol.remoting.server import RemotingServer
from gantry_proxy.calls import Masters
from gantry_proxy.server import _signs
from gantry_proxy.settings import ProxySettings


async def test_requests_are_signed_by_the_user_that_the_proxy_is(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("a-secret-of-somebody\n")
    settings = ProxySettings(nameserver=["h:9876"], access_key="ada", secret_key_file=file)
    sign = _signs(settings, None)
    assert sign is not None
    users = Users("c", {"ada": User("a-secret-of-somebody", "Super")})
    heard: list[RemotingCommand] = []
    server = RemotingServer(lambda conn, asked: (heard.append(asked), reply(asked))[1])
    port = await server.start("127.0.0.1", 0)
    masters = Masters([], sign)
    await masters.call(f"127.0.0.1:{port}", lambda: request(310, {"b": "t"}, b"x"), 3)
    assert isinstance(users.admit(heard[0], "127.0.0.1"), Admitted)
    await masters.close()
    await server.stop(0)
    assert _signs(ProxySettings(nameserver=["h:9876"]), None) is None


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"access_key": "ada"}, "access_key and secret_key_file need each other"),
        ({"secret_key_file": Path("s")}, "access_key and secret_key_file need each other"),
        ({"controllers": ["c:9878"]}, "controllers and quorum_key_file need each other"),
        ({"quorum_key_file": Path("k")}, "controllers and quorum_key_file need each other"),
        (
            {
                "controllers": ["c"],
                "quorum_key_file": Path("k"),
                "access_key": "ada",
                "secret_key_file": Path("s"),
            },
            "clients are users themselves",
        ),
    ],
)
def test_who_the_proxy_is_has_one_answer(named: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ProxySettings(nameserver=["h:9876"], **named)  # type: ignore[arg-type]
