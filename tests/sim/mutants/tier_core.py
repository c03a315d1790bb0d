"""Bugs in the pure cores of the tier and of its format; several are what other systems did."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

CORE = "unit/broker/tier/core"

_mutant = one_edit("gantry_broker.tier.core")
_of_the_format = one_edit("gantry_protocol.tier")

MUTANTS = (
    _mutant(
        "higher-pair-ignored",
        "T9",
        "a master goes on behind the claim of a newer one",
        "session:UploadSession._higher",
        "if highest > self.pair else None",
        "if False else None",
        UnitTests(f"{CORE}/test_upload_role.py::test_a_higher_head_at_the_claim_fences"),
    ),
    _mutant(
        "appends-without-a-claim",
        "T9",
        "a master appends behind the claim of the one before it",
        "session:UploadSession.claimed",
        "self.chain.v > 0 and self.chain.pair == self.pair",
        "self.chain.v > 0",
        UnitTests(f"{CORE}/test_upload_role.py::test_a_successor_goes_on_where_the_tier_ends"),
    ),
    _mutant(
        "uploads-to-the-end-of-the-log",
        "T6",
        "what is not confirmed reaches the tier (allAckInSyncStateSet=false)",
        "values:LocalLog.limit",
        "min(self.confirm, self.flushed)",
        "self.flushed",
        UnitTests(
            f"{CORE}/test_upload_role.py::test_nothing_beyond_confirm_or_flushed_is_asked_for"
        ),
    ),
    _mutant(
        "maybe-taken-for-yes",
        "T5",
        "a version of unknown outcome counts as committed, without a look at its slot",
        "session:UploadSession._put",
        "CommitStage.OURS if created else CommitStage.UNKNOWN",
        "CommitStage.OURS",
        UnitTests(f"{CORE}/test_commit.py"),
    ),
    _mutant(
        "unknown-slot-written-for-ever",
        "T16",
        "a slot that an own earlier attempt has taken is written again and again",
        "session:UploadSession._put",
        "CommitStage.OURS if created else CommitStage.UNKNOWN",
        "CommitStage.OURS if created else CommitStage.UNSENT",
        UnitTests(f"{CORE}/test_commit.py"),
    ),
    _mutant(
        "failed-pack-sent-under-its-key",
        "T4",
        "a pack whose upload failed is committed under the key of the failed attempt",
        "session:UploadSession._failed",
        "self._pack = None",
        "pass",
        UnitTests(f"{CORE}/test_upload_role.py::test_a_failed_pack_is_cut_again_under_another_key"),
    ),
    _mutant(
        "upload-gives-up",
        "T16",
        "an upload that failed is never tried again, and the disk fills",
        "role:UploadRole._timer",
        "self._enter(self.session.state)",
        "return []",
        UnitTests(f"{CORE}/test_upload_role.py::test_waiting_grows_and_ends_with_a_success"),
    ),
    _mutant(
        "trims-beyond-the-tier",
        "T10",
        "local retention does not ask how far the tier reaches",
        "trim:trim_bound",
        "min(committed_end, retained_from, *pins)",
        "min(retained_from, *pins, retained_from)",
        UnitTests(f"{CORE}/test_trim.py::test_the_bound_is_the_least_of_all"),
    ),
    _mutant(
        "another-history-goes-on",
        "T8",
        "a master whose log differs from the tier goes on uploading",
        "session:UploadSession._compared",
        "if crc != tail.crc:",
        "if False:",
        UnitTests(f"{CORE}/test_upload_role.py::test_a_different_last_record_halts"),
    ),
    _mutant(
        "found-one-record-later",
        "T13",
        "a reader of the tier is given the record after the one that it asked for",
        "locate:RunIndex.locate",
        "position=offset - runs[index].first",
        "position=min(offset + 1, runs[index].after - 1) - runs[index].first",
        UnitTests(f"{CORE}/test_locate.py"),
    ),
    _of_the_format(
        "end-of-the-packs-unchecked",
        "T2",
        "a version may say that the tier ends elsewhere than its packs do",
        "chain:_check_append",
        "version.end == end",
        "True",
        UnitTests("unit/protocol/tier/test_chain.py"),
    ),
    _of_the_format(
        "hole-between-packs-unnoticed",
        "T3",
        "a version may leave a part of the log out",
        "chain:_check_append",
        "entry.lo == end",
        "entry.lo >= end",
        UnitTests("unit/protocol/tier/test_chain.py"),
    ),
)
