"""Values as places among few items, as pages with dictionaries hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import (
    dictionary_without_nulls,
    null_mask,
    pack_bits,
    take_values,
    words_of,
)
from lance_core.encoding.kernels import check_places, numbers_array, take_inside
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.repdef import Mask


@frozen
class DictionaryEncoded:
    """Some values of a column.

    Attributes:
        items: The items; none is null, some may be alike, and some may be no value's.
        indices: Shape (n,), unsigned: for each value its index among the items.
        validity: Shape (n,), False for null; None if nothing is null.
    """

    items: pa.Array
    indices: npt.NDArray[Any]
    validity: Mask | None

    @classmethod
    def of(cls, array: pa.DictionaryArray) -> DictionaryEncoded:
        """Return the values of an array."""
        array = dictionary_without_nulls(array)
        is_null = null_mask(array)
        return cls(array.dictionary, words_of(array.indices.fill_null(0)), None if is_null is None else ~is_null)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.indices)

    def taken(self, rows: npt.NDArray[np.int64]) -> DictionaryEncoded:
        """Return some of the values: shape (m,), their numbers."""
        return DictionaryEncoded(self.items, self.indices[rows], None if self.validity is None else self.validity[rows])

    def questions(self) -> pa.Array:
        """Return the items, and null."""
        return pa.concat_arrays([self.items, pa.nulls(1, self.items.type)])

    def spread(self, answers: Mask) -> Mask:
        """For each value what was answered to its item.

        Args:
            answers: One for each of the `questions`.

        Raises:
            CorruptDataError: A place where there is no item.
        """
        spread_answers = take_values(FixedValues(answers[:-1].view(np.uint8)), self.indices)
        if not isinstance(spread_answers, FixedValues):
            raise CorruptDataError("answers are not of fixed width")
        mask: Mask = spread_answers.data.view(np.bool_)
        return mask if self.validity is None else np.where(self.validity, mask, answers[-1])

    def values(self) -> pa.Array:
        """Return the values themselves; errors as `spread`."""
        check_places(self.indices, len(self.items))
        index_array = numbers_array(self.indices)
        if self.validity is not None:
            buffers = [pack_bits(self.validity), index_array.buffers()[1]]
            index_array = pa.Array.from_buffers(index_array.type, len(index_array), buffers)
        return take_inside(self.items, index_array)
