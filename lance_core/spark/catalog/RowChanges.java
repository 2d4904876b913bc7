package lance_core;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A DELETE, UPDATE or MERGE on one version of a table. Spark computes the rows; those of the version have an address.
 *
 * <p>Spark would write the rows in Java on the executors, which do not have these classes. So its plan of the write is
 * replaced, see `RowChangesRule`, by one that hands the rows to the Python data source.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class RowChanges implements SupportsDelta, RowLevelOperationBuilder {
  public static final String ADDRESS = "_rowaddr";
  public static final String ID = "_rowid";
  public static final String OPERATION = "__row_operation";

  private final LanceVersion version;
  private final RowLevelOperation.Command command;
  private final boolean isAgain;

  public RowChanges(LanceVersion version, RowLevelOperation.Command command, boolean isAgain) {
    this.version = version;
    this.command = command;
    this.isAgain = isAgain;
  }

  /** True if rows keep their ids when they move. */
  public boolean hasStableIds() {
    return version.hasStableIds();
  }

  /** True if the statement was run before and met a conflict. */
  public boolean isAgain() {
    return isAgain;
  }

  public RowLevelOperation build() {
    return this;
  }

  public String description() {
    return "lance " + command;
  }

  public RowLevelOperation.Command command() {
    return command;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new Scans(version, version.schema());
  }

  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new Unwritten(version.hasStableIds());
  }

  public NamedReference[] rowId() {
    return new NamedReference[] {Expressions.column(ADDRESS)};
  }

  public NamedReference[] requiredMetadataAttributes() {
    return version.hasStableIds() ? new NamedReference[] {Expressions.column(ID)} : new NamedReference[0];
  }

  /**
   * The write of rows whose first columns are the operation, the address and, if they are stable, the id. If it inserts
   * rows, what it does depends on which rows there are.
   */
  public Write write(StructType rows, boolean inserts) {
    Map options = new HashMap();
    options.putAll(version.options().asCaseSensitiveMap());
    options.put("row_changes", command.toString());
    options.put("row_inserts", String.valueOf(inserts));
    options.put("version", String.valueOf(version.number()));
    Writes.Info info = new Writes.Info(rows, new CaseInsensitiveStringMap(options));
    return LanceVersion.pythonTable(rows).newWriteBuilder(info).build();
  }

  /** Scans of a version that read some columns only. */
  public static class Scans implements ScanBuilder, SupportsPushDownRequiredColumns {
    private final LanceVersion version;
    private StructType columns;

    public Scans(LanceVersion version, StructType columns) {
      this.version = version;
      this.columns = columns;
    }

    public void pruneColumns(StructType required) {
      if (required.length() == 0) {
        return;
      }
      StructType asked = new StructType();
      for (int i = 0; i < required.length(); i++) {
        StructField field = required.apply(i);
        boolean hidden = field.name().equals(ADDRESS) || field.name().equals(ID);
        asked = hidden ? asked.add(field.name(), field.dataType(), true) : asked.add(field);
      }
      this.columns = asked;
    }

    public Scan build() {
      return new LanceScan(version, columns, java.util.Collections.EMPTY_LIST, -1, null);
    }
  }

  /** Takes the place of the write until the plan is replaced; moved rows bring stable ids, so they come first. */
  public static class Unwritten implements DeltaWriteBuilder, DeltaWrite, RequiresDistributionAndOrdering {
    private final boolean isOrdered;

    public Unwritten(boolean isOrdered) {
      this.isOrdered = isOrdered;
    }

    public DeltaWrite build() {
      return this;
    }

    public Distribution requiredDistribution() {
      return Distributions.unspecified();
    }

    public SortOrder[] requiredOrdering() {
      return isOrdered
          ? new SortOrder[] {Expressions.sort(Expressions.column(OPERATION), SortDirection.ASCENDING)}
          : new SortOrder[0];
    }

    public String description() {
      return "lance";
    }
  }
}
