import numpy as np
import pytest

from lance_core.encoding.kernels import distinct


@pytest.mark.parametrize("numbers", [[], [3], [3, 3], [2, -1, 2, 2**63 - 1, -(2**63), -1]])
def test_each_number_once_in_order(numbers):
    given = np.array(numbers, np.int64)
    assert distinct(given).tolist() == sorted(set(numbers))
    assert given.tolist() == numbers
