"""Credentials of a store. Never printed: neither by ``repr`` nor in any sentence."""

from collections.abc import Mapping
from pathlib import Path

from gantry_protocol.errors import ConfigError

ACCESS_KEY_ID = "AWS_ACCESS_KEY_ID"
SECRET_ACCESS_KEY = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a name
SESSION_TOKEN = "AWS_SESSION_TOKEN"  # noqa: S105 - a name
KEY_FILES = ("accessKeyId", "secretAccessKey", "sessionToken")  # the last one may be missing
KEY_MAX_BYTES = 16 * 1024


class Credentials:
    """Keys of S3; without them requests are not signed (public buckets, some test servers)."""

    __slots__ = ("access_key_id", "secret_access_key", "session_token")

    def __init__(
        self, access_key_id: str = "", secret_access_key: str = "", session_token: str = ""
    ) -> None:
        """Both keys or none.

        Raises:
            ConfigError: one of the two is missing.
        """
        if bool(access_key_id) != bool(secret_access_key):
            missing = SECRET_ACCESS_KEY if access_key_id else ACCESS_KEY_ID
            raise ConfigError(f"{missing} is missing; give both keys, or none.")
        self.access_key_id = access_key_id
        self.secret_access_key = secret_access_key
        self.session_token = session_token

    def __repr__(self) -> str:
        return "Credentials(anonymous)" if self.is_anonymous else "Credentials(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credentials) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[str, str, str]:
        return self.access_key_id, self.secret_access_key, self.session_token

    @property
    def is_anonymous(self) -> bool:
        """Whether there are no keys."""
        return not self.access_key_id

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Credentials":
        """The keys in variables with the names that AWS gave them.

        Raises:
            ConfigError: one of the two keys is missing.
        """
        return cls(
            environment.get(ACCESS_KEY_ID, ""),
            environment.get(SECRET_ACCESS_KEY, ""),
            environment.get(SESSION_TOKEN, ""),
        )


class CredentialFiles:
    """Keys in files of one directory, as a Secret is mounted; they may change at any time.

    Rule protected: keys that are missing are an error that is told, never a reason to go on
    without any.
    """

    __slots__ = ("_directory",)

    def __init__(self, directory: Path) -> None:
        """Nothing is read yet: the files may come later."""
        self._directory = directory

    def read(self) -> Credentials:
        """The keys as they are now.

        Raises:
            ConfigError: names the file that is missing or is no key.
        """
        key_id, secret, token = KEY_FILES
        return Credentials(self._key(key_id), self._key(secret), self._key(token, optional=True))

    def _key(self, name: str, *, optional: bool = False) -> str:
        path = self._directory / name
        try:
            with path.open("rb") as file:
                text = file.read(KEY_MAX_BYTES).decode("ascii").strip()
        except FileNotFoundError:
            text = ""
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is no key: it holds more than ASCII.") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
        if not text and not optional:
            raise ConfigError(
                f"{path} is missing or empty: give the Secret with the tier's keys an entry {name}."
            )
        return text
