"""Methods of `LanceDataset` about indices; those that change something move the object to the version they made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from lance_core.change.retries import commit_options, commit_work
from lance_core.common.signatures import check_options, with_options
from lance_core.common.unsupported import refuse_given
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.indices import SYSTEM_PREFIX, describe, list_segments, statistics
from lance_core.methods.arguments import names_of
from lance_core.values.index_entries import uuid_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.indices import IndexDescription
    from lance_core.methods.protocols import OpenDataset

_BUILD_OPTIONS = frozenset({"memory_limit", "num_workers", "block_size"})
_BLOCK_SIZE = 128


class TextIndexOptions(TypedDict, total=False):
    """Options of full-text indices, which are named ``"INVERTED"`` or ``"FTS"``; names and defaults as in pylance.

    Attributes:
        with_position: Store where words are, which phrases need; false by default.
        base_tokenizer: ``simple``, runs of letters and digits, by default; ``whitespace``; ``raw``, the whole text; or
            ``ngram``.
        language: Language of stems and stop words; ``English`` by default.
        max_token_length: Words of so many bytes of UTF-8 or more are left out; 40 by default, None for no limit.
        lower_case: Put words in lower case; true by default.
        stem: Cut words to their stems; true by default, for ``ngram`` false.
        remove_stop_words: Leave out stop words; true by default, for ``ngram`` false.
        custom_stop_words: Stop words in place of those of the language.
        ascii_folding: Take accents off; true by default.
        min_ngram_length: Characters of an n-gram at least; 3 by default.
        max_ngram_length: Characters of an n-gram at most; 3 by default.
        prefix_only: Only n-grams at the begin of a text; false by default.
        memory_limit: MiB of memory, as ``max_memory_bytes``.
        num_workers: Accepted: it would make no difference to the index.
        block_size: Must be 128.
    """

    with_position: bool
    base_tokenizer: str
    language: str
    max_token_length: int | None
    lower_case: bool
    stem: bool
    remove_stop_words: bool
    custom_stop_words: Sequence[str] | None
    ascii_folding: bool
    min_ngram_length: int
    max_ngram_length: int
    prefix_only: bool
    memory_limit: int | None
    num_workers: int | None
    block_size: int | None


def text_index_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a kind that callers mean by `TextIndexOptions`.

    Raises:
        InvalidInputError: Another size of blocks.
    """
    options = {name: value for name, value in given.items() if name not in _BUILD_OPTIONS}
    if given.get("block_size") not in {None, _BLOCK_SIZE}:
        raise InvalidInputError(f"'block_size' must be {_BLOCK_SIZE}, not {given['block_size']!r}")
    if given.get("memory_limit") is not None:
        options["max_memory_bytes"] = int(given["memory_limit"]) << 20
    return options


@with_options(TextIndexOptions)
def create_scalar_index(
    dataset: OpenDataset,
    column: str | Sequence[str],
    index_type: str,
    name: str | None = None,
    *,
    replace: bool = True,
    train: bool = True,
    fragment_ids: Sequence[int] | None = None,
    index_uuid: str | None = None,
    rows_per_zone: int | None = None,
    number_of_items: int | None = None,
    max_memory_bytes: int | None = None,
    conflict_retries: int | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    progress_callback: Callable[[Any], None] | None = None,
    format_version: int | str | None = None,
    document_granularity: str | None = "row",
    **options: Unpack[TextIndexOptions],
) -> None:
    """Build an index; filters of scans, counts, deletes and updates use it, and searches of texts.

    Args:
        column: Name, or dotted path inside structs; a list of one is taken, too.
        index_type: One of the kinds below, in upper or lower case.

            - ``"BTREE"``: all values, sorted; finds rows by value, text also by prefix.
            - ``"BITMAP"``: the rows of each distinct value, for columns with few of them.
            - ``"LABEL_LIST"``: the rows of each item of lists, for ``array_has``, ``array_has_any`` and
              ``array_has_all``.
            - ``"NGRAM"``: the rows of each three letters or digits in a row, for ``contains`` and ``LIKE``.
            - ``"ZONEMAP"``: smallest and largest value, nulls and NaN of each run of rows; skips runs.
            - ``"BLOOMFILTER"``: a Bloom filter of each run of rows; skips runs for ``=`` and ``IN``.
            - ``"INVERTED"`` or ``"FTS"``: the rows of each word of texts, for ``full_text_query``.
            - ``"MINHASHLSH"``: signatures of texts, which find near duplicates with `MinHashQuery`.

            Indices of other kinds that pylance made are kept right.
        name: Name of the index; ``{column}_idx`` if None.
        replace: Take the place of an index of that name.
        train: If false, no fragment is covered; `DatasetOptimizer.optimize_indices` does the work later.
        fragment_ids: Fragments to cover; all if None.
        index_uuid: Name of the index folder; random if None.
        rows_per_zone: Rows in each run of a ``"ZONEMAP"``; 8192 if None.
        number_of_items: Rows in each run of a ``"BLOOMFILTER"``; 8192 if None.
        max_memory_bytes: Memory for sorting a ``"BTREE"``, ``"BITMAP"``, ``"LABEL_LIST"``, ``"NGRAM"`` or
            ``"MINHASHLSH"``; 512 MiB if None. More rows are sorted in temporary files. An ``"INVERTED"`` index gets a
            partition for each GiB, or for so many bytes.
        conflict_retries: How often to make it anew when another commit rewrote the fragments.
        transaction_properties: Text for the history.
        progress_callback: Not supported, like ``format_version`` and ``document_granularity``.
        format_version: Not supported.
        document_granularity: Not supported.
        **options: Options of an ``"INVERTED"`` index, see `TextIndexOptions`.

    Raises:
        InvalidInputError: An option that this kind does not have, or a value that does not fit.
        UnsupportedError: Another kind of index, a type that this kind does not take, or a tokenizer that lance_core
            does not have.
        AlreadyExistsError: There is an index of that name, and it shall not or cannot be replaced.

    Examples:
        >>> table.create_scalar_index("height", "ZONEMAP")
        >>> table.count_rows("height > 5000")  # reads the zone map only
        0
    """
    from lance_core.change.indices import BuildIndex, index_options  # noqa: PLC0415 rarely needed

    check_options("create_scalar_index", TextIndexOptions, options)
    refuse_given(
        "create_scalar_index",
        progress_callback=progress_callback,
        format_version=format_version,
        document_granularity=document_granularity,
    )
    column = _one_column(column)
    work = BuildIndex(
        kind=index_type,
        column=column,
        name=_checked_name(name, column),
        replace=replace,
        options=index_options(
            rows_per_zone=rows_per_zone, number_of_items=number_of_items, max_memory_bytes=max_memory_bytes
        )
        | text_index_options(options),
        fragment_ids=fragment_ids if train else (),
        uuid=None if index_uuid is None else uuid_bytes(index_uuid),
    )
    commit = commit_options(conflict_retries, properties=transaction_properties)
    dataset.snapshot = commit_work(dataset.snapshot, work, commit)


