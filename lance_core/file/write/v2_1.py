"""Write fields of files since version 2.1: only leaves have columns, each with the structure of all its ancestors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.encoding.leaves import LeafPath, check_nulls, leaf_paths, shred
from lance_core.encoding.options import free_options, page_options
from lance_core.encoding.pages import encode_blobs, encode_leaf, encode_shredded
from lance_core.encoding.profiles import DEFAULT_PROFILE
from lance_core.file.write.blob_files import check_blobs, place_blobs, put_blobs
from lance_core.format.blobs import is_second_version
from lance_core.format.file.file_metadata import Page, encode_column
from lance_core.format.file.page_layout import encode_layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.encoding.layouts.page import EncodedPage
    from lance_core.encoding.pages import RowsPage
    from lance_core.encoding.profiles import CompressionProfile
    from lance_core.encoding.values import Bytes
    from lance_core.file.write.blob_files import BlobFiles
    from lance_core.file.write.field_writer import Leaf, Leaves, Put
    from lance_core.format.schema import Field


_FIRST: tuple[int, ...] = (0,)


def _is_free(path: LeafPath) -> bool:
    """Return whether nothing but its type is said of a leaf, and a row has no fixed number of its values."""
    leaf = path.leaf
    return (
        not (leaf.children or leaf.metadata or leaf.extension_name or path.fields[0].metadata)
        and path.items_per_row == 1
    )


def _placed(page: EncodedPage, num_rows: int, first_row: int, put: Put) -> Page:
    """Write the buffers of a page, and return what the metadata tell of it."""
    buffers, layout = tuple(map(put, page.buffers)), page.encoded_layout or encode_layout(page.layout)
    return Page(buffers=buffers, num_rows=num_rows, first_row=first_row, layout=layout)


class FieldWriterV21:
    """One top-level field of a file being written.

    Args:
        field: The field, of a type that can be written.
        version: File version, by name.
        blobs: Takes the blobs that do not go into the file.
        profile: How columns are compressed for which the metadata asks for nothing.

    Attributes:
        field_ids: Fields that have a column, in the order of the columns.
        is_bare: Whether the field is one leaf, of which nothing but its type is said.
        paths: The leaves, in the order of the columns.
        free_leaves: Numbers of leaves of which nothing but the type is said.
        needs_check: Whether there are values that it cannot hold.

    Raises:
        InvalidInputError: Metadata that asks for something that does not exist.
    """

    def __init__(
        self, field: Field, *, version: str, blobs: BlobFiles, profile: CompressionProfile = DEFAULT_PROFILE
    ) -> None:
        self._blobs = blobs
        self._field = field
        self._num_rows = 0
        self._paths_of_blobs: list[LeafPath] = []
        self.is_bare = not (field.children or field.metadata or field.extension_name)
        self.needs_check = not self.is_bare or not field.nullable or field.logical_type == "struct"
        if self.is_bare:
            self.paths, self._options = [LeafPath((field,))], [free_options(version, profile)]
            self.free_leaves = _FIRST
            self._pages: list[list[Page]] = [[]]
            self.field_ids: tuple[int, ...] = (field.id,)
            return
        self.paths = leaf_paths(field)
        self._options = [page_options(path, version, profile) for path in self.paths]
        self._pages = [[] for _ in self.paths]
        self.free_leaves = tuple([number for number, path in enumerate(self.paths) if _is_free(path)])
        self._paths_of_blobs = [path for path in self.paths if is_second_version(path.leaf)]
        self.field_ids = tuple([path.leaf.id for path in self.paths])

    def check(self, array: pa.Array) -> None:
        """Look for values that the file cannot hold, before any of them is taken.

        Raises:
            InvalidInputError: Nulls where there must be none, blobs that are neither here nor there.
        """
        if self.needs_check:
            check_nulls(self._field, array)
        for path in self._paths_of_blobs:
            check_blobs(path.leaf, shred(path, array)[1])

    def write(self, array: pa.Array, put: Put, leaves: Leaves) -> None:
        """Write rows as pages of each leaf; the pages of different leaves may have other bounds.

        Args:
            array: The rows.
            put: Writes a buffer.
            leaves: Leaves of the rows that were looked at already; they are taken out, with the memory of their rows.
        """
        num_rows = len(array)
        for number, (path, pages) in enumerate(zip(self.paths, self._pages, strict=True)):
            first_row, leaf = self._num_rows, leaves.pop(number, None)
            if leaf is not None and leaf.page is not None:
                pages.append(_placed(leaf.page, num_rows, first_row, put))
                continue
            for rows in self._encode(number, array, leaf, put):
                # Page.length counts the items of fixed-size lists of structs, Page.priority the rows.
                pages.append(_placed(rows.page, rows.num_rows * path.items_per_row, first_row, put))
                first_row += rows.num_rows
        self._num_rows += num_rows

    def copy(self, pages: Iterable[tuple[Page, Sequence[bytes | Bytes]]], put: Put) -> int:
        """Take pages of other files as they are; the field must be one leaf. Returns the rows in them."""
        first_row = self._num_rows
        for page, buffers in pages:
            placed = tuple(put(buffer) for buffer in buffers)
            copied = Page(buffers=placed, num_rows=page.num_rows, first_row=self._num_rows, layout=page.layout)
            self._pages[0].append(copied)
            self._num_rows += page.num_rows
        return self._num_rows - first_row

    def _encode(self, number: int, array: pa.Array, leaf: Leaf | None, put: Put) -> Iterator[RowsPage]:
        path, options = self.paths[number], self._options[number]
        if leaf is not None:
            return encode_shredded(path, leaf.levels, leaf.array, len(array), options)
        if not path.leaf.is_blob:
            return encode_leaf(path, array, options)
        levels, blobs = shred(path, array)
        if not is_second_version(path.leaf):
            return encode_blobs(levels, *put_blobs(blobs, put), options)
        return encode_shredded(path, levels, place_blobs(path.leaf, blobs, put, self._blobs), len(array), options)

    def finish(self) -> list[bytes]:
        """Return the metadata of each leaf's column."""
        return [encode_column(pages) for pages in self._pages]
