"""Probes: one attempt over the network, and the counting that turns attempts into verdicts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

Object = dict[str, Any]
_MAX_STATUS_LINE = 1024


class Probe(msgspec.Struct, frozen=True):
    """A probe as the container states it, with the API server's defaults filled in."""

    host: str
    port: int
    path: str | None
    headers: tuple[tuple[str, str], ...]
    initial_delay_s: float
    period_s: float
    timeout_s: float
    success_threshold: int
    failure_threshold: int


class ProbeCount:
    """Consecutive results against the thresholds (``pkg/kubelet/prober/worker.go``)."""

    def __init__(self, probe: Probe, *, passing: bool) -> None:
        self._probe = probe
        self._run = 0
        self._last: bool | None = None
        self.passing = passing

    def note(self, *, success: bool) -> bool:
        """Count one result; returns whether the verdict is now passing."""
        self._run = self._run + 1 if success is self._last else 1
        self._last = success
        probe = self._probe
        if self._run >= (probe.success_threshold if success else probe.failure_threshold):
            self.passing = success
        return self.passing


class UnsupportedProbeError(Exception):
    """A probe kind this cluster has no means for."""


def parse(spec: Object | None, container: Object, pod_ip: str) -> Probe | None:
    """The probe of a spec; None when there is none.

    Raises:
        UnsupportedProbeError: exec and gRPC probes.
    """
    if not spec:
        return None
    target = spec.get("httpGet") or spec.get("tcpSocket")
    if target is None:
        kinds = sorted({"exec", "grpc"} & spec.keys()) or ["empty"]
        raise UnsupportedProbeError(f"{kinds[0]} probes are not supported by gantry local")
    http = "httpGet" in spec
    headers = tuple((h["name"], h["value"]) for h in target.get("httpHeaders") or [])
    return Probe(
        host=target.get("host") or pod_ip,
        port=_port(target["port"], container),
        path=target.get("path", "/") if http else None,
        headers=headers,
        initial_delay_s=spec.get("initialDelaySeconds", 0),
        period_s=spec["periodSeconds"],
        timeout_s=spec["timeoutSeconds"],
        success_threshold=spec["successThreshold"],
        failure_threshold=spec["failureThreshold"],
    )


def _port(port: int | str, container: Object) -> int:
    if isinstance(port, int):
        return port
    for declared in container.get("ports") or []:
        if declared.get("name") == port:
            return int(declared["containerPort"])
    if port.isdigit():
        return int(port)
    raise UnsupportedProbeError(f"couldn't find port {port!r}")


async def attempt(probe: Probe) -> tuple[bool, str]:
    """One attempt: (success, why not)."""
    try:
        async with asyncio.timeout(probe.timeout_s):
            return await _connect(probe)
    except TimeoutError:
        return False, "context deadline exceeded"
    except OSError as error:
        return False, error.strerror or str(error)


async def _connect(probe: Probe) -> tuple[bool, str]:
    reader, writer = await asyncio.open_connection(probe.host, probe.port, limit=_MAX_STATUS_LINE)
    try:
        if probe.path is None:
            return True, ""
        writer.write(_request(probe))
        try:
            line = await reader.readline()
        except ValueError:  # longer than the limit: no HTTP server
            line = b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    parts = line.split()
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        return False, "malformed HTTP response"
    code = int(parts[1])
    return 200 <= code < 400, f"HTTP probe failed with statuscode: {code}"


def _request(probe: Probe) -> bytes:
    headers = {"Host": f"{probe.host}:{probe.port}", "User-Agent": "kube-probe/1.34"}
    headers |= {"Connection": "close", **dict(probe.headers)}
    lines = [f"GET {probe.path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
