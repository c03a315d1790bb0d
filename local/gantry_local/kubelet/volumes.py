"""Volumes as directories: claims persist, the rest goes with the pod; ConfigMaps become files.

Files are replaced atomically one by one when their object changes, as the kubelet's are (all at
once there, through a symbolic link; nothing here reads two of them together).
"""

from __future__ import annotations

import base64
import shutil
from typing import TYPE_CHECKING, Any

from gantry_local.files import replace_file
from gantry_local.kubelet.environment import ContainerConfigError, field_value

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_local.kubelet.environment import Sources

Object = dict[str, Any]


class Volumes:
    """Volumes of pods below a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._claims = state_dir / "volumes"
        self._pods = state_dir / "pods"

    def pod_dir(self, pod: Object) -> Path:
        """The directory of one pod incarnation."""
        meta = pod["metadata"]
        return self._pods / f"{meta['namespace']}_{meta['name']}_{meta['uid'][:8]}"

    def prepare(self, pod: Object, sources: Sources, claims: dict[str, str]) -> dict[str, Path]:
        """Make every volume of the pod; returns volume name → directory.

        Args:
            pod: The pod.
            sources: ConfigMaps and Secrets of its namespace.
            claims: Claim name → bound volume name.

        Raises:
            ContainerConfigError: an object is missing or a volume kind is not supported.
        """
        directories: dict[str, Path] = {}
        for volume in pod["spec"].get("volumes") or []:
            directory = self._directory(pod, volume, claims)
            directory.mkdir(parents=True, exist_ok=True)
            directories[volume["name"]] = directory
            self._fill(pod, volume, directory, sources)
        return directories

    def refresh(self, pod: Object, sources: Sources) -> None:
        """Rewrite files of ConfigMap and Secret volumes after their objects changed."""
        for volume in pod["spec"].get("volumes") or []:
            if "configMap" in volume or "secret" in volume:
                directory = self.pod_dir(pod) / "volumes" / volume["name"]
                if directory.is_dir():
                    self._fill(pod, volume, directory, sources)

    def remove_pod(self, pod: Object) -> None:
        """Remove what belonged to one pod incarnation only."""
        shutil.rmtree(self.pod_dir(pod), ignore_errors=True)

    def remove_claim(self, volume_name: str) -> None:
        """Remove a released volume with its data."""
        shutil.rmtree(self._claims / volume_name, ignore_errors=True)

    def _directory(self, pod: Object, volume: Object, claims: dict[str, str]) -> Path:
        claim = volume.get("persistentVolumeClaim")
        if claim is None:
            return self.pod_dir(pod) / "volumes" / str(volume["name"])
        name = claim["claimName"]
        if name not in claims:
            raise ContainerConfigError(f'persistentvolumeclaim "{name}" not found or not bound')
        return self._claims / claims[name]

    def _fill(self, pod: Object, volume: Object, directory: Path, sources: Sources) -> None:
        match volume:
            case {"configMap": source}:
                files = _config_files(source, sources)
                _write(directory, files, source.get("defaultMode", 0o644))
            case {"secret": source}:
                # Mode 0600 whatever is asked: there is no fsGroup to share a looser one with.
                _write(directory, _secret_files(source, sources), 0o600)
            case {"downwardAPI": source}:
                files = {
                    item["path"]: field_value(pod, item["fieldRef"]["fieldPath"]).encode()
                    for item in source.get("items") or []
                }
                _write(directory, files, source.get("defaultMode", 0o644))
            case {"persistentVolumeClaim": _} | {"emptyDir": _}:
                pass
            case _:
                kind = next((key for key in volume if key != "name"), "nothing")
                raise ContainerConfigError(
                    f"volume {volume['name']}: {kind} is not supported by gantry local"
                )


def _write(directory: Path, files: dict[str, bytes], mode: int) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            replace_file(path, content, mode=mode)
    for path in directory.iterdir():
        if path.is_file() and path.name not in files:
            path.unlink()


def _select(source: Object, data: dict[str, bytes]) -> dict[str, bytes]:
    items = source.get("items")
    if items is None:
        return data
    missing = [item["key"] for item in items if item["key"] not in data]
    if missing and not source.get("optional"):
        raise ContainerConfigError(f"references non-existent config key: {missing[0]}")
    return {item["path"]: data[item["key"]] for item in items if item["key"] in data}


def _config_files(source: Object, sources: Sources) -> dict[str, bytes]:
    found = sources.config_map(source.get("name", ""))
    if found is None:
        if source.get("optional"):
            return {}
        raise ContainerConfigError(f'configmap "{source.get("name", "")}" not found')
    data = {key: text.encode() for key, text in (found.get("data") or {}).items()}
    binary = {key: base64.b64decode(t) for key, t in (found.get("binaryData") or {}).items()}
    return _select(source, {**data, **binary})


def _secret_files(source: Object, sources: Sources) -> dict[str, bytes]:
    found = sources.secret(source.get("secretName", ""))
    if found is None:
        if source.get("optional"):
            return {}
        raise ContainerConfigError(f'secret "{source.get("secretName", "")}" not found')
    data = {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}
    return _select(source, data)
