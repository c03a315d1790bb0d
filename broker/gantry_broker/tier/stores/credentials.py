"""What a store is asked with. Never printed: neither by ``repr`` nor in any sentence."""

from collections.abc import Mapping

from gantry_protocol.errors import ConfigError

ACCESS_KEY_ID = "AWS_ACCESS_KEY_ID"
SECRET_ACCESS_KEY = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a name
SESSION_TOKEN = "AWS_SESSION_TOKEN"  # noqa: S105 - a name


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
