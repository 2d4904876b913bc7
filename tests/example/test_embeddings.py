"""Vectors of the weather: of whole days only, and near each other where the weather is alike."""

import numpy as np
import pyarrow as pa

from example_project import embeddings, plot, schemas


def observations(hours, origin="JFK"):
    """Weather that changes over a day, and over ten days."""
    hours = np.array(hours)
    names = [column.name for column in schemas.WEATHER.columns]
    rng = np.random.default_rng(0)
    waves = np.sin(hours * 2 * np.pi / 24) + 2 * np.sin(hours * 2 * np.pi / 240)
    columns = {name: waves + 0.1 * rng.normal(size=len(hours)) for name in names}
    columns["origin"] = [origin] * len(hours)
    columns["time_hour"] = pa.array(hours * 3600, pa.timestamp("s", "UTC"))
    return pa.table(columns)


def test_only_whole_days_become_vectors():
    hours = [*range(100), *range(101, 140)]
    rows = pa.concat_tables([observations(hours), observations(range(24), "EWR"), observations(range(23), "LGA")])
    made = embeddings.embed_weather(rows)
    assert made["origin"].to_pylist() == ["EWR"] + ["JFK"] * (100 - 23 + 39 - 23)
    assert made.schema.field("embedding").type == pa.list_(pa.float32(), embeddings.DIMENSIONS)
    assert made.equals(embeddings.embed_weather(rows.take(np.random.default_rng(0).permutation(len(rows)))))


def test_like_weather_is_near():
    made = embeddings.embed_weather(observations(range(1000)))
    vectors = made["embedding"].combine_chunks().flatten().to_numpy().reshape(-1, embeddings.DIMENSIONS)
    distances = ((vectors - vectors[100]) ** 2).sum(axis=1)
    assert distances[340] < distances[220]  # ten days later, and five


def test_what_was_not_measured_counts_as_the_mean():
    rows = observations(range(200))
    empty = rows.set_column(rows.schema.get_field_index("visib"), "visib", pa.array([None] * 199 + [1.0]))
    assert np.isfinite(embeddings.embed_weather(empty)["embedding"].combine_chunks().flatten()).all()


def test_a_chart_is_well_formed():
    svg = plot.line_chart("title", [1, 2], {"a": [0.1, 1.0], "b": [0, 0.5]}, axis="x")
    assert (svg[:4], svg[-6:]) == ("<svg", "</svg>")
    assert svg.count("<polyline") == 2
    assert plot.as_markdown("name", svg).startswith("![name](data:image/svg+xml;base64,")
