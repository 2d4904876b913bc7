package lance_core;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.LinkedHashMap;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * A version of a table: the Python data source that has resolved it, and what that says about it.
 *
 * <p>The data source comes pickled; its description is a text in it, between two marks.
 */
public class LanceVersion {
  private static final String BEGIN = "lance-description:";
  private static final String END = ":lance-description";
  private static final String ROWS = "lance-rows:";
  private static final String OUTDATED = "lance-outdated:";
  private static final String NEWEST = "lance.newest";
  private static final int MOST_SCANS = 16;

  private final String name;
  private final CaseInsensitiveStringMap options;
  private final PythonDataSourceV2 provider;
  private final PythonDataSourceCreationResult source;
  private final Metadata description;
  private final long width;
  private final Map scans = new LinkedHashMap();
  private Scan any;
  private boolean isTrusted = false;

  private LanceVersion(String name, CaseInsensitiveStringMap options, PythonDataSourceV2 provider, Option schema) {
    this.name = name;
    this.options = options;
    this.provider = provider;
    this.source = provider.getOrCreateDataSourceInPython(name, options, schema);
    this.description = describe(source);
    this.width = (schema.isDefined() ? (StructType) schema.get() : source.schema()).defaultSize();
  }

  private LanceVersion(LanceVersion other) {
    this.name = other.name;
    this.options = other.options;
    this.provider = other.provider;
    this.source = other.source;
    this.description = other.description;
    this.width = other.width;
    this.isTrusted = true;
  }

  /** This version for another query, which has to find out whether it is still the newest. */
  public LanceVersion again() {
    return new LanceVersion(this);
  }

  /** Return whether nobody has yet looked whether this is still the newest version. */
  public boolean isTrusted() {
    return isTrusted;
  }

  /** The newest version: this one, if it still is. */
  public LanceVersion confirmed() {
    LanceVersion newest = new LanceVersion(name, options, provider(name), Option.empty());
    if (!newest.isDescribed() || !newest.description.equals(description)) {
      return newest;
    }
    isTrusted = false;
    return this;
  }

  /** Return whether there are indices. */
  public boolean isIndexed() {
    return isDescribed() && texts("indexed").length > 0;
  }

  /** The version that options name now; all its columns. */
  public static LanceVersion of(CaseInsensitiveStringMap options) {
    return new LanceVersion("lance", options, provider("lance"), Option.empty());
  }

  /** Rows of the data source "lance_catalog". */
  public static LanceVersion facts(CaseInsensitiveStringMap options) {
    return new LanceVersion("lance_catalog", options, provider("lance_catalog"), Option.empty());
  }

  /** What a Python data source says about options. */
  public static Metadata answer(String name, CaseInsensitiveStringMap options) {
    return describe(provider(name).getOrCreateDataSourceInPython(name, options, Option.empty()));
  }

  /** The version that the relation names now. */
  public static LanceVersion newest(DataSourceV2Relation relation) {
    String name = relation.table().name();
    return new LanceVersion(name, relation.options(), provider(name), Option.empty());
  }

  /** The version that the relation had when it was made. */
  public static LanceVersion pinned(DataSourceV2Relation relation) throws Exception {
    Field field = PythonTable.class.getDeclaredField("ds");
    field.setAccessible(true);
    PythonDataSourceV2 provider = (PythonDataSourceV2) field.get(relation.table());
    String name = relation.table().name();
    return new LanceVersion(name, relation.options(), provider, Option.apply(relation.table().schema()));
  }

  /** A Python data source by its name. Spark's own lookup asks all jars for sources first, which takes milliseconds. */
  private static PythonDataSourceV2 provider(String name) {
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(name);
    return provider;
  }

  private static Metadata describe(PythonDataSourceCreationResult source) {
    String text = new String(source.dataSource(), StandardCharsets.ISO_8859_1);
    int begin = text.indexOf(BEGIN);
    int end = begin < 0 ? -1 : text.indexOf(END, begin);
    return end < 0 ? null : Metadata.fromJson(text.substring(begin + BEGIN.length(), end));
  }

  public boolean isDescribed() {
    return description != null;
  }

  public long number() {
    return isDescribed() ? description.getLong("version") : -1L;
  }

  public long rows() {
    return description.getLong("rows");
  }

  public long bytes() {
    return description.getLong("bytes");
  }

  public StructType schema() {
    return source.schema();
  }

  public CaseInsensitiveStringMap options() {
    return options;
  }

  /** True if rows keep their ids when they move. */
  public boolean hasStableIds() {
    return description.getBoolean("stable_ids");
  }

  /** A table of the Python data source, whose writes take rows with these columns. */
  public static PythonTable pythonTable(StructType columns) {
    return new PythonTable(provider("lance"), "lance", columns);
  }

  /** Settings of the table. */
  public Map properties() {
    return isDescribed() ? map("property_names", "properties") : Collections.EMPTY_MAP;
  }

