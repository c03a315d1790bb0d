"""Bugs in the release of segments: what is still there goes, or what was known is forgotten."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

MAPPED = "gantry_broker.clients.mapped"
PLACES, REQUESTS = f"{MAPPED}.places", f"{MAPPED}.requests:MappedRequests"
RELEASER, HANDED_ON = f"{MAPPED}.releasing:Releaser", f"{MAPPED}.handed_on:HandedOn"
STATE = "unit/controller/metadata"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "queue maps", what, (Edit(place, text, other),), UnitTests(killer))


def _released(name: str, what: str, place: str, text: str, other: str) -> Mutant:
    return _mutant(name, what, place, text, other, f"{STATE}/test_released_segments.py")


def _releasing(name: str, what: str, place: str, text: str, other: str) -> Mutant:
    return _mutant(name, what, place, text, other, "unit/broker/clients/mapped/test_releasing.py")


MUTANTS = (
    _released(
        "released-with-messages",
        "messages that are still there are read by nobody any more",
        "gantry_protocol.queue_map:released",
        " or least < others[0].start",
        "",
    ),
    _released(
        "open-segment-released",
        "a queue is at no group, and the controllers fail",
        "gantry_protocol.queue_map:released",
        "if not others or",
        "if",
    ),
    _released(
        "another-segment-released",
        "a late report takes the next segment out with all that it has",
        "gantry_protocol.queue_map:released",
        "if not others or not is_named or",
        "if not others or",
    ),
    _released(
        "removed-group-waited-for",
        "readers wait for ever at a group whose name came again with empty volumes",
        "gantry_controller.metadata.groups:remove_group",
        "disown(state, group)",
        "pass",
    ),
    _released(
        "nobodys-segments-stay",
        "a queue is full of segments that nobody has, and moves no more",
        "gantry_protocol.queue_map:_of",
        "if segment.group or (kept and kept[-1].group):",
        "if True:",
    ),
    _released(
        "full-queue-holds-up-all",
        "no queue of a topic leaves a group that is drained, since one of them cannot",
        "gantry_controller.metadata.leaving:DrainedGroups._turn",
        "not queue.is_full",
        "True",
    ),
    _mutant(
        "full-queue-never-given-up",
        "a queue of a group that is gone takes no message for ever",
        "gantry_controller.metadata.queue_maps:_problem",
        "SEGMENTS_OF_GONE_MAX if is_stuck else SEGMENTS_MAX",
        "SEGMENTS_MAX",
        f"{STATE}/test_given_up.py",
    ),
    _releasing(
        "reported-with-messages",
        "a master says of a segment with messages that it has none",
        f"{RELEASER}._learned",
        ">= item.end",
        ">= item.segment.start",
    ),
    _releasing(
        "empty-segment-never-reported",
        "a queue that is moved without messages is soon full of segments",
        f"{RELEASER}._learned",
        "max(item.segment.start, queue.min_offset)",
        "queue.min_offset",
    ),
    _releasing(
        "released-by-a-past-mastership",
        "who is master no more says what it has lost",
        f"{RELEASER}.close",
        "self._closed = True",
        "return",
    ),
    _releasing(
        "release-looks-at-the-first-few",
        "segments of which something is left keep all others from being released",
        f"{RELEASER}._look",
        "if at + QUEUES_MAX < len(found):",
        "if False:",
    ),
    _releasing(
        "committed-offset-released",
        "a group that pauses is unknown once a segment is released, and begins at the end",
        f"{RELEASER}._learned",
        "self._handed_on.settle(topic, empty, settled)",
        "settled({item.number for item in empty})",
    ),
    _releasing(
        "handed-on-over-a-newer-offset",
        "a group goes back to what it had committed before its queue moved",
        "gantry_broker.clients.offsets:Positions.update",
        "is_wanted = IF_NONE_KEPT not in (request.ext or {})",
        "is_wanted = True",
    ),
    _releasing(
        "handed-on-without-asking",
        "an old offset stands in front of a newer one in another segment",
        f"{HANDED_ON}._hand_on_all",
        "self._look_back(item, behind, few)",
        "self._hand_on(item, few)",
    ),
    _releasing(
        "not-handed-on-and-released",
        "a group is unknown since the master that should know it was away",
        "gantry_broker.clients.mapped.handed_on:_Few.failed",
        "self._failed.append(wanted)",
        "pass",
    ),
    _releasing(
        "handed-on-unconfirmed",
        "an offset that was handed on is lost with the master that took it",
        f"{HANDED_ON}._look_back",
        "elif self._view.store.committed.must_write(*key):",
        "elif False:",
    ),
    _releasing(
        "handed-on-all-at-once",
        "a master asks another one a million questions at once",
        f"{HANDED_ON}._hand_on_all",
        "wanted[:ASKED_MAX], wanted[ASKED_MAX:]",
        "wanted, []",
    ),
    _releasing(
        "reader-led-below-the-first-segment",
        "a reader from before a release is led back to 0",
        f"{PLACES}:place_of_read",
        "if offset < queue.segments[0].start:",
        "if False:",
    ),
    _releasing(
        "beginning-goes-back",
        "a queue begins at 0 again once its first segments are released",
        f"{REQUESTS}._place",
        "return self._ask(asked, segment, partial(at_least, segment.start))",
        "return self._ask(asked, segment)",
    ),
    _releasing(
        "older-client-forgotten",
        "an older client begins at the end of a part that it has not read",
        f"{REQUESTS}._query",
        "former = () if asked.is_static else self._former(asked, queues)",
        "former = ()",
    ),
)
