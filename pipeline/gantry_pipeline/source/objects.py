"""Reading the objects of a tier, from a directory or an S3 bucket; this component never writes one.

Credentials come from options, from the files of a mounted Secret (``CREDENTIALS_DIR``), or from the
environment of the process that reads (so executors need either of the last two in their own pods);
they appear in no message. Without any, the store's client would ask the metadata
address of a cloud for the rights of the machine; that is refused, because rights nobody gave are a
surprise wherever they exist and a long wait wherever they do not.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from gantry_protocol.errors import EXIT_TEMPORARY, ConfigError, GantryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

S3_OPTIONS = {  # option of the data source -> setting of the S3 client
    "endpoint": "endpoint",
    "region": "region",
    "accessKeyId": "access_key_id",
    "secretAccessKey": "secret_access_key",
    "sessionToken": "session_token",
}
_PLACE = {"AWS_ENDPOINT_URL": "endpoint", "AWS_REGION": "region"}  # to options of the data source
ANONYMOUS = "anonymous"
CREDENTIALS_DIR = "GANTRY_TIER_CREDENTIALS_DIR"  # as brokers take it
_FILES = {  # of that directory -> setting of the S3 client, whether it may be missing
    "accessKeyId": ("access_key_id", False),
    "secretAccessKey": ("secret_access_key", False),
    "sessionToken": ("session_token", True),
}
_KEY_BYTES_MAX = 16 * 1024
_GIVEN_RIGHTS = (  # any of them means that somebody gave this process rights
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
)
REQUEST_TIMEOUT_S = 60  # one GET of a pack of 256 MiB at 5 MB/s
RETRY_TIMEOUT_S = 30
RETRIES_MAX = 5
_STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")


def place_in_environment() -> dict[str, str]:
    """S3's place in this process, as options: executors have an environment of their own.

    Without it they would ask another service than the driver, and wait for an answer in vain.
    """
    return {option: os.environ[name] for name, option in _PLACE.items() if os.environ.get(name)}


class MissingObject(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """There is no object of that key."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(f"{key} is missing in {url}.")
        self.key = key


class StoreError(GantryError):
    """The store did not answer as it should; the sentence names key and cause, never a secret."""

    exit_code = EXIT_TEMPORARY


