"""Storage: the fields that the IO manager and the resource have in common.

No ``from __future__ import annotations`` here: Dagster reads the annotations when the class is made.
"""

from typing import Any

import dagster as dg
from pydantic import ConfigDict, Field, PrivateAttr

from lance_dagster import _compat
from lance_dagster.tables import Tables


class Storage(dg.Config):
    """The root or namespace that holds the tables, and the settings of the stores."""

    model_config = ConfigDict(extra="forbid")

    root: str = Field(description="Folder or URI that holds the tables; the same for the IO manager and the resource.")
    namespace: dict[str, str] = Field(
        default_factory=dict,
        description="Namespace that knows where the tables are: `impl` (dir, rest, ...) and its properties. `root` is "
        "then the names of a namespace in it, with slashes between them, or empty. Take tokens from `dg.EnvVar`.",
        repr=False,
        json_schema_extra=_compat.SECRET,
    )
    storage_options: dict[str, str] = Field(
        default_factory=dict,
        description="Settings of the object store. Take keys from `dg.EnvVar`: Dagster keeps what is written here.",
        repr=False,
        json_schema_extra=_compat.SECRET,
    )
    base_store_params: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="Settings of other places that a table may name (base paths, external blobs), by their address; an "
        "entry also allows the place. Take keys from `dg.EnvVar`.",
        repr=False,
        json_schema_extra=_compat.SECRET,
    )

    # Storage options that the namespace gave, by the address of their table.
    _vended: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def tables(self) -> Tables:
        """Naming and opening."""
        return Tables(
            root=self.root,
            storage_options=self.storage_options,
            base_store_params=self.base_store_params,
            namespace=self.namespace,
            vended=self._vended,
        )
