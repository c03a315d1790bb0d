"""`gantry kube replay`: what a support bundle holds of decisions, made once more."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click
from gantry_operator.decisions.codec import NotADecisionError, moment
from gantry_operator.support.replay import outcomes, recorded, recordings
from gantry_protocol.errors import GantryError
from gantry_protocol.steps.plain import NotStepsError

from gantry_cli.kube_view import output_option
from gantry_cli.output import print_json
from gantry_cli.retaken import show_steps, steps_files, sum_of

if TYPE_CHECKING:
    from gantry_operator.decisions.replay import Outcome, Recording

DIFFERS = 1


class UnusableBundleError(GantryError):
    """The file is no bundle whose decisions this version can make again."""

    exit_code = 2


@click.command(
    epilog="""\b
Examples:
  kubectl gantry report -n mq -o mq.tar.gz
  kubectl gantry replay mq.tar.gz                 each decision, and what differs
  kubectl gantry replay mq.tar.gz --differences   only what differs
  kubectl gantry replay mq.tar.gz -o json | jq 'select(.differences != [])'

\b
It ends with 0 if this version decides the same, with 1 if it decides otherwise somewhere, and with
2 if the file cannot be used: cut off, no bundle, without decisions, or of another format."""
)
@click.argument("bundle", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--differences", "only", is_flag=True, help="Leave out decisions that are the same.")
@output_option("json: one line for each decision.")
def replay(bundle: Path, only: bool, output: str) -> int:
    """Make the decisions in a bundle once more, with this version: of all who record them.

    An operator keeps its last decisions about each resource: all that it saw, the time, and what
    it did. `report` puts them into its bundle. Here they are made again from what was seen then, so
    that you see what the operator did and why, whether another version does the same, and, where a
    version has a fault, the very decision that shows it. No cluster is asked.

    A line is a decision: the time of the first one, how often it was made again, the resource, and
    the actions. Below it stands where this version decides otherwise: the place, what was recorded,
    and what it is now.

    A controller keeps the last steps of its Raft core: each input, what chance said, and what came
    out, from a state on that is known. Here the core of this version goes on from there by the
    same inputs. A line is a stretch of steps behind a state; below it stands the first step at
    which something else comes out. Commands are no part of it, only their sizes. A broker keeps
    the last steps of its replica cores in the same way, without messages.
    """
    try:
        found = recorded(bundle)
        files = steps_files(found)
        differs = _decisions(recordings(bundle, found), only, output)
        if files:
            total = show_steps(files, only=only, output=output, say=_say)
            differs = differs or total.differing > 0
            if output == "text":
                _say(sum_of(files, total))
    except NotADecisionError as error:
        raise UnusableBundleError(str(error)) from None
    except NotStepsError as error:
        raise UnusableBundleError(f"{bundle}: {error}") from None
    return DIFFERS if differs else 0


def _decisions(found: list[tuple[str, Recording]], only: bool, output: str) -> bool:
    """Shows the operators' decisions; whether one is another."""
    total = differing = left_out = 0
    for outcome in outcomes(found):
        total += 1
        differing += bool(outcome.differences)
        left_out += bool(outcome.note)
        if outcome.differences or not only:
            _show(outcome, output)
    if found and output == "text":
        by = ", ".join(sorted({one.version for _, one in found}))
        _say(_sum(total, differing, left_out, by))
    return differing > 0


def _show(outcome: Outcome, output: str) -> None:
    one = outcome.written
    if output == "json":
        print_json(
            {
                "first": one.first,
                "last": one.last,
                "count": one.count,
                "kind": one.kind,
                "namespace": one.namespace,
                "name": one.name,
                "decided": outcome.told,
                "note": outcome.note,
                "differences": [found._asdict() for found in outcome.differences],
            }
        )
        return
    times = f" ×{one.count}" if one.count > 1 else ""
    note = f"  ({outcome.note})" if outcome.note else ""
    _say(f"{_time(one.first)}{times} {one.kind} {one.namespace}/{one.name}: {outcome.told}{note}")
    for found in outcome.differences:
        _say(f"  differs at {found.path}: recorded {found.recorded}, now {found.now}")


def _say(line: str) -> None:
    """A line in which nothing of the bundle commands the terminal."""
    click.echo("".join(char if char.isprintable() else "?" for char in line))


def _time(text: str) -> str:
    """To the millisecond, in UTC, as the operator's log has it."""
    at = moment(text, "first").astimezone(dt.UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def _sum(total: int, differing: int, left_out: int, version: str) -> str:
    same = total - differing - left_out
    text = f"{total} decisions of version {version}: {same} the same, {differing} otherwise"
    return f"{text}, {left_out} not compared." if left_out else f"{text}."
