"""Settings of tracing: of every process that has spans."""

import re

from pydantic import Field, field_validator

from gantry_protocol.settings.logs import LoggedProcess

COLLECTOR_URL = r"^https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[!-~]*)?$"


class TracedProcess(LoggedProcess):
    """The way out of a process for its spans."""

    tracing_endpoint: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        pattern=COLLECTOR_URL,
        description="http(s)://HOST:PORT of an OpenTelemetry collector that takes OTLP over HTTP, "
        "for example http://collector.observability.svc:4318; /v1/traces is put behind it. Not "
        "set: nothing is traced.",
    )

    @field_validator("tracing_endpoint", mode="before")
    @classmethod
    def _must_be_a_url(cls, value: object) -> object:
        """In clearer words than the pattern, which the operator knows."""
        if isinstance(value, str) and not re.match(COLLECTOR_URL, value):
            raise ValueError(f"{value!r} is not http://HOST:PORT or https://HOST:PORT")
        return value


class TracedSends(TracedProcess):
    """The sends that are traced, too."""

    tracing_ratio: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="With tracing_endpoint, the share of sends that are traced if their messages "
        "have no traceparent; one that has is traced if its parent is sampled.",
    )
