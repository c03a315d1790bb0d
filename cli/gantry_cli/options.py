"""Options and habits that several commands share."""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from gantry_protocol.errors import ConfigError
from gantry_protocol.member_tls.asking import FileTrust
from gantry_protocol.process.config import flag_name, load_settings, variable_name
from gantry_protocol.process.files import read_secret
from gantry_protocol.tls.process import NO_TLS, Tls
from gantry_protocol.tls.settings import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")
T = TypeVar("T")
_TLS = "gantry_cli.tls"  # what was given, in the meta of a command's context
CommandT = TypeVar("CommandT", bound="Callable[..., Any]")


def asynchronous(body: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Run a coroutine function as the body of a command, on a loop of its own.

    A command that was cancelled (by SIGTERM, where it listens for it) ends like an interrupted one.
    """

    @functools.wraps(body)
    def command(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return asyncio.run(body(*args, **kwargs))
        except asyncio.CancelledError:
            raise click.Abort from None

    return command


def nameserver_option(command: CommandT) -> CommandT:
    """`--nameserver`, how it is dialled, and who asks; without it the local cluster is meant."""
    return _credentials_options(_nameserver_option(command))


def client_options(command: CommandT) -> CommandT:
    """The options of a client that is told by other means where to go: who it is, and its TLS."""
    return _credentials_options(tls_options(command))


def _credentials_options(command: CommandT) -> CommandT:
    """`--access-key`, `--secret-key-file`: kept in the context, where `credentials` finds them."""
    access_key = click.option(
        "--access-key",
        envvar="GANTRY_ACCESS_KEY",
        expose_value=False,
        callback=_remember,
        help="User that signs requests, where brokers ask for one. [env: GANTRY_ACCESS_KEY]",
    )
    secret_key_file = click.option(
        "--secret-key-file",
        envvar="GANTRY_SECRET_KEY_FILE",
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=_remember,
        help="File with its secret. [env: GANTRY_SECRET_KEY_FILE]",
    )
    return access_key(secret_key_file(command))


def _remember(context: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        context.meta[f"gantry.{option.name}"] = value


def credentials() -> tuple[str, bytes] | None:
    """The user that this command was given, and its secret; None for neither.

    Raises:
        ConfigError: one of the two is missing, or the file holds no secret.
    """
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    user, file = meta.get("gantry.access_key"), meta.get("gantry.secret_key_file")
    if user is None and file is None:
        return None
    if user is None or file is None:
        raise ConfigError("--access-key and --secret-key-file need each other: give both.")
    return user, read_secret(file).encode()


def _nameserver_option(command: CommandT) -> CommandT:
    return click.option(
        "--nameserver",
        "nameservers",
        envvar="GANTRY_NAMESERVERS",
        metavar="HOST:PORT,…",
        help="Name servers to ask. [env: GANTRY_NAMESERVERS; default: the cluster that "
        "'gantry local up' started]",
    )(tls_options(command))


def admin_options(command: CommandT) -> CommandT:
    """`--controllers` and how they are asked; without them the cluster on this machine is meant."""
    controllers = click.option(
        "--controllers",
        envvar="GANTRY_CONTROLLERS_HTTP",
        metavar="HOST:PORT,…",
        help="Admin API of the controllers. [env: GANTRY_CONTROLLERS_HTTP; default: the cluster "
        "that 'gantry local up' started]",
    )
    token_file = click.option(
        "--admin-token-file",
        "token_file",
        envvar="GANTRY_ADMIN_TOKEN_FILE",
        type=click.Path(path_type=Path),
        help="File with the token of the admin Secret; needed with --controllers.",
    )
    ca_file = click.option(
        "--member-tls-ca-file",
        envvar="GANTRY_MEMBER_TLS_CA_FILE",
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=_remember,
        help="Ask --controllers by TLS, and believe certificates of controllers by the members' "
        "authorities in this file. [env: GANTRY_MEMBER_TLS_CA_FILE]",
    )
    domain = click.option(
        "--member-tls-domain",
        envvar="GANTRY_MEMBER_TLS_DOMAIN",
        expose_value=False,
        callback=_remember,
        help="Domain that their certificates must be of, as in gantry://DOMAIN/controller. "
        "[env: GANTRY_MEMBER_TLS_DOMAIN; default: any domain]",
    )
    return controllers(token_file(ca_file(domain(command))))


def controllers_trust() -> FileTrust | None:
    """The controllers that this command believes; None: it asks without TLS.

    Raises:
        ConfigError: the file is no good, or a domain is given without one.
    """
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    file, domain = meta.get("gantry.member_tls_ca_file"), meta.get("gantry.member_tls_domain")
    if file is None and domain is not None:
        raise ConfigError("--member-tls-domain needs --member-tls-ca-file: nobody is verified.")
    return None if file is None else FileTrust(file, domain)


def json_option(what: str) -> Callable[[CommandT], CommandT]:
    """`--json`, for scripts."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def yes_option(command: CommandT) -> CommandT:
    """`--yes`, for what cannot be taken back."""
    return click.option("--yes", "-y", is_flag=True, help="Do it without asking.")(command)


def agreed(consequence: str, *, yes: bool) -> None:
    """Say what will happen and ask, unless that was answered with `--yes`.

    Raises:
        UsageError: nobody can be asked.
        Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{consequence} Nobody can be asked here: give --yes to do it.")
    click.confirm(f"{consequence} Go on?", abort=True, err=True)


def typed_back(name: str, consequence: str, *, yes: bool) -> None:
    """Like ``agreed``, for what nobody should do by a slip: the name has to be typed.

    Raises:
        UsageError: nobody can be asked.
        Abort: something else was typed.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{consequence} Nobody can be asked here: give --yes to do it.")
    typed = click.prompt(
        f"{consequence} Type {name} to go on", err=True, default="", show_default=False
    )
    if typed != name:
        raise click.Abort


def tls_options(command: CommandT) -> CommandT:
    """`--tls-ca-file` and what goes with it; ``command_tls`` tells what was given."""
    for name, text in (
        ("tls_key_file", "File with the key of --tls-cert-file."),
        ("tls_cert_file", "File with a certificate to show to servers that ask for one."),
        ("tls_server_name", "Name that certificates of servers must be for. [default: any name]"),
        (
            "tls_ca_file",
            "Speak TLS, and believe certificates of the authorities in this file.",
        ),
    ):
        command = click.option(
            flag_name(name),
            name,
            metavar="NAME" if name == "tls_server_name" else "FILE",
            expose_value=False,
            callback=_keep,
            help=f"{text} [env: {variable_name(name)}]",
        )(command)
    return command


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta.setdefault(_TLS, {})[option.name] = value


def command_tls() -> Tls:
    """The TLS of the command that runs; none where it has no such options.

    Raises:
        ConfigError: the options do not go together, or name files that are no good.
    """
    context = click.get_current_context(silent=True)
    if context is None or _TLS not in context.meta:
        return NO_TLS
    tls = Tls(load_settings(TlsFiles, context.meta[_TLS]))
    tls.load()
    return tls
