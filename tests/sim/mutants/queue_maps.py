"""Bugs in mapped topics: a queue is in two places, in none, or not in one row any more."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

MAPPED = "gantry_broker.clients.mapped"
PLACES, MAPS = f"{MAPPED}.places", f"{MAPPED}.maps:ClusterMaps"
REQUESTS, SEALER = f"{MAPPED}.requests:MappedRequests", f"{MAPPED}.sealing:Sealer"
MOVED, SEAL = "gantry_protocol.queue_map:moved", "gantry_controller.metadata.queue_maps:seal_queues"
GIVEN_UP = "unit/controller/metadata/test_given_up.py"
STATE = "unit/controller/metadata/test_queue_maps.py"
TESTS = "unit/broker/clients/mapped"


WAITED_FOR = {  # found by a test that waits in vain
    "empty-segment-never-ends",
    "told-once",
    "reading-ends-with-a-fault",
    "delayed-message-waits-for-ever",
}


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edits, is_quick = (Edit(place, text, other),), name not in WAITED_FOR
    return Mutant(name, "queue maps", what, edits, UnitTests(killer), quick=is_quick)


def _state(name: str, what: str, place: str, text: str, other: str) -> Mutant:
    return _mutant(name, what, place, text, other, STATE)


def _broker(name: str, what: str, place: str, text: str, other: str, test: str) -> Mutant:
    return _mutant(name, what, place, text, other, f"{TESTS}/test_{test}.py")


MUTANTS = (
    _mutant(
        "given-up-without-a-gap",
        "two messages have one offset of a queue once a group that was gone is back",
        "gantry_controller.metadata.given_up:begun_anew",
        "queue.open.start + GAP",
        "queue.open.start",
        GIVEN_UP,
    ),
    _mutant(
        "living-groups-given-up",
        "a queue is open at two groups, and its messages have no order",
        "gantry_controller.metadata.given_up:begun_anew",
        " or not is_gone(state, cluster, queue.open.group)",
        "",
        GIVEN_UP,
    ),
    _mutant(
        "given-up-at-once",
        "queues hop from group to group while a namespace is deleted",
        "gantry_controller.metadata.given_up:GoneGroups.due",
        "now_s - since_s >= WAIT_S",
        "True",
        GIVEN_UP,
    ),
    _mutant(
        "absence-adds-up",
        "a group that comes and goes loses its queues",
        "gantry_controller.metadata.given_up:GoneGroups.due",
        "seen_s, self._since_s = self._since_s, {}",
        "seen_s = self._since_s",
        GIVEN_UP,
    ),
    _mutant(
        "late-end-is-not-taken",
        "readers of a group that is back wait for ever at the end of what it has",
        SEAL,
        "queues[number] = ended(queue, late, end)",
        "pass",
        GIVEN_UP,
    ),
    _broker(
        "late-end-is-not-told",
        "readers of a group that is back wait for ever at the end of what it has",
        f"{MAPPED}.sealing:leaving",
        " or given_up(queue, group) is not None",
        "",
        "sealing",
    ),
    _broker(
        "drained-queue-read-elsewhere",
        "a drain waits for messages that were read after their queue had moved",
        "gantry_broker.clients.drain:GroupDrain._unread",
        "max(away, committed or 0)",
        "committed",
        "committed_later",
    ),
    _broker(
        "asked-in-the-wrong-order",
        "an old offset of a consumer group that has come further counts",
        f"{MAPPED}.committed_later:CommittedLater._ask_back",
        "*before, last = segments",
        "last, *before = segments",
        "committed_later",
    ),
    _broker(
        "drain-takes-zero-for-an-offset",
        "what was committed before the queue moved is not looked for",
        f"{MAPPED}.committed_later:CommittedLater._ask_back",
        "last.queue_id, False)",
        "last.queue_id, True)",
        "committed_later",
    ),
    _broker(
        "questions-of-a-drain-unbounded",
        "a drain asks a million questions at once",
        f"{MAPPED}.committed_later:CommittedLater.ask",
        "[: max(free, 0)]",
        "",
        "committed_later",
    ),
    _broker(
        "each-that-waits-looks",
        "requests for a topic that is not here yet multiply until the process stands still",
        f"{REQUESTS}._look_later",
        "topic not in self._looks and not self._closed",
        "not self._closed",
        "requests",
    ),
    _state(
        "segment-begins-anew",
        "queue offsets begin again where a queue has moved to",
        MOVED,
        "Segment(queue.target, end,",
        "Segment(queue.target, 0,",
    ),
    _state(
        "returned-queue-reuses-its-id",
        "a queue that comes back has a gap, and the committed offsets of its earlier stay",
        MOVED,
        "number + MAPPED_QUEUES_MAX * moves",
        "number",
    ),
    _state(
        "segment-without-messages-forgotten",
        "what was committed at a queue before its first message is lost when it moves",
        MOVED,
        "(*queue.segments, begun)",
        "(*(queue.segments if end > queue.open.start else queue.segments[:-1]), begun)",
    ),
    _state(
        "deposed-master-ends-a-segment",
        "a master that was replaced says where its queue ends, below what its successor has",
        SEAL,
        "if refusal is not None:",
        "if False:",
    ),
    _state(
        "ended-by-another-group",
        "a master gives away a queue that another group has",
        SEAL,
        "queue.open.group != group.name or not queue.target",
        "not queue.target",
    ),
    _state(
        "queue-moves-to-who-is-gone",
        "a queue goes to a group that was retired meanwhile, and nobody has it",
        SEAL,
        "if is_there else",
        "if True else",
    ),
    _broker(
        "moving-queue-takes-sends",
        "a message comes behind the end that is about to be told",
        f"{PLACES}:place_of_send",
        "return Wait() if queue.target else Here(queue.open.queue_id)",
        "return Here(queue.open.queue_id)",
        "places",
    ),
    _broker(
        "store-takes-what-moves",
        "a message that waited somewhere else comes behind the end",
        f"{MAPPED}.book:QueueBook.takes",
        " and not queue.target",
        "",
        "maps",
    ),
    _broker(
        "store-asks-nobody",
        "a send that was let in before the queue began to move is stored behind its end",
        "gantry_broker.clients.plain_sends:PlainSender.store",
        "not self._takes(topic.topic_name, queue_id)",
        "False",
        "requests",
    ),
    _broker(
        "end-told-before-confirm",
        "a queue ends below what the master has acknowledged since",
        f"{SEALER}._learned",
        "if queue.next_offset <= end:",
        "if True:",
        "sealing",
    ),
    _broker(
        "empty-segment-never-ends",
        "a queue that gets no message where it has moved to can never move again",
        f"{SEALER}._learned",
        "if queue.next_offset <= end:",
        "if queue.next_offset == queue.max_offset:",
        "sealing",
    ),
    _broker(
        "told-once",
        "a report that is lost leaves the queue without anybody who takes messages",
        f"{SEALER}._told",
        "self._topics[topic] = None",
        "pass",
        "sealing",
    ),
    Mutant(
        "sealed-by-a-past-mastership",
        "queue maps",
        "who is master no more says where the queue ends",
        (
            Edit(f"{SEALER}._learned", "if self._closed:", "if False:"),
            Edit(f"{SEALER}.close", "if self._timer is not None:", "if False:"),
        ),
        UnitTests(f"{TESTS}/test_sealing.py"),
        quick=True,
    ),
    _broker(
        "young-master-reads-no-maps",
        "a new master takes messages for a queue that its predecessor has given away",
        f"{MAPS}.join",
        "self._unread.add(group)",
        "pass",
        "requests",
    ),
    _broker(
        "answer-of-before-counts",
        "a new master believes an answer to a question of before its mastership",
        f"{MAPS}._take",
        "fresh = unread & self._unread",
        "fresh = set(self._unread)",
        "maps",
    ),
    _broker(
        "part-of-the-maps-is-all",
        "a new master serves before it has read all maps",
        f"{MAPS}._take",
        "if not told.more:",
        "if True:",
        "maps",
    ),
    _broker(
        "reading-ends-with-a-fault",
        "a listener that fails ends the reading of maps for ever",
        f"{MAPS}._answered",
        "if self._listeners and self._timer is None:",
        "if False:",
        "maps",
    ),
    _broker(
        "odd-request-harms-others",
        "a request that cannot be read takes all that wait along",
        f"{REQUESTS}.changed",
        "except GantryError as error:",
        "except ZeroDivisionError as error:",
        "requests",
    ),
    _broker(
        "passed-on-again",
        "two masters with different maps send a request to and fro",
        f"{REQUESTS}._place",
        "if PHYSICAL in ext:",
        "if False:",
        "requests",
    ),
    _broker(
        "taken-for-others-whatever-is-here",
        "a master stores what another one asks for, in a queue that it has given away",
        f"{REQUESTS}._served_as_asked",
        "if not is_open:",
        "if False:",
        "requests",
    ),
    _broker(
        "older-map-serves-pulls",
        "a reader is sent back to 0 by a group that does not know its segment yet",
        f"{REQUESTS}._served_as_asked",
        "elif queues.epoch < asked_epoch:",
        "elif False:",
        "requests",
    ),
    _broker(
        "moving-queue-takes-commits",
        "an offset is committed where nobody will look for it first",
        f"{PLACES}:place_of_commit",
        "is_static and queues.queues[number].target",
        "False",
        "requests",
    ),
    _broker(
        "offset-looked-for-in-the-last-segment",
        "a group that has committed nothing since the move begins anew",
        f"{REQUESTS}._search_back",
        "if is_first or not",
        "if True or not",
        "requests",
    ),
    _broker(
        "zero-for-nothing-committed",
        "an empty segment says 0 where the one before knows the offset",
        f"{REQUESTS}._search_back",
        '"setZeroIfNotFound": "false"',
        '"setZeroIfNotFound": "true"',
        "requests",
    ),
    _broker(
        "older-clients-cross-segments",
        "a client that sees each group's own queues reads a message at two groups",
        f"{PLACES}:place_of_read",
        "enumerate(segments) if segment.group == group]",
        "enumerate(segments)]",
        "places",
    ),
    _broker(
        "waiting-without-bound",
        "requests that wait for a move fill the memory",
        f"{REQUESTS}._wait",
        " or len(self._waiting) >= WAITING_MAX",
        "",
        "requests",
    ),
    _broker(
        "waits-beyond-the-mastership",
        "who waits for a master that is none any more hears nothing",
        f"{REQUESTS}.close",
        "for number in list(self._waiting):",
        "for number in ():",
        "requests",
    ),
    _broker(
        "lost-answer-is-a-refusal",
        "a send that another master may have stored is refused as if it were not",
        f"{MAPPED}.requests:_answer",
        "was_sent = not",
        "was_sent = False and not",
        "requests",
    ),
    _broker(
        "map-before-its-topic-ignored",
        "a consumer is told that nothing is committed, and begins at the end",
        "gantry_broker.clients.processor:ClientProcessor._is_mapped",
        "return self._view.queues.of(topic) is not None",
        "return False",
        "requests",
    ),
    _broker(
        "groups-that-are-gone-waited-for",
        "a reader waits for ever for the messages of a group that was removed",
        f"{MAPS}.is_gone",
        "group not in self.masters",
        "False",
        "requests",
    ),
    _broker(
        "reader-sleeps-at-the-end-of-a-segment",
        "a reader that waits where a queue was hears nothing of what comes where it is",
        "gantry_broker.clients.pull:Puller.queues_changed",
        "if pull.wanted.topic in topics:",
        "if False:",
        "requests",
    ),
    _broker(
        "first-group-of-a-tools-wish",
        "a queue stays where it was, though a tool was told that it moves",
        f"{MAPPED}.static_topics:StaticTopics.change",
        "items[-1].bname",
        "items[0].bname",
        "static_topics",
    ),
    _broker(
        "delayed-message-waits-for-ever",
        "a message whose queue has moved away holds up all behind it",
        "gantry_broker.clients.delivery:Delivery._real",
        "if place is None:",
        "if True:",
        "waiting_messages",
    ),
    _broker(
        "passed-on-with-its-delay",
        "a delayed message waits again at each group that its queue comes to",
        "gantry_broker.clients.delivery:Delivery._pass_on",
        "as_sent(leaving.message)",
        "leaving.message",
        "waiting_messages",
    ),
    _mutant(
        "segment-that-came-is-damage",
        "what was acknowledged at a group that a queue came to is not served after a power cut",
        "gantry_broker.queues.continuity:Continuity._goes_on",
        "if key[1] >= MAPPED_QUEUES_MAX:",
        "if False:",
        "unit/broker/queues/test_continuity.py::test_a_segment_of_a_mapped_queue_begins_anywhere",
    ),
    Mutant(
        "first-message-of-a-segment-at-0",
        "queue maps",
        "a queue that has moved has two rows of offsets",
        (Edit(f"{MAPS}.first_offset", "return queue.open.start", "return 0"),),
        Seeds("product-queues", 3),
    ),
)
