"""A support bundle as files: laid out, bounded, redacted, and with a list of what it lacks; pure.

The same material gives the same bytes. Every byte of a file has passed the redactor, also names,
lists and refusals, and passes it once more as it will be written: what is still found then is
taken out, too, whatever that does to the form of the file.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantry_operator.api.kinds import CRD, CUSTOM, EVENT, NODE, POD, SECRET
from gantry_operator.redact import Redactor

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Body
    from gantry_operator.redact import Redacted
    from gantry_operator.support.material import Material

ROOT: Final = "gantry-report"
DECISIONS: Final = "decisions"
RAFT: Final = "raft"
REPLICA: Final = "replica"
EVENTS_MAX: Final = 2000
FILES_MAX: Final = 10_000
LISTED_MAX: Final = 1000
"""Entries of each list in the manifest; their number is told in any case."""
LIST_BYTES: Final = 4 * 1024 * 1024
"""Kept free for the manifest and the page about the bundle."""
LOOKS_MAX: Final = 3

_README: Final = """\
# Support bundle of Gantry

Namespace {namespace}, taken at {taken_at} by version {version}.

| Where | What |
| --- | --- |
| `manifest.json` | files, what was redacted, what could not be read, what was cut |
| `versions.json` | of the API server, of this command, of images |
| `doctor.txt` | what `kubectl gantry doctor` says of it |
| `objects/NAMESPACE/KIND/NAME.json` | objects, as the API server had them |
| `objects/cluster/KIND/NAME.json` | CRDs without schemas, nodes without images, webhooks |
| `events/NAMESPACE.json` | events, the oldest first |
| `decisions/POD.json` | an operator's last decisions, for `kubectl gantry replay` |
| `raft/POD.jsonl` | a controller's last steps of Raft, for `kubectl gantry replay` |
| `replica/POD.jsonl` | a broker's last steps as replicas, for `kubectl gantry replay` |
| `logs/NAMESPACE/POD/CONTAINER.log` | the end of a run's log; `.previous.log`: of the run before |

Secrets are not in it: they were not read. Whatever looks like a secret elsewhere stands as
`[redacted …]`. No pattern knows a secret that has neither a form nor a telling name: look through
the bundle before you send it.

{sums}
"""


class LogText(msgspec.Struct, frozen=True):
    """The end of a log.

    Attributes:
        previous: of the run before the present one.
        cut: its begin is not here.
    """

    namespace: str
    pod: str
    container: str
    previous: bool
    text: str
    cut: bool = False


class Extras(msgspec.Struct, frozen=True):
    """All else that goes into a bundle.

    Attributes:
        taken_at: a moment, by the clock of whoever took it.
        version: of the command.
        doctor: the findings, as text.
        unread: logs and decisions that could not be read, with the reason.
        decisions: of operators, by their pods, as these gave them.
        steps: of cores, by folder and pod, as text.
    """

    taken_at: str
    version: str
    doctor: str
    unread: tuple[tuple[str, str], ...] = ()
    decisions: dict[str, Any] = {}
    steps: dict[str, str] = {}


class Bundle(msgspec.Struct, frozen=True):
    """The files, by path, and what was done to them."""

    files: dict[str, bytes]
    found: tuple[Redacted, ...]
    unread: tuple[tuple[str, str], ...]
    cut: tuple[str, ...]


class _Files:
    """Files within a budget; the first ones that are put are the last ones to be left out.

    Attributes:
        left: bytes that may still be put.
    """

    def __init__(self, total_bytes: int) -> None:
        self.redactor = Redactor()
        self.files: dict[str, bytes] = {}
        self.cut: list[str] = []
        self.left = total_bytes

    def put_object(self, path: str, value: Any) -> None:
        """A JSON value."""
        assert not (isinstance(value, dict) and value.get("kind") == SECRET.kind), path
        self.put(path, _json(self.redactor.value(path, value)))

    def put(self, path: str, text: str) -> None:
        """A text; the redactor goes over it until it finds nothing more."""
        for _ in range(LOOKS_MAX):
            clean = self.redactor.text(path, text)
            if clean == text:
                break
            text = clean
        else:
            self.cut.append(f"{path}: left out, since it could not be redacted")
            return
        data = text.encode("utf-8", "replace")
        if len(data) > self.left or len(self.files) >= FILES_MAX:
            self.cut.append(f"{path}: left out, since the bundle is full")
            return
        self.left -= len(data)
        self.files[path] = data


def build(material: Material, logs: list[LogText], extras: Extras, total_bytes: int) -> Bundle:
    """The files of a bundle, in at most so many bytes."""
    into = _Files(max(0, total_bytes - LIST_BYTES))
    into.cut += material.cut
    into.put_object("versions.json", _versions(material, extras))
    into.put("doctor.txt", extras.doctor)
    for kind, body in _in_order(material):
        meta = body["metadata"]
        folder = f"objects/{meta.get('namespace') or 'cluster'}"
        into.put_object(f"{folder}/{kind.lower()}/{_safe(meta['name'])}.json", body)
    _put_events(into, material)
    for pod, found in sorted(extras.decisions.items()):
        into.put_object(f"{DECISIONS}/{_safe(pod)}.json", found)
    room = into.left // 2  # logs are to have some, too
    for place, text in sorted(extras.steps.items()):
        core, _, pod = place.partition("/")
        path = f"{core}/{_safe(pod)}.jsonl"
        if len(text) > room:
            into.cut.append(f"{path}: left out, since steps have half of the bundle at most")
            continue
        room -= len(text)
        into.put(path, text)
    for log in sorted(logs, key=lambda log: (log.namespace, log.pod, log.container, log.previous)):
        folder = f"logs/{log.namespace}/{_safe(log.pod)}"
        path = f"{folder}/{_safe(log.container)}{'.previous' if log.previous else ''}.log"
        if log.cut:
            into.cut.append(f"{path}: begins later than the log")
        into.put(path, log.text)
    unread = tuple(sorted((*((one.what, one.why) for one in material.unread), *extras.unread)))
    return _listed(into, material, extras, unread)


def packed(bundle: Bundle, root: str = ROOT) -> bytes:
    """A gzipped tar of a bundle, without a trace of who wrote it when."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, data in sorted(bundle.files.items()):
            entry = tarfile.TarInfo(f"{root}/{path}")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _in_order(material: Material) -> list[tuple[str, Body]]:
    """All objects but events: ours first, then pods, then the rest."""
    first = [kind.kind for kind in CUSTOM]
    first.append(POD.kind)
    kinds = [*first, *sorted(set(material.objects) - {*first, EVENT.kind})]
    used = {(pod.get("spec") or {}).get("nodeName") for pod in material.objects.get(POD.kind) or ()}
    return [
        (kind, _trimmed(kind, body))
        for kind in kinds
        for body in material.objects.get(kind) or ()
        if kind != NODE.kind or body["metadata"]["name"] in used
    ]


