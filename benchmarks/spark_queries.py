"""Tables like those of TPC-H, made by Spark, and 12 of its queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SEGMENTS = "array('AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY')"
_PRIORITIES = "array('1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW')"
_MODES = "array('AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK')"
_INSTRUCTIONS = "array('COLLECT COD', 'DELIVER IN PERSON', 'NONE', 'TAKE BACK RETURN')"
_TYPES = "array('ECONOMY ANODIZED STEEL', 'PROMO BURNISHED COPPER', 'PROMO PLATED BRASS', 'STANDARD POLISHED TIN')"
_FLAGS, _STATES, _ORDER_STATES = "array('A', 'N', 'R')", "array('F', 'O')", "array('F', 'O', 'P')"
_CONTAINERS = "array('SM CASE', 'SM BOX', 'MED BAG', 'MED BOX', 'LG CASE', 'LG BOX')"


def _pick(values: str, seed: int) -> str:
    return f"element_at({values}, 1 + pmod(hash(id, {seed}), size({values})))"


def _number(seed: int, below: int) -> str:
    return f"pmod(xxhash64(id, {seed}), {below})"


def _day(seed: int, days: int = 2400) -> str:
    return f"date_add(DATE'1992-01-02', int({_number(seed, days)}))"


def _text(seed: int, length: int) -> str:
    return f"substr(concat(md5(string(hash(id, {seed}))), ' ', md5(string(id))), 1, {length})"


TABLES = {
    "lineitem": 6_000_000,
    "orders": 1_500_000,
    "customer": 150_000,
    "part": 200_000,
    "supplier": 10_000,
    "nation": 25,
}
"""Rows at scale 1."""


def _columns(name: str, rows: dict[str, int]) -> list[str]:
    """The columns of a table, over ``id``."""
    ship = _day(11)
    return {
        "lineitem": [
            "id DIV 4 AS l_orderkey",
            f"{_number(1, rows['part'])} AS l_partkey",
            f"{_number(2, rows['supplier'])} AS l_suppkey",
            "int(id % 4 + 1) AS l_linenumber",
            f"decimal(1 + {_number(3, 50)}) AS l_quantity",
            f"cast((90000 + {_number(4, 10_000_000)}) / 100 AS decimal(15,2)) AS l_extendedprice",
            f"cast({_number(5, 11)} / 100 AS decimal(15,2)) AS l_discount",
            f"cast({_number(6, 9)} / 100 AS decimal(15,2)) AS l_tax",
            f"{_pick(_FLAGS, 7)} AS l_returnflag",
            f"{_pick(_STATES, 8)} AS l_linestatus",
            f"{ship} AS l_shipdate",
            f"date_add({ship}, int({_number(12, 60)}) - 30) AS l_commitdate",
            f"date_add({ship}, int({_number(13, 30)}) + 1) AS l_receiptdate",
            f"{_pick(_INSTRUCTIONS, 14)} AS l_shipinstruct",
            f"{_pick(_MODES, 15)} AS l_shipmode",
            f"{_text(16, 27)} AS l_comment",
        ],
        "orders": [
            "id AS o_orderkey",
            f"{_number(21, rows['customer'])} AS o_custkey",
            f"{_pick(_ORDER_STATES, 22)} AS o_orderstatus",
            f"cast({_number(23, 50_000_000)} / 100 AS decimal(15,2)) AS o_totalprice",
            f"{_day(24)} AS o_orderdate",
            f"{_pick(_PRIORITIES, 25)} AS o_orderpriority",
            f"concat('Clerk#', lpad(string({_number(26, 1000)}), 9, '0')) AS o_clerk",
            "0 AS o_shippriority",
            f"{_text(27, 48)} AS o_comment",
        ],
        "customer": [
            "id AS c_custkey",
            "concat('Customer#', id) AS c_name",
            f"{_text(31, 25)} AS c_address",
            f"{_number(32, 25)} AS c_nationkey",
            f"string({_number(33, 10**10)}) AS c_phone",
            f"cast({_number(34, 1_000_000)} / 100 AS decimal(15,2)) AS c_acctbal",
            f"{_pick(_SEGMENTS, 35)} AS c_mktsegment",
            f"{_text(36, 60)} AS c_comment",
        ],
        "part": [
            "id AS p_partkey",
            f"{_text(41, 32)} AS p_name",
            f"concat('Brand#', 11 + {_number(42, 5)}) AS p_brand",
            f"{_pick(_TYPES, 43)} AS p_type",
            f"int(1 + {_number(44, 50)}) AS p_size",
            f"{_pick(_CONTAINERS, 45)} AS p_container",
        ],
        "supplier": ["id AS s_suppkey", "concat('Supplier#', id) AS s_name", f"{_number(51, 25)} AS s_nationkey"],
        "nation": ["id AS n_nationkey", "concat('NATION ', id) AS n_name", "id % 5 AS n_regionkey"],
    }[name]


def make_table(spark: SparkSession, name: str, scale: float) -> DataFrame:
    """A table at a scale; its values follow from the numbers of its rows."""
    rows = {table: count if count < 100 else max(100, int(count * scale)) for table, count in TABLES.items()}
    return spark.range(0, rows[name]).selectExpr(*_columns(name, rows))


QUERIES = {
    "q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
            sum(l_extendedprice * (1 - l_discount)), avg(l_quantity), avg(l_discount), count(*)
        FROM lineitem WHERE l_shipdate <= DATE'1998-06-01' GROUP BY l_returnflag, l_linestatus""",
    "q3": """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < DATE'1995-03-15' AND l_shipdate > DATE'1995-03-15'
        GROUP BY l_orderkey, o_orderdate ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    "q4": """
        SELECT o_orderpriority, count(*) FROM orders
        WHERE o_orderdate >= DATE'1993-07-01' AND o_orderdate < DATE'1993-10-01' AND EXISTS (
            SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority""",
    "q5": """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
            AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = 2
            AND o_orderdate >= DATE'1994-01-01' AND o_orderdate < DATE'1995-01-01' GROUP BY n_name""",
    "q6": """
        SELECT sum(l_extendedprice * l_discount) FROM lineitem
        WHERE l_shipdate >= DATE'1994-01-01' AND l_shipdate < DATE'1995-01-01'
            AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "q7": """
        SELECT a.n_name, b.n_name, year(l_shipdate), sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM supplier, lineitem, orders, customer, nation a, nation b
        WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
            AND s_nationkey = a.n_nationkey AND c_nationkey = b.n_nationkey AND a.n_name = 'NATION 6'
            AND b.n_name = 'NATION 7' AND l_shipdate BETWEEN DATE'1995-01-01' AND DATE'1996-12-31'
        GROUP BY a.n_name, b.n_name, year(l_shipdate)""",
    "q10": """
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name
        FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_returnflag = 'R' AND c_nationkey = n_nationkey
            AND o_orderdate >= DATE'1993-10-01' AND o_orderdate < DATE'1994-01-01'
        GROUP BY c_custkey, c_name, c_acctbal, n_name ORDER BY revenue DESC, c_custkey LIMIT 20""",
    "q12": """
        SELECT l_shipmode, sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END)
        FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
            AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
            AND l_receiptdate >= DATE'1994-01-01' AND l_receiptdate < DATE'1995-01-01' GROUP BY l_shipmode""",
    "q14": """
        SELECT 100 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
            / sum(l_extendedprice * (1 - l_discount)) FROM lineitem, part
        WHERE l_partkey = p_partkey AND l_shipdate >= DATE'1995-09-01' AND l_shipdate < DATE'1995-10-01'""",
    "q17": """
        SELECT sum(l_extendedprice) / 7 FROM lineitem, part WHERE p_partkey = l_partkey AND p_brand = 'Brand#13'
            AND p_container = 'MED BOX' AND l_quantity < (
            SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)""",
    "q18": """
        SELECT c_name, o_orderkey, o_totalprice, sum(l_quantity) FROM customer, orders, lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 180)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, o_orderkey, o_totalprice ORDER BY o_totalprice DESC, o_orderkey LIMIT 100""",
    "q19": """
        SELECT sum(l_extendedprice * (1 - l_discount)) FROM lineitem, part
        WHERE p_partkey = l_partkey AND l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON'
            AND (p_brand = 'Brand#12' AND p_container LIKE 'SM%' AND l_quantity BETWEEN 1 AND 11
                OR p_brand = 'Brand#13' AND p_container LIKE 'MED%' AND l_quantity BETWEEN 10 AND 20)""",
}
"""Queries by their number in TPC-H; some are a little shorter."""
