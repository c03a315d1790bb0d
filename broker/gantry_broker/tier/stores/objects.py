"""A store behind obstore: S3 and what speaks like it.

obstore's asynchronous calls abort the interpreter at exit when one is under way, its synchronous
ones do not; so they run in threads of ours (``calls``). Its own retries are off: they turn a write
that was applied into "already exists", and the role that asks waits between attempts anyway.

Rules protected: no secret in a sentence; "no such bucket" and "no permission" are refusals that a
person must mend, and never look like "no such object".
"""

import heapq
import re
from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from mmap import mmap
from typing import Any

import obstore
from gantry_protocol.errors import ConfigError
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from gantry_broker.tier.stores.calls import DeadlineCalls
from gantry_broker.tier.stores.contract import (
    CREATED,
    DATA_TIMEOUT_S,
    Creation,
    Found,
    Maybe,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from gantry_broker.tier.stores.credentials import (
    ACCESS_KEY_ID,
    SECRET_ACCESS_KEY,
    CredentialFiles,
    Credentials,
)
from gantry_broker.tier.stores.pooled import PooledStore

CONNECT_TIMEOUT_S = 3.0
DEFAULT_REGION = "us-east-1"

_STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_MISSING = (FileNotFoundError, NotFoundError)
_REFUSED = (PermissionDeniedError, UnauthenticatedError, NotSupportedError, InvalidPathError)
_REFUSED_STATUS = ("401", "403", "501")  # listings report them as any other failure
_UNSIGNED = (
    f"; the request was not signed: give keys in {ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}, or in "
    "GANTRY_TIER_CREDENTIALS_DIR (a mounted Secret)."
)
_CAUSE_CHARS = 200
_NOBODY = Credentials()


class ObjectStore(PooledStore):
    """The contract over a client of obstore."""

    def __init__(
        self,
        client: Any,
        url: str,
        *,
        secrets: tuple[str, ...] = (),
        anonymous: bool = False,
        lists_in_order: bool = True,
        calls: DeadlineCalls | None = None,
    ) -> None:
        """Use ``client``.

        Args:
            client: a store of obstore; its own request time-out ends threads that were abandoned.
            url: for people.
            secrets: taken out of every sentence.
            anonymous: requests are not signed; whoever is denied is told so.
            lists_in_order: whether listings come by key, as S3 promises; else they are sorted here.
            calls: bounds; None takes the default.
        """
        super().__init__(url, calls)
        self._client = client
        self._anonymous = anonymous
        self._secrets: frozenset[str] = frozenset()
        self._lists_in_order = lists_in_order
        self._hide(secrets)

    def _opened(self) -> Any:
        """The client to ask with."""
        return self._client

    def _hide(self, secrets: tuple[str, ...]) -> None:
        """Take these out of every sentence from now on, besides those before."""
        self._secrets |= {secret for secret in secrets if secret}

    def _create(self, key: str, data: bytes | mmap) -> Creation:
        try:
            obstore.put(self._opened(), key, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return Maybe(f"{key} may exist in {self.url}.")
        except _MISSING as error:
            raise StoreRefused(self._sentence(key, error)) from None
        except (BaseError, OSError) as error:
            raise self._failed(key, error) from None
        return CREATED

    def _get(self, key: str, max_bytes: int) -> bytes | None:
        try:
            found = obstore.get(self._opened(), key)
            size = found.meta["size"]
            if size > max_bytes:
                raise StoreRefused(
                    f"{key} in {self.url} has {size} bytes, at most {max_bytes} are read."
                )
            return bytes(found.bytes())
        except _MISSING as error:
            self._check_bucket(key, error)
            return None
        except (BaseError, OSError) as error:
            raise self._failed(key, error) from None

    def _get_range(self, key: str, start: int, length: int) -> bytes | None:
        try:
            return bytes(obstore.get_range(self._opened(), key, start=start, length=length))
        except _MISSING as error:
            self._check_bucket(key, error)
            return None
        except (BaseError, OSError) as error:
            failure = error
        try:  # a range that begins behind the end is an error to stores, and empty to us
            if start >= obstore.head(self._opened(), key)["size"]:
                return b""
        except _MISSING as error:
            self._check_bucket(key, error)
            return None
        except (BaseError, OSError) as error:
            raise self._failed(key, error) from None
        raise self._failed(key, failure) from None

    def _list(self, prefix: str, after: str | None, limit: int) -> list[Found]:
        try:
            pages = obstore.list(self._opened(), prefix.removesuffix("/") or None, offset=after)
            found = (Found(item["path"], item["size"]) for page in pages for item in page)
            if self._lists_in_order:
                return [*islice(found, limit)]
            return heapq.nsmallest(limit, found)
        except _MISSING as error:
            raise StoreRefused(self._sentence(prefix, error)) from None
        except (BaseError, OSError) as error:
            raise self._failed(prefix, error) from None

    def _delete(self, key: str) -> None:
        try:
            obstore.delete(self._opened(), key)
        except _MISSING as error:
            self._check_bucket(key, error)
        except (BaseError, OSError) as error:
            raise self._failed(key, error) from None

    def _check_bucket(self, key: str, error: Exception) -> None:
        """Tell a missing object, which is an answer, from a missing bucket."""
        if "NoSuchBucket" in str(error):
            raise StoreRefused(self._sentence(key, error)) from None

    def _failed(self, key: str, error: Exception) -> StoreError:
        text = str(error)
        status = _STATUS.search(text)
        if (
            isinstance(error, _REFUSED)
            or "NoSuchBucket" in text
            or (status and status.group(1)[:3] in _REFUSED_STATUS)
        ):
            sentence = self._sentence(key, error)
            if self._anonymous and _denied(status):
                sentence = sentence.removesuffix(".") + _UNSIGNED
            return StoreRefused(sentence)
        return StoreUnavailable(self._sentence(key, error))

    def _sentence(self, key: str, error: Exception) -> str:
        """What the store said, in one clause: status and code if it answered, else the cause."""
        text = str(error)
        status, code = _STATUS.search(text), _CODE.search(text)
        if status:
            cause = status.group(1).strip() + (f" ({code.group(1)})" if code else "")
        else:
            cause = text.partition("\n")[0].partition(" - ")[2] or text.partition("\n")[0]
        for secret in self._secrets:
            cause = cause.replace(secret, "***")
        return f"{key or 'The store'} in {self.url}: {cause[:_CAUSE_CHARS].rstrip('. ')}."


class RenewedStore(ObjectStore):
    """A store whose keys lie in files: a call uses what they hold when it begins."""

    def __init__(
        self,
        files: CredentialFiles,
        client_of: Callable[[Credentials], Any],
        url: str,
        *,
        calls: DeadlineCalls | None = None,
    ) -> None:
        """Use ``files``; they may be missing until the first call."""
        super().__init__(None, url, calls=calls)
        self._files = files
        self._client_of = client_of
        self._made: tuple[Credentials, Any] | None = None  # replaced whole: calls run in threads

    def _opened(self) -> Any:
        try:
            keys = self._files.read()
        except ConfigError as error:
            raise StoreRefused(str(error)) from error
        made = self._made
        if made is None or made[0] != keys:
            made = self._made = keys, self._client_of(keys)
            self._hide(_secrets(keys))
        return made[1]


def s3_store(
    bucket: str,
    prefix: str,
    credentials: Credentials | CredentialFiles,
    *,
    endpoint: str | None,
    region: str | None,
    request_timeout_s: float = DATA_TIMEOUT_S,
    calls: DeadlineCalls | None = None,
) -> ObjectStore:
    """A bucket, or a folder in one.

    Args:
        bucket: its name.
        prefix: folders, without slashes at the ends; empty for the whole bucket.
        credentials: never taken from anywhere else; files are read again before each call.
        endpoint: of what is not AWS; ``http://`` is allowed if it says so.
        region: None for ``us-east-1``, which others ignore.
        request_timeout_s: ends the request of an abandoned thread.
        calls: bounds; None takes the default.

    Raises:
        StoreRefused: the client does not take these settings.
    """
    url = f"s3://{bucket}/{prefix}".rstrip("/")
    plain = endpoint is not None and endpoint.startswith("http://")
    settings: dict[str, Any] = {
        "region": region or DEFAULT_REGION,
        "client_options": {
            "allow_http": plain,
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
            "timeout": timedelta(seconds=request_timeout_s),
        },
        "retry_config": {"max_retries": 0},
    }
    if endpoint is not None:
        settings["endpoint"] = endpoint

    def client_of(keys: Credentials) -> Any:
        try:
            return S3Store(bucket, prefix=prefix or None, **settings, **_signed(keys))
        except (BaseError, ValueError, TypeError) as error:
            raise StoreRefused(f"{url} cannot be opened: {type(error).__name__}.") from None

    if isinstance(credentials, CredentialFiles):
        client_of(_NOBODY)  # everything else is refused at once
        return RenewedStore(credentials, client_of, url, calls=calls)
    return ObjectStore(
        client_of(credentials),
        url,
        secrets=_secrets(credentials),
        anonymous=credentials.is_anonymous,
        calls=calls,
    )


def _denied(status: re.Match[str] | None) -> bool:
    return status is not None and status.group(1)[:3] in ("401", "403")


def _signed(keys: Credentials) -> dict[str, Any]:
    if keys.is_anonymous:
        return {"skip_signature": True}
    signed = {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
    return signed | ({"session_token": keys.session_token} if keys.session_token else {})


def _secrets(keys: Credentials) -> tuple[str, ...]:
    return keys.secret_access_key, keys.session_token
