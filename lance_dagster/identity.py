"""Identity of a commit: stored in its transaction properties, and checked before a retry writes again.

Dagster's log knows nothing of a step that failed between its commit and its event; only the table does.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from lance_dagster.versions.history import recent_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import lance_core
    from lance_dagster._compat import RunInfo

_LISTED_PARTITIONS = 100
_LOOKBACK_TICK = 100
_CLOCKS_DIFFER = timedelta(minutes=10)
TOKEN = "dagster/commit_token"  # noqa: S105 - no password
RUN_ID = "dagster/run_id"
INPUTS = "lance/inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitIdentity:
    """Names one commit of one step.

    Args:
        run: The running step's run.
        step_key: The step.
        asset_key: The asset, parts joined by ``/``.
        partition_keys: Sorted keys that the commit is about; empty for an unpartitioned asset.
        code_version: The asset's code version, or None.
        inputs: Versions of Lance tables read in this step, by asset key.
    """

    run: RunInfo
    step_key: str
    asset_key: str
    partition_keys: tuple[str, ...] = ()
    code_version: str | None = None
    inputs: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def partitions_hash(self) -> str:
        """32 hex digits over the partition keys."""
        return hashlib.sha256("\0".join(self.partition_keys).encode()).hexdigest()[:32]

    def token(self, *, salt: str = "") -> str:
        """Same for every attempt of the step in one run, and in every run of one tick.

        Args:
            salt: Sets a deliberate second commit apart.
        """
        parts = (self.run.tick or self.run.run_id, self.step_key, self.asset_key, self.partitions_hash, salt)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def properties(self, *, token: str) -> dict[str, str]:
        """Transaction properties of the commit."""
        properties = {
            RUN_ID: self.run.run_id,
            "dagster/root_run_id": self.run.root_run_id,
            "dagster/step_key": self.step_key,
            "dagster/asset_key": self.asset_key,
            TOKEN: token,
        }
        if self.partition_keys:
            properties["dagster/partition_count"] = str(len(self.partition_keys))
            properties["dagster/partitions_hash"] = self.partitions_hash
        if 0 < len(self.partition_keys) <= _LISTED_PARTITIONS:
            properties["dagster/partitions"] = json.dumps(self.partition_keys)
        if self.code_version is not None:
            properties["dagster/code_version"] = self.code_version
        if self.inputs:
            properties[INPUTS] = json.dumps(self.inputs, sort_keys=True)
        return properties

    def find(
        self, dataset: lance_core.LanceDataset, *, lookback: int, was_published: Callable[[str], bool]
    ) -> int | None:
        """Version that an earlier attempt of this step made, or None.

        Args:
            dataset: The table, newest version.
            lookback: Versions looked at, newest first.
            was_published: Whether Dagster knows that a run (of which this is a re-execution) materialized the asset;
                such a commit was finished, and this one is wanted beside it.
        """
        token = self.token()
        wanted = {k: v for k, v in self.properties(token=token).items() if k in _SAME_WORK}
        for version, properties in self._recent(dataset, lookback):
            if properties.get(TOKEN) == token:
                return version
            run_id = properties.get(RUN_ID, self.run.run_id)
            is_ancestor = run_id != self.run.run_id and all(properties.get(k) == v for k, v in wanted.items())
            if is_ancestor and properties.get("dagster/partitions_hash") == wanted.get("dagster/partitions_hash"):
                return None if was_published(run_id) else version
        return None

    def _recent(self, dataset: lance_core.LanceDataset, lookback: int) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Versions among which the commit may be; that of another run of the tick is not much older than the tick."""
        if self.run.tick is None or self.run.is_retry:
            return recent_properties(dataset, limit=lookback)
        since = None if self.run.tick_time is None else self.run.tick_time - _CLOCKS_DIFFER
        return recent_properties(dataset, limit=_LOOKBACK_TICK, since=since)


_SAME_WORK = frozenset({"dagster/root_run_id", "dagster/step_key", "dagster/asset_key", "dagster/partitions_hash"})
