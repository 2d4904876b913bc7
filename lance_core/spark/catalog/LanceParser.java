package lance_core;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession$;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.internal.SessionState;
import org.slf4j.LoggerFactory;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Gives a session the statements that Delta adds to Spark's SQL, for tables of Lance catalogs: each becomes a query or a
 * `CALL`, which Spark's own parser takes. All other statements stay as they are.
 *
 * <p>Compiled by Janino: no generics, no lambdas.
 */
public class LanceParser implements InvocationHandler {
  private static final String CATALOG = "lance_core.LanceCatalog";
  private static final String NAME = "((?:`(?:[^`]|``)+`|[\\w-]+)(?:\\.(?:`(?:[^`]|``)+`|[\\w-]+))*)";
  private static final String REST = "(\\s+[^\\s;].*?)?";
  private static final Pattern HISTORY = pattern("DESC(?:RIBE)?\\s+HISTORY\\s+" + NAME + "(?:\\s+LIMIT\\s+(\\d+))?");
  private static final Pattern DETAIL = pattern("DESC(?:RIBE)?\\s+DETAIL\\s+" + NAME);
  private static final Pattern OPTIMIZE = pattern("OPTIMIZE\\s+" + NAME + REST);
  private static final Pattern VACUUM =
      pattern("VACUUM\\s+" + NAME + "(?:\\s+RETAIN\\s+(\\d+(?:\\.\\d+)?)\\s+HOURS?)?" + REST);
  private static final Pattern RESTORE = pattern(
      "RESTORE\\s+(?:TABLE\\s+)?" + NAME + "\\s+(?:TO\\s+)?(VERSION|TIMESTAMP)\\s+AS\\s+OF\\s+('[^']+'|\\d+)");

  private final ParserInterface parser;
  private final CatalogManager catalogs;

  private LanceParser(ParserInterface parser, CatalogManager catalogs) {
    this.parser = parser;
    this.catalogs = catalogs;
  }

  private static Pattern pattern(String statement) {
    String comments = "(?:\\s++|--[^\n]*+\n|/\\*.*?\\*/)*+";
    return Pattern.compile(comments + statement + "\\s*;?\\s*", Pattern.CASE_INSENSITIVE | Pattern.DOTALL);
  }

  /** Spark has no other way to change the parser of a session that is there; without it, only `CALL` remains. */
  public static void install() {
    try {
      SessionState session =
          ((org.apache.spark.sql.classic.SparkSession) SparkSession$.MODULE$.active()).sessionState();
      ParserInterface before = session.sqlParser();
      boolean isThere = Proxy.isProxyClass(before.getClass())
          && Proxy.getInvocationHandler(before).getClass().getName().equals("lance_core.LanceParser");
      if (!isThere) {
        Field field = SessionState.class.getDeclaredField("sqlParser");
        field.setAccessible(true);
        field.set(session, Proxy.newProxyInstance(
            ParserInterface.class.getClassLoader(), new Class[] {ParserInterface.class},
            new LanceParser(before, session.catalogManager())));
      }
    } catch (Throwable error) {
      LoggerFactory.getLogger("lance_core").warn("DESCRIBE HISTORY, OPTIMIZE, VACUUM and RESTORE are not known", error);
    }
  }

  /** The parts of a dotted name. */
  public static List parts(String name) {
    return new ArrayList(CollectionConverters.asJava(CatalystSqlParser$.MODULE$.parseMultipartIdentifier(name)));
  }

  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    if (method.getName().startsWith("parsePlan")) {
      arguments[0] = rewritten((String) arguments[0]);
    }
    try {
      return method.invoke(parser, arguments);
    } catch (InvocationTargetException error) {
      throw error.getCause();
    }
  }

  private String rewritten(String text) {
    Matcher match = HISTORY.matcher(text);
    if (match.matches() && table(match.group(1)) != null) {
      String limit = match.group(2) == null ? "" : " LIMIT " + match.group(2);
      return "SELECT * FROM " + quoted(table(match.group(1))) + ".history ORDER BY version DESC" + limit;
    }
    match = DETAIL.matcher(text);
    if (match.matches() && table(match.group(1)) != null) {
      return "SELECT * FROM " + quoted(table(match.group(1))) + ".detail";
    }
    match = OPTIMIZE.matcher(text);
    if (match.matches() && table(match.group(1)) != null) {
      refuse("OPTIMIZE", match.group(2));
      return call("optimize", match.group(1), "");
    }
    match = VACUUM.matcher(text);
    if (match.matches() && table(match.group(1)) != null) {
      refuse("VACUUM", match.group(3));
      return call("vacuum", match.group(1), match.group(2) == null ? "" : ", retention_hours => " + match.group(2));
    }
    match = RESTORE.matcher(text);
    if (match.matches() && table(match.group(1)) != null) {
      String kind = match.group(2).toLowerCase();
      String value = match.group(3).startsWith("'") ? match.group(3) : "'" + match.group(3) + "'";
      String type = kind.equals("timestamp") ? "TIMESTAMP " : "";
      return call("restore", match.group(1), ", " + kind + " => " + type + value);
    }
    return text;
  }

  private static void refuse(String statement, String rest) {
    if (rest != null) {
      throw new UnsupportedOperationException(statement + " of Lance tables does not take:" + rest);
    }
  }

  private String call(String procedure, String name, String more) {
    List parts = table(name);
    String table = quoted(parts.subList(1, parts.size())).replace("\\", "\\\\").replace("'", "\\'");
    return "CALL " + quoted(parts.subList(0, 1)) + ".system." + procedure + "(table => '" + table + "'" + more + ")";
  }

  /** The whole name of a table of a Lance catalog; null for others. */
  private List table(String name) {
    List parts = parts(name);
    if (parts.size() > 1 && isOurs((String) parts.get(0))) {
      return parts;
    }
    String current = catalogs.currentCatalog().name();
    if (!isOurs(current)) {
      return null;
    }
    if (parts.size() == 1) {
      parts.addAll(0, Arrays.asList(catalogs.currentNamespace()));
    }
    parts.add(0, current);
    return parts;
  }

  private boolean isOurs(String catalog) {
    return catalogs.isCatalogRegistered(catalog) && catalogs.catalog(catalog).getClass().getName().equals(CATALOG);
  }

  private static String quoted(List parts) {
    List names = new ArrayList();
    for (int i = 0; i < parts.size(); i++) {
      names.add("`" + parts.get(i).toString().replace("`", "``") + "`");
    }
    return String.join(".", names);
  }
}
