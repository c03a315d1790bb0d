"""A Java broker's way to its id and into the group, broken off at every step and taken up again.

After upstream's ``ReplicasManagerRegisterTest``; the steps are those of ``ReplicasManager`` (spec
§3.2): ask for the next id (1012), note it in a temporary file, apply for it (1013), note it in the
identity file, register (1003). An error of 1013 makes the broker forget its temporary file.
"""

from __future__ import annotations

import pytest
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from support.controller_dispatcher import CLUSTER, NAME, Harness, address

GROUP = {"clusterName": CLUSTER, "brokerName": NAME}
STEPS = (
    "next id not asked",
    "temporary file not written",
    "application not sent",
    "application's answer lost",
    "identity file not written",
    "registration not sent",
    "registration's answer lost",
)


class BrokenOffError(Exception):
    """The process ended, or a call did."""


class JavaBroker:
    """A broker of upstream with its two files."""

    def __init__(self, harness: Harness, where: str) -> None:
        self.harness = harness
        self.where = where
        self.identity: int | None = None
        self.temporary: tuple[int, str] | None = None
        self.starts = 0

    def start(self, broken_at: str = "") -> RemotingCommand:
        """The answer to the registration.

        Raises:
            BrokenOffError: at the step that was named; files stay as they are then.
        """
        self.starts += 1
        if self.identity is None:
            if self.temporary is None:
                self._take_a_number(broken_at)
            self._apply(broken_at)
        _break(broken_at, "registration not sent")
        ext = {**GROUP, "brokerId": str(self.identity), "brokerAddress": self.where}
        answer = self.harness.call(1003, ext)
        _break(broken_at, "registration's answer lost")
        return answer

    def _take_a_number(self, broken_at: str) -> None:
        _break(broken_at, "next id not asked")
        answer = self.harness.call(1012, GROUP)
        _break(broken_at, "temporary file not written")
        code = f"{self.where};{self.starts}"
        self.temporary = (int((answer.ext or {})["nextBrokerId"]), code)

    def _apply(self, broken_at: str) -> None:
        assert self.temporary is not None
        number, code = self.temporary
        _break(broken_at, "application not sent")
        ext = {**GROUP, "appliedBrokerId": str(number), "registerCheckCode": code}
        answer = self.harness.call(1013, ext)
        if broken_at == "application's answer lost" or answer.code:
            self.temporary = None  # on any error
            raise BrokenOffError
        _break(broken_at, "identity file not written")
        self.identity, self.temporary = number, None


def _break(asked: str, step: str) -> None:
    if asked == step:
        raise BrokenOffError


async def test_success(harness: Harness) -> None:
    first, second = JavaBroker(harness, address(1)), JavaBroker(harness, address(2))
    for number, broker in enumerate((first, second), start=1):
        answer = broker.start()
        assert (answer.code, broker.identity) == (0, number)
        assert "masterBrokerId" not in (answer.ext or {})
    assert [one.address for one in harness.group.members] == [address(1), address(2)]


@pytest.mark.parametrize("step", STEPS)
async def test_broken_off_and_taken_up_again(harness: Harness, step: str) -> None:
    broker = JavaBroker(harness, address(1))
    with pytest.raises(BrokenOffError):
        broker.start(step)
    assert broker.start().code == 0
    # An answer that was lost costs an id: upstream's broker asks for another one.
    ghosts = 1 if step == "application's answer lost" else 0
    assert broker.identity == 1 + ghosts
    assert harness.group.next_broker_id == 2 + ghosts
    elected = harness.elect(broker.identity)
    assert (elected.code, (elected.ext or {})["masterBrokerId"]) == (0, str(broker.identity))
    assert harness.group.sync_state_set == (broker.identity,)


@pytest.mark.parametrize("step", STEPS)
async def test_broken_off_many_times(harness: Harness, step: str) -> None:
    """No id is ever given to two, and no start changes what an earlier one was given."""
    brokers = [JavaBroker(harness, address(number)) for number in (1, 2, 3)]
    for broker in brokers:
        for _ in range(3):
            if broker.identity is None or step.startswith("registration"):
                with pytest.raises(BrokenOffError):
                    broker.start(step)
        assert broker.start().code == 0
        kept = broker.identity
        assert broker.start().code == 0
        assert broker.identity == kept
    ids = [broker.identity for broker in brokers]
    assert len(set(ids)) == 3
    registered = {one.broker_id: one.address for one in harness.group.members if one.registrations}
    assert registered == {broker.identity: broker.where for broker in brokers}


async def test_two_apply_for_one_id(harness: Harness) -> None:
    """The cold start of a group: both were told 1, one gets it, the other asks again."""
    first, second = JavaBroker(harness, address(1)), JavaBroker(harness, address(2))
    for broker in (first, second):
        with pytest.raises(BrokenOffError):
            broker.start("application not sent")
    assert first.temporary is not None
    assert second.temporary is not None
    assert first.temporary[0] == second.temporary[0] == 1
    assert second.start().code == 0
    with pytest.raises(BrokenOffError):
        first.start()
    assert first.start().code == 0
    assert (first.identity, second.identity) == (2, 1)


async def test_lost_identity_gets_another_id(harness: Harness) -> None:
    """An emptied volume is another broker, even at the same address."""
    broker = JavaBroker(harness, address(1))
    broker.start()
    emptied = JavaBroker(harness, address(1))
    emptied.starts = 7  # its check code holds another time
    assert emptied.start().code == 0
    assert emptied.identity == 2


async def test_registering_what_was_cleaned_is_refused(harness: Harness) -> None:
    broker = JavaBroker(harness, address(1))
    broker.start()
    struck = {**GROUP, "brokerControllerIdsToClean": "1", "gantryLiving": "1=#1"}
    assert harness.call(1011, struck).code == 0
    assert broker.start().code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
