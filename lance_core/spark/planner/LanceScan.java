package lance_core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

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
  public final boolean counts;

  public LanceScan(LanceVersion version, StructType columns, List filters, int limit, boolean counts) {
    this.version = version;
    this.columns = columns;
    this.filters = filters;
    this.limit = limit;
    this.counts = counts;
  }

  public LanceScan withColumns(StructType columns) {
    return new LanceScan(version, columns, filters, limit, counts);
  }

  public LanceScan withFilters(List more) {
    List all = new ArrayList(filters);
    all.addAll(more);
    return new LanceScan(version, columns, Collections.unmodifiableList(all), limit, counts);
  }

  public LanceScan withLimit(int limit) {
    return new LanceScan(version, columns, filters, limit, counts);
  }

  /** A scan whose tasks return the number of their rows. */
  public LanceScan withCounts(StructType columns) {
    return new LanceScan(version, columns, filters, limit, true);
  }

  /** True if the scan has all rows of the version. */
  public boolean isWhole() {
    return filters.isEmpty() && limit < 0 && !version.has("filter") && !version.has("limit");
  }

  private StructType asked() {
    if (!version.isDescribed()) {
      return columns;
    }
    MetadataBuilder pushed = new MetadataBuilder().putBoolean("count", counts);
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
    if (!version.isDescribed() || !filters.isEmpty() || version.has("filter") || version.has("limit")) {
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
    return Arrays.asList(new Object[] {columns, filters, Integer.valueOf(limit), Boolean.valueOf(counts)});
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
