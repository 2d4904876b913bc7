package lance_core;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;

/**
 * Bounds the batches of a write by rows instead of bytes, if its rows are small. Spark adds up the bytes of all columns
 * after each row otherwise, which is half of what it does for a table of numbers and short texts.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class WriteBatches {
  private static final String BYTES = "spark.sql.execution.arrow.maxBytesPerBatch";
  private static final String ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch";
  private static final long BATCH_BYTES = 64L << 20;

  /** What is assumed of the texts of a row, together; few tables have longer ones. */
  private static final long TEXT_BYTES = 32L << 10;

  private static final Set FIXED = new HashSet(Arrays.asList(new Object[] {
      "boolean", "date", "timestamp", "timestamp_ntz"}));

  /** The write of a query; with batches of so many rows, if they are small and the user has set no limit of bytes. */
  public static Write of(Write write, LogicalPlan query) {
    SQLConf conf = SQLConf.get();
    if (write instanceof Bounded || conf.contains(BYTES)) {
      return write;
    }
    long fixed = fixedBytes(query.schema());
    long texts = hasTexts(query.schema()) ? TEXT_BYTES : 0L;
    if (fixed < 0 || texts > 0 && meanBytes(query.stats()) > TEXT_BYTES) {
      return write;
    }
    long rows = Math.max(1L, BATCH_BYTES / Math.max(1L, fixed + texts));
    long most = (long) conf.arrowMaxRecordsPerBatch();
    return new Bounded(write, most > 0L ? Math.min(most, rows) : rows);
  }

  /** Bytes of the values of one width in a row; -1 if it has values of any size that are not texts. */
  private static long fixedBytes(DataType type) {
    if (type instanceof StructType) {
      long sum = 0L;
      for (int i = 0; i < ((StructType) type).length(); i++) {
        long bytes = fixedBytes(((StructType) type).apply(i).dataType());
        if (bytes < 0) {
          return -1L;
        }
        sum += bytes;
      }
      return sum;
    }
    if (type instanceof NumericType || FIXED.contains(type.typeName())) {
      return (long) type.defaultSize();
    }
    return type instanceof StringType ? 0L : -1L;
  }

  private static boolean hasTexts(DataType type) {
    for (int i = 0; type instanceof StructType && i < ((StructType) type).length(); i++) {
      if (hasTexts(((StructType) type).apply(i).dataType())) {
        return true;
      }
    }
    return type instanceof StringType;
  }

  /** Mean size of a row, 0 if it is not known. */
  private static double meanBytes(Statistics stats) {
    if (stats.rowCount().isEmpty()) {
      return 0;
    }
    double rows = ((scala.math.BigInt) stats.rowCount().get()).doubleValue();
    return stats.sizeInBytes().doubleValue() / Math.max(1.0, rows);
  }

  /** A write whose tasks get batches of so many rows, whatever their bytes. */
  public static class Bounded implements Write {
    private final Write write;
    private final long rows;

    public Bounded(Write write, long rows) {
      this.write = write;
      this.rows = rows;
    }

    public BatchWrite toBatch() {
      return new BoundedBatch(write.toBatch(), rows);
    }

    public String description() {
      return write.description();
    }

    public CustomMetric[] supportedCustomMetrics() {
      return write.supportedCustomMetrics();
    }

    public CustomTaskMetric[] reportDriverMetrics() {
      return write.reportDriverMetrics();
    }
  }

  /**
   * Tells the tasks of the write, and no others. Tasks see properties of the thread that runs their job, which Spark
   * does between these calls.
   */
  public static class BoundedBatch implements BatchWrite {
    private final BatchWrite write;
    private final long rows;
    private String oldBytes;
    private String oldRows;

    public BoundedBatch(BatchWrite write, long rows) {
      this.write = write;
      this.rows = rows;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      DataWriterFactory factory = write.createBatchWriterFactory(info);
      SparkContext context = SparkContext.getOrCreate();
      oldBytes = context.getLocalProperty(BYTES);
      oldRows = context.getLocalProperty(ROWS);
      context.setLocalProperty(BYTES, String.valueOf(Integer.MAX_VALUE));
      context.setLocalProperty(ROWS, String.valueOf(rows));
      return factory;
    }

    private void restore() {
      SparkContext context = SparkContext.getOrCreate();
      context.setLocalProperty(BYTES, oldBytes);
      context.setLocalProperty(ROWS, oldRows);
    }

    public boolean useCommitCoordinator() {
      return write.useCommitCoordinator();
    }

    public void onDataWriterCommit(WriterCommitMessage message) {
      write.onDataWriterCommit(message);
    }

    public void commit(WriterCommitMessage[] messages) {
      restore();
      write.commit(messages);
    }

    public void abort(WriterCommitMessage[] messages) {
      restore();
      write.abort(messages);
    }
  }
}
