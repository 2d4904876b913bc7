"""The IO manager and the resources, declared in YAML once for a project.

No ``from __future__ import annotations`` here: Dagster resolves the fields' annotations.
"""

from collections.abc import Mapping
from typing import Any, Literal

import dagster as dg
from pydantic import BaseModel, Field

from lance_core.errors import InvalidInputError
from lance_dagster.components.maintenance import optional
from lance_dagster.io_manager import LanceIOManager
from lance_dagster.resource import LanceResource
from lance_dagster.spark import SparkSessionResource


class StorageModel(dg.Model, dg.Resolvable):
    """Place of the tables."""

    root: str = Field(
        description="Folder or address that holds the tables, such as data or s3://bucket/lake; with a namespace the "
        "names in it that come first, with slashes between them, or empty.",
        examples=["data", "s3://bucket/lake", "{{ env.LANCE_ROOT }}"],
    )
    storage_options: dict[str, str] = Field(
        default_factory=dict, description="Settings of the object store.", examples=[{"aws_region": "eu-central-1"}]
    )
    storage_options_from_env: dict[str, str] = Field(
        default_factory=dict,
        description="Settings that are secrets: name of the environment variable that holds each, read when used.",
        examples=[{"aws_secret_access_key": "AWS_SECRET_ACCESS_KEY"}],
    )

    namespace: dict[str, str] = Field(
        default_factory=dict,
        description="Namespace that knows where the tables are: its kind (impl) and properties.",
        examples=[{"impl": "dir", "root": "lake"}, {"impl": "rest", "uri": "https://catalog.example.com"}],
    )
    namespace_from_env: dict[str, str] = Field(
        default_factory=dict,
        description="Properties of the namespace that are secrets: name of the environment variable that holds each.",
        examples=[{"header.Authorization": "CATALOG_TOKEN"}],
    )

    def storage(self) -> dict[str, Any]:
        """Return the arguments of the IO manager and of the resource.

        Raises:
            InvalidInputError: A setting is given twice, or neither a root nor a namespace.
        """
        namespace = _with_secrets("Properties of the namespace", self.namespace, self.namespace_from_env)
        if not self.root.strip() and not namespace:
            raise InvalidInputError("'root' is empty: give the folder or address that holds the tables.")
        options = _with_secrets("Storage options", self.storage_options, self.storage_options_from_env)
        return {"root": self.root, "storage_options": options, "namespace": namespace}


def _with_secrets(what: str, texts: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, Any]:
    twice = texts.keys() & variables.keys()
    if twice:
        raise InvalidInputError(f"{what} {sorted(twice)} are given both as text and from the environment.")
    return {**texts, **{name: dg.EnvVar(variable) for name, variable in variables.items()}}


class SparkModel(dg.Model, dg.Resolvable):
    """A Spark session, which starts when it is first used."""

    app_name: str = Field(default="lance-dagster", description="Name of the application.")
    master: str | None = Field(default=None, description="Where Spark runs.", examples=["local[4]", "yarn"])
    remote: str | None = Field(default=None, description="Spark Connect server.", examples=["sc://localhost:15002"])
    conf: dict[str, str] = Field(default_factory=dict, description="Settings of the session.")

    def resource(self) -> SparkSessionResource:
        """Return the resource."""
        return SparkSessionResource(**self.model_dump())


class ResourcesScaffoldParams(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    root: str = Field(default="data", description="Folder or address that holds the tables.")
    spark: bool = Field(default=False, description="Add a Spark session.")


class ResourcesScaffolder(dg.Scaffolder[ResourcesScaffoldParams]):
    """Writes a ``defs.yaml`` to begin with."""

    @classmethod
    def get_scaffold_params(cls) -> type[ResourcesScaffoldParams]:
        """See the base class."""
        return ResourcesScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ResourcesScaffoldParams]) -> None:
        """See the base class."""
        params = request.params or ResourcesScaffoldParams()
        spark = {"spark": {"master": "local[2]"}} if params.spark else {}
        dg.scaffold_component(request, {"root": params.root, **spark})


@dg.scaffold_with(ResourcesScaffolder)
class LanceResourcesComponent(StorageModel, dg.Component):
    """The IO manager that stores assets as Lance tables, and the resource that tables, checks and maintenance use.

    ``dg scaffold defs lance_dagster.LanceResourcesComponent storage --root s3://bucket/lake`` writes a ``defs.yaml`` to
    begin with; ``--spark`` adds a Spark session.
    """

    spark: SparkModel | None = Field(default=None, json_schema_extra=optional)
    branch: str | None = Field(default=None, description="Branch that all tables are written to; null is main.")
    branch_outputs: Literal["materialization", "observation"] = Field(
        default="materialization", description="What Dagster records for outputs on the branch."
    )
    mode: Literal["overwrite", "append", "error", "ignore", "merge", "replace_partitions"] = Field(
        default="overwrite", description="Write mode of assets that say nothing."
    )
    schema_mode: Literal["auto", "strict", "add", "overwrite"] = Field(
        default="auto", description="Columns unlike the table's: refused, added, or taken over."
    )
    preview_rows: int = Field(default=0, ge=0, description="Rows shown in the metadata of each output.")
    io_manager_key: str = Field(default="io_manager", description="Name of the IO manager.")
    resource_key: str = Field(default="lance", description="Name of the LanceResource.")
    spark_resource_key: str = Field(default="spark", description="Name of the Spark session.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Resources."""
        del context
        spark = None if self.spark is None else self.spark.resource()
        options: dict[str, Any] = {
            name: getattr(self, name) for name in ("branch", "branch_outputs", "mode", "schema_mode", "preview_rows")
        }
        resources: dict[str, Any] = {
            self.io_manager_key: LanceIOManager(**self.storage(), **options, spark=spark),
            self.resource_key: LanceResource(**self.storage(), branch=self.branch),
        }
        return dg.Definitions(resources=resources if spark is None else {**resources, self.spark_resource_key: spark})
