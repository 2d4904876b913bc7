"""Let classic sessions read only what a query needs of Lance tables, and one version of each of them.

Spark asks a Python data source for a schema and a reader, and tells it nothing about the query: all columns and rows
are read, sizes are unknown, and a view stays at the version that it was created at. An optimizer rule changes this. It
binds each relation of a query to one version, and pushes columns, conditions, limits and aggregates into its scan; see
`docs/design/spark.md`.

The rule is the Java source in this folder. The compiler inside Spark turns it into classes, since a jar would have to
be built for each version of Spark.
"""

from __future__ import annotations

import logging
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("lance_core.spark")

CLASSES = (
    *("Conditions", "LanceVersion", "LanceScan", "Aggregates", "Pushdown", "FoundRows"),
    *("WriteBatches", "Writes", "LancePlanner"),
)
"""The sources, each of which needs those before it only; the last one is the rule."""


def install_planner(spark: SparkSession, pinning: Collection[str]) -> Any:
    """Install the rule in a classic session; do nothing if it is there.

    The rule needs internals of Spark. Where they differ, relations read all columns and rows of the version that they
    were made at, and a warning says so.

    Args:
        spark: The session.
        pinning: Options, in lower case and without underscores, that keep a relation at its version.

    Returns:
        The rule; None if Spark does not accept it.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001 # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    jvm: Any = spark._jvm  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    try:
        settings = session.experimental()
        rules = list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(settings.extraOptimizations()))
        for rule in rules:
            if rule.getClass().getName() == f"lance_core.{CLASSES[-1]}":
                return rule
        rule = _compile(jvm, pinning).newInstance()
        getattr(settings, "extraOptimizations_$eq")(jvm.PythonUtils.toSeq([*rules, rule]))
    except (Py4JError, TypeError) as error:
        _LOGGER.warning(
            "Queries of Lance tables read all columns and rows, and views without a version stay at the one they first "
            "read, because this Spark does not accept the planner rule: %s",
            error,
        )
        return None
    return rule


def _compile(jvm: Any, pinning: Collection[str]) -> Any:
    """Return the class of the rule.

    Nothing but its methods that Spark declares may be called from Python: py4j keeps methods by the name of their
    class, and other sessions have a class of the same name.
    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in CLASSES:
        loader = compile_class(jvm, loader, _source(name).replace("$PINNING", ",".join(sorted(pinning))))
    return loader.loadClass(f"lance_core.{CLASSES[-1]}")


def compile_class(jvm: Any, loader: Any, source: str) -> Any:
    """Compile Java; return a class loader that has the class, and those of another loader."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    return compiler.getClassLoader()


def _source(name: str) -> str:
    return files(__name__).joinpath(f"{name}.java").read_text()
