"""Objects of ours in the options of data sources that users are not meant to call.

Spark knows data sources by name for as long as a session lives, and whoever may write SQL in that session can give one
any options. The object is a pickle in such an option, and to unpickle something is to run it. So each is signed with a
key of this process, which Spark gets inside of the registered class only, and nothing else is unpickled.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import pickle
import secrets
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource

from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTION = "job"
"""The option that holds the object."""
_KEY = secrets.token_bytes(32)


class SignedSource(DataSource):
    """Base of such a data source.

    Attributes:
        key: Signs objects; empty in a class that takes none.
        title: How the name of the format begins.
    """

    key: ClassVar[bytes] = b""
    title: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """The name to give to ``format``: one for each key, so that processes which share a session do not meet."""
        return f"{cls.title}_{hashlib.sha256(cls.key).hexdigest()[:16]}"

    def job(self) -> Any:
        """Return the object in the options.

        Raises:
            InvalidInputError: There is none, or somebody else made it.
        """
        signature, _, text = self.options.get(OPTION, "").partition(".")
        if not self.key or not hmac.compare_digest(signature.encode(), _signature(self.key, text).encode()):
            raise InvalidInputError(f"The format {self.title!r} is internal. Use format 'lance'.")
        return pickle.loads(base64.b64decode(text))  # noqa: S301 signed by this process's driver


def signed(job: object, key: bytes = _KEY) -> str:
    """Return the text of an object that a source with the same key takes."""
    text = base64.b64encode(pickle.dumps(job)).decode()
    return f"{_signature(key, text)}.{text}"


def signing(source: type[SignedSource], key: bytes = _KEY) -> type[SignedSource]:
    """Return a source that takes objects signed with a key; made here so that Spark sends it by value, with the key."""
    return type("SigningSource", (source,), {"key": key})


def register_signing(spark: SparkSession, source: type[SignedSource]) -> str:
    """Register a source that takes objects of this process; returns the name of its format."""
    made = signing(source)
    spark.dataSource.register(made)
    return made.name()


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