def create_index(  # noqa: PLR0917 positional as in pylance
    dataset: OpenDataset,
    column: str | Sequence[str],
    index_type: str,
    name: str | None = None,
    metric: str = "L2",
    replace: bool = False,
    num_partitions: int | None = None,
    ivf_centroids: Any = None,
    pq_codebook: Any = None,
    num_sub_vectors: int | None = None,
    accelerator: Any = None,
    index_cache_size: int | None = None,
    shuffle_partition_batches: int | None = None,
    shuffle_partition_concurrency: int | None = None,
    ivf_centroids_file: str | None = None,
    precomputed_partition_dataset: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    filter_nan: bool = True,
    train: bool = True,
    fragment_ids: Sequence[int] | None = None,
    index_uuid: str | None = None,
    *,
    target_partition_size: int | None = None,
    streaming_sample_rate: int | None = None,
    streaming_coreset_rate: int | None = None,
    streaming_refine_passes: int | None = None,
    skip_transpose: bool = False,
    progress_callback: Callable[[Any], None] | None = None,
    num_bits: int | None = None,
    sample_rate: int | None = None,
    max_iters: int | None = None,
    conflict_retries: int | None = None,
) -> OpenDataset:
    """Build a vector index; searches for the nearest vectors use it.

    Rows without a vector, or with NaN or infinite items in it, are not indexed.

    Args:
        column: A column of fixed-size lists of float16, float32, float64 or uint8; or a dotted path inside structs.
        index_type: One of these, in upper or lower case.

            - ``"IVF_FLAT"``: the vectors themselves, in partitions.
            - ``"IVF_PQ"``: a few bytes for each vector: numbers of entries of a codebook.
            - ``"IVF_SQ"``: a byte for each item.

            ``IVF_RQ`` and indices with graphs, ``IVF_HNSW_*``, that pylance made are searched, too.
        name: Name of the index; ``{column}_idx`` if None.
        metric: ``L2``, ``cosine`` or ``dot``; ``hamming`` for uint8.
        replace: Take the place of an index of that name.
        num_partitions: Number of partitions; one for each 4096 rows of an ``IVF_FLAT``, else for 8192, if None.
        ivf_centroids: Centroids, shape (partitions, dimensions), instead of trained ones.
        pq_codebook: Codebook, shape (sub-vectors, 2 ** bits, dimensions / sub-vectors), instead of a trained one.
        num_sub_vectors: Parts of a vector in an ``IVF_PQ``; must divide the dimensions.
        accelerator: Not supported, like the file arguments, ``train=False`` and the ``streaming`` ones.
        index_cache_size: Accepted.
        shuffle_partition_batches: Accepted.
        shuffle_partition_concurrency: Accepted.
        ivf_centroids_file: Not supported.
        precomputed_partition_dataset: Not supported.
        storage_options: Accepted; the dataset has its own.
        filter_nan: Accepted: NaN are always left out.
        train: Must be true.
        fragment_ids: Fragments to cover; all if None.
        index_uuid: Name of the index folder; random if None.
        target_partition_size: Rows of a partition, if ``num_partitions`` is None.
        streaming_sample_rate: Not supported.
        streaming_coreset_rate: Not supported.
        streaming_refine_passes: Not supported.
        skip_transpose: Not supported.
        progress_callback: Not supported.
        num_bits: Bits of a code of an ``IVF_PQ``: 8, or 4.
        sample_rate: Vectors of the sample for each centroid; 256 if None.
        max_iters: Rounds of k-means at most; 50 if None.
        conflict_retries: How often to make it anew when another commit rewrote the fragments.

    Raises:
        InvalidInputError: Options that contradict each other or the column, or there are no vectors.
        UnsupportedError: Another type of index, or a column without vectors.
        AlreadyExistsError: There is an index of that name, and it shall not or cannot be replaced.
    """
    from lance_core.change.indices import BuildIndex  # noqa: PLC0415 rarely needed
    from lance_core.index.column import column_to_index  # noqa: PLC0415 rarely needed
    from lance_core.index.vector.kind import VECTOR  # noqa: PLC0415 rarely needed
    from lance_core.index.vector.train import check_options  # noqa: PLC0415 rarely needed

    del index_cache_size, shuffle_partition_batches, shuffle_partition_concurrency, storage_options, filter_nan
    refuse_given(
        "create_index",
        accelerator=accelerator,
        ivf_centroids_file=ivf_centroids_file,
        precomputed_partition_dataset=precomputed_partition_dataset,
        streaming_sample_rate=streaming_sample_rate,
        streaming_coreset_rate=streaming_coreset_rate,
        streaming_refine_passes=streaming_refine_passes,
        skip_transpose=skip_transpose,
        progress_callback=progress_callback,
    )
    column = _one_column(column)
    if not train:
        raise UnsupportedError("create_index(train=False) is not supported: an index without partitions finds nothing")
    given: dict[str, Any] = {
        "index_type": index_type.upper(),
        "metric": metric,
        "num_partitions": num_partitions,
        "target_partition_size": target_partition_size,
        "num_sub_vectors": num_sub_vectors,
        "num_bits": num_bits,
        "ivf_centroids": ivf_centroids,
        "pq_codebook": pq_codebook,
        "sample_rate": sample_rate,
        "max_iters": max_iters,
    }
    chosen = {option: value for option, value in given.items() if value is not None}
    indexed = column_to_index(dataset.snapshot.manifest.schema, column)
    if VECTOR.takes(indexed.type):
        check_options(indexed, {**VECTOR.default_options, **chosen})
    work = BuildIndex(
        kind=VECTOR.name,
        column=column,
        name=_checked_name(name, column),
        replace=replace,
        options=chosen,
        fragment_ids=fragment_ids,
        uuid=None if index_uuid is None else uuid_bytes(index_uuid),
    )
    dataset.snapshot = commit_work(dataset.snapshot, work, commit_options(conflict_retries))
    return dataset


