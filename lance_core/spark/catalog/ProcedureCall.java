package lance_core;

import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/**
 * A procedure that Python runs in a process of the driver.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class ProcedureCall implements BoundProcedure {
  private final Commands.Runner catalog;
  private final String name;
  private final ProcedureParameter[] parameters;
  private final StructType columns;

  public ProcedureCall(Commands.Runner catalog, String name, ProcedureParameter[] parameters, StructType columns) {
    this.catalog = catalog;
    this.name = name;
    this.parameters = parameters;
    this.columns = columns;
  }

  public String name() {
    return name;
  }

  public ProcedureParameter[] parameters() {
    return parameters;
  }

  public boolean isDeterministic() {
    return false;
  }

  public Iterator call(InternalRow input) {
    Map given = new HashMap();
    for (int i = 0; i < parameters.length; i++) {
      if (!input.isNullAt(i)) {
        given.put(parameters[i].name(), input.get(i, parameters[i].dataType()).toString());
      }
    }
    String table = (String) given.remove("table");
    if (table == null) {
      throw new IllegalArgumentException("The procedure " + name + " needs the name of a table, not NULL");
    }
    // Names of their own, since the version to restore is not the one to open.
    Map arguments = Collections.singletonMap("arguments", Commands.json(given));
    long[] values = catalog.runOn(table, name, arguments).getLongArray("values");
    Object[] row = new Object[values.length];
    for (int i = 0; i < values.length; i++) {
      row[i] = Long.valueOf(values[i]);
    }
    return Collections.singletonList(new Answer(columns, new GenericInternalRow(row))).iterator();
  }

  /** One row. */
  public static class Answer implements LocalScan {
    private final StructType columns;
    private final InternalRow row;

    public Answer(StructType columns, InternalRow row) {
      this.columns = columns;
      this.row = row;
    }

    public StructType readSchema() {
      return columns;
    }

    public InternalRow[] rows() {
      return new InternalRow[] {row};
    }
  }
}
