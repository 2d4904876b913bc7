package lance_core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTablePlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Distributes the rows of a write over tasks, by its option ``distribution``: each task makes a file. Refuses tables
 * that could never be written.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class Writes {
  private static final String OPTION = "distribution";
  private static final String OF_CATALOG = "lance_core.SqlTable"; // compiled later
  private static final int FEWEST_TASKS = 8;
  private static final long TASK_BYTES = 64L << 20;

  /** Nodes whose size Spark can estimate, and that leave it to us how many tasks there are. */
  private static final Set PLAIN = new HashSet(Arrays.asList(new Object[] {
      "Project", "Filter", "Union", "Join", "Aggregate", "Window", "Expand", "Distinct", "Sample", "GlobalLimit",
      "LocalLimit", "Range", "LocalRelation", "OneRowRelation", "LogicalRelation", "LogicalRDD", "InMemoryRelation",
      "DataSourceV2ScanRelation", "SubqueryAlias"}));

  /** Those that run code of Spark only, and those that move rows. */
  private static final Set SPARKS = new HashSet(PLAIN);

  static {
    SPARKS.remove("LogicalRDD");
    SPARKS.addAll(Arrays.asList(new Object[] {
        "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions", "Generate", "DataSourceV2Relation"}));
  }

  /** Refuse to create tables in Spark's own catalog, which keeps no path for data sources in Python. */
  public static void checkTable(TreeNode plan) {
    boolean isLance = false;
    boolean isSparks = false;
    for (int i = 0; i < plan.productArity() && plan instanceof V2CreateTablePlan; i++) {
      Object argument = plan.productElement(i);
      if (argument instanceof TableSpecBase) {
        Option provider = ((TableSpecBase) argument).provider();
        isLance = provider.isDefined() && provider.get().toString().equalsIgnoreCase("lance");
      }
      if (argument instanceof ResolvedIdentifier) {
        isSparks = ((ResolvedIdentifier) argument).catalog() instanceof V2SessionCatalog;
      }
    }
    if (isLance && isSparks) {
      throw new IllegalArgumentException("Spark's catalog keeps no path of Lance tables, so they could not be read or"
          + " written. Use CREATE TEMPORARY VIEW name USING lance OPTIONS (path '...'), which takes SELECT and INSERT, or"
          + " a catalog of Lance tables: spark.sql.catalog.lance=lance_core.LanceCatalog.");
    }
  }

  /** The plan; of a write into a Lance table, with its rows in the tasks wanted. */
  public static TreeNode distribute(TreeNode plan) {
    if (!(plan instanceof V2WriteCommand) || !(((V2WriteCommand) plan).table() instanceof DataSourceV2Relation)) {
      return plan;
    }
    V2WriteCommand write = (V2WriteCommand) plan;
    DataSourceV2Relation relation = (DataSourceV2Relation) write.table();
    String wanted = relation.options().containsKey(OPTION) ? relation.options().get(OPTION) : "auto";
    String name = relation.table().name();
    boolean isLance = name.equalsIgnoreCase("lance") || relation.table().getClass().getName().equals(OF_CATALOG);
    boolean isStaging = name.startsWith("lance_staging_");
    TreeNode result = plan;
    if (isLance && wanted.equalsIgnoreCase("balance")) {
      result = balance(write, relation);
    } else if (wanted.equalsIgnoreCase("auto") && (isLance || isStaging && relation.options().containsKey(OPTION))) {
      result = coalesce(write);
    }
    return isLance || isStaging ? withBatches((V2WriteCommand) result) : result;
  }

  /** The same write, with bounded batches if nothing else in its tasks could get larger ones by that. */
  private static TreeNode withBatches(V2WriteCommand write) {
    TreeNode node = (TreeNode) write;
    for (int i = 0; i < node.productArity() && isSparks(write.query()); i++) {
      if (holdsWrite(node.productElement(i))) {
        Write old = (Write) ((Option) node.productElement(i)).get();
        Write bounded = WriteBatches.of(old, write.query());
        return bounded == old ? node : copy(node, Write.class, Option.apply(bounded));
      }
    }
    return node;
  }

  /** Put tiny partitions together: as many tasks as the machine has work for, or as the rows need. */
  private static TreeNode coalesce(V2WriteCommand write) {
    LogicalPlan query = write.query();
    Sort sort = query instanceof Sort && !((Sort) query).global() ? (Sort) query : null;
    LogicalPlan rows = sort == null ? query : sort.child();
    if (!isPlain(rows)) {
      return (TreeNode) write;
    }
    long needed = rows.stats().sizeInBytes().bigInteger().divide(java.math.BigInteger.valueOf(TASK_BYTES))
        .min(java.math.BigInteger.valueOf((long) Integer.MAX_VALUE)).longValue();
    if (needed >= 100000L) {
      return (TreeNode) write; // The size is not known.
    }
    int parallelism = SparkContext.getOrCreate().defaultParallelism();
    int tasks = Math.max((int) needed + 1, Math.max(FEWEST_TASKS, 2 * parallelism));
    LogicalPlan coalesced = new Repartition(tasks, false, rows);
    return (TreeNode) write.withNewQuery(
        sort == null ? coalesced : (LogicalPlan) sort.withNewChildren(seq(coalesced)));
  }

  private static boolean isPlain(LogicalPlan plan) {
    return hasOnly(PLAIN, plan);
  }

  /** True if a plan has only nodes of some kinds, and runs no code of users. */
  private static boolean hasOnly(Set kinds, LogicalPlan plan) {
    if (!kinds.contains(plan.getClass().getSimpleName())) {
      return false;
    }
    for (Iterator list = CollectionConverters.asJava(plan.expressions()).iterator(); list.hasNext();) {
      if (runsUserCode((Expression) list.next())) {
        return false;
      }
    }
    for (Iterator list = CollectionConverters.asJava(plan.children()).iterator(); list.hasNext();) {
      if (!hasOnly(kinds, (LogicalPlan) list.next())) {
        return false;
      }
    }
    return true;
  }

  /** True if Spark alone makes the rows of a plan, also those that it keeps. */
  private static boolean isSparks(LogicalPlan plan) {
    if (!hasOnly(SPARKS, plan)) {
      return false;
    }
    for (Iterator leaves = CollectionConverters.asJava(plan.collectLeaves()).iterator(); leaves.hasNext();) {
      Object leaf = leaves.next();
      if (leaf instanceof InMemoryRelation && !isSparks(((InMemoryRelation) leaf).cacheBuilder().logicalPlan())) {
        return false;
      }
    }
    return true;
  }

  private static boolean runsUserCode(Expression expression) {
    if (expression instanceof UserDefinedExpression) {
      return true;
    }
    for (Iterator list = CollectionConverters.asJava(expression.children()).iterator(); list.hasNext();) {
      if (runsUserCode((Expression) list.next())) {
        return true;
      }
    }
    return false;
  }

  /** Let Spark make tasks of about equal size. The option goes, by which the data source knows that this was done. */
  private static TreeNode balance(V2WriteCommand write, DataSourceV2Relation relation) {
    Map options = new HashMap(relation.options().asCaseSensitiveMap());
    for (Iterator keys = relation.options().asCaseSensitiveMap().keySet().iterator(); keys.hasNext();) {
      Object key = keys.next();
      if (key.toString().equalsIgnoreCase(OPTION)) {
        options.remove(key);
      }
    }
    CaseInsensitiveStringMap left = new CaseInsensitiveStringMap(options);
    LogicalPlan query = write.query();
    WriteBuilder builder = ((SupportsWrite) relation.table()).newWriteBuilder(new Info(query.schema(), left));
    if (write instanceof OverwriteByExpression) {
      builder = ((SupportsTruncate) builder).truncate();
    }
    Write changed = builder.build();
    LogicalPlan balanced = new RebalancePartitions((Seq) Nil$.MODULE$, query, Option.empty(), Option.empty());
    LogicalPlan target = (LogicalPlan) copy((TreeNode) relation, relation.options(), left);
    TreeNode node = copy((TreeNode) write, query, balanced);
    node = copy(node, relation, target);
    return copy(node, Write.class, Option.apply(changed));
  }

  /** Copy a node with another argument in place of one; versions of Spark differ in how many a node has. */
  private static TreeNode copy(TreeNode node, Object old, Object other) {
    Object[] arguments = new Object[node.productArity()];
    for (int i = 0; i < arguments.length; i++) {
      Object argument = node.productElement(i);
      boolean same = argument == old || old == Write.class && holdsWrite(argument);
      arguments[i] = same ? other : argument;
    }
    return node.makeCopy(arguments);
  }

  private static boolean holdsWrite(Object argument) {
    return argument instanceof Option && ((Option) argument).isDefined() && ((Option) argument).get() instanceof Write;
  }

  private static Seq seq(Object only) {
    List list = new ArrayList();
    list.add(only);
    return CollectionConverters.asScala(list).toSeq();
  }

  /** What Spark tells the data source of a write. */
  public static class Info implements LogicalWriteInfo {
    private final String id = UUID.randomUUID().toString();
    private final StructType schema;
    private final CaseInsensitiveStringMap options;

    public Info(StructType schema, CaseInsensitiveStringMap options) {
      this.schema = schema;
      this.options = options;
    }

    public String queryId() {
      return id;
    }

    public StructType schema() {
      return schema;
    }

    public CaseInsensitiveStringMap options() {
      return options;
    }
  }
}
