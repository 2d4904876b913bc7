"""A catalog of Lance tables for plain SQL in classic sessions.

``spark.sql.catalog.NAME=lance_core.LanceCatalog`` asks for it, and `lance_core.spark.register` makes it. The catalog is
the Java source in this folder, compiled inside Spark as that of `lance_core.spark.planner`; see `docs/design/spark.md`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lance_core.errors import UnsupportedError
from lance_core.spark.catalog_source import CatalogSource
from lance_core.spark.planner import compile_class
from lance_core.spark.writing.sql_changes import RUN_AGAIN
from lance_core.table.runtime import commit_timeout_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLUGIN = "lance_core.LanceCatalog"
"""Value of the setting ``spark.sql.catalog.NAME``."""

_RULE = "RowChangesRule"
_CLASSES = (
    *(
        "Commands",
        "RowChanges",
        "SqlTable",
        "Statement",
        _RULE,
        "NewTable",
        "LanceParser",
        "ProcedureCall",
        "Procedures",
    ),
    "LanceCatalog",
)
"""The sources, each of which needs those before it only."""


def install_catalogs(spark: SparkSession, rule: Any) -> None:
    """Make the catalogs that the settings of a classic session ask for; do nothing if they are there.

    Args:
        spark: The session.
        rule: The planner rule of the session; None if Spark does not accept it.

    Raises:
        UnsupportedError: This version of Spark cannot have the catalog.
    """
    names = [key.split(".")[3] for key, value in _settings(spark) if value == PLUGIN]
    session: Any = spark._jsparkSession  # noqa: SLF001 # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    jvm: Any = spark._jvm  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if not names or _has_rule(jvm, session):
        return
    try:
        if rule is None:
            raise TypeError("the planner rule is missing")  # noqa: TRY301 as if Spark had said so
        spark.dataSource.register(CatalogSource)
        _install(jvm, session, names, rule.getClass().getClassLoader())
    except (Py4JError, PySparkException, TypeError) as error:
        message = f"The catalog {names[0]!r} does not work with this version of Spark: {error}"
        raise UnsupportedError(message) from error


def _settings(spark: SparkSession) -> list[tuple[str, str]]:
    every = spark.conf.getAll
    return [
        (key, value) for key, value in every.items() if key.startswith("spark.sql.catalog.") and key.count(".") == 3
    ]


def _rules(jvm: Any, session: Any) -> list[Any]:
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(session.experimental().extraOptimizations()))


def _has_rule(jvm: Any, session: Any) -> bool:
    return any(rule.getClass().getName() == f"lance_core.{_RULE}" for rule in _rules(jvm, session))


def _install(jvm: Any, session: Any, names: list[str], loader: Any) -> None:
    """Compile the classes; Spark finds the catalog in the loader of this thread, and keeps the object."""
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    for name in _CLASSES:
        loader = compile_class(jvm, loader, _source(name))
    thread.setContextClassLoader(loader)
    try:
        for name in names:
            session.sessionState().catalogManager().catalog(name)
    finally:
        thread.setContextClassLoader(before)
    rule = loader.loadClass(f"lance_core.{_RULE}").newInstance()
    rules = jvm.PythonUtils.toSeq([*_rules(jvm, session), rule])
    getattr(session.experimental(), "extraOptimizations_$eq")(rules)


def _source(name: str) -> str:
    text = files(__name__).joinpath(f"{name}.java").read_text()
    return text.replace("$RETRYABLE", RUN_AGAIN).replace("$COMMIT_TIMEOUT_S", str(commit_timeout_s()))
