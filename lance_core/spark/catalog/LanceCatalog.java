package lance_core;

import java.time.Instant;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Tables in a folder, one folder for each namespace, or at any address: {@code lance.db.t}, {@code lance.`s3://b/t`}.
 *
 * <p>What touches a store is done in Python, by the data source "lance_catalog".
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class LanceCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog, Commands.Runner {
  private static final String NOT_THERE = "DatasetNotFoundError";
  private static final List FACTS =
      Arrays.asList(new String[] {"history", "detail", "files", "tags", "branches", "indices"});

  private String name;
  private Map settings;
  private String root;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.settings = new HashMap(options.asCaseSensitiveMap());
    this.root = (String) settings.remove("root");
    LanceParser.install();
  }

  public String name() {
    return name;
  }

  public String[] defaultNamespace() {
    return new String[0];
  }

  // ---------------------------------------------------------------------------------------------------------- tables

  public Identifier[] listTables(String[] namespace) {
    String[] names = run("tables", folder(namespace), new HashMap());
    Identifier[] tables = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) {
      tables[i] = new Listed(namespace, names[i]);
    }
    return tables;
  }

  public Table loadTable(Identifier table) throws NoSuchTableException {
    return load(table, new HashMap());
  }

  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    boolean isNumber = !version.isEmpty() && version.chars().allMatch(new Digit());
    return load(table, Collections.singletonMap(isNumber ? "version" : "tag", version));
  }

  public Table loadTable(Identifier table, long micros) throws NoSuchTableException {
    Instant time = Instant.ofEpochSecond(Math.floorDiv(micros, 1000000L), Math.floorMod(micros, 1000000L) * 1000L);
    return load(table, Collections.singletonMap("timestamp", time.toString().replace("Z", "+00:00")));
  }

  private Table load(Identifier table, Map pinning) throws NoSuchTableException {
    boolean mayBeFacts = pinning.isEmpty() && FACTS.contains(table.name()) && table.namespace().length > 0;
    if (mayBeFacts && table.namespace()[0].indexOf('/') >= 0) {
      return facts(table); // of an address
    }
    Map options = new HashMap(settings);
    options.put("path", address(table));
    options.put("with_row_address", "true");
    options.put("with_row_id", "true");
    options.putAll(pinning);
    try {
      return new SqlTable(name + "." + table, LanceVersion.of(new CaseInsensitiveStringMap(options)), !pinning.isEmpty());
    } catch (Throwable error) {
      if (String.valueOf(error.getMessage()).indexOf(NOT_THERE) >= 0) {
        if (mayBeFacts) {
          return facts(table);
        }
        throw new NoSuchTableException(table);
      }
      new scala.util.Failure(error).get();
      return null;
    }
  }

  /** Facts about a table, as a table behind its name: {@code lance.db.t.history}. */
  private Table facts(Identifier table) throws NoSuchTableException {
    int last = table.namespace().length - 1;
    String[] namespace = new String[last];
    System.arraycopy(table.namespace(), 0, namespace, 0, last);
    Map options = new HashMap(settings);
    options.put("path", address(new Listed(namespace, table.namespace()[last])));
    options.put("command", table.name());
    try {
      return new SqlTable(name + "." + table, LanceVersion.facts(new CaseInsensitiveStringMap(options)), true);
    } catch (Throwable error) {
      if (String.valueOf(error.getMessage()).indexOf(NOT_THERE) >= 0) {
        throw new NoSuchTableException(table);
      }
      new scala.util.Failure(error).get();
      return null;
    }
  }

  public Table createTable(Identifier table, StructType schema, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchTableException {
    if (!staged(table, schema, partitions, properties, "create").create()) {
      throw new TableAlreadyExistsException(table);
    }
    return loadTable(table);
  }

  public StagedTable stageCreate(Identifier table, StructType schema, Transform[] partitions, Map properties) {
    return staged(table, schema, partitions, properties, "create");
  }

  public StagedTable stageReplace(Identifier table, StructType schema, Transform[] partitions, Map properties) {
    return staged(table, schema, partitions, properties, "replace");
  }

  public StagedTable stageCreateOrReplace(Identifier table, StructType schema, Transform[] partitions, Map properties) {
    return staged(table, schema, partitions, properties, "replace");
  }

  private NewTable staged(
      Identifier table, StructType schema, Transform[] partitions, Map properties, String command) {
    if (partitions.length > 0) {
      throw new UnsupportedOperationException(
          "Lance tables have no partitions: " + Arrays.asList(partitions) + ". Leave PARTITIONED BY or CLUSTER BY out;"
              + " statistics and indices skip rows instead, best if each INSERT sorts its rows by these columns");
    }
    Map given = new HashMap(properties);
    String provider = (String) given.remove("provider");
    if (provider != null && !provider.equalsIgnoreCase("lance")) {
      throw new UnsupportedOperationException("The catalog " + name + " has tables of format lance only, not " + provider
          + ". Say USING lance, or df.write.format(\"lance\")");
    }
    Object location = given.remove("location");
    if (location != null && !location.toString().replaceFirst("^file:/+", "/").equals(address(table))) {
      throw new UnsupportedOperationException(
          "A catalog of Lance tables is a folder and keeps no list of other places. Use the address as the name: "
              + name + ".`" + location + "`");
    }
    Map options = new HashMap(settings);
    options.put("path", address(table));
    return new NewTable(name + "." + table, schema, options, given, command);
  }

  public Table alterTable(Identifier table, TableChange[] changes) throws NoSuchTableException {
    Commands.run(settings, "alter", address(table), Collections.singletonMap("changes", Commands.json(changes)));
    return loadTable(table);
  }

  public boolean dropTable(Identifier table) {
    return run("drop", address(table), new HashMap()).length > 0;
  }

  public void renameTable(Identifier from, Identifier to) {
    throw new UnsupportedOperationException("Lance tables are folders and cannot be renamed. Use CREATE TABLE ... AS SELECT");
  }

  private String folder(String[] namespace) {
    if (root == null) {
      throw new UnsupportedOperationException(
          "The catalog " + name + " has no folder: set spark.sql.catalog." + name + ".root, or name tables by their"
              + " addresses, such as " + name + ".`/data/t`");
    }
    StringBuilder folder = new StringBuilder(root.replaceFirst("/+$", ""));
    for (int i = 0; i < namespace.length; i++) {
      folder.append("/").append(part(namespace[i]));
    }
    return folder.toString();
  }

  private String address(Identifier table) {
    if (table.namespace().length == 0 && table.name().indexOf('/') >= 0) {
      return table.name();
    }
    return folder(table.namespace()) + "/" + part(table.name()) + ".lance";
  }

  private static String part(String name) {
    if (name.isEmpty() || name.startsWith(".") || name.indexOf('/') >= 0 || name.indexOf('\\') >= 0) {
      throw new IllegalArgumentException("'" + name + "' cannot be the name of a table or namespace");
    }
    return name;
  }

  private String[] run(String command, String path, Map given) {
    return Commands.names(Commands.run(settings, command, path, given));
  }

  // ------------------------------------------------------------------------------------------------------ procedures

  public UnboundProcedure loadProcedure(Identifier procedure) {
    return new Procedures(this, procedure.name());
  }

  public Identifier[] listProcedures(String[] namespace) {
    String[] names = Procedures.names();
    Identifier[] procedures = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) {
      procedures[i] = new Listed(new String[] {"system"}, names[i]);
    }
    return procedures;
  }

  /** Run a command on a table that a procedure names, by its name in this catalog or its address. */
  public Metadata runOn(String table, String command, Map given) {
    String path = table;
    if (table.indexOf('/') < 0 || table.indexOf('`') >= 0) {
      List parts = LanceParser.parts(table);
      if (parts.size() > 1 && parts.get(0).equals(name)) {
        parts = parts.subList(1, parts.size());
      }
      String[] namespace = (String[]) parts.subList(0, parts.size() - 1).toArray(new String[0]);
      path = address(new Listed(namespace, (String) parts.get(parts.size() - 1)));
    }
    return Commands.run(settings, command, path, given);
  }

  /** The name of a table; Janino cannot call {@code Identifier.of}. */
  public static class Listed implements Identifier {
    private final String[] namespace;
    private final String name;

    public Listed(String[] namespace, String name) {
      this.namespace = namespace;
      this.name = name;
    }

    public String[] namespace() {
      return namespace;
    }

    public String name() {
      return name;
    }
  }

  /** True for digits. */
  public static class Digit implements java.util.function.IntPredicate {
    public boolean test(int letter) {
      return letter >= '0' && letter <= '9';
    }
  }

  // ------------------------------------------------------------------------------------------------------ namespaces

  public String[][] listNamespaces() {
    return listNamespaces(new String[0]);
  }

  public String[][] listNamespaces(String[] namespace) {
    String[] names = run("namespaces", folder(namespace), new HashMap());
    String[][] namespaces = new String[names.length][];
    for (int i = 0; i < names.length; i++) {
      namespaces[i] = new String[namespace.length + 1];
      System.arraycopy(namespace, 0, namespaces[i], 0, namespace.length);
      namespaces[i][namespace.length] = names[i];
    }
    return namespaces;
  }

  public boolean namespaceExists(String[] namespace) {
    return true;
  }

  public Map loadNamespaceMetadata(String[] namespace) {
    return Collections.EMPTY_MAP;
  }

  public void createNamespace(String[] namespace, Map metadata) {
    folder(namespace); // made with its first table
  }

  public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
    throw new UnsupportedOperationException("Namespaces of Lance tables are folders and have no properties");
  }

  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw new UnsupportedOperationException("Namespaces of Lance tables are folders. Drop their tables");
  }
}
