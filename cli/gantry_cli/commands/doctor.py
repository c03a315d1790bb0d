"""`gantry kube doctor`: checks of a group and of all that it needs."""

from __future__ import annotations

import datetime as dt

import click
from gantry_operator.preview.client import inspecting, named_file, namespace_of
from gantry_operator.support.doctor import as_text, examine, examine_all, exit_code, find_in
from gantry_operator.support.material import gather
from gantry_operator.support.probe import ProbeWanted, planned, probe
from gantry_operator.support.round_trip import ShownIdentity
from gantry_protocol.errors import GantryError

from gantry_cli.kube_view import kube_options, output_option
from gantry_cli.options import asynchronous, client_options, command_tls, credentials
from gantry_cli.output import print_json

WINDOW_MAX_S = 600.0


@click.command(
    epilog="""\b
Examples:
  kubectl gantry doctor orders -n mq
  kubectl gantry doctor                       all groups of the namespace
  kubectl gantry doctor cg/gantry
  kubectl gantry doctor orders -o json | jq 'select(.level != "ok")'
  kubectl gantry doctor orders --probe        ask its processes, too, and send one message

\b
It ends with 0 if all is ok, with 1 if something warns, with 2 if something fails."""
)
@click.argument("group", required=False)
@click.option(
    "--operator-namespace",
    default="",
    help="Where the operator runs. [default: it is looked for]",
)
@click.option(
    "--probe",
    "probes",
    is_flag=True,
    help="Also measure the disks' syncs, and send each broker group one message and read it.",
)
@click.option(
    "--probe-window",
    "window_s",
    metavar="SECONDS",
    type=click.FloatRange(0, WINDOW_MAX_S),
    default=10.0,
    show_default=True,
    help="With --probe, the time in which syncs are counted.",
)
@client_options
@output_option("json: one line for each finding.")
@kube_options
@asynchronous
async def doctor(
    group: str | None,
    operator_namespace: str,
    probes: bool,
    window_s: float,
    output: str,
    kubeconfig: str | None,
    namespace: str | None,
) -> int:
    """Check GROUP and all that it needs, a line for each finding, with what to do about it.

    Looked at are the API server and the CRDs, the operator and its Lease, webhooks and quotas; of
    GROUP, its quorum and its fronts: conditions, pods and how they end, nodes and zones, volumes,
    budgets, replicas in sync, the tier, certificates, and deletions that do not end.

    Nothing is changed, and no process is asked: it is what the API server has, with your rights.
    What you may not read is named, and not judged.

    With --probe its brokers and controllers are asked, too, through the API server's port
    forwarding: how long their disks take to sync. Each broker group gets one message of 128 bytes,
    in the topic gantry-probe, which is read back; it stays until the log's retention takes it.
    """
    wanted = ProbeWanted(window_s, ShownIdentity(credentials(), command_tls()))
    file = named_file(kubeconfig)
    home = namespace or namespace_of(file)
    async with inspecting(file) as api:
        material = await gather(api, home, lambda _: None, operator_namespace=operator_namespace)
        now = dt.datetime.now(dt.UTC)
        meant = None if group is None else find_in(material, group)
        found = examine(material, *meant, now) if meant else examine_all(material, now)
        if found and probes:
            found += await probe(api, home, planned(material, meant, now), wanted, _tell)
    if not found:
        raise GantryError(f"Namespace {home} has no groups that could be read.")
    if output == "json":
        for finding in found:
            print_json(finding)
    else:
        click.echo(as_text(found), nl=False)
    return exit_code(found)


def _tell(step: str) -> None:
    """A step of the probe, which takes its time, to whoever waits."""
    click.echo(step, err=True)
