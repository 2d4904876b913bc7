package lance_core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * A scan of one version with what was pushed into it. Values do not change; a Python worker plans the tasks when Spark
 * asks for them.
 */
public class LanceScan implements Scan, SupportsReportStatistics, Statistics {
  private static final String KEY = "lance.pushdown";
  private static final int MOST_PACKED = 4;

  public final LanceVersion version;
  public final StructType columns;
  public final List filters;
  public final int limit;
  public final Metadata aggregates;

  public LanceScan(LanceVersion version, StructType columns, List filters, int limit, Metadata aggregates) {
    this.version = version;
    this.columns = columns;
    this.filters = filters;
    this.limit = limit;
    this.aggregates = aggregates;
  }

  public LanceScan withColumns(StructType columns) {
    return new LanceScan(version, columns, filters, limit, aggregates);
  }

  public LanceScan withFilters(List more) {
    List all = new ArrayList(filters);
    all.addAll(more);
    return new LanceScan(version, columns, Collections.unmodifiableList(all), limit, aggregates);
  }

  public LanceScan withLimit(int limit) {
    return new LanceScan(version, columns, filters, limit, aggregates);
  }

  /** A scan whose tasks return partial aggregates of their rows. */
  public LanceScan withAggregates(StructType columns, Metadata aggregates) {
    return new LanceScan(version, columns, filters, limit, aggregates);
  }

  /** The node of a plan with this scan; versions of Spark differ in how many arguments the node has. */
  public LogicalPlan in(DataSourceV2ScanRelation old, Seq output) {
    Object[] arguments = new Object[old.productArity()];
    for (int i = 0; i < arguments.length; i++) {
      Object argument = old.productElement(i);
      arguments[i] = argument instanceof Scan ? this : argument == old.output() ? output : argument;
    }
    return (LogicalPlan) ((TreeNode) old).makeCopy(arguments);
  }

  /** True if the scan has all rows of the version. */
  public boolean isWhole() {
    return filters.isEmpty() && limit < 0 && !version.has("filter") && !version.has("limit");
  }

  private StructType asked() {
    if (!version.isDescribed()) {
      return columns;
    }
    MetadataBuilder pushed = new MetadataBuilder();
    if (aggregates != null) {
      pushed.putMetadata("aggregates", aggregates);
    }
    if (!filters.isEmpty()) {
      pushed.putString("filter", String.join(" AND ", filters));
    }
    if (limit >= 0) {
      pushed.putLong("limit", (long) limit);
    }
    StructField[] fields = columns.fields();
    StructField[] asked = new StructField[fields.length];
    for (int i = 0; i < fields.length; i++) {
      Metadata metadata = Metadata.empty();
      if (i == 0) {
        metadata = new MetadataBuilder().putMetadata(KEY, pushed.build()).build();
      }
      asked[i] = new StructField(fields[i].name(), fields[i].dataType(), fields[i].nullable(), metadata);
    }
    return new StructType(asked);
  }

  public StructType readSchema() {
    return columns;
  }

  public Batch toBatch() {
    return version.scan(asked()).toBatch();
  }

  /** The rows as an Arrow stream, if an index finds few of them; else null. */
  public byte[] found() {
    for (int i = 0; i < filters.size(); i++) {
      if (version.mayFind((String) filters.get(i))) {
        return ((LanceVersion.PlannedScan) version.scan(asked())).rows;
      }
    }
    return null;
  }

  public String description() {
    String text = "lance version " + version.number() + " [" + String.join(", ", columns.fieldNames()) + "]";
    text += aggregates == null ? "" : " grouped";
    text += filters.isEmpty() ? "" : " where " + String.join(" AND ", filters);
    return limit < 0 ? text : text + " limit " + limit;
  }

  public String toString() {
    return description();
  }

  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.UNSUPPORTED;
  }

  public CustomMetric[] supportedCustomMetrics() {
    return version.anyScan().supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return version.anyScan().reportDriverMetrics();
  }

  public Statistics estimateStatistics() {
    return this;
  }

  public OptionalLong numRows() {
    boolean isFiltered = !filters.isEmpty() || version.has("filter") || version.has("limit");
    if (!version.isDescribed() || aggregates != null || isFiltered) {
      return OptionalLong.empty();
    }
    return OptionalLong.of(limit < 0 ? version.rows() : Math.min((long) limit, version.rows()));
  }

  public OptionalLong sizeInBytes() {
    if (!version.isDescribed()) {
      return OptionalLong.empty();
    }
    double width = Math.max(1, columns.defaultSize());
    double rows = limit < 0 ? version.rows() : Math.min((long) limit, version.rows());
    double share = width / Math.max(width, version.width()) * rows / Math.max(1, version.rows());
    // Stored bytes, as Spark takes for its own file formats, so that joins of the same data are planned alike. Columns
    // that pack far better than most are not taken for small: a table that is broadcast is held as rows.
    return OptionalLong.of((long) Math.max(1, Math.max(rows * (width + 8) / MOST_PACKED, version.bytes() * share)));
  }

  private List identity() {
    return Arrays.asList(new Object[] {columns, filters, Integer.valueOf(limit), aggregates});
  }

  public boolean equals(Object other) {
    return other instanceof LanceScan
        && version == ((LanceScan) other).version
        && identity().equals(((LanceScan) other).identity());
  }

  public int hashCode() {
    return identity().hashCode();
  }
}
