"""Bugs in what the quorum decides about broker groups."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

METADATA = "gantry_controller.metadata"
LIVENESS = "gantry_controller.liveness.core"

MUTANTS = (
    Mutant(
        "election-outside-the-set",
        "metadata",
        "any live member may become master (enableElectUncleanMaster)",
        (
            Edit(
                f"{METADATA}.election:_election_in_the_set",
                "pool = [live[broker_id] for broker_id in group.sync_state_set "
                "if broker_id in live]",
                "pool = list(live.values())",
            ),
        ),
        UnitTests(
            "unit/controller/metadata/test_election.py::TestInTheSet::test_nobody_outside_the_set_wins_however_far_it_got"
        ),
    ),
    Mutant(
        "master-epoch-unchecked",
        "metadata",
        "a change of the sync-state set is taken from the master of an earlier epoch",
        (
            Edit(
                f"{METADATA}.mastership:_refuse_alteration",
                "if event.master_epoch != group.master_epoch:",
                "if False:",
            ),
            Edit(
                f"{METADATA}.mastership:alter_sync_state_set",
                "new_set = event.new_set\n",
                "new_set = event.new_set\n"
                "    from msgspec.structs import replace\n"
                "    event = replace(event, expected_set_epoch=group.sync_state_set_epoch)\n",
            ),
        ),
        UnitTests("unit/controller/metadata/test_sync_state_set.py"),
    ),
    Mutant(
        "mastership-outlives-its-process",
        "metadata",
        "a master that started anew is taken for the one that was elected",
        (
            Edit(
                f"{METADATA}.state:BrokerGroup.master_is_current",
                "return master is not None and master.incarnation == self.master_incarnation",
                "return master is not None",
            ),
        ),
        UnitTests("unit/controller/metadata/test_election.py::TestIncarnations"),
    ),
    Mutant(
        "apply-differs-between-replicas",
        "metadata",
        "what is applied depends on the process",
        (
            Edit(
                f"{METADATA}.mastership:promote",
                "clean=group.clean and decision.clean,",
                "clean=hash((id(group), 1)) % 2 == 0,",
            ),
        ),
        UnitTests("unit/controller/metadata/test_properties.py"),
    ),
    Mutant(
        "floor-ignored-in-elections",
        "metadata",
        "an older copy of a volume becomes master if it comes back first",
        (
            Edit(
                f"{METADATA}.election:holds",
                "return floor is None or floor.reached_by(member.epoch, member.max_offset)",
                "return True",
            ),
        ),
        UnitTests(
            "unit/controller/metadata/test_floors.py::test_nobody_below_the_floor_is_elected"
        ),
    ),
    Mutant(
        "floor-compared-by-its-end-alone",
        "metadata",
        "a copy with an unconfirmed end of an older epoch passes for complete",
        (
            Edit(
                f"{METADATA}.state:Floor.reached_by",
                "return epoch >= self.epoch and end >= self.offset",
                "return end >= self.offset",
            ),
        ),
        UnitTests("unit/controller/metadata/test_floors.py"),
    ),
    Mutant(
        "floor-not-in-the-snapshot",
        "metadata",
        "a controller that starts from a snapshot knows of nothing confirmed",
        (
            Edit(
                f"{METADATA}.snapshot:assemble",
                "fresh[part.field].update(part.content)",
                "fresh[part.field].update({} if part.field == 'floors' else part.content)",
            ),
        ),
        UnitTests("unit/controller/metadata/test_floors.py"),
    ),
    Mutant(
        "floor-moved-back",
        "metadata",
        "a word that is older than what is known lowers the floor",
        (
            Edit(
                f"{METADATA}.floors:_raises",
                "return known is None or (row.offset > known.offset and row.epoch >= known.epoch)",
                "return True",
            ),
        ),
        UnitTests("unit/controller/metadata/test_floors.py"),
    ),
    Mutant(
        "older-copy-inherits-the-set",
        "metadata",
        "an older copy that is alive stays in the set under a complete master",
        (
            Edit(
                f"{METADATA}.election:_election_in_the_set",
                "not (item.draining or _lacks(item, floor))",
                "not item.draining",
            ),
        ),
        Seeds("product-restored", 4),
    ),
    Mutant(
        "nobody-is-waited-for",
        "liveness",
        "the first that is back after an outage of all is elected at once",
        (
            Edit(
                f"{LIVENESS}.overseer:Overseer._wait",
                "if now_s >= ends_s:",
                "if True:",
            ),
        ),
        UnitTests("unit/controller/liveness/test_floors.py"),
    ),
    Mutant(
        "who-may-have-died-is-there",
        "liveness",
        "nobody is waited for after an outage of all while their time-outs last",
        (
            Edit(
                f"{LIVENESS}.overseer:Overseer._wait",
                "if item not in here]",
                "if item not in {one.broker_id for one in live}]",
            ),
        ),
        UnitTests("unit/controller/liveness/test_floors.py"),
    ),
    Mutant(
        "who-is-passed-over-is-there",
        "liveness",
        "a member that another controller heard is waited for no more, and passed over",
        (
            Edit(
                f"{LIVENESS}.overseer:Overseer._wait",
                "and item.connected",
                "and item.broker_id",
            ),
        ),
        UnitTests("unit/controller/liveness/test_floors.py"),
    ),
    Mutant(
        "who-may-have-died-has-waited",
        "liveness",
        "the wait after an outage of all is over by what came before it",
        (
            Edit(
                f"{LIVENESS}.overseer:Overseer._wait",
                "for item in here.values()",
                "for item in live",
            ),
        ),
        UnitTests("unit/controller/liveness/test_floors.py"),
    ),
    Mutant(
        "word-of-a-member-taken-for-new",
        "liveness",
        "a replica is held to be behind since its last heartbeat is older than its master's",
        (
            Edit(
                f"{LIVENESS}.floors:HeardFloors.is_vouched_for",
                "return heard_s is not None and since_s + VOUCHED_AFTER_S <= heard_s",
                "return False",
            ),
        ),
        UnitTests("unit/controller/liveness/test_floors.py"),
    ),
    Mutant(
        "any-process-vouched-for",
        "liveness",
        "a process that came after its master is believed to hold what that confirmed",
        (
            Edit(
                f"{LIVENESS}.floors:HeardFloors.is_vouched_for",
                "return heard_s is not None and since_s + VOUCHED_AFTER_S <= heard_s",
                "return True",
            ),
        ),
        Seeds("product-restored", 4),
    ),
    Mutant(
        "corpses-are-elected",
        "liveness",
        "when all die at once the set ends as the last of them alone",
        (
            Edit(
                f"{LIVENESS}.overseer:Overseer._wait",
                "if row is not None and not here:",
                "if False:",
            ),
        ),
        UnitTests("unit/controller/liveness/test_floors.py"),
    ),
    Mutant(
        "one-id-for-two-volumes",
        "ids",
        "a copy of a group registers under the id that another volume was given meanwhile",
        (
            Edit(
                "gantry_controller.remoting.control:ControllerRequests._register",
                "header.register_check_code not in (None, member.check_code)",
                "False",
            ),
        ),
        UnitTests(
            "unit/controller/remoting/test_wire.py::TestRegister::test_an_id_is_of_one_volume"
        ),
    ),
    Mutant(
        "older-brokers-refused",
        "ids",
        "brokers of an older version, and Java's, cannot register any more",
        (
            Edit(
                "gantry_controller.remoting.control:ControllerRequests._register",
                "not in (None, member.check_code)",
                "!= member.check_code",
            ),
        ),
        UnitTests(
            "unit/controller/remoting/test_wire.py::TestRegister::test_an_id_is_of_one_volume"
        ),
    ),
    Mutant(
        "registered-without-its-code",
        "ids",
        "a broker does not say for what its volume was given the id it registers under",
        (
            Edit(
                "gantry_broker.control.joining:Joining.obtain",
                "self.check_code = found.check_code",
                "pass",
            ),
        ),
        UnitTests(
            "unit/broker/control/test_agent.py"
            "::test_an_id_that_a_new_quorum_gave_to_another_volume_is_given_up"
        ),
    ),
)
