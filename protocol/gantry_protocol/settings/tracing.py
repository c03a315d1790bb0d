"""Settings of tracing: of every process that has spans."""

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from gantry_protocol.process.config import Settings


class TracedProcess(Settings):
    """Where the spans of a process go."""

    tracing_endpoint: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="http(s)://HOST:PORT of an OpenTelemetry collector that takes OTLP over HTTP, "
        "for example http://collector.observability.svc:4318; /v1/traces is put behind it. Not "
        "set: nothing is traced.",
    )

    @field_validator("tracing_endpoint")
    @classmethod
    def _must_be_a_url(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https") or not parts.hostname:
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
