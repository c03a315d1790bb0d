"""Bugs in the controllers' part of fronts: whose index is whose, who is led there, who is told."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

INDEXES = "gantry_controller.metadata.front_indexes:FrontIndexes"
FRONTS = "gantry_controller.metadata.fronts"
REQUESTS = "gantry_controller.remoting.fronts:FrontRequests"
METADATA = "unit/controller/metadata/test_fronts.py"
WIRE = "unit/controller/remoting/test_front_requests.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "fronts", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "front-index-given-twice",
        "two groups that serve have one port at every front",
        f"{INDEXES}.put",
        "self.left.pop(index, None)",
        "pass",
        METADATA,
    ),
    _mutant(
        "front-index-given-on-at-once",
        "clients of a group that is gone reach another one at its port",
        f"{INDEXES}.choose",
        "new >= ports and at_fronts",
        "at_fronts",
        METADATA,
    ),
    _mutant(
        "front-index-forgotten-with-its-group",
        "a group that was retired by mistake comes back at the port of another",
        f"{INDEXES}.choose",
        "own is not None:",
        "False:",
        METADATA,
    ),
    _mutant(
        "front-indexes-follow-names-for-ever",
        "a new group moves the ports of all whose names come after its own",
        f"{FRONTS}:declare_fronts",
        "state.write_front_indexes(event.cluster)",
        "pass",
        METADATA,
    ),
    _mutant(
        "route-beyond-the-fronts-ports",
        "clients of a group are led to a port that no front has",
        f"{FRONTS}:at_fronts",
        "index >= fronts.ports",
        "index > fronts.ports",
        METADATA,
    ),
    _mutant(
        "second-fronts-take-over",
        "two owners of fronts move the clients of a cluster to and fro",
        f"{FRONTS}:_problem",
        "known is not None and known.name != event.name",
        "False",
        METADATA,
    ),
    _mutant(
        "fronts-declared-before-all-know",
        "a controller of an older version stops at the event in the midst of a roll",
        "gantry_controller.admin.fronts:FrontsApi._put",
        "self._api.all_must_know_its_events()",
        "pass",
        "unit/controller/admin/test_api.py::TestFronts",
    ),
    _mutant(
        "fronts-told-when-their-wait-is-over",
        "a front passes clients on to a dead master for seconds after the next one was elected",
        f"{REQUESTS}._applied",
        "self.polls.wake(result.group.cluster)",
        "pass",
        WIRE,
    ),
    _mutant(
        "fronts-wait-without-number",
        "whoever asks often enough fills a controller's memory with requests that wait",
        "gantry_controller.remoting.long_polls:LongPolls.serve",
        "self.waiting < WAITING_MAX",
        "True",
        WIRE,
    ),
    _mutant(
        "fronts-wait-without-end",
        "a request waits for as long as its sender says",
        f"{REQUESTS}._groups",
        "min(header.wait_ms, WAIT_MAX_MS)",
        "header.wait_ms",
        WIRE,
    ),
)
