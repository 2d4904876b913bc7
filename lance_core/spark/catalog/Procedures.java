package lance_core;

import org.apache.spark.sql.connector.catalog.DefaultValue;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * What `CALL` knows of a catalog.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class Procedures implements UnboundProcedure {
  private static final String[] NAMES = new String[] {"create_tag", "drop_tag", "optimize", "restore", "vacuum"};
  private static final String[][] PARAMETERS = new String[][] {
      {"table", "tag", "version?"}, {"table", "tag"}, {"table", "target_rows_per_fragment?"},
      {"table", "version?", "timestamp?"}, {"table", "retention_hours?", "retain_versions?"}};
  private static final String[][] ANSWERS = new String[][] {
      {"version"}, {"version"}, {"fragments_removed", "fragments_added", "files_removed", "files_added"}, {"version"},
      {"old_versions", "bytes_removed"}};

  private final Commands.Runner catalog;
  private final int number;

  public Procedures(Commands.Runner catalog, String name) {
    this.catalog = catalog;
    int number = java.util.Arrays.asList(NAMES).indexOf(name.toLowerCase());
    if (number < 0) {
      throw new IllegalArgumentException(
          "There is no procedure " + name + "; the procedures are: " + String.join(", ", NAMES));
    }
    this.number = number;
  }

  public static String[] names() {
    return NAMES;
  }

  public String name() {
    return NAMES[number];
  }

  public BoundProcedure bind(StructType given) {
    String[] words = PARAMETERS[number];
    ProcedureParameter[] parameters = new ProcedureParameter[words.length];
    for (int i = 0; i < words.length; i++) {
      parameters[i] = new Parameter(words[i].replace("?", ""), words[i].endsWith("?"));
    }
    StructType columns = new StructType();
    for (int i = 0; i < ANSWERS[number].length; i++) {
      columns = columns.add(ANSWERS[number][i], DataTypes.LongType, false);
    }
    return new ProcedureCall(catalog, name(), parameters, columns);
  }

  /** A parameter; Janino cannot call {@code ProcedureParameter.in}. */
  public static class Parameter implements ProcedureParameter {
    private final String name;
    private final boolean isOptional;

    public Parameter(String name, boolean isOptional) {
      this.name = name;
      this.isOptional = isOptional;
    }

    public ProcedureParameter.Mode mode() {
      return ProcedureParameter.Mode.IN;
    }

    public String name() {
      return name;
    }

    public DataType dataType() {
      if (name.equals("timestamp")) {
        return DataTypes.TimestampType;
      }
      if (name.equals("retention_hours")) {
        return DataTypes.DoubleType;
      }
      return name.startsWith("retain") || name.startsWith("target") ? DataTypes.LongType : DataTypes.StringType;
    }

    public DefaultValue defaultValue() {
      return isOptional ? new DefaultValue("NULL") : null;
    }

    public String comment() {
      return null;
    }
  }
}
