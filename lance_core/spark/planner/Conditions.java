package lance_core;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Contains;
import org.apache.spark.sql.catalyst.expressions.EndsWith;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.expressions.StringPredicate;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Translates conditions of Spark to SQL of Lance with the same value in each row: true, false or null. What has no such
 * translation is null, and Spark evaluates it.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class Conditions {
  private static final int MOST_ITEMS = 10000;
  private static final long FIRST_DAY = LocalDate.of(1, 1, 1).toEpochDay();
  private static final long LAST_DAY = LocalDate.of(9999, 12, 31).toEpochDay();
  private static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss.SSSSSS");

  /** SQL of the columns that conditions may name, by their dotted paths; "?" begins that of structs, which are null or not. */
  private final Map columns;

  public Conditions(Map columns) {
    this.columns = columns;
  }

  /** The dotted path of a column or of a field of structs in it; null for other expressions. */
  public static String path(Expression expression) {
    if (expression instanceof AttributeReference) {
      return ((AttributeReference) expression).name();
    }
    if (!(expression instanceof GetStructField)) {
      return null;
    }
    GetStructField field = (GetStructField) expression;
    String parent = path(field.child());
    return parent == null ? null : parent + "." + field.childSchema().apply(field.ordinal()).name();
  }

  public String translate(Expression condition) {
    if (condition instanceof And) {
      return join(((And) condition).left(), " AND ", ((And) condition).right());
    }
    if (condition instanceof Or) {
      return join(((Or) condition).left(), " OR ", ((Or) condition).right());
    }
    if (condition instanceof Not) {
      String inner = translate(((Not) condition).child());
      return inner == null ? null : "(NOT " + inner + ")";
    }
    if (condition instanceof IsNull) {
      return suffix(((IsNull) condition).child(), " IS NULL");
    }
    if (condition instanceof IsNotNull) {
      return suffix(((IsNotNull) condition).child(), " IS NOT NULL");
    }
    if (condition instanceof BinaryComparison) {
      return compare((BinaryComparison) condition);
    }
    if (condition instanceof In) {
      In in = (In) condition;
      return among(in.value(), CollectionConverters.asJava(in.list()));
    }
    if (condition instanceof InSet) {
      InSet in = (InSet) condition;
      return among(in.child(), CollectionConverters.asJava(in.hset()));
    }
    return DataTypes.BooleanType.equals(condition.dataType()) ? truth(condition) : null;
  }

  /** Return whether a condition with a translation is true only where a column is not null. */
  public static boolean rejectsNull(Expression condition, Expression column) {
    boolean isComparison = condition instanceof BinaryComparison && !(condition instanceof EqualNullSafe);
    boolean isSearch = condition instanceof StringPredicate || condition instanceof Like;
    if (!isComparison && !isSearch && !(condition instanceof In) && !(condition instanceof InSet)) {
      return false;
    }
    for (Iterator parts = CollectionConverters.asJava(condition.children()).iterator(); parts.hasNext();) {
      if (((Expression) parts.next()).semanticEquals(column)) {
        return true;
      }
    }
    return false;
  }

  private String join(Expression left, String word, Expression right) {
    String first = translate(left);
    String second = first == null ? null : translate(right);
    return second == null ? null : "(" + first + word + second + ")";
  }

  private String suffix(Expression expression, String word) {
    String path = path(expression);
    Object sql = path == null ? null : columns.get(path);
    return sql == null || sql.toString().isEmpty() ? null : "(" + sql.toString().replace("?", "") + word + ")";
  }

  private String column(Expression expression) {
    String path = path(expression);
    Object sql = path == null ? null : columns.get(path);
    return sql == null || sql.toString().isEmpty() || sql.toString().startsWith("?") ? null : sql.toString();
  }

  private String truth(Expression condition) {
    if (condition instanceof Literal) {
      return literal(((Literal) condition).value(), condition.dataType());
    }
    if (condition instanceof StartsWith) {
      return call("starts_with", ((StartsWith) condition).left(), ((StartsWith) condition).right());
    }
    if (condition instanceof EndsWith) {
      return call("ends_with", ((EndsWith) condition).left(), ((EndsWith) condition).right());
    }
    if (condition instanceof Contains) {
      return call("contains", ((Contains) condition).left(), ((Contains) condition).right());
    }
    if (condition instanceof Like) {
      return like((Like) condition);
    }
    return column(condition);
  }

  private String call(String function, Expression text, Expression part) {
    String column = column(text);
    String constant = constant(part);
    boolean known = column != null && constant != null && DataTypes.StringType.equals(text.dataType());
    return known ? function + "(" + column + ", " + constant + ")" : null;
  }

  private String like(Like like) {
    String column = column(like.left());
    String pattern = constant(like.right());
    // A backslash means the same in front of the two wildcards and of itself; elsewhere it is an error in Spark.
    if (column == null || pattern == null || like.escapeChar() != '\\' || !DataTypes.StringType.equals(like.left().dataType())) {
      return null;
    }
    return pattern.indexOf('\\') >= 0 ? null : "(" + column + " LIKE " + pattern + ")";
  }

  private String compare(BinaryComparison comparison) {
    Expression left = (Expression) comparison.left();
    Expression right = (Expression) comparison.right();
    if (!left.dataType().equals(right.dataType())) {
      return null;
    }
    String word = word(comparison);
    if (left instanceof Literal) {
      Expression other = left;
      left = right;
      right = other;
      word = mirrored(word);
    }
    String column = column(left);
    if (column == null) {
      return null;
    }
    if (!(right instanceof Literal)) {
      String other = isFloat(left.dataType()) || comparison instanceof EqualNullSafe ? null : column(right);
      return other == null ? null : "(" + column + word + other + ")";
    }
    Object value = ((Literal) right).value();
    if (comparison instanceof EqualNullSafe) {
      String equal = value == null ? null : compare(column, " = ", value, left.dataType());
      return equal == null ? null : "(" + column + " IS NOT NULL AND " + equal + ")";
    }
    return value == null ? null : compare(column, word, value, left.dataType());
  }

  private static String word(BinaryComparison comparison) {
    if (comparison instanceof LessThan) {
      return " < ";
    }
    if (comparison instanceof LessThanOrEqual) {
      return " <= ";
    }
    if (comparison instanceof GreaterThan) {
      return " > ";
    }
    if (comparison instanceof GreaterThanOrEqual) {
      return " >= ";
    }
    return comparison instanceof EqualTo || comparison instanceof EqualNullSafe ? " = " : null;
  }

  private static String mirrored(String word) {
    return word == null ? null : word.replace('<', '.').replace('>', '<').replace('.', '>');
  }

  private String compare(String column, String word, Object value, DataType type) {
    if (word == null) {
      return null;
    }
    if (isFloat(type)) {
      return compareFloat(column, word, ((Number) value).doubleValue());
    }
    String constant = literal(value, type);
    return constant == null ? null : "(" + column + word + constant + ")";
  }

  private static boolean isFloat(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }

  /** For Spark each NaN is the greatest number, and zeros are equal; Lance orders all of them. */
  private static String compareFloat(String column, String word, double value) {
    if (Double.isNaN(value) || Double.isInfinite(value)) {
      return null;
    }
    String number = value == 0 ? "0.0" : Double.toString(value);
    if (word.equals(" = ")) {
      return value == 0 ? "(" + column + " = 0.0 OR " + column + " = -0.0)" : "(" + column + " = " + number + ")";
    }
    if (word.startsWith(" <")) {
      String zero = value == 0 && word.equals(" < ") ? "-0.0" : number;
      return "(" + column + word + zero + " AND NOT isnan(" + column + "))";
    }
    String zero = value == 0 && word.equals(" >= ") ? "-0.0" : number;
    return "(" + column + word + zero + " OR isnan(" + column + "))";
  }

  private String among(Expression expression, Collection items) {
    String column = column(expression);
    if (column == null || items.isEmpty() || items.size() > MOST_ITEMS || isFloat(expression.dataType())) {
      return null;
    }
    StringBuilder text = new StringBuilder("(").append(column).append(" IN (");
    String comma = "";
    for (Iterator values = items.iterator(); values.hasNext();) {
      Object item = values.next();
      String constant = item instanceof Expression ? constant((Expression) item) : literal(item, expression.dataType());
      if (constant == null || item instanceof Expression && !((Expression) item).dataType().equals(expression.dataType())) {
        return null;
      }
      text.append(comma).append(constant);
      comma = ", ";
    }
    return text.append("))").toString();
  }

  private String constant(Expression expression) {
    return expression instanceof Literal ? literal(((Literal) expression).value(), expression.dataType()) : null;
  }

  /** A constant in SQL of Lance; null if it cannot have it. */
  public static String literal(Object value, DataType type) {
    if (value == null) {
      return null;
    }
    if (type instanceof BooleanType || type instanceof ByteType || type instanceof ShortType) {
      return value.toString();
    }
    if (type instanceof IntegerType || type instanceof LongType) {
      return value.toString();
    }
    if (DataTypes.StringType.equals(type)) {
      UTF8String text = (UTF8String) value;
      return text.isValid() ? "'" + text.toString().replace("'", "''") + "'" : null;
    }
    if (type instanceof DecimalType) {
      BigDecimal number = ((Decimal) value).toJavaBigDecimal();
      DecimalType decimal = (DecimalType) type;
      return "CAST('" + number.toPlainString() + "' AS DECIMAL(" + decimal.precision() + ", " + decimal.scale() + "))";
    }
    if (type instanceof DateType) {
      long day = ((Integer) value).longValue();
      return day < FIRST_DAY || day > LAST_DAY ? null : "DATE '" + LocalDate.ofEpochDay(day) + "'";
    }
    return type instanceof TimestampType || type instanceof TimestampNTZType ? moment(((Long) value).longValue()) : null;
  }

  private static String moment(long micros) {
    long seconds = Math.floorDiv(micros, 1000000L);
    long day = Math.floorDiv(seconds, 86400L);
    if (day < FIRST_DAY || day > LAST_DAY) {
      return null;
    }
    int nanos = (int) (Math.floorMod(micros, 1000000L) * 1000L);
    return "TIMESTAMP '" + MOMENT.format(LocalDateTime.ofEpochSecond(seconds, nanos, ZoneOffset.UTC)) + "'";
  }
}