def _one_column(column: str | Sequence[str]) -> str:
    names = names_of(column, "column")
    if len(names) != 1:
        raise UnsupportedError(f"an index over {len(names)} columns is not supported: {', '.join(names)}")
    return names[0]


def _checked_name(name: str | None, column: str) -> str:
    if name is not None and (not name or name.startswith(SYSTEM_PREFIX)):
        raise InvalidInputError(f"{name!r} is not allowed as the name of an index")
    return name or f"{column}_idx"


def drop_index(dataset: OpenDataset, name: str) -> None:
    """Remove an index of any kind. Its files stay until the versions that have it are cleaned up.

    Raises:
        NotFoundError: There is no such index.

    Examples:
        >>> table.create_scalar_index("height", "ZONEMAP")
        >>> table.drop_index("height_idx")
        >>> table.list_indices()
        []
    """
    from lance_core.change.indices import DropIndex  # noqa: PLC0415 rarely needed

    dataset.snapshot = commit_work(dataset.snapshot, DropIndex(name=name), commit_options())


def describe_indices(dataset: OpenDataset) -> list[IndexDescription]:
    """Return the indices of this version, by name, as far as the manifest tells; their files are not opened."""
    return describe(dataset.snapshot.manifest)


def list_indices(dataset: OpenDataset) -> list[dict[str, Any]]:
    """Return the segments of all indices, by name.

    Returns:
        Dicts with ``name``, ``type`` (as in `describe_indices`), ``uuid``, ``fields`` (names), ``version``,
        ``fragment_ids`` and ``base_id``.

    Examples:
        >>> table.create_scalar_index("height", "ZONEMAP")
        >>> [index["name"] for index in table.list_indices()]
        ['height_idx']
    """
    return list_segments(dataset.snapshot.manifest)


def index_statistics(dataset: OpenDataset, index_name: str) -> dict[str, Any]:
    """Numbers about one index; the same as ``stats.index_stats``."""
    return statistics(dataset.snapshot.manifest, dataset.files, index_name)
