"""Embeddings of the weather: a day of observations as a vector, so that days with like weather are near each other.

No neural network and no download: the observations of 24 hours are standardized, and their principal components are
the vector. What is near is alike in temperature, humidity, wind, rain, pressure and visibility, hour by hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy.typing as npt

HOURS, DIMENSIONS = 24, 32
_MEASURED = ("temp", "dewp", "humid", "precip", "pressure", "visib")
_HOUR = np.timedelta64(1, "h")


def embed_weather(weather: pa.Table) -> pa.Table:
    """Make a vector of each 24 hours that were observed without a gap.

    Args:
        weather: Hourly observations of some airports; null where nothing was measured.

    Returns:
        Columns ``origin``, ``time_hour`` (the last of the hours) and ``embedding`` (32 floats).
    """
    rows = weather.sort_by([("origin", "ascending"), ("time_hour", "ascending")])
    origins = rows["origin"].to_numpy(zero_copy_only=False)
    hours = rows["time_hour"].to_numpy().astype("datetime64[h]")
    observations = _standardized(_features(rows))
    windows = np.lib.stride_tricks.sliding_window_view(observations, HOURS, axis=0)
    first, last = np.arange(len(windows)), np.arange(HOURS - 1, len(rows))
    is_whole = (origins[first] == origins[last]) & (hours[last] - hours[first] == (HOURS - 1) * _HOUR)
    vectors = principal_components(windows[is_whole].reshape(int(is_whole.sum()), -1))
    chosen = rows.select(["origin", "time_hour"]).take(last[is_whole])
    column = pa.FixedSizeListArray.from_arrays(vectors.astype(np.float32).ravel(), DIMENSIONS)
    return chosen.append_column("embedding", column)


def principal_components(rows: npt.NDArray[np.float64], count: int = DIMENSIONS) -> npt.NDArray[np.float64]:
    """Project rows on the directions in which they differ most; shape (n, features) to (n, count)."""
    centered = rows - rows.mean(axis=0)
    _, directions = np.linalg.eigh(centered.T @ centered)
    chosen = directions[:, ::-1][:, :count]
    chosen *= np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(chosen.shape[1])])  # else signs are by chance
    return centered @ chosen


def _features(rows: pa.Table) -> npt.NDArray[np.float64]:
    columns = [_numbers(rows, name) for name in _MEASURED]
    angle = np.radians(_numbers(rows, "wind_dir"))
    speed = np.minimum(_numbers(rows, "wind_speed"), 60)  # one observation says 1,048 mph
    return np.stack([*columns, speed * np.cos(angle), speed * np.sin(angle)], axis=1)


def _numbers(rows: pa.Table, name: str) -> npt.NDArray[np.float64]:
    return pc.fill_null(rows[name].cast(pa.float64()), np.nan).to_numpy()


def _standardized(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bring columns to mean 0 and deviation 1; what was not measured counts as the mean."""
    deviations = np.nanstd(values, axis=0)
    return np.nan_to_num((values - np.nanmean(values, axis=0)) / np.where(deviations > 0, deviations, 1))
