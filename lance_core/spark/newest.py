"""Let each query of a classic session read the newest version of tables that are read without a version.

Spark asks a Python data source once for its schema, its reader and its partitions, and keeps them for as long as the
relation lives. A temporary view is such a relation, and so is a DataFrame: both would never see a later commit. An
optimizer rule gives each query a relation of its own; all places of one query that read the relation share it, so a
query reads one version. The rule is Java source, which the compiler inside Spark turns into a class, since a jar would
have to be built for each version of Spark.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger(__name__)

_RULE = "lance_core.NewestVersions"

_JAVA = """
package lance_core;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class NewestVersions extends Rule {
  private final Set pinning = new HashSet();
  private final Map queries = Collections.synchronizedMap(new WeakHashMap());

  public void addAll(List names) {
    pinning.addAll(names);
  }

  public TreeNode apply(TreeNode plan) {
    scala.Option tracker = QueryPlanningTracker.get();
    if (tracker.isEmpty()) {
      return plan;
    }
    Query query = (Query) queries.get(tracker.get());
    if (query == null) {
      query = new Query(pinning);
      queries.put(tracker.get(), query);
    }
    return ((LogicalPlan) plan).transformUpWithSubqueries(query);
  }

  public static class Query extends scala.runtime.AbstractPartialFunction {
    private final Set pinning;
    private final Map tables = new HashMap();
    private final Map scans = new IdentityHashMap();

    public Query(Set pinning) {
      this.pinning = pinning;
    }

    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DataSourceV2ScanRelation)) {
        return false;
      }
      DataSourceV2ScanRelation scan = (DataSourceV2ScanRelation) node;
      if (!scan.scan().getClass().getSimpleName().equals("PythonScan") || scans.containsKey(scan.scan())) {
        return false;
      }
      DataSourceV2Relation relation = scan.relation();
      if (!relation.table().name().equalsIgnoreCase("lance") || !relation.options().containsKey("path")) {
        return false;
      }
      for (Iterator names = relation.options().keySet().iterator(); names.hasNext();) {
        if (pinning.contains(names.next().toString().toLowerCase().replace("_", ""))) {
          return false;
        }
      }
      return true;
    }

    public Object applyOrElse(Object node, scala.Function1 other) {
      if (!isDefinedAt(node)) {
        return other.apply(node);
      }
      TreeNode old = (TreeNode) node;
      Object[] arguments = new Object[old.productArity()];
      for (int i = 0; i < arguments.length; i++) {
        Object argument = old.productElement(i);
        arguments[i] = argument instanceof Scan ? newScan(((DataSourceV2ScanRelation) node).relation()) : argument;
      }
      return old.makeCopy(arguments);
    }

    private Scan newScan(DataSourceV2Relation relation) {
      CaseInsensitiveStringMap options = relation.options();
      List key = Arrays.asList(new Object[] {options, relation.table().schema()});
      Table table = (Table) tables.get(key);
      if (table == null) {
        String name = relation.table().name();
        TableProvider provider = (TableProvider) DataSource.lookupDataSourceV2(name, SQLConf.get()).get();
        table = provider.getTable(relation.table().schema(), new Transform[0], options.asCaseSensitiveMap());
        // Spark plans subqueries in threads of their own; the table keeps the version that is found here.
        ((SupportsRead) table).newScanBuilder(options).build().toBatch().planInputPartitions();
        tables.put(key, table);
      }
      Scan scan = ((SupportsRead) table).newScanBuilder(options).build();
      scans.put(scan, scan);
      return scan;
    }
  }
}
"""


def read_newest_versions(spark: SparkSession, pinning: Collection[str]) -> None:
    """Install the rule in a classic session; do nothing if it is there.

    The rule needs internals of Spark. Where they differ, relations stay at the version they first read, and a warning
    says so.

    Args:
        spark: The session.
        pinning: Options, in lower case and without underscores, that keep a relation at its version.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001 # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    jvm: Any = spark._jvm  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    try:
        settings = session.experimental()
        rules = list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(settings.extraOptimizations()))
        if not any(rule.getClass().getName() == _RULE for rule in rules):
            rule = _compile(jvm).newInstance()
            rule.addAll(list(pinning))
            getattr(settings, "extraOptimizations_$eq")(jvm.PythonUtils.toSeq([*rules, rule]))
    except (Py4JError, TypeError) as error:
        _LOGGER.warning("Views and DataFrames without a version stay at the one they first read: %s", error)


def _compile(jvm: Any) -> Any:
    """Return the class of the rule."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_JAVA)
    return compiler.getClassLoader().loadClass(_RULE)
