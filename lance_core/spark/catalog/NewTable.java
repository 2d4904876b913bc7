package lance_core;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table that is to be created, or replaced with its history kept. The rows of `AS SELECT` make it, in one commit; a
 * statement that fails leaves what was there.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class NewTable implements StagedTable, SupportsWrite, SupportsTruncate {
  private static final java.util.List PROPERTIES =
      Arrays.asList(new String[] {"data_storage_version", "enable_stable_row_ids", "compression_profile"});

  /** Properties that Spark gives by itself. */
  private static final java.util.List SPARKS =
      Arrays.asList(new String[] {"owner", "external", "is_managed_location", "collation"});

  private final String name;
  private final StructType schema;
  private final Map options;
  private final String command;
  private LogicalWriteInfo info;

  /**
   * @param options where the table is, and how to get there
   * @param properties of TBLPROPERTIES
   * @param command "create", which refuses a table that is there, or "replace"
   */
  public NewTable(String name, StructType schema, Map options, Map properties, String command) {
    this.name = name;
    this.schema = schema;
    this.options = new HashMap(options);
    this.command = command;
    Map config = new HashMap();
    for (Iterator keys = properties.keySet().iterator(); keys.hasNext();) {
      String key = (String) keys.next();
      if (PROPERTIES.contains(key)) {
        this.options.put(key, properties.get(key));
      } else if (!SPARKS.contains(key) && !key.startsWith("option.")) {
        config.put(key, properties.get(key));
      }
    }
    if (!config.isEmpty()) {
      this.options.put("table_config", Commands.json(config));
    }
  }

  public String name() {
    return name;
  }

  public StructType schema() {
    return schema;
  }

  public Set capabilities() {
    return new HashSet(Arrays.asList(new Object[] {TableCapability.BATCH_WRITE, TableCapability.TRUNCATE}));
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo given) {
    this.info = given;
    return this;
  }

  public WriteBuilder truncate() {
    return this;
  }

  public Write build() {
    Map all = new HashMap(options);
    all.putAll(info.options().asCaseSensitiveMap());
    if (command.equals("create")) {
      all.put("mode", "create");
    }
    Writes.Info changed = new Writes.Info(info.schema(), new CaseInsensitiveStringMap(all));
    WriteBuilder builder = LanceVersion.pythonTable(info.schema()).newWriteBuilder(changed);
    return ((SupportsTruncate) builder).truncate().build();
  }

  /** Create it without rows; false if it was there and must not be replaced. */
  public boolean create() {
    Map given = new HashMap();
    given.put("columns", schema.json());
    return Commands.names(Commands.run(options, command, (String) options.get("path"), given)).length == 0;
  }

  public void commitStagedChanges() {
    if (info == null) {
      create();
    }
  }

  public void abortStagedChanges() {}
}
