"""`gantry log`: look into a broker's commit log, on the machine that has it."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from gantry_protocol.errors import CorruptionError, RecordError

from gantry_cli.options import json_option
from gantry_cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gantry_broker.log.inspection import LogFiles, LogVerdict
    from gantry_broker.replica import StoredState
    from gantry_protocol.records import MessageRecord

DAMAGED = 1
_BODY_CHARS = 60
_LINE = "{:>14}  {:>6}  {:>7}  {:<23}  {:<28}  {:>5}  {:>8}  {}"


@click.group(
    epilog="""\b
Examples:
  gantry log dump /var/lib/gantry                          every record, oldest first
  gantry log dump /var/lib/gantry --topic orders --limit 20 --body
  gantry log dump /var/lib/gantry --from 1048576 --json | jq .properties
  gantry log verify /var/lib/gantry                        every byte and every record

\b
DIRECTORY is a broker's data directory (GANTRY_DATA_DIR), or the commitlog directory in it. Nothing
is written or locked; the broker may be running.

\b
Exit codes: 0 the log is sound, 1 it is damaged, 2 the command cannot be meant.""",
)
def log() -> None:
    """Show and verify the commit log of a broker on this machine."""


@log.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--from",
    "start",
    metavar="OFFSET",
    type=click.IntRange(min=0),
    help="First log offset to show. [default: the log's start]",
)
@click.option(
    "--to",
    "end",
    metavar="OFFSET",
    type=click.IntRange(min=0),
    help="Show what begins below this log offset. [default: the log's end]",
)
@click.option("--topic", metavar="NAME", help="Only records of this topic, system topics included.")
@click.option("--queue", metavar="N", type=click.IntRange(min=0), help="Only this queue.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@click.option("--body", is_flag=True, help=f"Show the first {_BODY_CHARS} characters of bodies.")
@json_option("Print one JSON object per record.")
def dump(
    directory: Path,
    start: int | None,
    end: int | None,
    topic: str | None,
    queue: int | None,
    limit: int | None,
    body: bool,
    as_json: bool,
) -> None:
    """Show the records of a log, with the epoch that wrote each.

    Records above the confirm offset are shown, too: they may be cut again after a failover.
    """
    from gantry_broker.log.inspection import LogFiles

    files = LogFiles(directory)
    shown = _records(files, start, end, topic, queue)
    if not as_json:
        click.echo(
            _LINE.format(
                "OFFSET", "EPOCH", "BYTES", "STORED", "TOPIC", "QUEUE", "NUMBER", "TAGS, KEYS"
            )
        )
    epoch_of = _epochs(files)
    try:
        for count, (offset, size, record) in enumerate(shown, start=1):
            epoch = epoch_of(offset)
            if as_json:
                print_json(_as_json(offset, size, epoch, record))
            else:
                click.echo(_as_line(offset, size, epoch, record, with_body=body))
            if count == limit:
                return
    except RecordError as error:
        raise click.ClickException(f"{error} What comes before it is above.") from error


@log.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option("Print one JSON object.")
def verify(directory: Path, as_json: bool) -> None:
    """Compare every byte with its checksum, every record with itself, the whole with its lineage.

    Each finding is a line with the file, the byte in it and the offset in the log. Notes are no
    damage: a torn end that was never acknowledged is cut at the next start.
    """
    from gantry_broker.log.inspection import LogFiles

    files = LogFiles(directory)
    with click.progressbar(
        length=files.size_bytes, label="Reading", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        verdict = files.verify(bar.update)
    _check_lineage(files, verdict)
    if as_json:
        print_json(verdict)
    else:
        _tell(files, verdict)
    if verdict.damage:
        sys.exit(DAMAGED)


def _records(
    files: LogFiles, start: int | None, end: int | None, topic: str | None, queue: int | None
) -> Iterator[tuple[int, int, MessageRecord | None]]:
    """Log offset, size and record; None for the blank at the end of a file."""
    from gantry_protocol.records import decode_record

    first = files.saved.log_start if start is None else start
    last = sys.maxsize if end is None else end
    everything = topic is None and queue is None
    for _, offset, unit, data in files.units(first, last):
        if unit.record is None:
            if everything:
                yield offset, unit.size, None
        elif topic in (None, unit.record.topic) and queue in (None, unit.record.queue_id):
            yield offset, unit.size, decode_record(data)


def _epochs(files: LogFiles) -> Callable[[int], int | None]:
    """The epoch that wrote a log offset; None for a log without its lineage file."""
    stored = _stored(files)
    if stored is None:
        return lambda _: None
    entries = stored.lineage.entries

    def epoch_of(offset: int) -> int | None:
        return next(
            (entry.epoch for entry in reversed(entries) if entry.start_offset <= offset), None
        )

    return epoch_of


def _stored(files: LogFiles) -> StoredState | None:
    from gantry_broker.member import lineage_file

    volume = files.directory.parent.parent
    return lineage_file.load(volume) if (volume / lineage_file.FILE).is_file() else None


def _check_lineage(files: LogFiles, verdict: LogVerdict) -> None:
    """Add what the lineage file says and the log does not."""
    from gantry_broker.log.inspection import Finding
    from gantry_broker.member import lineage_file

    path = str(files.directory.parent.parent / lineage_file.FILE)
    try:
        stored = _stored(files)
    except CorruptionError as error:
        verdict.damage.append(Finding(path, error.offset, verdict.start, error.reason))
        return
    if stored is None:
        text = "is not there: a broker refuses a log without it"
        verdict.notes.append(Finding(path, 0, verdict.start, text))
        return
    if verdict.end > verdict.start and stored.lineage.entry_at(files.saved.log_start) is None:
        text = "no epoch in it covers the log's start"
        verdict.damage.append(Finding(path, 0, verdict.start, text))
    if stored.confirm > verdict.end:
        text = f"everything below {stored.confirm} was confirmed, and the log ends before it"
        verdict.damage.append(Finding(path, 0, verdict.end, text))


def _as_json(
    offset: int, size: int, epoch: int | None, record: MessageRecord | None
) -> dict[str, Any]:
    from gantry_protocol.records import decode_properties

    head: dict[str, Any] = {"offset": offset, "size": size, "epoch": epoch}
    if record is None:
        return {**head, "blank": True}
    return {
        **head,
        "topic": record.topic,
        "queue": record.queue_id,
        "queueOffset": record.queue_offset,
        "storedMs": record.store_timestamp,
        "bornMs": record.born_timestamp,
        "bornHost": f"{record.born_host[0]}:{record.born_host[1]}",
        "storeHost": f"{record.store_host[0]}:{record.store_host[1]}",
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedOffset": record.prepared_transaction_offset,
        "properties": decode_properties(record.properties),
        "body": record.body.decode("utf-8", "backslashreplace"),
    }


def _as_line(
    offset: int, size: int, epoch: int | None, record: MessageRecord | None, *, with_body: bool
) -> str:
    from gantry_protocol.records import decode_properties

    epoch_text = "-" if epoch is None else str(epoch)
    if record is None:
        return _LINE.format(offset, epoch_text, size, "", "(blank: a file ends)", "", "", "")
    properties = decode_properties(record.properties)
    words = [value for name in ("TAGS", "KEYS") if (value := properties.get(name))]
    if with_body:
        text = record.body[: 4 * _BODY_CHARS].decode("utf-8", "backslashreplace")
        words.append(repr(text[:_BODY_CHARS]))
    stored = dt.datetime.fromtimestamp(record.store_timestamp / 1000, dt.UTC)
    return _LINE.format(
        offset,
        epoch_text,
        size,
        stored.isoformat(sep=" ", timespec="milliseconds")[:23],
        record.topic,
        record.queue_id,
        record.queue_offset,
        "  ".join(words),
    ).rstrip()


def _tell(files: LogFiles, verdict: LogVerdict) -> None:
    for finding in verdict.damage:
        click.echo(f"damage: {finding}")
    for finding in verdict.notes:
        click.echo(f"note: {finding}")
    word = "damaged" if verdict.damage else "sound"
    click.echo(
        f"{files.directory}: {word}; [{verdict.start}, {verdict.end}) in {verdict.files} files, "
        f"{verdict.records} records; confirmed up to at least {verdict.confirm_floor}, "
        f"checksums up to {verdict.covered}."
    )
