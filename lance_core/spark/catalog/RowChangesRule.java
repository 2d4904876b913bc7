package lance_core;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.analysis.NamedRelation;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An optimizer rule that lets the Python data source write the rows of a DELETE, UPDATE or MERGE.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class RowChangesRule extends Rule {
  public TreeNode apply(TreeNode plan) {
    if (!(plan instanceof WriteDelta) || !(((WriteDelta) plan).operation() instanceof RowChanges)) {
      return plan;
    }
    WriteDelta changes = (WriteDelta) plan;
    if (changes.write().isEmpty()) {
      return plan;
    }
    List output = CollectionConverters.asJava(changes.query().output());
    List chosen = new ArrayList();
    StructType rows = new StructType();
    for (int i = 0; i < output.size(); i++) {
      Attribute attribute = (Attribute) output.get(i);
      if (attribute.name().equals(RowChanges.OPERATION)) {
        chosen.add(attribute);
        rows = rows.add(attribute.name(), attribute.dataType(), true);
      }
    }
    rows = add(rows, chosen, output, changes.projections().rowIdProjection());
    if (changes.projections().metadataProjection().isDefined()) {
      rows = add(rows, chosen, output, (ProjectingInternalRow) changes.projections().metadataProjection().get());
    }
    if (changes.projections().rowProjection().isDefined()) {
      rows = add(rows, chosen, output, (ProjectingInternalRow) changes.projections().rowProjection().get());
    }
    scala.collection.immutable.Seq columns = CollectionConverters.asScala(chosen).toSeq();
    LogicalPlan query = new Project(columns, changes.query());
    Write write = ((RowChanges) changes.operation()).write(rows, UUID.randomUUID().toString());
    return append(withOutput((TreeNode) changes.originalTable(), columns), query, write);
  }

  /** The relation with other columns: Spark compares those of an append with those of its rows. */
  private static NamedRelation withOutput(TreeNode relation, scala.collection.immutable.Seq columns) {
    Object[] arguments = new Object[relation.productArity()];
    for (int i = 0; i < arguments.length; i++) {
      Object argument = relation.productElement(i);
      arguments[i] = argument instanceof scala.collection.immutable.Seq ? columns : argument;
    }
    return (NamedRelation) relation.makeCopy(arguments);
  }

  private static StructType add(StructType rows, List chosen, List output, ProjectingInternalRow columns) {
    StructType all = rows;
    for (int i = 0; i < columns.schema().length(); i++) {
      StructField field = columns.schema().apply(i);
      chosen.add(output.get(((Number) columns.colOrdinals().apply(i)).intValue()));
      all = all.add(field.name(), field.dataType(), true);
    }
    return all;
  }

  /** Versions of Spark differ in how many arguments the node has; all that are not given are absent or false. */
  private static LogicalPlan append(NamedRelation table, LogicalPlan query, Write write) {
    Constructor constructor = AppendData.class.getConstructors()[0];
    Class[] types = constructor.getParameterTypes();
    Object[] arguments = new Object[types.length];
    boolean written = false;
    for (int i = 0; i < types.length; i++) {
      if (types[i].equals(NamedRelation.class)) {
        arguments[i] = table;
      } else if (types[i].equals(LogicalPlan.class)) {
        arguments[i] = query;
      } else if (types[i].equals(Boolean.TYPE)) {
        arguments[i] = Boolean.FALSE;
      } else if (types[i].equals(Option.class)) {
        arguments[i] = written ? Option.empty() : Option.apply(write);
        written = true;
      } else {
        arguments[i] = scala.collection.immutable.Map$.MODULE$.empty();
      }
    }
    try {
      return (LogicalPlan) constructor.newInstance(arguments);
    } catch (Exception error) {
      throw new IllegalStateException("This version of Spark cannot write changes of Lance tables", error);
    }
  }
}
