"""Random histories of all changes, by both tools in turns on one table, held against a model after each step.

LANCE_TESTS=deep python -m pytest tests/compat/test_state_machine.py     many more and longer histories
LANCE_TESTS_SEED=7 LANCE_TESTS=deep ...                                  other ones
"""

import itertools
import json
import os
import shutil
import tempfile
from dataclasses import replace
from datetime import timedelta

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import lance_core
from lance_core.change.fragment_reuse import ReuseState
from lance_core.testing.branch_model import BranchModel, by_key
from lance_core.testing.model import KEY, TableState, make_condition, make_rows, make_value

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
SEED = int(os.environ.get("LANCE_TESTS_SEED", "0"))
EXAMPLES, STEPS = (int(os.environ.get("LANCE_TESTS_EXAMPLES", "400")), 40) if IS_DEEP else (12, 22)

TOOLS = st.sampled_from([lance_core, lance])
RANDOMS = st.randoms(use_true_random=False)
MAX_LINES, MAX_ROWS = 4, 120
TEXTS = ["a", "b", "c"]

START = pa.schema(
    [
        pa.field(KEY, pa.int64(), nullable=False),
        pa.field("a", pa.int64()),
        pa.field("t", pa.string()),
        pa.field("l", pa.list_(pa.int32())),
        pa.field("s", pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string())])),
    ]
)
OTHER = pa.schema([START.field("t"), pa.field(KEY, pa.int64(), nullable=False), pa.field("f", pa.float64())])
KINDS = [pa.int64(), pa.string(), pa.list_(pa.int64()), pa.float32(), pa.struct([pa.field("u", pa.int32())])]


