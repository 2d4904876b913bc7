"""A Spark session as a Dagster resource: started when first used, never before."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import ConfigDict, Field, PrivateAttr

from lance_core.errors import UnsupportedError
from lance_dagster import _compat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkSessionResource(dg.ConfigurableResource):
    """A lazily started Spark session that knows the ``lance`` data source.

    Example:
        ``SparkSessionResource(master="local[2]", conf={"spark.sql.shuffle.partitions": "8"})``
    """

    model_config = ConfigDict(extra="forbid")

    app_name: str = Field(default="dagster", description="Name shown in the Spark UI.")
    master: str | None = Field(default="local[*]", description="Spark master; None takes it from the environment.")
    remote: str | None = Field(
        default=None,
        description="Spark Connect URL (sc://host:15002) instead of a master; it may hold a token.",
        repr=False,
        json_schema_extra=_compat.SECRET,
    )
    conf: dict[str, str] = Field(
        default_factory=dict,
        description="Spark settings; they win over our defaults, and may hold keys of object stores.",
        repr=False,
        json_schema_extra=_compat.SECRET,
    )
    stop_at_teardown: bool = Field(
        default=False,
        description="Stop the session when the run (or the step's process) ends. A JVM takes long to start.",
    )

    _session: Any = PrivateAttr(default=None)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def spark_session(self) -> SparkSession:
        """The session; the first access starts it (and finds a Java runtime, unless ``remote`` is set).

        Raises:
            UnsupportedError: The extra ``spark`` is not installed, or there is no Java.
        """
        with self._lock:
            if self._session is None:
                self._session = self._start()
            return self._session

    @property
    def is_started(self) -> bool:
        """Return whether the session was asked for."""
        return self._session is not None

    def _start(self) -> SparkSession:
        # Imported here: pyspark is an optional dependency and takes long to import.
        try:
            from pyspark.sql import SparkSession  # noqa: PLC0415
        except ImportError as error:
            raise UnsupportedError("Spark is not installed: pip install 'lance-dagster[spark]'") from error
        from lance_core import spark as lance_spark  # noqa: PLC0415

        builder: Any = SparkSession.builder.appName(self.app_name)
        if self.remote is not None:
            builder = builder.remote(self.remote)
        else:
            lance_spark.ensure_java()
            builder = builder.master(self.master) if self.master is not None else builder
        for key, value in {**lance_spark.recommended_conf(), **self.conf}.items():
            builder = builder.config(key, value)
        session: SparkSession = builder.getOrCreate()
        lance_spark.register(session)
        return session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the session if asked to."""
        del context
        if self.stop_at_teardown and self._session is not None:
            self._session.stop()
            self._session = None
