"""`gantry access`, `gantry users`, `gantry acl`: who may do what on the brokers of a cluster."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from gantry_protocol.admin import RuleWish, UserWish
from gantry_protocol.errors import GantryError
from gantry_protocol.process.files import read_secret

from gantry_cli.admin import AdminClient
from gantry_cli.options import (
    admin_options,
    agreed,
    asynchronous,
    json_option,
    yes_option,
)
from gantry_cli.output import print_json, print_table
from gantry_cli.target import CONTROLLER_GROUP, admin_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gantry_protocol.admin import UserView
    from gantry_protocol.admin_client.admin import Admin

cluster_option = click.option(
    "--cluster", default=CONTROLLER_GROUP, show_default=True, help="Of which cluster."
)
secret_option = click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    help="File whose first line is the user's secret, 8 to 128 characters.",
)
status_option = click.option(
    "--status", type=click.Choice(["enable", "disable"]), help="Whether its signatures count."
)
type_option = click.option(
    "--type",
    "kind",
    type=click.Choice(["normal", "super"]),
    help="A super user may do everything and needs no rules.",
)
policy_option = click.option(
    "--policy",
    default="Custom",
    show_default=True,
    type=click.Choice(["Custom", "Default"]),
    help="Default rules count where no custom rule of the user fits.",
)


@asynccontextmanager
async def _asked(
    cluster: str, controllers: str | None, token_file: Path | None
) -> AsyncIterator[Admin]:
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        with admin.of(cluster) as found:
            yield found


def _secret(file: Path | None) -> str | None:
    return None if file is None else read_secret(file)


@click.group(
    epilog="""\b
Examples:
  gantry users create admin --type super --secret-file admin.secret
  gantry access enable                 from now on each request needs a user
  gantry access status"""
)
def access() -> None:
    """Show and change whether clients of a cluster need users.

    While access is on, brokers serve only requests that a user has signed (RocketMQ's ACL: access
    key and secret key) and may make. It is off at first.
    """


@access.command("status")
@cluster_option
@admin_options
@json_option("Print one JSON object.")
@asynchronous
async def access_status(
    cluster: str, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Show whether access is on, and how many users and rules there are."""
    async with _asked(cluster, controllers, token_file) as admin:
        view = await admin.access()
    if as_json:
        print_json({"enabled": view.enabled, "users": len(view.users)})
        return
    rules = sum(len(user.rules) for user in view.users)
    state = "on" if view.enabled else "off"
    click.echo(f"Access is {state} on cluster {cluster}: {len(view.users)} users, {rules} rules.")


@access.command()
@cluster_option
@admin_options
@yes_option
@asynchronous
async def enable(cluster: str, controllers: str | None, token_file: Path | None, yes: bool) -> None:
    """Have every request of a client need a user; clients without one are denied at once."""
    agreed(f"Clients of cluster {cluster} that do not sign will be denied.", yes=yes)
    async with _asked(cluster, controllers, token_file) as admin:
        await admin.set_access(enabled=True)
    click.echo(f"Access is on on cluster {cluster}.")


@access.command()
@cluster_option
@admin_options
@yes_option
@asynchronous
async def disable(
    cluster: str, controllers: str | None, token_file: Path | None, yes: bool
) -> None:
    """Serve whoever reaches a broker's port; users and rules stay."""
    agreed(f"Whoever reaches a broker of cluster {cluster} may do everything there.", yes=yes)
    async with _asked(cluster, controllers, token_file) as admin:
        await admin.set_access(enabled=False)
    click.echo(f"Access is off on cluster {cluster}.")


@click.group(
    epilog="""\b
Examples:
  gantry users create shop --secret-file shop.secret
  gantry users update shop --status disable
  gantry users show shop                         its rules, never its secret
  gantry users delete shop --yes"""
)
def users() -> None:
    """List, show, create, update and delete users.

    A user's name is the access key of clients, its secret their secret key. What it may do is said
    by its rules: gantry acl.
    """


