"""Tables by their names in a namespace, in functions, reads and writes of Spark."""

import json

import lance
import lance.namespace
import lance_namespace as ln
import pytest

from lance_core.errors import InvalidInputError
from lance_core.namespace import DirectoryNamespace
from lance_core.spark import read_lance, write_lance
from lance_core.spark.common.options import ReadOptions, WriteOptions, parse_options

pytestmark = pytest.mark.spark


def test_functions_take_names(spark, tmp_path):
    names = DirectoryNamespace(root=str(tmp_path))
    names.create_namespace(ln.CreateNamespaceRequest(id=["shop"]))
    for mode in ("create", "append"):
        write_lance(spark.range(3), mode=mode, namespace_client=names, table_id=["shop", "orders"])
    read = read_lance(spark, namespace_client=names, table_id=["shop", "orders"], filter="id > 1")
    assert [row.id for row in read.collect()] == [2, 2]
    judge = lance.namespace.DirectoryNamespace(root=str(tmp_path))
    assert lance.dataset(namespace_client=judge, table_id=["shop", "orders"]).count_rows() == 6


def test_options_name_tables(spark, tmp_path):
    options = {"namespace": json.dumps({"impl": "dir", "root": str(tmp_path)}), "table_id": '["orders"]'}
    for mode in ("append", "append", "overwrite"):
        spark.range(3).write.format("lance").options(**options).mode(mode).save()
    assert spark.read.format("lance").options(**options).load().where("id > 0").count() == 2


def test_wrong_options_are_refused(tmp_path):
    namespace = json.dumps({"impl": "dir", "root": str(tmp_path)})
    for options in ({"namespace": namespace}, {"namespace": namespace, "tableId": '["a"]', "path": "p"}):
        with pytest.raises(InvalidInputError, match="either the path, or the options 'namespace' and 'table_id'"):
            parse_options(ReadOptions, options)
    with pytest.raises(InvalidInputError, match=r"'namespace' must be a JSON object .* got something else"):
        parse_options(WriteOptions, {"namespace": '{"header.Authorization": "secret"}', "table_id": '["a"]'})
