package lance_core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * An optimizer rule: binds each relation of a query to one version, and pushes columns, conditions, limits and aggregates
 * into its scan; distributes the rows of each write over tasks.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class LancePlanner extends Rule {
  private static final Logger LOG = LoggerFactory.getLogger("lance_core");

  /** Options that keep a relation at its version; the names are filled in before the source is compiled. */
  private static final List PINNING = Arrays.asList("$PINNING".split(","));

  private static final int MOST_RECENT = 16;

  private final Map queries = Collections.synchronizedMap(new WeakHashMap());
  private final Map pinned = Collections.synchronizedMap(new WeakHashMap());
  private final Map recent = Collections.synchronizedMap(new LinkedHashMap());
  private boolean failed = false;

  public TreeNode apply(TreeNode plan) {
    Writes.checkTable(plan);
    scala.Option tracker = QueryPlanningTracker.get();
    if (tracker.isEmpty() || plan instanceof Subquery) {
      return plan; // Subqueries are part of the plan that is optimized next.
    }
    Map versions = versions(tracker.get());
    TreeNode result = plan;
    try {
      try {
        result = planned(plan, versions, true);
      } catch (LanceVersion.Outdated error) {
        result = planned(plan, versions, false);
      }
      return Writes.distribute(result);
    } catch (Throwable error) {
      if (error instanceof SparkThrowable && result == plan) {
        new scala.util.Failure(error).get(); // The table cannot be read: the user should know.
      }
      warn(error);
      return result;
    }
  }

  /**
   * The plan with versions bound and scans that read what it needs.
   *
   * @param isTrusting whether the version of an indexed table that was read last is taken for the newest until Python is
   *     asked anyway: for the rows that an index finds, or to confirm it
   * @throws LanceVersion.Outdated there is a newer one
   */
  private TreeNode planned(TreeNode plan, Map versions, boolean isTrusting) {
    TreeNode bound = ((LogicalPlan) plan).transformUpWithSubqueries(new Binding(this, versions, isTrusting));
    TreeNode pushed = bound;
    if (isOn()) {
      try {
        pushed = ((LogicalPlan) bound).transformUpWithSubqueries(new Pushdown());
        pushed = FoundRows.put(pushed);
      } catch (Throwable error) {
        // A table that cannot be read may have been removed, or made anew, since its version was read.
        if (error instanceof LanceVersion.Outdated || isTrusting && error instanceof SparkThrowable) {
          recent.keySet().removeAll(forgotten(versions));
          throw new LanceVersion.Outdated();
        }
        warn(error);
      }
    }
    confirm(versions);
    return pushed;
  }

  /** Forget the versions that the query trusts; return their options. */
  private static List forgotten(Map versions) {
    List options = new ArrayList();
    for (Iterator entries = versions.entrySet().iterator(); entries.hasNext();) {
      Map.Entry entry = (Map.Entry) entries.next();
      if (((LanceVersion) entry.getValue()).isTrusted()) {
        options.add(entry.getKey());
        entries.remove();
      }
    }
    return options;
  }

  /** Ask for the newest versions where no index was asked. */
  private void confirm(Map versions) {
    boolean isOutdated = false;
    for (Iterator entries = versions.entrySet().iterator(); entries.hasNext();) {
      Map.Entry entry = (Map.Entry) entries.next();
      LanceVersion version = (LanceVersion) entry.getValue();
      if (version.isTrusted()) {
        LanceVersion newest = version.confirmed();
        if (newest != version) {
          entry.setValue(newest);
          keep(newest);
          isOutdated = true;
        }
      }
    }
    if (isOutdated) {
      throw new LanceVersion.Outdated();
    }
  }

  private void keep(LanceVersion version) {
    synchronized (recent) {
      recent.remove(version.options());
      if (version.isIndexed()) {
        recent.put(version.options(), version.again());
      }
      if (recent.size() > MOST_RECENT) {
        recent.remove(recent.keySet().iterator().next());
      }
    }
  }

  private static boolean isOn() {
    return Boolean.parseBoolean(SQLConf.get().getConfString("spark.lance.pushdown", "true"));
  }

  private synchronized void warn(Throwable error) {
    if (!failed) {
      LOG.warn("Queries of Lance tables read all columns and rows, since their plans were not understood", error);
    }
    failed = true;
  }

  private Map versions(Object tracker) {
    Map versions = (Map) queries.get(tracker);
    if (versions == null) {
      versions = new HashMap();
      queries.put(tracker, versions);
    }
    return versions;
  }

  private boolean isPinned(DataSourceV2Relation relation) {
    for (Iterator names = relation.options().keySet().iterator(); names.hasNext();) {
      if (PINNING.contains(names.next().toString().toLowerCase().replace("_", ""))) {
        return true;
      }
    }
    return false;
  }

  private LanceVersion pinnedVersion(DataSourceV2Relation relation) throws Exception {
    LanceVersion version = (LanceVersion) pinned.get(relation.table());
    if (version == null) {
      version = LanceVersion.pinned(relation);
      pinned.put(relation.table(), version);
    }
    return version;
  }

  /** Gives each scan of a Lance table the version that its query reads. */
  public static class Binding extends scala.runtime.AbstractPartialFunction {
    private final LancePlanner planner;
    private final Map versions;
    private final boolean isTrusting;

    public Binding(LancePlanner planner, Map versions, boolean isTrusting) {
      this.planner = planner;
      this.versions = versions;
      this.isTrusting = isTrusting;
    }

    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DataSourceV2ScanRelation)) {
        return false;
      }
      DataSourceV2ScanRelation scan = (DataSourceV2ScanRelation) node;
      DataSourceV2Relation relation = scan.relation();
      return scan.scan().getClass().getSimpleName().equals("PythonScan")
          && relation.table().name().equalsIgnoreCase("lance")
          && relation.options().containsKey("path");
    }

    public Object applyOrElse(Object node, scala.Function1 other) {
      if (!isDefinedAt(node)) {
        return other.apply(node);
      }
      DataSourceV2ScanRelation old = (DataSourceV2ScanRelation) node;
      DataSourceV2Relation relation = old.relation();
      LanceVersion version;
      if (planner.isPinned(relation)) {
        try {
          version = planner.pinnedVersion(relation);
        } catch (Throwable error) {
          planner.warn(error);
          return node;
        }
        if (!version.isDescribed()) {
          return node;
        }
      } else {
        version = newestVersion(relation);
      }
      LanceScan scan = new LanceScan(version, relation.table().schema(), Collections.EMPTY_LIST, -1, null);
      if (!planner.isPinned(relation) && !version.fits(relation.table().schema())) {
        scan.toBatch().planInputPartitions(); // says what has changed
      }
      return scan.in(old, old.output());
    }

    private LanceVersion newestVersion(DataSourceV2Relation relation) {
      LanceVersion version = (LanceVersion) versions.get(relation.options());
      if (version != null) {
        return version;
      }
      LanceVersion last = isTrusting ? (LanceVersion) planner.recent.get(relation.options()) : null;
      if (last != null && last.fits(relation.table().schema())) {
        version = last.again();
      } else {
        version = LanceVersion.newest(relation);
        planner.keep(version);
      }
      versions.put(relation.options(), version);
      return version;
    }
  }
}
