"""From a URL to a store; the only place that knows which backends there are.

``file:///directory`` is the POSIX store, ``s3://bucket/prefix`` an S3 bucket or part of one. What
it refuses: credentials inside a URL (URLs are logged), options it does not know, empty names.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gantry_protocol.errors import ConfigError

from gantry_broker.tier.stores.calls import DeadlineCalls
from gantry_broker.tier.stores.contract import Store, StoreError
from gantry_broker.tier.stores.credentials import CredentialFiles, Credentials
from gantry_broker.tier.stores.posix import PosixStore

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
ANONYMOUS = Credentials()


def open_store(
    url: str,
    credentials: Credentials | CredentialFiles = ANONYMOUS,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    calls: DeadlineCalls | None = None,
) -> Store:
    """The store behind ``url``. Nothing is asked of it yet, but that a directory exists.

    Args:
        url: ``file:///directory`` or ``s3://bucket/prefix``.
        credentials: for S3; anonymous means unsigned requests, never the rights of the machine.
        endpoint: ``http(s)://host:port`` of an S3 service that is not AWS.
        region: of the bucket.
        calls: bounds of calls; None takes the default.

    Raises:
        ConfigError: the URL is none that can be opened; says why.
    """
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "The store's URL holds credentials; take them out and give them as a Secret "
            "or in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if parts.query or parts.fragment:
        raise ConfigError(
            f"The store's URL {url.partition('?')[0]!r} has options behind it; "
            f"endpoint and region are settings of their own."
        )
    try:
        if parts.scheme == "file":
            return _open_directory(url, parts.netloc, unquote(parts.path), calls)
        if parts.scheme == "s3":
            return _open_bucket(
                url, parts.netloc, parts.path.strip("/"), credentials, endpoint, region, calls
            )
    except StoreError as error:
        raise ConfigError(str(error)) from error
    raise ConfigError(f"{url!r} is no store: write file:///DIRECTORY or s3://BUCKET/PREFIX.")


def _open_directory(url: str, host: str, path: str, calls: DeadlineCalls | None) -> Store:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise ConfigError(f"{url!r} names a host: write file:///DIRECTORY, with three slashes.")
    return PosixStore(Path(path), calls)


def _open_bucket(
    url: str,
    bucket: str,
    prefix: str,
    credentials: Credentials | CredentialFiles,
    endpoint: str | None,
    region: str | None,
    calls: DeadlineCalls | None,
) -> Store:
    if not _BUCKET.match(bucket):
        raise ConfigError(
            f"{url!r} names no bucket: 3 to 63 lower-case letters, digits, dots and dashes."
        )
    if prefix and not all(map(_FOLDER.match, prefix.split("/"))):
        raise ConfigError(
            f"The prefix in {url!r} cannot be used: its parts begin with a letter or digit and "
            f"hold letters, digits, dots, dashes and underscores."
        )
    if endpoint is not None and not re.match(r"https?://[^/@?#]+/?\Z", endpoint):
        raise ConfigError(f"The endpoint {endpoint!r} is none: write http(s)://HOST:PORT.")
    # Imported here: 16 MB that a broker without a bucket does not load.
    from gantry_broker.tier.stores.objects import s3_store

    return s3_store(bucket, prefix, credentials, endpoint=endpoint, region=region, calls=calls)
