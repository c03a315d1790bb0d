"""Commands that ask controllers by TLS: options, and what is wrong with them in one sentence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from gantry_cli.main import cli
from gantry_cli.options import admin_options
from gantry_cli.target import Admin, admin_of
from gantry_protocol.errors import GantryError
from support.certificates import MemberAuthority

FOUND: list[Admin] = []


@click.command()
@admin_options
def ask(controllers: str | None, token_file: Path | None) -> None:
    FOUND[:] = [asyncio.run(admin_of(controllers, token_file))]


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    (tmp_path / "token").write_text("secret")
    file = str(tmp_path / "token")
    return ["--controllers", "10.0.0.1,10.0.0.2", "--admin-token-file", file]


@pytest.fixture
def ca(tmp_path: Path) -> str:
    return str(MemberAuthority(tmp_path / "authority").file)


def asked(*arguments: str, env: dict[str, str] | None = None) -> Admin:
    result = CliRunner().invoke(ask, arguments, env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return FOUND[0]


async def domain_of(admin: Admin) -> Any:
    (trust,) = {endpoint.trust for endpoint in admin.controllers}
    assert trust is not None
    assert not trust.plainly
    context: Any = await trust.context(fresh=False)
    return context.domain


async def test_all_controllers_are_asked_by_tls_if_an_authority_is_given(
    where: list[str], ca: str
) -> None:
    given = await asyncio.to_thread(asked, *where, "--member-tls-ca-file", ca)
    assert await domain_of(given) is None
    more = ["--member-tls-ca-file", ca, "--member-tls-domain", "mq"]
    assert await domain_of(await asyncio.to_thread(asked, *where, *more)) == "mq"


async def test_authority_may_be_a_variable_as_a_controllers_pod_has_it(
    where: list[str], ca: str
) -> None:
    env = {"GANTRY_MEMBER_TLS_CA_FILE": ca, "GANTRY_MEMBER_TLS_DOMAIN": "mq"}
    assert await domain_of(await asyncio.to_thread(asked, *where, env=env)) == "mq"


def test_without_an_authority_nobody_is_asked_by_tls(where: list[str]) -> None:
    assert [endpoint.trust for endpoint in asked(*where).controllers] == [None, None]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--member-tls-domain", "mq"], "--member-tls-domain needs --member-tls-ca-file"),
        (["--member-tls-ca-file", "/nowhere"], "The TLS file /nowhere cannot be read"),
        (["--member-tls-ca-file", "TOKEN"], "holds no certificate in PEM"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(
    where: list[str], more: list[str], said: str
) -> None:
    more = [where[-1] if word == "TOKEN" else word for word in more]
    result = CliRunner().invoke(cli, ["controllers", "list", *where, *more])
    assert isinstance(result.exception, GantryError)
    assert said in str(result.exception)


def test_every_command_of_the_admin_api_has_the_options() -> None:
    def commands(group: click.Command, *names: str) -> list[tuple[str, click.Command]]:
        if not isinstance(group, click.Group):
            return [(" ".join(names), group)]
        context = click.Context(group)
        found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
        return [one for name, sub in found if sub for one in commands(sub, *names, name)]

    checked = []
    for name, command in commands(cli):
        options = {option for param in command.params for option in param.opts}
        if "--controllers" in options and "--admin-token-file" in options:
            checked.append(name)
            assert options >= {"--member-tls-ca-file", "--member-tls-domain"}, name
    assert {"controllers list", "status", "elect", "access list"} & set(checked)
