"""Which files live, by the entries of manifests."""

from __future__ import annotations

import pyarrow as pa
import pytest

from paimon_magics.tables.manifests.live_files import undeleted
from paimon_magics.tables.manifests.names import ADD, DELETE


def entries(*steps: tuple[int, str, int]) -> pa.Table:
    """Entries of one bucket: kind, file, level. `place` is an entry's position."""
    return pa.table(
        {
            "kind": [kind for kind, _, _ in steps],
            "partition": pa.array([b""] * len(steps), pa.large_binary()),
            "bucket": [0] * len(steps),
            "level": [level for _, _, level in steps],
            "file_name": [name for _, name, _ in steps],
            "place": list(range(len(steps))),
        }
    )


A, D = ADD, DELETE


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([(A, "a", 0), (A, "b", 0)], [0, 1]),
        ([(A, "a", 0), (A, "b", 0), (D, "a", 0)], [1]),
        # A file that moves to another level keeps its name.
        ([(A, "a", 0), (D, "a", 0), (A, "a", 5)], [2]),
        # One that gets another index stays at its level, and the newest entry counts.
        ([(A, "a", 5), (A, "b", 0), (D, "a", 5), (A, "a", 5)], [1, 3]),
        ([(A, "a", 5), (D, "a", 5), (A, "a", 5), (D, "a", 5)], []),
        # A manifest that is listed twice shows its files twice, as in Paimon, whatever else goes.
        ([(A, "a", 0), (A, "b", 0), (A, "a", 0), (D, "b", 0)], [0, 2]),
        # What was added in a manifest that is not read may be deleted in one that is.
        ([(D, "x", 0), (A, "a", 0)], [1]),
        ([], []),
    ],
)
def test_each_deletion_cancels_a_single_addition(
    steps: list[tuple[int, str, int]], left: list[int]
) -> None:
    table = entries(*steps) if steps else entries((A, "a", 0)).slice(0, 0)
    assert undeleted(table)["place"].to_pylist() == left