class Objects(Protocol):
    """The part of a store that reading a tier needs; keys are relative to its URL."""

    url: str

    def get(self, key: str) -> bytes:
        """The whole object. Raises MissingObject, StoreError."""
        ...

    def tail(self, key: str, count: int) -> tuple[bytes, int]:
        """The last ``count`` bytes (all of a shorter object), and the object's size."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes [start, end)."""
        ...

    def keys(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        """Keys below ``prefix`` that sort behind ``after``, in byte order, each with its size."""
        ...

    def children(self, prefix: str) -> list[str]:
        """Names one level below ``prefix`` that lead further down."""
        ...


def open_objects(url: str, options: Mapping[str, str] | None = None) -> Objects:
    """The store behind ``file:///path`` (or a plain path) or ``s3://bucket/prefix``.

    Raises:
        ConfigError: the URL or an option is none that can be used; says which.
    """
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None or parts.query:
        raise ConfigError(
            "The tier's URL holds credentials or options; take them out, and set AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY."
        )
    if parts.scheme in ("", "file"):
        if parts.netloc not in ("", "localhost"):
            raise ConfigError(f"{url} names a host; write file:///path, with three slashes.")
        return _Files(url, Path(unquote(parts.path) if parts.scheme else url))
    if parts.scheme == "s3":
        if not parts.netloc:
            raise ConfigError(f"{url} names no bucket; write s3://BUCKET/PREFIX.")
        return _Bucket(url, parts.netloc, parts.path.strip("/"), dict(options or {}))
    raise ConfigError(f"{url} is no tier that can be read; file:// and s3:// can.")


class _Files:
    """A directory, written by the POSIX adapter."""

    def __init__(self, url: str, root: Path) -> None:
        self.url = url
        self._root = root
        if not root.is_dir():
            raise ConfigError(f"{root} is no directory; give the one that the tier was written to.")

    def _path(self, key: str) -> Path:
        assert ".." not in key.split("/"), key
        return self._root / key

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except OSError as error:
            raise self._failed(key, error) from error

    def tail(self, key: str, count: int) -> tuple[bytes, int]:
        try:
            with self._path(key).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - count))
                return file.read(count), size
        except OSError as error:
            raise self._failed(key, error) from error

    def get_range(self, key: str, start: int, end: int) -> bytes:
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                return file.read(end - start)
        except OSError as error:
            raise self._failed(key, error) from error

    def keys(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        for key in sorted(self._below(prefix)):
            if key > after:
                try:
                    yield key, self._path(key).stat().st_size
                except FileNotFoundError:
                    continue  # a temporary file of a writer, gone meanwhile
                except OSError as error:
                    raise self._failed(key, error) from error

    def _below(self, prefix: str) -> Iterator[str]:
        def stop(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise self._failed(prefix, error) from error

        for folder, _, names in os.walk(self._root / prefix, onerror=stop):
            below = Path(folder).relative_to(self._root)
            yield from (str(below / name) for name in names)

    def children(self, prefix: str) -> list[str]:
        try:
            with os.scandir(self._path(prefix)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except OSError as error:
            raise self._failed(prefix, error) from error

    def _failed(self, key: str, error: OSError) -> GantryError:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return MissingObject(self.url, key)
        return StoreError(f"{key} in {self.url} cannot be read: {error.strerror}.")


class _Bucket:
    """An S3 bucket, through the client that the brokers use."""

    def __init__(self, url: str, bucket: str, prefix: str, options: dict[str, str]) -> None:
        self.url = url
        settings: dict[str, Any] = {
            setting: options[name] for name, setting in S3_OPTIONS.items() if name in options
        }
        if options.get(ANONYMOUS, "false").lower() == "true":
            settings["skip_signature"] = True
        elif "access_key_id" not in settings and (folder := os.environ.get(CREDENTIALS_DIR)):
            settings |= _keys_in(Path(folder))
        elif "access_key_id" not in settings and not any(map(os.environ.get, _GIVEN_RIGHTS)):
            raise ConfigError(
                f"There are no credentials for {url}: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or give the option anonymous=true."
            )
        endpoint = settings.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or ""
        if endpoint:
            settings["endpoint"] = endpoint
        self._store = _s3_store(url, bucket, prefix, settings, plain=endpoint.startswith("http:"))

    def get(self, key: str) -> bytes:
        return bytes(self._call(key, lambda: self._store.get(key).bytes()))

    def tail(self, key: str, count: int) -> tuple[bytes, int]:
        size = int(self._call(key, lambda: self._store.head(key))["size"])
        return self.get_range(key, max(0, size - count), size), size

    def get_range(self, key: str, start: int, end: int) -> bytes:
        if start == end:
            return b""
        return bytes(self._call(key, lambda: self._store.get_range(key, start=start, end=end)))

    def keys(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        listing = self._call(
            prefix, lambda: self._store.list(prefix, offset=after or None, chunk_size=1000)
        )
        while True:
            page = self._call(prefix, lambda: next(listing, None))
            if page is None:
                return
            for item in page:
                yield item["path"], int(item["size"])

    def children(self, prefix: str) -> list[str]:
        found = self._call(prefix, lambda: self._store.list_with_delimiter(prefix or None))
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in found["common_prefixes"])

    def _call(self, key: str, work: Any) -> Any:
        from obstore import exceptions

        try:
            return work()
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            if "NoSuchBucket" in str(error):  # says nothing about the object
                raise StoreError(f"{self.url} cannot be read: {_cause(error)}.") from None
            raise MissingObject(self.url, key) from None
        except exceptions.BaseError as error:
            raise StoreError(f"{key} in {self.url} cannot be read: {_cause(error)}.") from None


def _keys_in(folder: Path) -> dict[str, str]:
    """The bucket's keys from the files of a mounted Secret, as settings of the S3 client.

    Raises:
        ConfigError: names the file that is missing or is no key.
    """
    found = {}
    for name, (setting, optional) in _FILES.items():
        path = folder / name
        try:
            with path.open("rb") as file:
                text = file.read(_KEY_BYTES_MAX).decode("ascii").strip()
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read as a key ({type(error).__name__}).") from None
        if text:
            found[setting] = text
        elif not optional:
            raise ConfigError(
                f"{path} is missing or empty: give the Secret with the tier's keys an entry {name}."
            )
    return found


def _s3_store(url: str, bucket: str, prefix: str, settings: dict[str, Any], *, plain: bool) -> Any:
    try:
        from obstore import exceptions, store
    except ImportError as error:
        raise ConfigError(
            f"Reading {url} needs obstore: pip install 'gantry[pipeline]'."
        ) from error
    try:
        return store.S3Store(
            bucket,
            prefix=prefix or None,
            client_options={"timeout": f"{REQUEST_TIMEOUT_S}s", "allow_http": plain},
            retry_config={
                "max_retries": RETRIES_MAX,
                "retry_timeout": _seconds(RETRY_TIMEOUT_S),
            },
            **settings,
        )
    except exceptions.BaseError as error:
        raise ConfigError(f"{url} cannot be opened: {_cause(error)}.") from None


def _seconds(count: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=count)


def _cause(error: Exception) -> str:
    """What the store said, by status and code. Its text may hold whole requests."""
    status, code = _STATUS.search(str(error)), _CODE.search(str(error))
    if status is None:
        return f"no answer ({type(error).__name__})"
    return status.group(1).strip() + (f" ({code.group(1)})" if code else "")
