package lance_core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.Complete$;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Pushes the first half of an aggregation into a scan: its tasks return groups of their rows, with a partial sum, count,
 * minimum or maximum for each function, and Spark aggregates these. A task may return several rows for a group.
 *
 * <p>Only functions whose order of rows makes no difference: no sums of floats.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class Aggregates {
  /** Digits of a sum that a double holds exactly. */
  private static final int EXACT_DIGITS = 15;

  private final DataSourceV2ScanRelation relation;
  private final LanceScan scan;
  private final boolean isGrouped;
  private final Map columns = new HashMap();
  private final Map read = new LinkedHashMap();
  private final Map partials = new LinkedHashMap();
  private final List functions = new ArrayList();
  private final List arguments = new ArrayList();

  private Aggregates(DataSourceV2ScanRelation relation, boolean isGrouped) {
    this.relation = relation;
    this.isGrouped = isGrouped;
    this.scan = (LanceScan) relation.scan();
    for (Iterator list = CollectionConverters.asJava(relation.output()).iterator(); list.hasNext();) {
      AttributeReference column = (AttributeReference) list.next();
      columns.put(column.exprId(), column);
    }
  }

  /** The aggregation over a scan that returns partial aggregates; null if it cannot. */
  public static LogicalPlan push(Aggregate aggregate, DataSourceV2ScanRelation relation) {
    boolean isGrouped = !aggregate.groupingExpressions().isEmpty();
    return aggregate.aggregateExpressions().isEmpty() ? null : new Aggregates(relation, isGrouped).pushed(aggregate);
  }

  private LogicalPlan pushed(Aggregate aggregate) {
    List output = groups(aggregate);
    List expressions = output == null ? null : rewritten(aggregate.aggregateExpressions());
    if (expressions == null) {
      return null;
    }
    Seq list = seq(expressions);
    if (partials.isEmpty() && output.isEmpty()) {
      return new Project(list, new OneRowRelation()); // one row, and the number of rows is known
    }
    String[] groups = new String[output.size()];
    StructType types = new StructType();
    for (int i = 0; i < groups.length; i++) {
      AttributeReference column = (AttributeReference) output.get(i);
      groups[i] = column.name();
      types = types.add(column.name(), column.dataType(), true);
    }
    for (Iterator values = partials.values().iterator(); values.hasNext();) {
      AttributeReference partial = (AttributeReference) values.next();
      types = types.add(partial.name(), partial.dataType(), true);
      output.add(partial);
    }
    Metadata asked = new MetadataBuilder()
        .putStringArray("groups", groups)
        .putStringArray("columns", (String[]) read.keySet().toArray(new String[0]))
        .putStringArray("functions", (String[]) functions.toArray(new String[0]))
        .putStringArray("arguments", (String[]) arguments.toArray(new String[0]))
        .build();
    LogicalPlan child = scan.withAggregates(types, asked).in(relation, seq(output));
    Object[] parts = new Object[aggregate.productArity()];
    for (int i = 0; i < parts.length; i++) {
      Object part = aggregate.productElement(i);
      parts[i] = part == aggregate.aggregateExpressions() ? list : part == aggregate.child() ? child : part;
    }
    return (LogicalPlan) ((TreeNode) aggregate).makeCopy(parts);
  }

  /** The columns of the groups; null if there is anything else among them. */
  private List groups(Aggregate aggregate) {
    Map groups = new LinkedHashMap();
    for (Iterator list = CollectionConverters.asJava(aggregate.groupingExpressions()).iterator(); list.hasNext();) {
      Expression expression = (Expression) list.next();
      if (column(expression) == null || !isKey(expression.dataType())) {
        return null;
      }
      AttributeReference column = (AttributeReference) expression;
      groups.put(column.exprId(), columns.get(column.exprId()));
    }
    return new ArrayList(groups.values());
  }

  private static boolean isKey(DataType type) {
    return isOrdered(type) || type instanceof BooleanType || DataTypes.StringType.equals(type);
  }

  private static boolean isOrdered(DataType type) {
    boolean isNumber = type instanceof IntegralType || type instanceof DecimalType;
    return isNumber || type instanceof DateType || type instanceof TimestampType || type instanceof TimestampNTZType;
  }

  private List rewritten(Seq expressions) {
    List list = new ArrayList();
    for (Iterator old = CollectionConverters.asJava(expressions).iterator(); old.hasNext();) {
      Expression expression = rewritten((Expression) old.next());
      if (expression == null) {
        return null;
      }
      list.add(expression);
    }
    return list;
  }

  /** The expression with partial aggregates in place of columns; null if there is no such expression. */
  private Expression rewritten(Expression expression) {
    if (expression instanceof AggregateExpression) {
      AggregateExpression aggregate = (AggregateExpression) expression;
      boolean plain = !aggregate.isDistinct() && aggregate.filter().isEmpty() && aggregate.mode() == Complete$.MODULE$;
      return plain ? total(aggregate.aggregateFunction()) : null;
    }
    if (expression.children().isEmpty()) {
      return expression;
    }
    List children = rewritten(expression.children());
    return children == null ? null : (Expression) expression.withNewChildren(seq(children));
  }

  private Expression total(AggregateFunction function) {
    if (function instanceof Count) {
      return count((Count) function);
    }
    Expression argument = (Expression) ((Expression) function).children().head();
    if (function instanceof Sum) {
      return sum((Sum) function, argument);
    }
    if (function instanceof Average) {
      return average((Average) function, argument);
    }
    String value = value(argument);
    if (value == null || !(function instanceof Min || function instanceof Max) || !isOrdered(argument.dataType())) {
      return null;
    }
    return of(function, partial(function instanceof Min ? "min" : "max", value, argument.dataType()));
  }

  private Expression count(Count count) {
    List children = CollectionConverters.asJava(count.children());
    boolean isOfRows = true;
    for (int i = 0; i < children.size(); i++) {
      isOfRows = isOfRows && children.get(i) instanceof Literal && ((Literal) children.get(i)).value() != null;
    }
    String value = children.size() == 1 && !isOfRows ? value((Expression) children.get(0)) : null;
    if (isOfRows && !isGrouped && scan.isWhole()) {
      return new Literal(Long.valueOf(scan.version.rows()), DataTypes.LongType);
    }
    return isOfRows || value != null ? count(value) : null;
  }

  /** The number of values that are not null; of rows, if there is no value. */
  private Expression count(String value) {
    List values = new ArrayList();
    values.add(of(new Sum(partial(value == null ? "count_all" : "count", value, DataTypes.LongType))));
    values.add(new Literal(Long.valueOf(0L), DataTypes.LongType));
    return new Coalesce(seq(values));
  }

  private Expression sum(Sum sum, Expression argument) {
    boolean isUnscaled = argument instanceof UnscaledValue;
    Expression inner = isUnscaled ? (Expression) argument.children().head() : argument;
    String value = number(inner);
    if (value == null) {
      return null;
    }
    if (!isUnscaled) {
      AttributeReference partial = partial("sum", value, sum.dataType());
      return cast(of(sum, partial), sum.dataType());
    }
    DecimalType type = (DecimalType) inner.dataType();
    return of(sum, new UnscaledValue(partial("sum", value, new DecimalType(type.precision() + 10, type.scale()))));
  }

  /** What Spark computes of the sum and the count, with totals in their places. */
  private Expression average(Average average, Expression argument) {
    boolean isUnscaled = argument instanceof UnscaledValue;
    Expression inner = isUnscaled ? (Expression) argument.children().head() : argument;
    String value = number(inner);
    if (value == null) {
      return null;
    }
    DataType type = average.sum().dataType();
    Expression sum;
    if (isUnscaled) {
      DecimalType digits = new DecimalType(EXACT_DIGITS, ((DecimalType) inner.dataType()).scale());
      Expression unscaled = new UnscaledValue(partial("sum", value, digits));
      sum = of(new Sum(Cast$.MODULE$.apply(unscaled, DataTypes.DoubleType, false)));
    } else {
      sum = cast(of(new Sum(partial("sum", value, type))), type);
    }
    Map parts = new HashMap();
    parts.put(average.sum().exprId(), sum);
    parts.put(average.count().exprId(), count(value));
    return replaced(average.evaluateExpression(), parts);
  }

  private static Expression replaced(Expression expression, Map parts) {
    if (expression instanceof AttributeReference) {
      return (Expression) parts.get(((AttributeReference) expression).exprId());
    }
    if (expression.children().isEmpty()) {
      return expression;
    }
    List children = new ArrayList();
    for (Iterator list = CollectionConverters.asJava(expression.children()).iterator(); list.hasNext();) {
      children.add(replaced((Expression) list.next(), parts));
    }
    return (Expression) expression.withNewChildren(seq(children));
  }

  private static Expression cast(Expression value, DataType type) {
    return value.dataType().equals(type) ? value : Cast$.MODULE$.apply(value, type, false);
  }

  /** The function of other values. */
  private static Expression of(AggregateFunction function, Expression value) {
    List children = new ArrayList();
    children.add(value);
    return of((AggregateFunction) ((Expression) function).withNewChildren(seq(children)));
  }

  private static Expression of(AggregateFunction function) {
    return new AggregateExpression(
        function, Complete$.MODULE$, false, Option.empty(), NamedExpression$.MODULE$.newExprId());
  }

  /** The column of the scan that has a function of each group. */
  private AttributeReference partial(String function, String argument, DataType type) {
    String key = function + " " + argument + " " + type;
    AttributeReference partial = (AttributeReference) partials.get(key);
    if (partial == null) {
      partial = new AttributeReference(
          "_partial_" + partials.size(), type, true, Metadata.empty(), NamedExpression$.MODULE$.newExprId(), (Seq) Nil$.MODULE$);
      partials.put(key, partial);
      functions.add(function);
      arguments.add(argument == null ? "" : argument);
    }
    return partial;
  }

  /** SQL of a column; null for other expressions. */
  private String column(Expression expression) {
    if (!(expression instanceof AttributeReference)) {
      return null;
    }
    AttributeReference column = (AttributeReference) expression;
    Object sql = columns.containsKey(column.exprId()) ? scan.version.paths().get(column.name()) : null;
    boolean known = sql != null && !sql.toString().isEmpty() && !sql.toString().startsWith("?");
    if (!known || column.name().indexOf('.') >= 0) {
      return null;
    }
    read.put(column.name(), column);
    return sql.toString();
  }

  /** SQL of a column or number; null for other expressions. */
  private String value(Expression expression) {
    String column = column(expression);
    return column == null ? number(expression) : column;
  }

  /** SQL of an integer, or of a decimal that has all digits of its value. */
  private String number(Expression expression) {
    DataType type = expression.dataType();
    if (expression instanceof AttributeReference) {
      return type instanceof IntegralType || type instanceof DecimalType ? column(expression) : null;
    }
    if (expression instanceof Literal && type instanceof DecimalType) {
      return Conditions.literal(((Literal) expression).value(), type);
    }
    if (!(expression instanceof BinaryArithmetic) || !(type instanceof DecimalType) || !isExact(expression)) {
      return null;
    }
    String left = number((Expression) expression.children().head());
    String right = number((Expression) expression.children().last());
    String sign = expression instanceof Multiply ? " * " : expression instanceof Add ? " + " : " - ";
    return left == null || right == null ? null : "(" + left + sign + right + ")";
  }

  private static boolean isExact(Expression expression) {
    DataType left = ((Expression) expression.children().head()).dataType();
    DataType right = ((Expression) expression.children().last()).dataType();
    if (!(left instanceof DecimalType) || !(right instanceof DecimalType)) {
      return false;
    }
    DecimalType a = (DecimalType) left;
    DecimalType b = (DecimalType) right;
    int scale = Math.max(a.scale(), b.scale());
    int precision = Math.max(a.precision() - a.scale(), b.precision() - b.scale()) + scale + 1;
    if (expression instanceof Multiply) {
      scale = a.scale() + b.scale();
      precision = a.precision() + b.precision() + 1;
    } else if (!(expression instanceof Add) && !(expression instanceof Subtract)) {
      return false;
    }
    DecimalType type = (DecimalType) expression.dataType();
    return precision <= 38 && type.precision() == precision && type.scale() == scale;
  }

  private static Seq seq(List list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
