"""Numbers told from the hashes that Spark's `xxhash64` makes of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from paimon_magics.columnar.key_numbers import _numbers_of_hashes, decimals_of_hashes


def test_hashes_of_sparks_examples_are_inverted() -> None:
    # Of Spark's documentation and tests: xxhash64(1L), (0L) and (-1L) with the seed 42.
    hashes = np.array([-7001672635703045582, -5252525462095825812, 3858142552250413010], np.int64)
    assert _numbers_of_hashes(hashes).tolist() == [1, 0, -1]


def test_different_hashes_invert_to_different_numbers() -> None:
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 100_000, np.int64)
    assert len(np.unique(_numbers_of_hashes(hashes))) == len(np.unique(hashes))


def test_hash_of_another_value_is_refused() -> None:
    hashes = pa.array([1, 2, 3], pa.int64())
    with pytest.raises(ValueError, match="decimal128"):
        decimals_of_hashes(hashes, pa.decimal128(12, 2))


def test_empty_and_all_null_columns_are_inverted() -> None:
    kind = pa.decimal128(1, 0)
    assert decimals_of_hashes(pa.array([], pa.int64()), kind).to_pylist() == []
    assert decimals_of_hashes(pa.array([None, None], pa.int64()), kind).to_pylist() == [None, None]
