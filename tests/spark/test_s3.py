"""Tables on object storage, read and written by tasks."""

import lance_core
from lance_core.spark import read_lance, write_lance

NUM_TASKS = 12


def test_workers_start_once(s3, spark):
    """What a process pays for its start at an object store, such as the test of the service, no task pays again."""
    uri, options = f"{s3.uri}/t.lance", s3.storage_options
    s3.requests()
    write_lance(spark.range(0, 1200, 1, NUM_TASKS), uri, storage_options=options)
    asked = s3.requests()
    files = {path for method, path in asked if method == "PUT" and "/data/" in path}
    tests = {path for method, path in asked if method == "PUT" and "/.tmp_" in path}
    assert 1 <= len(tests) <= len(files) // 2, "one for each process"
    assert lance_core.dataset(uri, storage_options=options).count_rows() == 1200
    write_lance(spark.range(1200, 2400, 1, NUM_TASKS), uri, storage_options=options)
    later = {path for method, path in s3.requests() if method == "PUT" and "/.tmp_" in path}
    assert len(later) <= 2, "the workers are the same"
    assert read_lance(spark, uri, storage_options=options).count() == 2400