  private Map map(String keys, String values) {
    String[] names = texts(keys);
    String[] texts = texts(values);
    Map map = new HashMap();
    for (int i = 0; i < names.length; i++) {
      map.put(names[i], texts[i]);
    }
    return map;
  }

  /** A list of the description; an empty one is left out there, since Spark takes it for one of numbers. */
  private String[] texts(String key) {
    return description.contains(key) ? description.getStringArray(key) : new String[0];
  }

  /** The size of a row with all columns, as Spark estimates it by their types. */
  public long width() {
    return width;
  }

  /** Columns and fields of structs that can be read alone, by dotted paths, with their SQL in conditions. */
  public Map paths() {
    return map("paths", "sql");
  }

  /** Return whether indices may find the rows of a condition. */
  public boolean mayFind(String filter) {
    String[] indexed = texts("indexed");
    for (int i = 0; i < indexed.length; i++) {
      if (filter.indexOf(indexed[i]) >= 0) {
        return true;
      }
    }
    return false;
  }

  /** Return whether the user gave the option. */
  public boolean has(String option) {
    return options.containsKey(option);
  }

  /** Return whether the user wants scans of everything. */
  public boolean isOff() {
    return "false".equalsIgnoreCase(options.get("pushdown"));
  }

  /** Return whether the version still has the columns of a relation that was made from an earlier one. */
  public boolean fits(StructType asked) {
    Map there = new HashMap();
    StructField[] fields = source.schema().fields();
    for (int i = 0; i < fields.length; i++) {
      there.put(fields[i].name(), fields[i]);
    }
    fields = asked.fields();
    for (int i = 0; i < fields.length; i++) {
      StructField field = (StructField) there.get(fields[i].name());
      if (field == null || !field.dataType().catalogString().equals(fields[i].dataType().catalogString())) {
        return false;
      }
      if (field.nullable() && !fields[i].nullable()) {
        return false;
      }
    }
    return true;
  }

  /**
   * Plan a scan in Python, once; Spark shares exchanges of scans whose batches are the same.
   *
   * @throws Outdated the version was trusted to be the newest, and is not any more
   */
  public synchronized Scan scan(StructType asked) {
    String key = asked.json();
    Scan scan = (Scan) scans.get(key);
    if (scan == null) {
      PythonDataSourceV2 planned = provider(name);
      StructType given = isTrusted ? withQuestion(asked) : asked;
      PythonDataSourceReadInfo info = provider.source().createReadInfoInPython(source, given, false);
      if (isTrusted && find(info, OUTDATED) >= 0) {
        throw new Outdated();
      }
      isTrusted = false;
      planned.setReadInfo(info);
      scan = new PlannedScan(new PythonTable(planned, name, asked).newScanBuilder(options).build(), found(info));
      if (scans.size() >= MOST_SCANS) {
        scans.remove(scans.keySet().iterator().next());
      }
      scans.put(key, scan);
    }
    return scan;
  }

  /** The rows of a scan as an Arrow stream, if Python has read them while it planned; else null. */
  private static byte[] found(PythonDataSourceReadInfo info) {
    int begin = find(info, ROWS);
    if (begin < 0) {
      return null;
    }
    byte[] pickled = (byte[]) info.partitions().head();
    String text = new String(pickled, StandardCharsets.ISO_8859_1);
    int size = begin + ROWS.length();
    int start = text.indexOf(':', size) + 1;
    return Arrays.copyOfRange(pickled, start, start + Integer.parseInt(text.substring(size, start - 1)));
  }

  /** Where a mark stands in the only partition of a plan; -1 if it does not. */
  private static int find(PythonDataSourceReadInfo info, String mark) {
    if (info.partitions().size() != 1) {
      return -1;
    }
    return new String((byte[]) info.partitions().head(), StandardCharsets.ISO_8859_1).indexOf(mark);
  }

  /** The columns with the question whether this version is still the newest. */
  private static StructType withQuestion(StructType asked) {
    StructField[] fields = (StructField[]) asked.fields().clone();
    Metadata metadata = new MetadataBuilder().withMetadata(fields[0].metadata()).putBoolean(NEWEST, true).build();
    fields[0] = new StructField(fields[0].name(), fields[0].dataType(), fields[0].nullable(), metadata);
    return new StructType(fields);
  }

  /** Another version than the one that was trusted to be the newest. */
  public static class Outdated extends RuntimeException {}

  public synchronized Scan anyScan() {
    if (any == null) {
      any = new PythonTable(provider, name, source.schema()).newScanBuilder(options).build();
    }
    return any;
  }

  /** A scan that has one batch. */
  public static class PlannedScan implements Scan {
    private final Batch batch;
    private final StructType schema;

    /** See `found`. */
    public final byte[] rows;

    public PlannedScan(Scan scan, byte[] rows) {
      this.rows = rows;
      this.batch = scan.toBatch();
      this.schema = scan.readSchema();
    }

    public StructType readSchema() {
      return schema;
    }

    public Batch toBatch() {
      return batch;
    }
  }
}
