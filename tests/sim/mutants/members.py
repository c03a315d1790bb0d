"""Bugs in changing the members, and in handing leadership over."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

RAFT = "gantry_controller.raft"
MEMBERS = "unit/controller/raft/test_members.py"
STORY = "unit/controller/raft/test_scenarios.py::test_story"

MUTANTS = (
    Mutant(
        "change-before-own-commit",
        "members",
        "a new leader changes the members before an entry of its term is committed",
        (Edit(f"{RAFT}.changes:may_begin", "return state.term_is_committed", "return True"),),
        UnitTests(f"{STORY}[members_own_term_first]"),
    ),
    Mutant(
        "two-changes-at-once",
        "members",
        "a change of the members is taken while another is under way",
        (
            Edit(
                f"{RAFT}.changes:_check_may_change",
                "if state.history.changed_index > state.log.commit_index:",
                "if False:",
            ),
        ),
        UnitTests(f"{STORY}[members_refused]"),
    ),
    Mutant(
        "learner-is-counted",
        "members",
        "a learner's acknowledgement is counted towards the majority",
        (
            Edit(
                f"{RAFT}.state:RaftState.counted",
                "if progress.counts and node in self.members.voters",
                "if progress.counts",
            ),
            Edit(
                f"{RAFT}.members:Membership.reached",
                "for node in self.voters if node in values",
                "for node in values",
            ),
        ),
        Seeds("raft-members", 40),
    ),
    Mutant(
        "learner-campaigns",
        "members",
        "a learner stands for election",
        (
            Edit(
                f"{RAFT}.state:RaftState.may_campaign",
                "return self.node_id in self.members.voters or self.node_id in committed.voters",
                "return True",
            ),
        ),
        Seeds("raft-members", 20),
    ),
    Mutant(
        "needed-member-stays-out",
        "members",
        "a voter whose removal is not committed yet stands for no election, and may be needed",
        (
            Edit(
                f"{RAFT}.state:RaftState.may_campaign",
                " or self.node_id in committed.voters",
                "",
            ),
        ),
        UnitTests("unit/controller/raft/test_scenarios.py"),
    ),
    Mutant(
        "cut-change-stays-in-effect",
        "members",
        "a change that was cut from the log still decides who is counted",
        (
            Edit(
                f"{RAFT}.members:MemberHistory.keep",
                "while len(self._changes) > 1 and self.changed_index > last:",
                "while False:",
            ),
        ),
        UnitTests(f"{STORY}[members_rolled_back]"),
    ),
    Mutant(
        "stranger-deposes-the-leader",
        "members",
        "a removed node's higher term ends a leadership",
        (
            Edit(
                f"{RAFT}.stepping:_is_answer_of_stranger",
                "return not request and",
                "return False and",
            ),
        ),
        UnitTests(f"{STORY}[members_removed_is_harmless]"),
    ),
    Mutant(
        "let-go-although-back",
        "members",
        "a member that was taken in again in the pass of its removal is sent nothing",
        (Edit(f"{RAFT}.replication:_let_go", "if node not in state.members.nodes:", "if True:"),),
        UnitTests(f"{STORY}[members_back_in_one_pass]"),
    ),
    Mutant(
        "promoted-without-the-log",
        "members",
        "a learner that lacks the log may vote, and a quorum waits for it",
        (Edit(f"{RAFT}.changes:_why_not_ready", "if lag > ", "if False and lag > "),),
        UnitTests(f"{STORY}[members_learner_lags]"),
    ),
    Mutant(
        "transfer-to-one-that-lags",
        "transfer",
        "the next leader is told before it holds the whole log",
        (
            Edit(
                f"{RAFT}.transfer:proceed",
                "if state.peers[transfer.target].match_index == state.log.last_index:",
                "if True:",
            ),
        ),
        UnitTests(f"{STORY}[transfer_lagging]"),
    ),
    Mutant(
        "proposals-during-transfer",
        "transfer",
        "a leader that hands over goes on taking proposals, and the target never catches up",
        (Edit(f"{RAFT}.core:RaftCore.propose", "if state.transfer is not None:", "if False:"),),
        UnitTests("unit/controller/raft/test_scenarios.py"),
    ),
    Mutant(
        "leader-takes-itself-back",
        "members",
        "a leader that was taken out adds itself as a learner, and leads on",
        (
            Edit(
                f"{RAFT}.changes:_check_may_change",
                "if state.node_id not in state.members.voters:",
                "if False:",
            ),
        ),
        UnitTests(f"{STORY}[members_leader_is_out]"),
    ),
)