class Histories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="lance-histories-")
        self.lines, self.tags, self.names = [], {}, itertools.count()
        self.stable, self.versions = False, []

    def teardown(self):
        try:
            for line in self.lines:
                line.check_all()
        finally:
            shutil.rmtree(self.folder)

    # --------------------------------------------------------------------------------------------------------- checks

    def made(self, line, state, *, versions=1, by):
        """A change by a tool is done: look at the table."""
        note(str(by))
        before = line.version
        newest = line.open(lance_core).version
        assert newest == line.open(lance).version
        assert newest == before + versions if versions is not None else before <= newest <= before + 2
        for version in range(before + 1, newest + 1):
            line.states[version] = state
        line.check()

    # ---------------------------------------------------------------------------------------------------------- parts

    def new_keys(self, line, random):
        top = max([*line.state.rows, *(key for one in line.states.values() for key in one.rows)], default=0)
        room = max(MAX_ROWS - len(line.state.rows), 1)
        return range(top + 1, top + 1 + min(random.choice([1, 2, 7, 30]), room))

    def write(self, tool, line, rows, schema, random, **options):
        data = pa.Table.from_pylist(rows, schema=schema)
        options.setdefault("max_rows_per_file", random.choice([3, 10, 1000]))
        is_new = not line.states
        target = line.root if is_new or (line.branch is None and random.random() < 0.5) else line.open(tool)
        return tool.write_dataset(data, target, **options)

    def schema(self, schema):
        """Files of version 2.0 do not tell null structs from structs of nulls."""
        return pa.schema([one for one in schema if not self.is_lossy(one.type)])

    def is_lossy(self, kind):
        return "2.0" in self.versions and pa.types.is_struct(kind)

    def line(self, random):
        return random.choice(self.lines)

    @initialize(tool=TOOLS, random=RANDOMS)
    def create(self, tool, random):
        self.stable = random.random() < 0.6
        self.versions = random.choice([["2.0", "2.1", "2.2"], ["2.1", "2.2"]])
        line = BranchModel(
            root=f"{self.folder}/t",
            branch=None,
            states={},
            tools=(lance_core, lance),
            has_stable_row_ids=self.stable,
            keeps_open=random.random() < 0.5,
        )
        start = self.schema(START)
        rows = make_rows(start, range(random.choice([0, 5, 40])), 0)
        options = {
            "enable_stable_row_ids": self.stable,
            "data_storage_version": random.choice(self.versions),
            "enable_v2_manifest_paths": random.random() < 0.7,
        }
        note(str(options))
        self.write(tool, line, rows, start, random, **options)
        line.states[1] = TableState(schema=start, rows={}).appended(rows, 1)
        self.lines.append(line)
        line.check()

    # ----------------------------------------------------------------------------------------------- changes of rows

    @rule(tool=TOOLS, random=RANDOMS)
    def append(self, tool, random):
        line = self.line(random)
        state, version = line.state, line.version + 1
        names = [one.name for one in state.schema if not one.nullable or random.random() < 0.8]
        random.shuffle(names)
        schema = pa.schema([state.schema.field(name) for name in names])
        rows = make_rows(schema, self.new_keys(line, random), version)
        options = {"data_storage_version": random.choice(self.versions)} if random.random() < 0.2 else {}
        self.write(tool, line, rows, schema, random, mode="append", **options)
        self.made(line, state.appended(rows, version), by=("append", tool.__name__, names, options))

    @rule(tools=st.tuples(TOOLS, TOOLS), random=RANDOMS)
    def append_staged(self, tools, random):
        """One tool writes fragments, another one commits them; in two processes they would travel as JSON."""
        line = self.line(random)
        state, version = line.state, line.version + 1
        schema = state.schema.remove_metadata()
        rows = make_rows(schema, self.new_keys(line, random), version)
        writer, committer = tools
        data = pa.Table.from_pylist(rows, schema=schema)
        fragments_of = lance.fragment.write_fragments if writer is lance else lance_core.write_fragments
        fragments = fragments_of(data, line.open(writer), mode="append", max_rows_per_file=10)
        read_as = lance.fragment.FragmentMetadata if committer is lance else lance_core.FragmentMetadata
        moved = [read_as.from_json(json.dumps(one.to_json())) for one in fragments]
        base = line.open(committer)
        operation = committer.LanceOperation.Append(moved)
        committer.LanceDataset.commit(base, operation, read_version=line.version)
        self.made(line, state.appended(rows, version), by=("append staged", *(one.__name__ for one in tools)))

    @rule(tool=TOOLS, random=RANDOMS)
    def overwrite(self, tool, random):
        line = self.line(random)
        state, version = line.state, line.version + 1
        schema = random.choice([self.schema(START), OTHER, state.schema])
        rows = make_rows(schema, self.new_keys(line, random), version)
        options = {"data_storage_version": random.choice(self.versions)} if random.random() < 0.2 else {}
        self.write(tool, line, rows, schema, random, mode="overwrite", **options)
        self.made(line, state.overwritten(schema, rows, version), by=("overwrite", tool.__name__, options))

    @rule(tool=TOOLS, random=RANDOMS)
    def delete(self, tool, random):
        line = self.line(random)
        condition = make_condition(line.state, random)
        result = line.open(tool).delete(condition.sql)
        gone = line.state.matching(condition)
        assert result["num_deleted_rows"] == len(gone)
        self.made(line, line.state.without(gone), by=("delete", tool.__name__, condition.sql))

    @rule(tool=TOOLS, random=RANDOMS)
    def update(self, tool, random):
        line = self.line(random)
        state, version = line.state, line.version + 1
        names = state.columns(lambda kind: pa.types.is_integer(kind) or pa.types.is_string(kind))
        if not names:
            return
        name = random.choice(names)
        column = state.schema.field(name)
        changes = {
            "k % 50": lambda row: row[KEY] % 50,
            "7": lambda _: 7,
            "NULL": lambda _: None,
            name: lambda row: row[name],
        }
        if pa.types.is_string(column.type):
            changes = {"'t3'": lambda _: "t3", "NULL": lambda _: None}
        if not column.nullable:
            del changes["NULL"]
        sql = random.choice(sorted(changes))
        condition = make_condition(state, random) if random.random() < 0.9 else None
        hit = set(state.rows) if condition is None else state.matching(condition)
        where = None if condition is None else condition.sql
        result = line.open(tool).update({name: sql}, where=where)
        assert result["num_rows_updated"] == len(hit)
        after = state.changed(hit, lambda row: {name: changes[sql](row)}, version)
        self.made(line, after, by=("update", tool.__name__, name, sql, where))

    @rule(tool=TOOLS, random=RANDOMS)
    def merge_insert(self, tool, random):
        line = self.line(random)
        state, version = line.state, line.version + 1
        old = sorted(state.rows)
        old = random.sample(old, min(len(old), random.choice([0, 1, 5])))
        form = random.choice(["upsert", "insert", "update", "replace", "delete others", "delete"])
        new = [] if form == "update" and random.random() < 0.5 else list(self.new_keys(line, random))
        names = list(state.schema.names)
        if form in {"upsert", "update", "insert"} and random.random() < 0.5:
            names = [one.name for one in state.schema if not one.nullable or random.random() < 0.6]
        schema = pa.schema([state.schema.field(name) for name in names])
        rows = make_rows(schema, [*old, *new], version)
        random.shuffle(rows)
        dataset = line.open(tool)
        if len(names) == 1 and form in {"upsert", "update"}:
            return  # nothing to update with
        builder = dataset.merge_insert(KEY)
        after, others = self.merged(state, form, builder, rows, set(old), version=version, random=random)
        if form == "update" and len(names) < len(state.schema) and random.random() < 0.5:
            builder.write_mode(random.choice(["rewrite_rows", "rewrite_columns"]))
        result = builder.execute(pa.Table.from_pylist(rows, schema=schema))
        gone = len(set(state.rows) - set(after.rows))
        assert result["num_deleted_rows"] == gone
        assert result["num_inserted_rows"] == len(set(after.rows) - set(state.rows))
        self.made(line, after, by=("merge_insert", tool.__name__, form, names, others, old, new))

    def merged(self, state, form, builder, rows, old, *, version, random):
        """Tells the builder what to do, and the state what comes of it."""
        given = {row[KEY]: row for row in rows}
        fresh = [row for row in rows if row[KEY] not in old]
        others = None
        if form in {"upsert", "replace", "update"}:
            limit = random.choice([None, None, 10])
            builder.when_matched_update_all() if limit is None else builder.when_matched_update_all(
                f"source.{KEY} > {limit}"
            )
            hit = {key for key in old if limit is None or key > limit}
        elif form == "delete":
            builder.when_matched_delete()
            return state.without(old), others
        else:
            hit = set()
        after = state.changed(hit, lambda row: given[row[KEY]], version)
        if form in {"replace", "delete others"}:
            condition = make_condition(state, random) if random.random() < 0.5 else None
            others = None if condition is None else condition.sql
            builder.when_not_matched_by_source_delete(*([] if condition is None else [condition.sql]))
            gone = set(state.rows) if condition is None else state.matching(condition)
            after = after.without(gone - old)
        if form in {"upsert", "insert", "replace"}:
            builder.when_not_matched_insert_all()
            after = after.appended(fresh, version)
        return after, others

    @rule(random=RANDOMS)
    def replace_where(self, random):
        line = self.line(random)
        state, version = line.state, line.version + 1
        condition = make_condition(state, random)
        rows = make_rows(state.schema, self.new_keys(line, random), version)
        data = pa.Table.from_pylist(rows, schema=state.schema)
        line.open(lance_core).replace_where(condition.sql, data)
        after = state.without(state.matching(condition)).appended(rows, version)
        self.made(line, after, by=("replace_where", condition.sql))

    # ------------------------------------------------------------------------------------------- changes of columns

    @rule(tool=TOOLS, random=RANDOMS)
    def add_column(self, tool, random):
        line = self.line(random)
        state, version = line.state, line.version + 1
        if len(state.schema) > 8:
            return
        dataset, name = line.open(tool), f"c{next(self.names)}"
        form = random.choice(["sql", "nulls", "function", "join", "fragments"])
        if form == "sql":
            dataset.add_columns({name: "k * 3"})
            column = pa.field(name, pa.int64(), nullable=False)
            after = state.with_column(column, lambda row: row[KEY] * 3, version)
        elif form == "nulls":
            kind = random.choice([one for one in KINDS if not self.is_lossy(one)])
            dataset.add_columns(pa.field(name, kind))
            after = state.with_column(pa.field(name, kind), lambda _: None, None)
        elif form == "function":
            made = tool.batch_udf(output_schema=pa.schema([pa.field(name, pa.string())]))(
                lambda batch: pa.RecordBatch.from_pydict({name: [f"n{key}" for key in batch[KEY].to_pylist()]})
            )
            dataset.add_columns(made, read_columns=[KEY])
            after = state.with_column(pa.field(name, pa.string()), lambda row: f"n{row[KEY]}", version)
        elif form == "fragments":
            made = [
                one.merge_columns(
                    lambda batch: pa.RecordBatch.from_pydict({name: [f"n{key}" for key in batch[KEY].to_pylist()]}),
                    columns=[KEY],
                )
                for one in dataset.get_fragments()
            ]
            if not made:
                return
            operation = tool.LanceOperation.Merge([one for one, _ in made], made[0][1])
            tool.LanceDataset.commit(dataset, operation, read_version=line.version)
            after = state.with_column(pa.field(name, pa.string()), lambda row: f"n{row[KEY]}", version)
        else:
            kind = random.choice([one for one in KINDS if not self.is_lossy(one)])
            keys = [*sorted(state.rows)[:: random.choice([1, 2, 5])], 9999]  # pylance needs one
            values = {key: make_value(kind, key, nullable=True) for key in keys}
            other = pa.table({"key": pa.array(keys, pa.int64()), name: pa.array(list(values.values()), kind)})
            dataset.merge(other, left_on=KEY, right_on="key")
            after = state.with_column(pa.field(name, kind), lambda row: values.get(row[KEY]), version)
        self.made(line, after, by=("add_column", tool.__name__, form, name))

    @rule(tool=TOOLS, random=RANDOMS)
    def rename(self, tool, random):
        line = self.line(random)
        state, name = line.state, f"c{next(self.names)}"
        path = self.path(state, random)
        if path is None:
            return
        line.open(tool).alter_columns({"path": ".".join(path), "name": name})
        after = state.with_field(path, lambda one: one.with_name(name))
        indices = {index: name if [column] == path else column for index, column in state.indices.items()}
        self.made(line, replace(after, indices=indices), by=("rename", tool.__name__, path, name))

    @rule(tool=TOOLS, random=RANDOMS)
    def drop(self, tool, random):
        line = self.line(random)
        state = line.state
        path = self.path(state, random)
        if path is None or (len(path) == 2 and state.schema.field(path[0]).type.num_fields == 1):
            return
        line.open(tool).drop_columns([".".join(path)])
        indices = {index: column for index, column in state.indices.items() if [column] != path}
        after = replace(state.with_field(path, lambda _: None), indices=indices)
        self.made(line, after, by=("drop", tool.__name__, path))

    def path(self, state, random):
        names = state.columns(lambda _: True)
        if not names:
            return None
        field_ = state.schema.field(random.choice(names))
        if pa.types.is_struct(field_.type) and random.random() < 0.5:
            return [field_.name, random.choice(list(field_.type)).name]
        return [field_.name]

    @rule(tool=TOOLS, random=RANDOMS)
    def cast(self, tool, random):
        line = self.line(random)
        state, version = line.state, line.version + 1
        kinds = {pa.int64(): pa.int32(), pa.int32(): pa.int64(), pa.string(): pa.large_string()}
        names = [name for name in state.columns(kinds.__contains__) if name not in state.indices.values()]
        if not names:
            return
        name = random.choice(names)
        kind = kinds[state.schema.field(name).type]
        line.open(tool).alter_columns({"path": name, "data_type": kind})
        after = state.with_field([name], lambda one: one.with_type(kind)).stamped(version)
        self.made(line, after, by=("cast", tool.__name__, name, kind))

    @rule(tool=TOOLS, random=RANDOMS)
    def nullability(self, tool, random):
        line = self.line(random)
        state = line.state
        names = [one for one in state.columns(lambda _: True) if not state.has_null(one)]
        if not names:
            return
        name = random.choice(names)
        nullable = not state.schema.field(name).nullable
        line.open(tool).alter_columns({"path": name, "nullable": nullable})
        after = state.with_field([name], lambda one: one.with_nullable(nullable))
        self.made(line, after, by=("nullability", tool.__name__, name, nullable))

    # ------------------------------------------------------------------------------------------ settings and indices

    @rule(tool=TOOLS, random=RANDOMS)
    def settings_(self, tool, random):
        line = self.line(random)
        state, dataset = line.state, line.open(tool)
        key, value = random.choice(TEXTS), random.choice([*TEXTS, None])
        what = random.choice(["config", "metadata", "schema_metadata", "replaced schema_metadata"])
        before = {"config": state.config, "metadata": state.metadata}.get(what, state.schema.metadata or {})
        if value is None and what.startswith("replaced"):
            return
        if "schema" in what:
            texts = {} if what.startswith("replaced") else {name.decode(): one.decode() for name, one in before.items()}
        else:
            texts = dict(before)
        texts = {name: one for name, one in {**texts, key: value}.items() if one is not None}
        if what == "config":
            dataset.update_config({key: value})
            after = replace(state, config=texts)
        elif what == "metadata":
            dataset.update_metadata({key: value})
            after = replace(state, metadata=texts)
        else:
            dataset.update_schema_metadata({key: value}, replace=what.startswith("replaced"))
            after = replace(state, schema=state.schema.with_metadata(texts or None))
        self.made(line, after, by=("settings", tool.__name__, what, key, value))

    @rule(tool=TOOLS, random=RANDOMS)
    def index(self, tool, random):
        line = self.line(random)
        state, dataset = line.state, line.open(tool)
        numbers, texts, lists = (
            state.columns(check) for check in (pa.types.is_integer, pa.types.is_string, pa.types.is_list)
        )
        columns = {"BTREE": [KEY, *numbers, *texts], "BITMAP": [*numbers, *texts], "NGRAM": texts, "LABEL_LIST": lists}
        columns |= {"ZONEMAP": columns["BTREE"], "BLOOMFILTER": columns["BTREE"]}
        kind = random.choice([kind for kind, names in columns.items() if names])
        column = random.choice(columns[kind])
        name = f"{column}_{kind}"
        dataset.create_scalar_index(column, kind, name=name)
        after = replace(state, indices={**state.indices, name: column})
        self.made(line, after, by=("index", tool.__name__, column, kind))

    @rule(tool=TOOLS, random=RANDOMS)
    def keep_indices(self, tool, random):
        line = self.line(random)
        state, dataset = line.state, line.open(tool)
        if state.indices and random.random() < 0.4:
            name = random.choice(sorted(state.indices))
            dataset.drop_index(name)
            indices = {index: column for index, column in state.indices.items() if index != name}
            self.made(line, replace(state, indices=indices), by=("drop_index", tool.__name__, name))
        else:
            dataset.optimize.optimize_indices()
            self.made(line, state, versions=None, by=("optimize_indices", tool.__name__))

    @rule(random=RANDOMS)
    def query(self, random):
        """Filters, with and without indices, rows by place, by id, and what changed since some version."""
        line = self.line(random)
        state, condition = line.state, make_condition(line.state, random)
        note(f"query {condition.sql}")
        ours, theirs = line.open(lance_core), line.open(lance)
        hit = sorted(state.matching(condition))
        expected = [state.rows[key].values for key in hit]
        names = state.schema.names
        for found in (
            ours.to_table(filter=condition.sql),
            theirs.to_table(filter=condition.sql),
            theirs.to_table(filter=condition.sql, use_scalar_index=False),
        ):
            assert by_key(found).to_pylist() == [{name: row[name] for name in names} for row in expected]
        report = ours.verify(level="indices")
        assert report.is_ok, str(report)
        assert ours.count_rows(condition.sql) == theirs.count_rows(condition.sql) == len(hit)
        count = len(state.rows)
        places = [random.randrange(count) for _ in range(3)] if count else []
        assert ours.take(places).equals(theirs.take(places))
        table = ours.to_table(columns=[KEY, "_rowid"])
        assert table.slice(0, 3).equals(theirs.to_table(columns=[KEY, "_rowid"], limit=3))
        ids = random.sample(table["_rowid"].to_pylist(), min(count, 4))
        assert ours._take_rows(ids).equals(theirs._take_rows(ids))
        if self.stable:
            line.check_changes(since=random.choice(sorted(line.states)))

    # -------------------------------------------------------------------------------------- maintenance and history

    @rule(tool=TOOLS, random=RANDOMS)
    def compact(self, tool, random):
        line = self.line(random)
        if tool is lance and any(one["base_id"] is not None for one in line.open(lance_core).list_indices()):
            return  # see test_indices
        target = random.choice([10, 50, 100_000])
        options = {"target_rows_per_fragment": target}
        deferred = ReuseState.of(line.open(lance_core).snapshot)
        # pylance 14.0.2 loses rows if it does not defer again: see test_fragment_reuse
        must_defer = tool is lance and deferred is not None and bool(deferred.versions)
        if not self.stable and (must_defer or random.random() < 0.2):
            options["defer_index_remap"] = True
        line.open(tool).optimize.compact_files(**options)
        self.made(line, line.state, versions=None, by=("compact", tool.__name__, options))

    @rule(random=RANDOMS)
    def materialize(self, random):
        line = self.line(random)
        line.open(lance_core).optimize.materialize_deletions(threshold=random.choice([0, 0.3]))
        self.made(line, line.state, versions=None, by=("materialize",))

    @rule(tool=TOOLS, random=RANDOMS)
    def restore(self, tool, random):
        line = self.line(random)
        version = random.choice(sorted(line.states))
        line.open(tool, version).restore()
        self.made(line, replace(line.states[version]), by=("restore", tool.__name__, version))

    @rule(tool=TOOLS, random=RANDOMS)
    def clean_up(self, tool, random):
        line = self.line(random)
        keep = random.choice([1, 2, 4])
        line.open(tool).cleanup_old_versions(
            older_than=timedelta(0), retain_versions=keep, error_if_tagged_old_versions=False
        )
        tagged = {
            version for (root, _), (branch, version) in self.tags.items() if (root, branch) == (line.root, line.branch)
        }
        kept = {*sorted(line.states)[-keep:], *tagged}
        origins = {*line.children.values()} & {*line.states}
        if tool is lance:  # keeps origins as long as the branch has files of them, we as long as there is the branch
            origins &= {one["version"] for one in line.open(lance).versions()}
        line.states = {version: state for version, state in line.states.items() if version in kept | origins}
        self.made(line, line.state, versions=0, by=("clean_up", tool.__name__, keep))
        line.check_all()

    @rule(tool=TOOLS, random=RANDOMS)
    def tag(self, tool, random):
        line = self.line(random)
        mine = [name for (root, name), _ in self.tags.items() if root == line.root and not name.startswith("clone")]
        version = random.choice(sorted(line.states))
        form = random.choice(["create", "update", "delete"]) if mine else "create"
        name = f"tag{next(self.names)}" if form == "create" else random.choice(mine)
        tags = line.open(tool).tags
        note(str(("tag", tool.__name__, form, name, line.branch, version)))
        if form == "delete":
            tags.delete(name)
            del self.tags[line.root, name]
        else:
            getattr(tags, form)(name, (line.branch, version))
            self.tags[line.root, name] = (line.branch, version)
        expected = {name: place for (root, name), place in self.tags.items() if root == line.root}
        for other in (lance_core, lance):
            listed = line.open(other).tags.list()
            assert {name: (one["branch"], one["version"]) for name, one in listed.items()} == expected
        for known in expected:
            assert lance_core.dataset(line.root, known).version == lance.dataset(line.root, known).version

    @precondition(lambda self: len(self.lines) < MAX_LINES)
    @rule(tool=TOOLS, random=RANDOMS)
    def branch(self, tool, random):
        line = self.line(random)
        version, name = random.choice(sorted(line.states)), f"b{next(self.names)}"
        line.open(tool).create_branch(name, (line.branch, version))
        line.children[name] = version
        self.begun(line, version, line.root, name, by=("branch", tool.__name__, line.branch, version, name))

    @precondition(lambda self: len(self.lines) < MAX_LINES)
    @rule(tool=TOOLS, random=RANDOMS)
    def clone(self, tool, random):
        line = self.line(random)
        version, name = random.choice(sorted(line.states)), f"clone{next(self.names)}"
        is_shallow = random.random() < 0.7
        dataset = line.open(tool)
        if is_shallow:
            dataset.tags.create(name, (line.branch, version))
            self.tags[line.root, name] = (line.branch, version)
        clone = dataset.shallow_clone if is_shallow else dataset.deep_clone
        clone(f"{self.folder}/{name}", (line.branch, version))
        by = ("shallow_clone" if is_shallow else "deep_clone", tool.__name__, line.branch, version, name)
        self.begun(line, version, f"{self.folder}/{name}", None, by=by)

    def begun(self, line, version, root, branch, *, by):
        note(str(by))
        new = line.begun(root, branch, version)
        assert new.open(lance_core).version == new.open(lance).version == version
        self.lines.append(new)
        new.check()

    @rule(tool=TOOLS, random=RANDOMS)
    def delete_branch(self, tool, random):
        lines = [one for one in self.lines if one.branch is not None and not one.children]
        lines = [one for one in lines if (one.root, one.branch) not in {(r, self.tags[r, n][0]) for r, n in self.tags}]
        if not lines:
            return
        line = random.choice(lines)
        tool.dataset(line.root).branches.delete(line.branch)
        note(str(("delete_branch", tool.__name__, line.branch)))
        self.lines.remove(line)
        for other in self.lines:
            if other.root == line.root:
                other.children.pop(line.branch, None)
        for other in (lance_core, lance):
            assert line.branch not in other.dataset(line.root).branches.list()

    @rule(tool=TOOLS, random=RANDOMS)
    def migrate(self, tool, random):
        line = self.line(random)
        line.open(tool).migrate_manifest_paths_v2()
        self.made(line, line.state, versions=0, by=("migrate", tool.__name__))


@pytest.mark.timeout(0 if IS_DEEP else 300)
def test_histories():
    phases = [Phase.generate, *([Phase.shrink] if IS_DEEP else [])]  # to shrink takes longer than a test may
    run_state_machine_as_test(
        seed(SEED)(Histories),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=phases,
            print_blob=False,
        ),
    )
