"""The settings that `spec.config` may name, with their types and ranges.

Rule protected: a wrong key or value is told in `Accepted`, and not by pods that end as soon as they
start. The operator may not import the brokers, so this is a copy of what their settings models say;
tests/unit/operator/test_known_settings.py compares it with them and fails when they change.

An image of another version may know others: an annotation of the resource switches this check off,
and what the process then says of its settings is the word that counts.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, NamedTuple

from gantry_operator import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_operator.models.base import Metadata


class Setting(NamedTuple):
    """What a value has to be.

    Attributes:
        type: as JSON schema calls it.
        least: the smallest value; a value that must be greater than a bound has it in `above`.
        most: the greatest value.
        length: most characters of a text.
    """

    type: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    length: int | None = None

    def fault(self, text: str) -> str:
        """What is wrong with a value; empty if nothing is."""
        if self.type == "string":
            return self._fault_of_text(text)
        try:
            number = int(text) if self.type == "integer" else float(text)
        except ValueError:
            return "a whole number is needed" if self.type == "integer" else "a number is needed"
        if self.least is not None and not number >= self.least:
            return f"at least {self.least:g} is needed"
        if self.above is not None and not number > self.above:
            return f"more than {self.above:g} is needed"
        if self.most is not None and not number <= self.most:
            return f"at most {self.most:.15g} is possible"
        return ""

    def _fault_of_text(self, text: str) -> str:
        if self.length is not None and len(text) > self.length:
            return f"at most {self.length} characters are possible"
        return ""


BROKER: Final[dict[str, Setting]] = {
    "delay_levels": Setting("string", length=1024),
    "disk_refuse_percent": Setting("number", above=0, most=100),
    "disk_spare_bytes": Setting("integer", least=0),
    "disk_take_percent": Setting("number", least=0, most=100),
    "frozen_end_ms": Setting("integer", least=0, most=60_000),
    "heartbeat_interval_ms": Setting("integer", least=50, most=60_000),
    "heartbeat_timeout_ms": Setting("integer", least=200, most=600_000),
    "lock_wait_s": Setting("number", least=0, most=600),
    "log_scrub_hours": Setting("number", least=0, most=8760),
    "log_segment_bytes": Setting("integer", least=65_536, most=2_147_483_648),
    "max_batch_messages": Setting("integer", least=1, most=1_000_000),
    "quotas": Setting("string", length=65_536),
    "transaction_check_interval_s": Setting("number", least=0.1, most=86_400),
    "offsets_kept_hours": Setting("integer", least=0, most=876_000),
    "transaction_check_max": Setting("integer", least=1, most=10_000),
    "transaction_timeout_s": Setting("number", above=0, most=86_400),
}
CONTROLLER: Final[dict[str, Setting]] = {
    "election_priority": Setting("integer", least=0, most=1000),
    "election_timeout_ms": Setting("integer", least=100, most=60_000),
    "heartbeat_timeout_ms": Setting("integer", least=100, most=600_000),
    "read_lag_max": Setting("integer", least=0, most=1_000_000_000),
    "snapshot_log_bytes": Setting("integer", least=65_536, most=17_179_869_184),
    "snapshot_margin_entries": Setting("integer", least=0, most=10_000_000),
}


def wrong_settings(
    meta: Metadata, settings: Mapping[str, str], known: Mapping[str, Setting]
) -> str:
    """One sentence per setting that the processes would refuse; empty if there is none."""
    if meta.annotations.get(names.ANNOTATION_UNCHECKED) == "true":
        return ""
    return " ".join(
        sentence
        for key, text in sorted(settings.items())
        for sentence in [_sentence(key, text, known)]
        if sentence
    )


def _sentence(key: str, text: str, known: Mapping[str, Setting]) -> str:
    setting = known.get(key)
    if setting is not None:
        fault = setting.fault(text)
        return f"spec.config.{key}: {fault} (got {text!r}); change it." if fault else ""
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}."
    return (
        f"spec.config.{key}: there is no such setting; {hint} If the image is of another version "
        f"that has it, annotate this resource with {names.ANNOTATION_UNCHECKED}=true."
    )
