package lance_core;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts rows that an index finds into the plan, in the place of their scan, so that no task has to start for them.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class FoundRows extends scala.runtime.AbstractPartialFunction {
  private boolean changed = false;

  /** A query with the rows of its scans; commands stay as they are, since they look at what they read. */
  public static TreeNode put(TreeNode plan) {
    if (plan instanceof Command) {
      return plan;
    }
    FoundRows rows = new FoundRows();
    LogicalPlan result = (LogicalPlan) ((LogicalPlan) plan).transformUpWithSubqueries(rows);
    return rows.changed ? (TreeNode) ConvertToLocalRelation$.MODULE$.apply(result) : (TreeNode) result;
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof DataSourceV2ScanRelation && ((DataSourceV2ScanRelation) node).scan() instanceof LanceScan;
  }

  public Object applyOrElse(Object node, scala.Function1 other) {
    if (!isDefinedAt(node)) {
      return other.apply(node);
    }
    DataSourceV2ScanRelation scan = (DataSourceV2ScanRelation) node;
    byte[] stream = ((LanceScan) scan.scan()).found();
    Seq rows = stream == null ? null : read(stream, scan.output());
    if (rows == null) {
      return node;
    }
    changed = true;
    return new LocalRelation(scan.output(), rows, false, Option.empty());
  }

  /** The rows of an Arrow stream; null if their types are not those of the columns, such as collated strings. */
  private static Seq read(byte[] stream, Seq output) {
    Tuple2 read = ArrowConverters$.MODULE$.fromIPCStreamWithIterator(stream, TaskContext.get());
    Iterator rows = (Iterator) read._1();
    StructType types = (StructType) read._2();
    boolean fits = types.length() == output.size();
    for (int i = 0; fits && i < types.length(); i++) {
      fits = types.fields()[i].dataType().equals(((Attribute) output.apply(i)).dataType());
    }
    List copies = new ArrayList();
    while (rows.hasNext()) { // also frees the memory of the stream
      InternalRow row = (InternalRow) rows.next();
      if (fits) {
        copies.add(row.copy());
      }
    }
    return fits ? CollectionConverters.asScala(copies).toSeq() : null;
  }
}
