"""Bugs in what the quorum decides about broker groups."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds
from sim.mutants.planting import Edit

METADATA = "gantry_controller.metadata"

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
        Seeds("controllers", 60),
    ),
    Mutant(
        "set-epoch-unchecked",
        "metadata",
        "a change of the sync-state set is taken whatever set it was made for",
        (
            Edit(
                f"{METADATA}.mastership:_refuse_alteration",
                "if event.expected_set_epoch != group.sync_state_set_epoch:",
                "if False:",
            ),
        ),
        Seeds("controllers", 60),
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
        Seeds("controllers", 60),
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
        Seeds("controllers", 60),
    ),
    Mutant(
        "apply-differs-between-replicas",
        "metadata",
        "what is applied depends on the process",
        (
            Edit(
                f"{METADATA}.mastership:_promote",
                "clean=group.clean and decision.clean,",
                "clean=id(group) % 32 == 0,",
            ),
        ),
        Seeds("controllers", 20),
    ),
)
