package lance_core;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.IndexAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchIndexException;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.catalog.index.SupportsIndex;
import org.apache.spark.sql.connector.catalog.index.TableIndex;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * A version of a table as the catalog hands it to Spark.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class SqlTable
    implements SupportsRead, SupportsWrite, SupportsRowLevelOperations, SupportsMetadataColumns, SupportsIndex,
        TruncatableTable {
  /** Options that only reads have. */
  public static final java.util.List READING = Arrays.asList(new String[] {"with_row_address", "with_row_id"});

  private final String name;
  private final LanceVersion version;
  private final boolean isPinned;
  private final boolean isAgain;
  private final StructType schema;

  public SqlTable(String name, LanceVersion version, boolean isPinned) {
    this(name, version, isPinned, false);
  }

  /** If `isAgain`, the statement was run before and met a conflict. */
  private SqlTable(String name, LanceVersion version, boolean isPinned, boolean isAgain) {
    this.name = name;
    this.version = version;
    this.isPinned = isPinned;
    this.isAgain = isAgain;
    StructType columns = new StructType();
    StructField[] fields = version.schema().fields();
    for (int i = 0; i < fields.length; i++) {
      if (!fields[i].name().equals(RowChanges.ADDRESS) && !fields[i].name().equals(RowChanges.ID)) {
        columns = columns.add(fields[i]);
      }
    }
    this.schema = columns;
  }

  public String name() {
    return name;
  }

  public StructType schema() {
    return schema;
  }

  public String version() {
    return String.valueOf(version.number());
  }

  public Map properties() {
    Map properties = new HashMap(version.properties());
    properties.put("provider", "lance");
    properties.put("location", version.options().get("path"));
    return properties;
  }

  public Set capabilities() {
    Set capabilities = new HashSet();
    capabilities.add(TableCapability.BATCH_READ);
    if (!isPinned) {
      capabilities.add(TableCapability.BATCH_WRITE);
      capabilities.add(TableCapability.TRUNCATE);
      capabilities.add(TableCapability.OVERWRITE_BY_FILTER);
    }
    return capabilities;
  }

  public MetadataColumn[] metadataColumns() {
    return new MetadataColumn[] {new Hidden(RowChanges.ADDRESS), new Hidden(RowChanges.ID)};
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new RowChanges.Scans(version, schema);
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new Appends(version, info);
  }

  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    if (isPinned) {
      throw new UnsupportedOperationException("Only the newest version of a table can be changed");
    }
    return changes(info.command());
  }

  /** Delete all rows: `TRUNCATE TABLE`, and `DELETE` without a condition. */
  public boolean truncateTable() {
    run("truncate", Collections.EMPTY_MAP);
    return true;
  }

  public void createIndex(String index, NamedReference[] columns, Map columnOptions, Map options)
      throws IndexAlreadyExistsException {
    if (indexExists(index)) {
      throw new IndexAlreadyExistsException(index, name, Option.empty()); // which IF NOT EXISTS tolerates
    }
    Map given = new HashMap();
    Map settings = new HashMap(options);
    settings.putAll(columnOptions.isEmpty() ? Collections.EMPTY_MAP : (Map) columnOptions.values().iterator().next());
    Object kind = settings.remove(SupportsIndex.PROP_TYPE);
    given.put("index", index);
    given.put("kind", kind == null || kind.toString().isEmpty() ? "BTREE" : kind.toString());
    given.put("columns", Commands.json(Commands.dotted(columns)));
    given.put("settings", Commands.json(settings));
    run("create_index", given);
  }

  public void dropIndex(String index) throws NoSuchIndexException {
    if (!indexExists(index)) {
      throw new NoSuchIndexException(index, name, Option.empty());
    }
    run("drop_index", Collections.singletonMap("index", index));
  }

  public boolean indexExists(String index) {
    return Arrays.asList(Commands.names(run("index_names", Collections.EMPTY_MAP))).contains(index);
  }

  public TableIndex[] listIndexes() {
    throw new UnsupportedOperationException("Select from the table behind the name: " + name + ".indices");
  }

  private org.apache.spark.sql.types.Metadata run(String command, Map given) {
    Map options = new HashMap(version.options().asCaseSensitiveMap());
    options.keySet().removeAll(READING);
    return Commands.run(options, command, (String) options.get("path"), given);
  }

  /** Changes of the rows of this version. */
  public RowChanges changes(RowLevelOperation.Command command) {
    return new RowChanges(version, command, isAgain);
  }

  /** True for scans of this table at no version that was asked for: Spark 4.1 may have loaded the table again. */
  public boolean isRead(Scan scan) {
    return scan instanceof LanceScan && ((LanceScan) scan).version.options().equals(version.options());
  }

  /** The newest version, from a map by options; the table itself if a version was asked for; null if columns differ. */
  public SqlTable newest(Map versions) {
    if (isPinned) {
      return this;
    }
    LanceVersion newest = (LanceVersion) versions.get(version.options());
    if (newest == null) {
      newest = LanceVersion.of(version.options());
      versions.put(version.options(), newest);
    }
    SqlTable table = new SqlTable(name, newest, false, true);
    return table.schema.equals(schema) ? table : null;
  }

  /** A column that queries get only if they name it. */
  public static class Hidden implements MetadataColumn {
    private final String name;

    public Hidden(String name) {
      this.name = name;
    }

    public String name() {
      return name;
    }

    public DataType dataType() {
      return DataTypes.LongType;
    }

    public boolean isNullable() {
      return false;
    }
  }

  /** Appends rows, or replaces those of a condition. */
  public static class Appends implements SupportsOverwriteV2 {
    private final LanceVersion version;
    private final LogicalWriteInfo info;
    private String replaced;

    public Appends(LanceVersion version, LogicalWriteInfo info) {
      this.version = version;
      this.info = info;
    }

    public WriteBuilder truncate() {
      this.replaced = "true"; // keeps the columns of the table
      return this;
    }

    public boolean canOverwrite(Predicate[] predicates) {
      return true;
    }

    public WriteBuilder overwrite(Predicate[] predicates) {
      this.replaced = Commands.sql(predicates);
      return this;
    }

    public Write build() {
      Map options = new HashMap(version.options().asCaseSensitiveMap());
      options.keySet().removeAll(SqlTable.READING);
      options.putAll(info.options().asCaseSensitiveMap());
      if (replaced != null) {
        options.put("replace_where", replaced);
      }
      Writes.Info changed = new Writes.Info(info.schema(), new CaseInsensitiveStringMap(options));
      WriteBuilder builder = LanceVersion.pythonTable(info.schema()).newWriteBuilder(changed);
      return replaced == null ? builder.build() : ((SupportsTruncate) builder).truncate().build();
    }
  }
}
