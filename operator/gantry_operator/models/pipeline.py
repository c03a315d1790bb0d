"""`spec.pipeline`: jobs over what a group uploaded, which the operator keeps in a schedule.

Rule protected: a job reads the tier and nothing else of the group; it can neither slow nor stop a
broker. What it refuses: an audit of a group without a bucket, which would have nothing to read.
"""

from __future__ import annotations

from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.parts import NOT_NULLABLE, Resources


class Audit(Model):
    """`gantry pipeline audit` over the group's part of the tier, again and again."""

    schedule: str = Field(
        min_length=9,
        max_length=100,
        description=(
            "When to audit, as a cron line in UTC, for example '17 3 * * *' for every night. An "
            "audit reads every byte of the group's tier once, so a store that charges for reads "
            "charges for that. No default."
        ),
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description=(
            "Container image with Spark and Java, built by make image-pipeline. Default: the name "
            "and tag of the operator's own image with -pipeline behind the name, for example "
            "gantry-pipeline:1.0 for gantry:1.0."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    resources: Resources = Field(
        default_factory=Resources,
        description=(
            "CPU and memory of the job's container. Spark takes a quarter of the memory limit, at "
            "least 1Gi, and its two workers as much again. Default: requests {cpu: 500m, memory: "
            "2Gi}, limits {memory: 3Gi}."
        ),
    )


class Pipeline(Model):
    """Jobs that read what the group uploaded."""

    audit: Audit | None = Field(
        default=None,
        description=(
            "Judges the group's part of the tier: a CronJob NAME-audit. A job that fails is "
            "kubectl get jobs; its log names each object and offset that is wrong (exit code 1), "
            "or says what could not be read (75, tried again twice). One audit at a time; the "
            "last three that failed are kept. gantry local makes the CronJob and does not run it. "
            "Default none; taking it out deletes the CronJob."
        ),
        json_schema_extra=NOT_NULLABLE,
    )


NEEDS_A_BUCKET = Rule(
    "!has(self.pipeline) || !has(self.pipeline.audit)"
    " || has(self.tier) && self.tier.url.startsWith('s3://')",
    "pipeline.audit reads the bucket that the group uploads to: set tier.url to s3://BUCKET, or "
    "remove pipeline.audit",
    lambda spec: (
        spec.pipeline is None
        or spec.pipeline.audit is None
        or (spec.tier is not None and not spec.tier.is_directory)
    ),
)
"""A rule of the group's spec, since it compares two of its fields."""
