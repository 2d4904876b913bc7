package lance_core;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.analysis.NamedRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataTypes;
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
  private static final int INSERT = 3; // as Spark numbers the operations of rows

  public TreeNode apply(TreeNode plan) {
    if (plan instanceof AppendData || isMergeThatInserts(plan)) {
      return insert((V2WriteCommand) plan);
    }
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
    Write write = statement((RowChanges) changes.operation(), rows, inserts(changes.query()));
    return append(withOutput((TreeNode) changes.originalTable(), columns), query, write);
  }

  private static Write statement(RowChanges operation, StructType rows, boolean inserts) {
    return new Statement(operation.write(rows, inserts), operation.isAgain());
  }

  /** True for the rows of a MERGE that inserts rows. */
  private static boolean inserts(LogicalPlan plan) {
    if (plan instanceof MergeRows) {
      return !((MergeRows) plan).notMatchedInstructions().isEmpty();
    }
    for (Iterator children = CollectionConverters.asJava(plan.children()).iterator(); children.hasNext();) {
      if (inserts((LogicalPlan) children.next())) {
        return true;
      }
    }
    return false;
  }

  /** Spark 4.3 has a node for these, earlier versions append the rows. */
  private static boolean isMergeThatInserts(TreeNode plan) {
    return plan.getClass().getSimpleName().equals("InsertOnlyMerge");
  }

  /**
   * A MERGE that only inserts rows is an append for Spark: of rows that have no match in the table. Whether they have
   * one must hold at the commit, so it is written as a MERGE, too.
   */
  private static TreeNode insert(V2WriteCommand append) {
    Write given = writeOf((TreeNode) append);
    if (!(append.table() instanceof DataSourceV2Relation) || given == null || given instanceof Statement) {
      return (TreeNode) append;
    }
    DataSourceV2Relation relation = (DataSourceV2Relation) append.table();
    if (!(relation.table() instanceof SqlTable) || hasOptions(relation)) {
      return (TreeNode) append;
    }
    if (!isMergeThatInserts((TreeNode) append) && !lacks(append.query(), (SqlTable) relation.table())) {
      return (TreeNode) append;
    }
    RowChanges operation = ((SqlTable) relation.table()).changes(RowLevelOperation.Command.MERGE);
    List columns = new ArrayList();
    columns.add(column(RowChanges.OPERATION, new Literal(Integer.valueOf(INSERT), DataTypes.IntegerType)));
    columns.add(column(RowChanges.ADDRESS, new Literal(null, DataTypes.LongType)));
    if (operation.hasStableIds()) {
      columns.add(column(RowChanges.ID, new Literal(null, DataTypes.LongType)));
    }
    columns.addAll(CollectionConverters.asJava(append.query().output()));
    List attributes = new ArrayList();
    StructType rows = new StructType();
    for (int i = 0; i < columns.size(); i++) {
      Attribute attribute = ((NamedExpression) columns.get(i)).toAttribute();
      attributes.add(attribute);
      rows = rows.add(attribute.name(), attribute.dataType(), true);
    }
    LogicalPlan query = new Project(CollectionConverters.asScala(columns).toSeq(), append.query());
    NamedRelation table = withOutput((TreeNode) relation, CollectionConverters.asScala(attributes).toSeq());
    return append(table, query, statement(operation, rows, true));
  }

  /** True if the user gave options; names of Spark's own begin with underscores. */
  private static boolean hasOptions(DataSourceV2Relation relation) {
    for (Iterator names = relation.options().keySet().iterator(); names.hasNext();) {
      if (!names.next().toString().startsWith("__")) {
        return true;
      }
    }
    return false;
  }

  private static Write writeOf(TreeNode command) {
    for (int i = 0; i < command.productArity(); i++) {
      Object argument = command.productElement(i);
      if (argument instanceof Option && ((Option) argument).isDefined() && ((Option) argument).get() instanceof Write) {
        return (Write) ((Option) argument).get();
      }
    }
    return null;
  }

  private static Alias column(String name, Literal value) {
    scala.collection.immutable.Seq none = (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$;
    return new Alias(value, name, NamedExpression$.MODULE$.newExprId(), none, Option.empty(), none);
  }

  /** True for rows that have no match in a table. */
  private static boolean lacks(LogicalPlan plan, SqlTable table) {
    if (plan instanceof Join && ((Join) plan).joinType() == LeftAnti$.MODULE$ && reads(((Join) plan).right(), table)) {
      return true;
    }
    for (Iterator children = CollectionConverters.asJava(plan.children()).iterator(); children.hasNext();) {
      if (lacks((LogicalPlan) children.next(), table)) {
        return true;
      }
    }
    return false;
  }

  private static boolean reads(LogicalPlan plan, SqlTable table) {
    if (plan instanceof DataSourceV2ScanRelation) {
      return table.isRead(((DataSourceV2ScanRelation) plan).scan());
    }
    for (Iterator children = CollectionConverters.asJava(plan.children()).iterator(); children.hasNext();) {
      if (reads((LogicalPlan) children.next(), table)) {
        return true;
      }
    }
    return false;
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
