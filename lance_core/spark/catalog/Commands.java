package lance_core;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Asks the data source "lance_catalog" to do something, and says what Spark asks for in its words.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class Commands {
  /** Runs a command on a table that a user has named. */
  public interface Runner {
    Metadata runOn(String table, String command, Map given);
  }

  /** Run a command; what it answers. */
  public static Metadata run(Map settings, String command, String path, Map given) {
    Map options = new HashMap(settings);
    options.putAll(given);
    options.put("command", command);
    options.put("path", path);
    return LanceVersion.answer("lance_catalog", new CaseInsensitiveStringMap(options));
  }

  /** Names in an answer. */
  public static String[] names(Metadata answer) {
    String names = answer.getString("names");
    return names.isEmpty() ? new String[0] : names.split("/");
  }

  public static String json(Object value) {
    try {
      return new ObjectMapper().writeValueAsString(value);
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  public static List dotted(NamedReference[] columns) {
    List paths = new ArrayList();
    for (int i = 0; i < columns.length; i++) {
      paths.add(String.join(".", columns[i].fieldNames()));
    }
    return paths;
  }

  /** Changes of `ALTER TABLE`, as a list of objects. */
  public static String json(TableChange[] changes) {
    List all = new ArrayList();
    for (int i = 0; i < changes.length; i++) {
      all.add(change(changes[i]));
    }
    return json(all);
  }

  private static Map change(TableChange change) {
    Map told = new HashMap();
    if (change instanceof TableChange.ColumnChange) {
      told.put("path", ((TableChange.ColumnChange) change).fieldNames());
    }
    if (change instanceof TableChange.AddColumn) {
      TableChange.AddColumn column = (TableChange.AddColumn) change;
      if (column.defaultValue() != null) {
        throw new UnsupportedOperationException(
            "Columns of Lance tables have no DEFAULT. Leave it out, and UPDATE the rows that are there");
      }
      told.put("kind", "add");
      told.put("type", column.dataType().json());
      told.put("nullable", Boolean.valueOf(column.isNullable()));
      told.put("comment", column.comment());
      told.put("position", column.position() == null ? null : column.position().toString());
    } else if (change instanceof TableChange.DeleteColumn) {
      told.put("kind", "drop");
    } else if (change instanceof TableChange.RenameColumn) {
      told.put("kind", "alter");
      told.put("name", ((TableChange.RenameColumn) change).newName());
    } else if (change instanceof TableChange.UpdateColumnType) {
      told.put("kind", "alter");
      told.put("type", ((TableChange.UpdateColumnType) change).newDataType().json());
    } else if (change instanceof TableChange.UpdateColumnNullability) {
      told.put("kind", "alter");
      told.put("nullable", Boolean.valueOf(((TableChange.UpdateColumnNullability) change).nullable()));
    } else if (change instanceof TableChange.UpdateColumnComment) {
      told.put("kind", "comment");
      told.put("comment", ((TableChange.UpdateColumnComment) change).newComment());
    } else if (change instanceof TableChange.SetProperty) {
      told.put("kind", "property");
      told.put("key", ((TableChange.SetProperty) change).property());
      told.put("value", ((TableChange.SetProperty) change).value());
    } else if (change instanceof TableChange.RemoveProperty) {
      told.put("kind", "property");
      told.put("key", ((TableChange.RemoveProperty) change).property());
    } else {
      throw new UnsupportedOperationException(
          "Lance tables do not support this change of ALTER TABLE: " + change.getClass().getSimpleName());
    }
    return told;
  }

  /** The rows that `INSERT ... REPLACE WHERE` replaces, in SQL of Lance. */
  public static String sql(Predicate[] predicates) {
    List all = new ArrayList();
    for (int i = 0; i < predicates.length; i++) {
      all.add(sql(predicates[i]));
    }
    return all.isEmpty() ? "true" : String.join(" AND ", all);
  }

  private static String sql(Expression expression) {
    if (expression instanceof NamedReference) {
      return "`" + String.join("`.`", ((NamedReference) expression).fieldNames()) + "`";
    }
    if (expression instanceof Literal) {
      DataType type = ((Literal) expression).dataType();
      boolean isFloat = type instanceof FloatType || type instanceof DoubleType;
      String text = isFloat ? null : Conditions.literal(((Literal) expression).value(), type);
      return text == null ? refuse(expression) : text;
    }
    String name = expression instanceof Predicate ? ((Predicate) expression).name() : "";
    Expression[] parts = expression.children();
    if (name.equals("ALWAYS_TRUE") || name.equals("ALWAYS_FALSE")) {
      return name.substring(7);
    }
    if (name.equals("NOT")) {
      return "(NOT " + sql(parts[0]) + ")";
    }
    if (name.equals("IS_NULL") || name.equals("IS_NOT_NULL")) {
      return "(" + sql(parts[0]) + " " + name.replace('_', ' ') + ")";
    }
    if (name.equals("IN")) {
      List values = new ArrayList();
      for (int i = 1; i < parts.length; i++) {
        values.add(sql(parts[i]));
      }
      return "(" + sql(parts[0]) + " IN (" + String.join(", ", values) + "))";
    }
    if (name.equals("STARTS_WITH") || name.equals("ENDS_WITH") || name.equals("CONTAINS")) {
      return name.toLowerCase() + "(" + sql(parts[0]) + ", " + sql(parts[1]) + ")";
    }
    if (name.equals("AND") || name.equals("OR") || name.equals("=") || name.equals("<>") || name.equals("<")
        || name.equals("<=") || name.equals(">") || name.equals(">=")) {
      return "(" + sql(parts[0]) + " " + name + " " + sql(parts[1]) + ")";
    }
    return refuse(expression);
  }

  private static String refuse(Expression expression) {
    throw new UnsupportedOperationException(
        "REPLACE WHERE of Lance tables does not support " + expression + ". Use columns, constants, comparisons, IN, IS"
            + " NULL, AND, OR and NOT; not with floats");
  }
}
