"""Maintenance assets on tables of pylance users with indices: queries answer the same afterwards."""

from datetime import timedelta
from logging import WARNING

import dagster as dg
import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_dagster import CleanupPolicy, DeletionPolicy, LanceResource, build_maintenance_assets

ROWS = 1_200


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
@pytest.mark.parametrize("stable", [False, True])
def test_queries_through_indices(tmp_path, stable):
    uri = str(tmp_path / "t.lance")
    rng = np.random.default_rng(4)
    vectors = rng.random((ROWS, 16), np.float32)
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "kind": pa.array([f"k{number % 5}" for number in range(ROWS)]),
            "text": pa.array([f"word{number % 37} common" for number in range(ROWS)]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 16),
        }
    )
    lance.write_dataset(table.slice(0, 1000), uri, max_rows_per_file=100, enable_stable_row_ids=stable)
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("kind", "BITMAP")
    dataset.create_scalar_index("id", "BLOOMFILTER", name="bloom_idx")
    dataset.create_index("vector", "IVF_HNSW_SQ", name="graph_idx", num_partitions=1)
    dataset.create_scalar_index("text", "INVERTED")
    dataset.create_index("vector", "IVF_PQ", num_partitions=2, num_sub_vectors=4, metric="l2")
    lance.write_dataset(table.slice(1000), uri, mode="append")
    lance.dataset(uri).delete("id % 7 = 3")
    lance.dataset(uri).delete("id < 60")
    kept = {number for number in range(60, ROWS) if number % 7 != 3}

    def check():
        found = lance.dataset(uri)
        found.validate()
        for filter_, wanted in (
            ("id = 700", {700}),
            ("id >= 950 AND id < 1050", set(range(950, 1050))),
            ("kind = 'k2'", {number for number in range(ROWS) if number % 5 == 2}),
        ):
            assert set(found.to_table(filter=filter_)["id"].to_pylist()) == wanted & kept
        words = found.to_table(full_text_query="word9", columns=["id"])["id"].to_pylist()
        assert set(words) == {number for number in kept if number % 37 == 9}
        for probe in (100, 800, 1150):
            nearest = {"column": "vector", "q": vectors[probe], "k": 1, "nprobes": 2, "refine_factor": 50}
            assert found.to_table(nearest=nearest, columns=["id"])["id"].to_pylist() == [probe]

    check()
    now = timedelta(0)
    assets = build_maintenance_assets(
        "t",
        deletions=DeletionPolicy(threshold=0),
        cleanup=CleanupPolicy(older_than=now, retain_versions=1, grace_period=now),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(assets, instance=instance, resources={"lance": LanceResource(root=str(tmp_path))})
        warned = [one.user_message for one in instance.all_logs(result.run_id) if one.level == WARNING]
    assert result.success
    (compaction,) = result.asset_materializations_for_node("t__compaction")
    if stable:
        assert "lance/unindexed_rows" not in compaction.metadata
    else:  # graphs are not remapped, all others are
        assert [text for text in warned if "took rows out of indices" in text and "'graph_idx'" in text]
        lost = compaction.metadata["lance/unindexed_rows"].value
        assert lost == {"graph_idx": len([number for number in kept if number < 1000])}
    ours = lance_core.dataset(uri)
    assert sum(one.num_deletions for one in ours.get_fragments()) == 0
    assert set(ours.to_table(columns=["id"])["id"].to_pylist()) == kept
    check()
    lance.dataset(uri).optimize.optimize_indices()
    check()
