"""Keys of a storage service that are given as options: Spark keeps them for its tasks, and shows them nowhere."""

import base64
import json
import re

import lance_core
from lance_core.spark import delete_lance, merge_lance, read_lance, write_lance

CANARY = "wJalrXUtnFEMIxK7MDENG"


def without_base64(text):
    """Text, and what is readable in it once it is decoded."""
    found = re.findall(r"[A-Za-z0-9+/]{40,}", text)
    return text.encode() + b"".join(base64.b64decode(one[: len(one) // 4 * 4]) for one in found)


def test_plans_show_no_keys(spark, tmp_path, capsys):
    """The SQL tab of Spark's UI, the event log and `explain` show plans."""
    uri, options = str(tmp_path / "t"), {"aws_secret_access_key": CANARY, "azure_storage_sas_token": CANARY}
    numbers = spark.range(10)
    write_lance(numbers, uri, storage_options=options)
    write_lance(numbers.where("id > 3"), uri, mode="overwrite", replace_where="id > 3", storage_options=options)
    merge = merge_lance(numbers, uri, "id", storage_options=options)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    delete_lance(spark, uri, "id = 3", storage_options=options)
    numbers.write.format("lance").mode("append").option("storageOptions", json.dumps(options)).save(uri)
    rows = read_lance(spark, uri, storage_options=options)
    assert rows.count() == lance_core.dataset(uri).count_rows()
    rows.explain(extended=True)
    runs = spark._jsparkSession.sharedState().statusStore().executionsList()
    runs = [runs.apply(number) for number in range(runs.size())]
    shown = [f"{run.description()}{run.details()}{run.physicalPlanDescription()}" for run in runs]
    assert any("lance" in text for text in shown)
    assert CANARY.encode() not in without_base64("\n".join([*shown, capsys.readouterr().out]))
