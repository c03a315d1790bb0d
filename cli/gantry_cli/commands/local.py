"""`gantry local`: a cluster on this machine, without Docker."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click
import yaml
from gantry_local import cluster as api
from gantry_local import manifests
from gantry_local.settings import LocalSettings
from gantry_protocol.errors import GantryError
from gantry_protocol.process.config import load_settings, settings_options

from gantry_cli.options import asynchronous, json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import NAMESPACE, local_settings

if TYPE_CHECKING:
    from gantry_local.client import Client, Resource

namespace_option = click.option(
    "-n", "--namespace", default=NAMESPACE, show_default=True, help="Namespace of the object."
)
container_option = click.option(
    "-c", "--container", default="", help="Which container of the pod; by default its first."
)


@click.group(
    epilog="""\b
Examples:
  gantry local up
  gantry local up --api real                     over Kubernetes' own API server
  gantry local apply -f examples/brokergroup.yaml
  gantry local get brokergroups,frontgroups,pods
  gantry local kill orders-broker-0              SIGKILL; 'delete pod' stops it gracefully
  gantry local logs orders-broker-1 --follow
  gantry local operator stop                     failover does not need it
  gantry local down --purge

\b
The state is in .gantry/local of the working directory, or in GANTRY_LOCAL_DIR. Its file
'kubeconfig' also serves kubectl."""
)
def local() -> None:
    """Run a cluster without Docker: pods are processes.

    Operator, controllers and brokers are the real ones. API server, kubelet, Services and names
    are stand-ins on loopback. With --api real the API server is Kubernetes' own: etcd,
    kube-apiserver and kube-controller-manager of --api-binaries, or on the PATH.
    """


@local.command()
@settings_options(LocalSettings)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Until all is ready.")
@asynchronous
async def up(wait: bool, **flags: object) -> None:
    """Start the cluster, or make sure that it runs.

    It has an operator and a ControllerGroup named gantry; broker groups are yours to apply.
    """
    settings = load_settings(LocalSettings, flags, table="local")
    result = await api.up(
        settings,
        progress=lambda step: click.echo(step, err=True),
        wait=wait,
        given=frozenset(name for name, value in flags.items() if value is not None),
    )
    already = "was up already" if result.already_up else "is up"
    click.echo(f"The cluster {already}: API at {result.url}, kubeconfig {result.kubeconfig}")


@local.command()
@click.option("--purge", is_flag=True, help="Also delete its state and all data.")
@asynchronous
async def down(purge: bool) -> None:
    """Stop the cluster and all its processes; its data stays."""
    settings = local_settings()
    was_running = await api.down(settings, purge=purge)
    click.echo("The cluster is stopped." if was_running else "No cluster was running.")


@local.command("status")
@json_option("Print one JSON object.")
@asynchronous
async def status_(as_json: bool) -> None:
    """Show which processes run; 'gantry status' shows what they do."""
    found = await api.status(local_settings())
    if as_json:
        print_json(found)
        return
    if not found.running:
        raise GantryError(f"No cluster runs in {found.state_dir}; start one with gantry local up.")
    click.echo(f"API {found.url}, daemon pid {found.pid}, state {found.state_dir}")
    click.echo(f"Operators: {found.operators_ready} of {found.operators_wanted} ready\n")
    print_table(
        ("NAMESPACE", "POD", "READY", "PHASE", "RESTARTS", "IP", "PID"),
        [
            (pod.namespace, pod.name, pod.ready, pod.phase, pod.restarts, pod.ip, pod.pid or "-")
            for pod in found.pods
        ],
    )


@local.command()
@click.option(
    "-f",
    "--filename",
    "sources",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File or directory of manifests, or - for standard input; may be given several times.",
)
@namespace_option
@asynchronous
async def apply(sources: tuple[str, ...], namespace: str) -> None:
    """Create or change objects to be as manifests say (server-side apply)."""
    objects = [obj for source in sources for obj in manifests.read(source)]
    async with api.client(local_settings()) as client:
        for obj in objects:
            _, what = await client.apply(obj, namespace=namespace)
            click.echo(f"{obj['kind'].lower()}/{obj['metadata']['name']} {what}")


@local.command()
@click.argument("kinds")
@click.argument("name", required=False)
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces.")
@click.option("-l", "--selector", default="", help="Only objects with these labels.")
@click.option(
    "-o",
    "--output",
    default="table",
    show_default=True,
    type=click.Choice(["table", "wide", "json", "yaml"]),
    help="How to print them.",
)
@asynchronous
async def get(
    kinds: str,
    name: str | None,
    namespace: str,
    all_namespaces: bool,
    selector: str,
    output: str,
) -> None:
    """Show objects of KINDS (comma separated: pods, bg, cg, services, …), or the one named NAME."""
    async with api.client(local_settings()) as client:
        space = None if all_namespaces else namespace
        resources = [await client.resource(word) for word in kinds.split(",")]
        if output in ("table", "wide"):
            await _print_tables(client, resources, space, name, selector, wide=output == "wide")
        else:
            value = await _objects(client, resources, space, name, selector)
            text = json.dumps(value, indent=2) if output == "json" else yaml.safe_dump(value)
            click.echo(text.rstrip())


async def _print_tables(
    client: Client,
    resources: list[Resource],
    namespace: str | None,
    name: str | None,
    selector: str,
    *,
    wide: bool,
) -> None:
    for number, resource in enumerate(resources):
        table = await client.table(resource, namespace, name=name or "", labels=selector, wide=wide)
        if number:
            click.echo()
        if table.rows:
            print_table(table.columns, table.rows)
        else:
            click.echo(f"There are no {resource.plural} here.")


async def _objects(
    client: Client,
    resources: list[Resource],
    namespace: str | None,
    name: str | None,
    selector: str,
) -> dict[str, Any]:
    if name is not None:
        return await client.get(resources[0], name, namespace or NAMESPACE)
    items = [
        item
        for resource in resources
        for item in await client.list(resource, namespace, labels=selector)
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


@local.command()
@click.argument("kind")
@click.argument("name")
@namespace_option
@click.option("--grace", "grace_s", type=click.IntRange(0), help="Seconds to end by itself.")
@asynchronous
async def delete(kind: str, name: str, namespace: str, grace_s: int | None) -> None:
    """Delete the object NAME of KIND; a deleted pod is stopped gracefully and replaced."""
    async with api.client(local_settings()) as client:
        resource = await client.resource(kind)
        await client.delete(resource, name, namespace, grace_s=grace_s)
    click.echo(f"{resource.singular}/{name} deleted")


@local.command()
@click.argument("pod")
@click.option(
    "-s",
    "--signal",
    "signal_name",
    default="KILL",
    show_default=True,
    type=click.Choice(api.SIGNALS, case_sensitive=False),
    help="Which signal; STOP and CONT freeze and thaw.",
)
@namespace_option
@container_option
@asynchronous
async def kill(pod: str, signal_name: str, namespace: str, container: str) -> None:
    """Send a signal to a process of POD, behind Kubernetes' back."""
    pid = await api.kill(
        local_settings(), pod, signal_name=signal_name, namespace=namespace, container=container
    )
    click.echo(f"Sent SIG{signal_name.upper()} to {pod} (pid {pid}).")


@local.command()
@click.argument("pod")
@namespace_option
@container_option
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("-p", "--previous", is_flag=True, help="Of the process before the last restart.")
@click.option("--tail", type=click.IntRange(0), help="Only so many last lines.")
@asynchronous
async def logs(
    pod: str, namespace: str, container: str, follow: bool, previous: bool, tail: int | None
) -> None:
    """Print the log of POD."""
    async with api.client(local_settings()) as client:
        chunks = client.logs(
            pod, namespace, container=container, tail=tail, previous=previous, follow=follow
        )
        async for chunk in chunks:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()


@local.group()
def operator() -> None:
    """Stop and start the operator; the rest goes on without it."""


@operator.command()
@asynchronous
async def stop() -> None:
    """Stop the operator until it is started again."""
    await api.set_operators(local_settings(), 0)
    click.echo("The operator is being stopped.")


@operator.command()
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, 5), help="How many.")
@asynchronous
async def start(count: int) -> None:
    """Start the operator again."""
    await api.set_operators(local_settings(), count)
    click.echo("The operator is being started.")