@users.command("list")
@cluster_option
@admin_options
@json_option("Print a JSON array.")
@asynchronous
async def list_users(
    cluster: str, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """List users."""
    async with _asked(cluster, controllers, token_file) as admin:
        found = (await admin.access()).users
    if as_json:
        print_json([user.model_dump(by_alias=True) for user in found])
        return
    print_table(
        ("USER", "TYPE", "STATUS", "RULES"),
        [(user.name, user.type, user.status, len(user.rules)) for user in found],
    )


@users.command("show")
@click.argument("user")
@cluster_option
@admin_options
@json_option("Print one JSON object.")
@asynchronous
async def show_user(
    user: str, cluster: str, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Show USER and its rules."""
    async with _asked(cluster, controllers, token_file) as admin:
        found = [item for item in (await admin.access()).users if item.name == user]
    if not found:
        raise GantryError(f"There is no user {user!r} in cluster {cluster}: gantry users list")
    if as_json:
        print_json(found[0].model_dump(by_alias=True))
        return
    click.echo(f"{user}: {found[0].type}, {found[0].status}")
    _print_rules(found)


@users.command("create")
@click.argument("user")
@secret_option
@type_option
@cluster_option
@admin_options
@asynchronous
async def create_user(
    user: str,
    secret_file: Path | None,
    kind: str | None,
    cluster: str,
    controllers: str | None,
    token_file: Path | None,
) -> None:
    """Create USER, who may do nothing before it is given rules."""
    secret = _secret(secret_file)
    if secret is None:
        raise click.UsageError("A user needs a secret: give --secret-file.")
    async with _asked(cluster, controllers, token_file) as admin:
        await admin.create_user(user, UserWish(secret=secret, type=kind))
    click.echo(f"User {user} was created.")


@users.command("update")
@click.argument("user")
@secret_option
@type_option
@status_option
@cluster_option
@admin_options
@asynchronous
async def update_user(
    user: str,
    secret_file: Path | None,
    kind: str | None,
    status: str | None,
    cluster: str,
    controllers: str | None,
    token_file: Path | None,
) -> None:
    """Change USER's secret, type or status; requests with the old secret are denied at once."""
    wish = UserWish(secret=_secret(secret_file), type=kind, status=status)
    if wish == UserWish():
        raise click.UsageError("Nothing to change: give --secret-file, --type or --status.")
    async with _asked(cluster, controllers, token_file) as admin:
        await admin.update_user(user, wish)
    click.echo(f"User {user} was changed.")


@users.command("delete")
@click.argument("user")
@cluster_option
@admin_options
@yes_option
@asynchronous
async def delete_user(
    user: str, cluster: str, controllers: str | None, token_file: Path | None, yes: bool
) -> None:
    """Delete USER and its rules."""
    agreed(f"User {user} and its rules will be gone, and its clients denied.", yes=yes)
    async with _asked(cluster, controllers, token_file) as admin:
        await admin.delete_user(user)
    click.echo(f"User {user} was deleted.")


@click.group(
    epilog="""\b
Examples:
  gantry acl allow shop --resource 'Topic:orders*' --action Pub
  gantry acl allow billing --resource Topic:orders --resource Group:billing --action Sub
  gantry acl deny shop --resource Topic:orders-internal --action All
  gantry acl remove shop --resource 'Topic:orders*'"""
)
def acl() -> None:
    """Say what users may do: list, allow, deny and remove rules.

    A producer needs Pub on its topics, a consumer Sub on its topics and on its group. The rule
    that names a resource counts before prefixes, and longer prefixes before shorter ones; where
    none fits, the request is denied. A second rule on the same resource replaces the first.
    """


@acl.command("list")
@click.argument("user", required=False)
@cluster_option
@admin_options
@json_option("Print a JSON array.")
@asynchronous
async def list_rules(
    user: str | None, cluster: str, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """List the rules of all users, or of USER."""
    async with _asked(cluster, controllers, token_file) as admin:
        found = [item for item in (await admin.access()).users if user in (None, item.name)]
    if as_json:
        print_json([item.model_dump(by_alias=True) for item in found])
        return
    _print_rules(found)


def _rule_command(name: str, decision: str, what: str) -> None:
    @acl.command(name, help=what)
    @click.argument("user")
    @click.option(
        "--resource",
        "resources",
        multiple=True,
        required=True,
        help="Topic:NAME, Group:NAME, Cluster:NAME; NAME may end in * or be *; or * for all.",
    )
    @click.option(
        "--action",
        "actions",
        multiple=True,
        required=True,
        help="Pub, Sub, Create, Update, Delete, Get, List or All.",
    )
    @click.option(
        "--source", "sources", multiple=True, help="IP address or network. [default: all]"
    )
    @policy_option
    @cluster_option
    @admin_options
    @asynchronous
    async def put(
        user: str,
        resources: tuple[str, ...],
        actions: tuple[str, ...],
        sources: tuple[str, ...],
        policy: str,
        cluster: str,
        controllers: str | None,
        token_file: Path | None,
    ) -> None:
        rules = [
            RuleWish(
                resource=resource,
                actions=list(actions),
                sources=list(sources),
                decision=decision,
                policy=policy,
            )
            for resource in resources
        ]
        async with _asked(cluster, controllers, token_file) as admin:
            await admin.put_rules(user, rules)
        click.echo(f"{decision}: {', '.join(actions)} on {', '.join(resources)} for {user}.")


_rule_command("allow", "Allow", "Allow USER actions on resources.")
_rule_command("deny", "Deny", "Deny USER actions on resources that a wider rule allows.")


@acl.command("remove")
@click.argument("user")
@click.option("--resource", help="Whose rule goes. [default: all rules of USER]")
@policy_option
@cluster_option
@admin_options
@yes_option
@asynchronous
async def remove_rules(
    user: str,
    resource: str | None,
    policy: str,
    cluster: str,
    controllers: str | None,
    token_file: Path | None,
    yes: bool,
) -> None:
    """Remove USER's rule on a resource, or all of its rules."""
    if resource is None:
        agreed(f"All rules of user {user} will be gone.", yes=yes)
    async with _asked(cluster, controllers, token_file) as admin:
        await admin.delete_rules(user, resource, policy)
    click.echo(f"User {user} has no rule on {resource or 'anything'} any more.")


def _print_rules(found: list[UserView]) -> None:
    print_table(
        ("USER", "DECISION", "RESOURCE", "ACTIONS", "FROM", "POLICY"),
        [
            (
                user.name,
                rule.decision,
                rule.resource,
                ", ".join(rule.actions),
                ", ".join(rule.sources) or "all",
                rule.policy,
            )
            for user in found
            for rule in user.rules
        ],
    )
