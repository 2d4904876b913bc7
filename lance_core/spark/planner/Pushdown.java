package lance_core;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Pushes what stands above a scan into it. Plans are walked from the leaves up, so a node finds its scan with all that
 * the nodes in between have pushed.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class Pushdown extends scala.runtime.AbstractPartialFunction {
  public boolean isDefinedAt(Object node) {
    return node instanceof Filter
        || node instanceof Project
        || node instanceof LocalLimit
        || node instanceof Aggregate;
  }

  public Object applyOrElse(Object node, scala.Function1 other) {
    if (node instanceof Filter) {
      return filter((Filter) node);
    }
    if (node instanceof LocalLimit) {
      return limit((LocalLimit) node);
    }
    if (node instanceof Project) {
      return prune((LogicalPlan) node);
    }
    if (node instanceof Aggregate) {
      LogicalPlan aggregated = aggregate((Aggregate) node);
      return aggregated == null ? prune((LogicalPlan) node) : aggregated;
    }
    return other.apply(node);
  }

  private static LanceScan scan(LogicalPlan plan) {
    if (!(plan instanceof DataSourceV2ScanRelation)) {
      return null;
    }
    Scan scan = ((DataSourceV2ScanRelation) plan).scan();
    boolean open = scan instanceof LanceScan && ((LanceScan) scan).version.isDescribed();
    if (!open || ((LanceScan) scan).aggregates != null || ((LanceScan) scan).version.isOff()) {
      return null;
    }
    return (LanceScan) scan;
  }

  private static LogicalPlan filter(Filter filter) {
    LanceScan scan = scan(filter.child());
    if (scan == null || scan.limit >= 0 || scan.version.has("limit") || !filter.condition().deterministic()) {
      return filter;
    }
    Conditions conditions = new Conditions(scan.version.paths());
    List pushed = new ArrayList();
    Expression rest = null;
    List all = split(filter.condition(), new ArrayList());
    for (Iterator parts = all.iterator(); parts.hasNext();) {
      Expression part = (Expression) parts.next();
      String sql = conditions.translate(part);
      if (sql != null) {
        if (!isImplied(part, all, conditions)) {
          pushed.add(sql);
        }
      } else {
        rest = rest == null ? part : new And(rest, part);
      }
    }
    if (pushed.isEmpty()) {
      return filter;
    }
    DataSourceV2ScanRelation old = (DataSourceV2ScanRelation) filter.child();
    LogicalPlan filtered = scan.withFilters(pushed).in(old, old.output());
    return rest == null ? filtered : new Filter(rest, filtered);
  }

  /** Spark adds that columns are not null to conditions that are true only where they are not. */
  private static boolean isImplied(Expression part, List all, Conditions conditions) {
    for (Iterator others = part instanceof IsNotNull ? all.iterator() : Collections.emptyIterator(); others.hasNext();) {
      Expression other = (Expression) others.next();
      if (Conditions.rejectsNull(other, ((IsNotNull) part).child()) && conditions.translate(other) != null) {
        return true;
      }
    }
    return false;
  }

  private static List split(Expression condition, List parts) {
    if (condition instanceof And) {
      split(((And) condition).left(), parts);
      split(((And) condition).right(), parts);
    } else {
      parts.add(condition);
    }
    return parts;
  }

  private static LogicalPlan limit(LocalLimit limit) {
    DataSourceV2ScanRelation old = under(limit.child());
    LanceScan scan = old == null ? null : scan(old);
    if (scan == null || !scan.isWhole() || !(limit.limitExpr() instanceof Literal)) {
      return limit;
    }
    int rows = ((Integer) ((Literal) limit.limitExpr()).value()).intValue();
    if (rows < 1) {
      return limit;
    }
    LogicalPlan limited = scan.withLimit(rows).in(old, old.output());
    return (LogicalPlan) limit.withNewChildren(seq(replaced(limit.child(), limited)));
  }

  /** The scan under projections only. */
  private static DataSourceV2ScanRelation under(LogicalPlan plan) {
    LogicalPlan node = plan;
    while (node instanceof Project) {
      node = ((Project) node).child();
    }
    return node instanceof DataSourceV2ScanRelation ? (DataSourceV2ScanRelation) node : null;
  }

  private static LogicalPlan replaced(LogicalPlan plan, LogicalPlan leaf) {
    return plan instanceof Project
        ? (LogicalPlan) plan.withNewChildren(seq(replaced(((Project) plan).child(), leaf)))
        : leaf;
  }

  private static Seq seq(Object only) {
    List list = new ArrayList();
    list.add(only);
    return CollectionConverters.asScala(list).toSeq();
  }

  /** The aggregation over partial aggregates of a scan; null if the scan cannot return them. */
  private static LogicalPlan aggregate(Aggregate aggregate) {
    DataSourceV2ScanRelation leaf = under(aggregate.child());
    LanceScan scan = leaf == null ? null : scan(leaf);
    return scan == null || scan.limit >= 0 || scan.version.has("limit") ? null : Aggregates.push(aggregate, leaf);
  }

  private static AttributeReference attribute(String name, org.apache.spark.sql.types.DataType type, boolean nullable) {
    org.apache.spark.sql.catalyst.expressions.ExprId id =
        org.apache.spark.sql.catalyst.expressions.NamedExpression$.MODULE$.newExprId();
    return new AttributeReference(name, type, nullable, Metadata.empty(), id, (Seq) Nil$.MODULE$);
  }

  /** Read only the columns, and fields of structs, that a node needs of the scan below it. */
  private static LogicalPlan prune(LogicalPlan node) {
    LogicalPlan child = (LogicalPlan) node.children().head();
    Filter filter = child instanceof Filter ? (Filter) child : null;
    LogicalPlan leaf = filter == null ? child : filter.child();
    LanceScan scan = scan(leaf);
    if (scan == null) {
      return node;
    }
    DataSourceV2ScanRelation old = (DataSourceV2ScanRelation) leaf;
    Uses uses = new Uses(node instanceof Project ? scan.version.paths().keySet() : new HashSet(), old.output());
    uses.addAll(node);
    if (filter != null) {
      uses.addAll(filter);
    }
    List output = uses.output();
    if (output.size() == old.output().size() && !uses.hasFields()) {
      return node;
    }
    StructType columns = new StructType();
    for (Iterator attributes = output.iterator(); attributes.hasNext();) {
      AttributeReference attribute = (AttributeReference) attributes.next();
      columns = columns.add(attribute.name(), attribute.dataType(), nullable(scan, attribute));
    }
    LogicalPlan pruned = scan.withColumns(columns).in(old, CollectionConverters.asScala(output).toSeq());
    if (filter != null) {
      pruned = new Filter(uses.rewritten(filter.condition()), pruned);
    }
    if (!uses.hasFields()) {
      return (LogicalPlan) node.withNewChildren(seq(pruned));
    }
    List list = new ArrayList();
    for (Iterator items = CollectionConverters.asJava(((Project) node).projectList()).iterator(); items.hasNext();) {
      list.add(uses.rewritten((Expression) items.next()));
    }
    return new Project(CollectionConverters.asScala(list).toSeq(), pruned);
  }

  /** Whether a column may have nulls, as the scan says: a plan may know that none are left. */
  private static boolean nullable(LanceScan scan, AttributeReference attribute) {
    StructField[] fields = scan.columns.fields();
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].name().equals(attribute.name())) {
        return fields[i].nullable();
      }
    }
    return true;
  }

  /** The columns of a scan that expressions use. */
  public static class Uses {
    private final Set readable;
    private final Map outputs = new LinkedHashMap();
    private final Set whole = new HashSet();
    private final Map fields = new LinkedHashMap();
    private final Map attributes = new HashMap();

    public Uses(Set readable, Seq output) {
      this.readable = readable;
      for (Iterator list = CollectionConverters.asJava(output).iterator(); list.hasNext();) {
        AttributeReference attribute = (AttributeReference) list.next();
        outputs.put(attribute.exprId(), attribute);
      }
    }

    public void addAll(LogicalPlan node) {
      for (Iterator list = CollectionConverters.asJava(node.expressions()).iterator(); list.hasNext();) {
        add((Expression) list.next());
      }
    }

    private void add(Expression expression) {
      Object id = field(expression);
      if (id != null) {
        fields.put(Conditions.path(expression), expression);
      } else if (expression instanceof AttributeReference) {
        whole.add(((AttributeReference) expression).exprId());
      } else {
        // Subqueries hold more than their children: their references to this plan are among them.
        for (Iterator list = CollectionConverters.asJava(expression.children()).iterator(); list.hasNext();) {
          add((Expression) list.next());
        }
      }
    }

    /** The column of an expression that is a field of structs in it. */
    private Object field(Expression expression) {
      if (!(expression instanceof GetStructField)) {
        return null;
      }
      String path = Conditions.path(expression);
      return path != null && readable.contains(path) ? root(expression) : null;
    }

    private static Object root(Expression expression) {
      Expression node = expression;
      while (node instanceof GetStructField) {
        node = ((GetStructField) node).child();
      }
      return ((AttributeReference) node).exprId();
    }

    /** The field that is read alone: not if its column, or a struct around it, is read, too. */
    private boolean isAlone(String path, Expression expression) {
      Object root = root(expression);
      if (whole.contains(root) || !outputs.containsKey(root)) {
        return false;
      }
      for (Iterator paths = fields.keySet().iterator(); paths.hasNext();) {
        if (path.startsWith(paths.next() + ".")) {
          return false;
        }
      }
      return true;
    }

    public boolean hasFields() {
      return !attributes.isEmpty();
    }

    public List output() {
      List output = new ArrayList();
      for (Iterator entries = fields.entrySet().iterator(); entries.hasNext();) {
        Map.Entry entry = (Map.Entry) entries.next();
        String path = (String) entry.getKey();
        Expression field = (Expression) entry.getValue();
        if (isAlone(path, field)) {
          attributes.put(path, attribute(path, field.dataType(), field.nullable()));
        }
      }
      for (Iterator list = outputs.values().iterator(); list.hasNext();) {
        AttributeReference column = (AttributeReference) list.next();
        if (whole.contains(column.exprId())) {
          output.add(column);
        }
      }
      output.addAll(attributes.values());
      if (output.isEmpty()) {
        output.add(narrowest());
      }
      return output;
    }

    private AttributeReference narrowest() {
      AttributeReference narrowest = null;
      for (Iterator list = outputs.values().iterator(); list.hasNext();) {
        AttributeReference column = (AttributeReference) list.next();
        if (narrowest == null || column.dataType().defaultSize() < narrowest.dataType().defaultSize()) {
          narrowest = column;
        }
      }
      return narrowest;
    }

    public Expression rewritten(Expression expression) {
      if (field(expression) != null && outputs.containsKey(root(expression))) {
        Expression attribute = (Expression) attributes.get(Conditions.path(expression));
        if (attribute != null) {
          return attribute;
        }
      }
      List children = new ArrayList();
      boolean changed = false;
      for (Iterator list = CollectionConverters.asJava(expression.children()).iterator(); list.hasNext();) {
        Expression child = (Expression) list.next();
        Expression other = rewritten(child);
        changed = changed || other != child;
        children.add(other);
      }
      return changed ? (Expression) expression.withNewChildren(CollectionConverters.asScala(children).toSeq()) : expression;
    }
  }
}
