"""Indices as maintenance assets: declared, created, extended, and told."""

from pathlib import Path

import dagster as dg
import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster import (
    IndexPolicy,
    LanceChecks,
    LanceResource,
    build_index_assets,
    build_maintenance_assets,
    build_recall_check,
    build_table_health,
)
from lance_dagster.maintenance.indices import split_kind


def rows(start):
    return pa.table({"id": range(start, start + 100), "day": [start // 100] * 100})


@pytest.fixture
def uri(tmp_path):
    uri = str(tmp_path / "t.lance")
    lance_core.write_dataset(rows(0), uri)
    return uri


def materialize(assets, tmp_path, **options):
    result = dg.materialize(assets, resources={"lance": LanceResource(root=str(tmp_path))}, **options)
    assert result.success
    return {
        event.asset_key.path[-1]: {key: value.value for key, value in event.materialization.metadata.items()}
        for event in result.get_asset_materialization_events()
    }


def spec(indices):
    return dg.AssetSpec("t", metadata={"lance/indices": indices})


def test_declared_indices_are_created_and_extended(uri, tmp_path):
    assets = build_index_assets(spec({"id": "BTREE"}), indices={"day": "ZONEMAP"})
    made = materialize(assets, tmp_path)["indices"]
    assert made["lance/index_reason"] == "declared indices are missing: day, id"
    assert (made["lance/indices_count"], made["lance/uncovered_rows"], made["lance/index_coverage"]) == (2, 0, 1.0)
    assert made["lance/index_bytes"] > 0
    assert lance.dataset(uri).count_rows("id = 7") == 1
    again = materialize(assets, tmp_path)["indices"]
    assert again["lance/skipped"]
    lance_core.write_dataset(rows(100), uri, mode="append")
    told = materialize(assets, tmp_path, run_config={"ops": {"t__indices": {"config": {"dry_run": True}}}})["indices"]
    assert (told["lance/reason"], told["lance/uncovered_rows"]) == ("dry run", 100)
    extended = materialize(assets, tmp_path)["indices"]
    assert extended["lance/index_reason"] == "100 rows are not covered by an index"
    assert (extended["lance/uncovered_rows"], extended["lance/index_segments"]) == (0, 2)
    assert "`id_btree_idx`" in extended["lance/index_table"]


def test_without_declared_indices_there_is_no_asset():
    assert [asset.key.path[-1] for asset in build_maintenance_assets("t")] == [
        "compaction",
        "materialize_deletions",
        "cleanup",
    ]
    assert build_maintenance_assets(spec({"id": "BTREE"}))[2].key.path == ["t", "indices"]


def test_a_share_of_uncovered_rows_may_wait(uri, tmp_path):
    assets = build_index_assets("t", indices=IndexPolicy(indices={"id": "BTREE"}, max_uncovered_fraction=0.6))
    materialize(assets, tmp_path)
    lance_core.write_dataset(rows(100), uri, mode="append")
    assert materialize(assets, tmp_path)["indices"]["lance/skipped"]


def test_one_broken_declaration_does_not_stop_the_others(uri, tmp_path):
    assets = build_index_assets("t", indices={"absent": "BTREE", "id": "BTREE"})
    made = materialize(assets, tmp_path)["indices"]
    assert set(made["lance/index_failures"]) == {"absent"}
    assert lance_core.dataset(uri).list_indices()


def test_health_and_check_tell_uncovered_rows(uri, tmp_path):
    lance_core.dataset(uri).create_scalar_index("id", "BTREE")
    lance_core.write_dataset(rows(100), uri, mode="append")
    health = materialize([build_table_health("t", indices={"id": "BTREE"})], tmp_path)["table_health"]
    assert health["lance/needs"] == {"t": {"indices": "100 rows are not covered by an index"}}
    assert "not indexed" in health["lance/health"]
    for limit, passed in ((0.6, True), (0.1, False)):
        checks = LanceChecks(max_unindexed_fraction=limit)
        (result,) = checks.evaluate(lance_core.dataset(uri), dg.AssetKey("t"))
        assert (checks.names, result.passed) == (("index_coverage",), passed)


@pytest.mark.parametrize("extent", ["sample", "full"])
def test_check_audits_what_indices_answer(uri, extent):
    for column, kind in (("id", "BTREE"), ("id", "ZONEMAP")):
        lance_core.dataset(uri).create_scalar_index(column, kind, name=kind)
    checks = LanceChecks(index_audit=extent)
    (result,) = checks.evaluate(lance_core.dataset(uri), dg.AssetKey("t"))
    assert (checks.names, result.passed, result.severity) == (("index_audit",), True, dg.AssetCheckSeverity.ERROR)
    index = next(index for index in lance_core.dataset(uri).describe_indices() if index.name == "BTREE")
    for file in Path(uri, "_indices", index.segments[0].uuid).iterdir():
        file.write_bytes(b"damaged")
    (result,) = checks.evaluate(lance_core.dataset(uri), dg.AssetKey("t"))
    assert not result.passed
    assert result.metadata["lance/wrong_indices"].value == ["BTREE"]
    assert "BTREE" in result.metadata["lance/first_problems"].value


def test_declarations_are_checked():
    with pytest.raises(InvalidInputError, match="must map columns to types"):
        build_index_assets(spec(["id"]))


def test_options_of_a_declared_index_are_numbers_words_texts_and_lists():
    declared = "FTS(with_position=true, custom_stop_words=['the', a], max_token_length=none, language=French)"
    assert split_kind(declared) == (
        "FTS",
        {"with_position": True, "custom_stop_words": ["the", "a"], "max_token_length": None, "language": "French"},
    )
    assert split_kind(" ZONEMAP ( rows_per_zone = 512 )") == ("ZONEMAP", {"rows_per_zone": 512})
    assert split_kind("bitmap") == ("bitmap", {})
    for wrong in ("", "IVF PQ", "IVF_PQ(8)", "IVF_PQ(bits 8)", "IVF_PQ(**x)", "a.b(c=1)"):
        with pytest.raises(InvalidInputError, match=r"write for example|must be names and values"):
            split_kind(wrong)


@pytest.fixture
def embeddings(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8)
    return lance_core.write_dataset(pa.table({"id": range(400), "v": column}), tmp_path / "t.lance")


def test_a_declared_vector_index_is_built_with_its_options(embeddings, tmp_path):
    assets = build_index_assets(spec({"v": "IVF_PQ(num_sub_vectors=4, num_bits=4, metric=cosine, num_partitions=2)"}))
    materialize(assets, tmp_path)
    embeddings.checkout_latest()
    (index,) = embeddings.describe_indices()
    assert (index.name, index.index_type) == ("v_ivfpq_idx", "IVF_PQ")
    segment = embeddings.index_statistics("v_ivfpq_idx")["segments"][0]
    assert (segment["metric_type"], segment["num_partitions"]) == ("cosine", 2)
    assert materialize(assets, tmp_path)["indices"]["lance/skipped"]


def test_the_recall_check_looks_where_the_asset_says_that_its_table_is(embeddings, tmp_path):
    embeddings.create_index("v", "IVF_FLAT", num_partitions=2)
    check = build_recall_check("elsewhere", "v", num_queries=5)
    asset = dg.AssetSpec("elsewhere", metadata={"lance/uri": embeddings.uri})
    resources = {"lance": LanceResource(root=str(tmp_path / "nothing_here"))}
    result = dg.materialize([asset, check], resources=resources, selection=dg.AssetSelection.checks(check))
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.metadata["lance/version"].value == embeddings.latest_version


def test_the_recall_of_an_index_is_checked(embeddings, tmp_path):
    embeddings.create_index("v", "IVF_FLAT", num_partitions=16)

    def outcome(**options):
        check = build_recall_check("t", "v", min_recall=0.95, **options)
        resources = {"lance": LanceResource(root=str(tmp_path))}
        selection = dg.AssetSelection.checks(check)
        result = dg.materialize([dg.AssetSpec("t"), check], resources=resources, selection=selection)
        (evaluation,) = result.get_asset_check_evaluations()
        return evaluation.passed, {name: entry.value for name, entry in evaluation.metadata.items()}

    passed, numbers = outcome(nprobes=16)
    assert passed
    assert numbers["lance/index_imbalance"] > 1
    del numbers["lance/index_imbalance"]
    assert numbers == {
        "lance/recall": 1.0, "lance/version": 2, "lance/index_partitions": 16, "lance/uncovered_rows": 0
    }  # fmt: skip
    passed, numbers = outcome(nprobes=1)
    assert not passed
    assert 0 < numbers["lance/recall"] < 0.95
    embeddings.drop_index("v_idx")
    assert outcome()[1]["lance/uncovered_rows"] == 400
    with pytest.raises(InvalidInputError, match="from 0 to 1"):
        build_recall_check("t", "v", min_recall=2)


@pytest.mark.parametrize("kind", ["INVERTED", "FTS(with_position=true, stem=True)"])
def test_declared_full_text_indices_are_created_once_and_extended(tmp_path, kind):
    uri = str(tmp_path / "t.lance")
    lance_core.write_dataset(pa.table({"text": ["a quick fox", "a lazy dog"]}), uri)
    assets = build_index_assets(spec({"text": kind}))
    assert materialize(assets, tmp_path)["indices"]["lance/indices_count"] == 1
    assert materialize(assets, tmp_path)["indices"]["lance/skipped"]
    lance_core.write_dataset(pa.table({"text": ["two foxes"]}), uri, mode="append")
    assert materialize(assets, tmp_path)["indices"]["lance/uncovered_rows"] == 0
    found = lance.dataset(uri).to_table(full_text_query="fox", fast_search=True)
    assert sorted(found["text"].to_pylist()) == ["a quick fox", "two foxes"]
    (index,) = lance_core.dataset(uri).list_indices()
    assert index["type"].upper() == "INVERTED"
