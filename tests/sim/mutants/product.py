"""Bugs in the code around the cores: shells, files, threads, sockets, and what clients are told."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds
from sim.mutants.planting import Edit

MUTANTS = (
    Mutant(
        "sent-before-persist",
        "controller node",
        "votes and acknowledgements leave before they are on the disk",
        (
            Edit(
                "gantry_controller.node.disk:Disk.submit",
                "self.held.hold(ready.batch, ",
                "self.held.hold(0, ",
            ),
        ),
        Seeds("product-quorum", 40),
    ),
    Mutant(
        "one-in-sync-is-enough",
        "broker member",
        "a send is answered 0 with fewer than minInSyncReplicas",
        (
            Edit(
                "gantry_broker.replica.master:Mastership.has_enough",
                "self.in_sync >= self.min_in_sync",
                "self.in_sync >= 1",
            ),
        ),
        Seeds("product", 40),
    ),
    Mutant(
        "cut-bytes-count-as-flushed",
        "broker member",
        "a flush that began before a cut is believed after it",
        (
            Edit(
                "gantry_broker.member.shell:ReplicaShell._flushed",
                "ev.LogFlushed(flushed, cuts)",
                "ev.LogFlushed(min(flushed, self.core.log.end), self.core.log.cuts)",
            ),
        ),
        Seeds("product", 40),
    ),
    Mutant(
        "demotion-ends-no-send",
        "broker member",
        "a send that waits is answered by a master that is none any more",
        (
            Edit(
                "gantry_broker.member.group:ReplicationGroup.demoted",
                "    self.writes.end()\n",
                "",
            ),
        ),
        Seeds("product", 40),
    ),
    Mutant(
        "proposals-survive-the-role",
        "controller node",
        "a proposal is answered by the entry of another leader at its index",
        (
            Edit(
                "gantry_controller.node.node:RaftNode._on_soft_state",
                "    self._proposals.drop(ProposalDropped())\n",
                "",
            ),
        ),
        Seeds("product-quorum", 40),
    ),
    Mutant(
        "blank-unknown-to-the-core",
        "broker member",
        "the end of a file that was ended for a record without room passes for the next epoch's",
        (
            Edit(
                "gantry_broker.member.writes:GroupWrites.append",
                "        self._member.appended()\n        self._member.met_full()\n",
                "        self._member.met_full()\n",
            ),
        ),
        Seeds("product", 40),
    ),
)