def _trimmed(kind: str, body: Body) -> Body:
    """Without parts that are large and tell nothing."""
    if kind == CRD.kind:
        spec = dict(body.get("spec") or {})
        spec["versions"] = [
            {key: one.get(key) for key in ("name", "served", "storage")}
            for one in spec.get("versions") or ()
        ]
        spec.pop("conversion", None)
        return body | {"spec": spec}
    if kind == NODE.kind:
        status = {k: v for k, v in (body.get("status") or {}).items() if k != "images"}
        return body | {"status": status}
    return body


def _put_events(into: _Files, material: Material) -> None:
    places: dict[str, list[Body]] = {}
    for event in material.objects.get(EVENT.kind) or ():
        places.setdefault(event["metadata"].get("namespace") or "", []).append(event)
    for namespace, events in sorted(places.items()):
        events.sort(key=lambda event: (_when(event), event["metadata"]["name"]))
        if len(events) > EVENTS_MAX:
            into.cut.append(f"events/{namespace}.json: the oldest {len(events) - EVENTS_MAX}")
        told = [
            {key: part for key, part in event.items() if key not in ("metadata", "apiVersion")}
            for event in events[-EVENTS_MAX:]
        ]
        into.put_object(f"events/{namespace}.json", told)


def _when(event: Body) -> str:
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def _versions(material: Material, extras: Extras) -> dict[str, Any]:
    images: dict[str, dict[str, int]] = {}
    for pod in material.objects.get(POD.kind) or ():
        for one in (pod.get("status") or {}).get("containerStatuses") or ():
            counts = images.setdefault(one.get("name") or "", {})
            told = f"{one.get('image')} {one.get('imageID') or ''}".strip()
            counts[told] = counts.get(told, 0) + 1
    return {"gantry": extras.version, "server": material.server, "imagesByContainer": images}


def _listed(
    into: _Files, material: Material, extras: Extras, unread: tuple[tuple[str, str], ...]
) -> Bundle:
    """The bundle with its own list, which is redacted, too, and page."""
    cut = tuple(into.cut)
    found = into.redactor.found()
    total = sum(one.count for one in found)
    into.left = LIST_BYTES
    into.put_object(
        "manifest.json",
        {
            "format": 1,
            "namespace": material.namespace,
            "operatorNamespace": material.operator_namespace,
            "takenAt": extras.taken_at,
            "files": {path: len(data) for path, data in sorted(into.files.items())},
            "redactedInAll": total,
            "redacted": [
                {"file": one.file, "what": one.what, "count": one.count, "places": one.places}
                for one in found[:LISTED_MAX]
            ],
            "unreadInAll": len(unread),
            "unread": [{"what": what, "why": why} for what, why in unread[:LISTED_MAX]],
            "cutInAll": len(cut),
            "cut": cut[:LISTED_MAX],
        },
    )
    sums = (
        f"Redacted: {total}, in {len({one.file for one in found})} files. Could not be read: "
        f"{len(unread)}. Cut or left out: {len(cut)}. `manifest.json` lists each."
    )
    page = _README.format(
        namespace=material.namespace, taken_at=extras.taken_at, version=extras.version, sums=sums
    )
    into.put("README.md", page)
    return Bundle(into.files, tuple(into.redactor.found()), unread, cut)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False) + "\n"


def _safe(name: str) -> str:
    """A name as one part of a path; the API server allows nothing else in most of them."""
    return name.replace("/", "_").replace("..", "__")
