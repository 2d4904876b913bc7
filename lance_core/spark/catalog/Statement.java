package lance_core;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SessionState;

/**
 * The write of a DELETE, UPDATE or MERGE. If another commit gets in its way, the statement is run again on the newest
 * version, by its analyzed plan, until it is committed or the time is over.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class Statement implements Write, BatchWrite {
  /** The end of errors that say that the statement may succeed on the newest version; filled in before compilation. */
  private static final String RETRYABLE = "$RETRYABLE";

  private static final long MOST_NANOS = (long) (Double.parseDouble("$COMMIT_TIMEOUT_S") * 1e9);

  private final Write write;
  private final boolean isAgain;
  private BatchWrite batch;

  public Statement(Write write, boolean isAgain) {
    this.write = write;
    this.isAgain = isAgain;
  }

  public String description() {
    return write.description();
  }

  public BatchWrite toBatch() {
    this.batch = write.toBatch();
    return this;
  }

  public CustomMetric[] supportedCustomMetrics() {
    return write.supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return write.reportDriverMetrics();
  }

  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    return batch.createBatchWriterFactory(info);
  }

  public boolean useCommitCoordinator() {
    return batch.useCommitCoordinator();
  }

  public void onDataWriterCommit(WriterCommitMessage message) {
    batch.onDataWriterCommit(message);
  }

  public void abort(WriterCommitMessage[] messages) {
    batch.abort(messages);
  }

  public void commit(WriterCommitMessage[] messages) {
    long started = System.nanoTime();
    Throwable error = null;
    try {
      batch.commit(messages);
    } catch (Throwable conflict) {
      error = conflict;
    }
    while (error != null) {
      boolean isOver = isAgain || System.nanoTime() - started > MOST_NANOS;
      QueryExecution running = isOver || !isRetryable(error) ? null : running();
      Newest newest = new Newest();
      LogicalPlan plan = running == null ? null : (LogicalPlan) running.logical().transformUpWithSubqueries(newest);
      if (plan == null || newest.columnsDiffer) {
        new scala.util.Failure(error).get();
      }
      error = run(running.sparkSession().sessionState(), plan);
    }
  }

  private static boolean isRetryable(Throwable error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (String.valueOf(cause.getMessage()).indexOf(RETRYABLE) >= 0) {
        return true;
      }
    }
    return false;
  }

  /** The statement that this thread runs. */
  private static QueryExecution running() {
    String id = SparkContext.getOrCreate().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    return id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
  }

  /** Run an analyzed plan; return what went wrong. */
  private static Throwable run(SessionState session, LogicalPlan plan) {
    try {
      plan.setAnalyzed();
      session.executePlan(plan, session.executePlan$default$2()).commandExecuted();
      return null;
    } catch (Throwable error) {
      return error;
    }
  }

  /** Binds the tables of a statement to their newest versions. */
  public static class Newest extends scala.runtime.AbstractPartialFunction {
    private final Map versions = new HashMap();
    private final Map tables = new HashMap();
    private boolean columnsDiffer = false;

    public boolean isDefinedAt(Object node) {
      return node instanceof V2WriteCommand || node instanceof DataSourceV2Relation;
    }

    public Object applyOrElse(Object node, scala.Function1 other) {
      if (!isDefinedAt(node)) {
        return other.apply(node);
      }
      TreeNode old = (TreeNode) node;
      Object[] arguments = new Object[old.productArity()];
      for (int i = 0; i < arguments.length; i++) {
        Object argument = old.productElement(i);
        if (argument instanceof Table) {
          arguments[i] = newest((Table) argument);
        } else if (node instanceof V2WriteCommand && argument instanceof DataSourceV2Relation) {
          arguments[i] = applyOrElse(argument, other);
        } else {
          arguments[i] = argument;
        }
      }
      return old.makeCopy(arguments);
    }

    private Table newest(Table table) {
      Table newest = (Table) tables.get(table);
      if (newest == null) {
        newest = table;
        if (table instanceof SqlTable) {
          newest = rebound((SqlTable) table);
        } else if (table instanceof RowLevelOperationTable) {
          RowLevelOperationTable changed = (RowLevelOperationTable) table;
          if (changed.table() instanceof SqlTable) {
            SqlTable target = rebound((SqlTable) changed.table());
            newest = new RowLevelOperationTable(target, target.changes(changed.operation().command()));
          }
        }
        tables.put(table, newest);
      }
      return newest;
    }

    private SqlTable rebound(SqlTable table) {
      SqlTable newest = table.newest(versions);
      this.columnsDiffer |= newest == null;
      return newest == null ? table : newest;
    }
  }
}
