"""Retrieval: the weather as vectors, an index over them, hours with like weather, and how many of them are found."""

from datetime import datetime, timedelta

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from example_project import plot, schemas
from example_project.embeddings import embed_weather
from example_project.tables import OWNERS, table
from lance_core.vector import measure_recall
from lance_dagster import LanceResource, build_recall_check

KINDS = {"lance", "arrow"}
INDEX = dg.AssetKey(["weather_embeddings", "indices"])
"""Builds the index, in the job of maintenance; without an index searches compare all vectors."""
NUM_HOURS, NUM_SIMILAR = 20, 5
APART = timedelta(days=2)
PROBES = (1, 2, 4, 8, 16)
REFINED = 10


@dg.asset(
    group_name="retrieval",
    kinds=KINDS,
    owners=OWNERS,
    ins={"weather": dg.AssetIn(metadata={"columns": [column.name for column in schemas.WEATHER.columns]})},
    metadata={
        **table("weather_embeddings", schemas.WEATHER_EMBEDDINGS),
        "lance/indices": {"embedding": "IVF_PQ(num_partitions=32, num_sub_vectors=8, num_bits=4)"},
    },
)
def weather_embeddings(weather: pa.Table) -> pa.Table:
    """A vector of each 24 hours of weather: principal components of what was observed, no neural network."""
    return embed_weather(weather)


@dg.asset(
    group_name="retrieval",
    kinds=KINDS,
    owners=OWNERS,
    deps=[weather_embeddings],  # and not the index: each night of maintenance would make this stale
    metadata=table("similar_weather", schemas.SIMILAR_WEATHER),
)
def similar_weather(lance: LanceResource) -> pa.Table:
    """For some hours at JFK the hours of other days with the most similar weather, found in the index."""
    embeddings = lance.dataset("weather_embeddings")
    hours = embeddings.to_table(filter="origin = 'JFK'").sort_by("time_hour")
    chosen = np.linspace(0, len(hours) - 1, NUM_HOURS).astype(int).tolist()
    return pa.concat_tables([_similar(lance, hours.slice(number, 1)) for number in chosen])


def _similar(lance: LanceResource, row: pa.Table) -> pa.Table:
    """Search other days; hours next to each other have nearly the same vector."""
    (hour,), (vector,) = row["time_hour"].to_pylist(), row["embedding"].to_pylist()
    other_days = (pc.field("time_hour") < hour - APART) | (pc.field("time_hour") > hour + APART)
    similar = lance.dataset("weather_embeddings").to_table(
        columns=["origin", "time_hour"],
        filter=other_days,
        prefilter=True,
        nearest={"column": "embedding", "q": vector, "k": NUM_SIMILAR, "nprobes": 8, "refine_factor": REFINED},
    )
    ranks = pa.array(range(1, len(similar) + 1), pa.int32())
    columns = [_repeated(hour, similar), ranks, similar["origin"], similar["time_hour"], similar["_distance"]]
    return pa.table(columns, ["time_hour", "rank", "similar_origin", "similar_hour", "distance"])


def _repeated(hour: datetime, rows: pa.Table) -> pa.Array:
    return pa.array([hour] * len(rows), rows.schema.field("time_hour").type)


@dg.asset(
    group_name="retrieval",
    kinds=KINDS,
    owners=OWNERS,
    deps=[weather_embeddings],  # and not the index: each night of maintenance would make this stale
    metadata=table("weather_recall", schemas.WEATHER_RECALL),
)
def weather_recall(context: dg.AssetExecutionContext, lance: LanceResource) -> pa.Table:
    """Recall against probes: the share of the ten nearest vectors that the index finds, by codes and refined."""
    embeddings = lance.dataset("weather_embeddings")
    lines = {
        name: [measure_recall(embeddings, "embedding", nprobes=probes, refine_factor=factor) for probes in PROBES]
        for name, factor in (("by codes", None), (f"refine_factor={REFINED}", REFINED))
    }
    picture = plot.line_chart("Recall of the 10 nearest", PROBES, lines, axis="nprobes")
    context.add_output_metadata({"recall": dg.MetadataValue.md(plot.as_markdown("recall against probes", picture))})
    by_codes, refined = lines.values()
    return pa.table({"nprobes": pa.array(PROBES, pa.int32()), "by_codes": by_codes, "refined": refined})


weather_embeddings_recall = build_recall_check(
    weather_embeddings, "embedding", min_recall=0.9, nprobes=8, refine_factor=REFINED, additional_deps=[INDEX]
)
