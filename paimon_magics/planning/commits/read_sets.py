"""The read set of a statement that changes rows, as a value: a commit is checked against it.

Isolation is write-serializable, as Delta's: statements take effect as if they had run one after the
other, but one that only adds rows counts as later than those that ran beside it. On primary-key
tables only the written keys are checked: if two statements change one row, the second fails or runs
again, and no update is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_magics.planning.reads.predicates import ColumnPredicate

FILES_MAX = 20_000
"""Names of files in a read set: some 2 MB of a commit request. With more of them, all files that
the statement searched are checked."""

_VALUES_MAX = 1_000
_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class RowSearch:
    """The rows that a statement searched for: all rows that meet the `conditions`, () for all rows.

    With `adds_missing` it adds rows for missing matches, as MERGE does: if others add such rows
    meanwhile, that is a conflict. Without it, only rows of statements that read the table conflict.
    """

    conditions: tuple[ColumnPredicate, ...] = ()
    adds_missing: bool = False


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What a statement has read at the snapshot `snapshot_id` (0 for a table without any).

    The commit is refused if one of `files` (names of data files) was removed since, even by a
    compaction, or lost more rows. None stands for all files that can hold rows of `search`. With
    `written_keys` (a primary-key table) it is refused if its keys were written since. With a
    `search` it is refused if rows were added that match.

    `manifest_list` names the delta manifest list of the snapshot, by which another snapshot with
    its id is noticed; "" if that is unknown.
    """

    snapshot_id: int
    files: tuple[str, ...] | None = ()
    written_keys: bool = False
    search: RowSearch | None = None
    manifest_list: str = ""

    @property
    def state(self) -> tuple[int, str]:
        """The snapshot that was read: its id and `manifest_list`."""
        return self.snapshot_id, self.manifest_list


def read_keys(
    snapshot_id: int, search: RowSearch | None = None, *, manifest_list: str = ""
) -> ReadSet:
    """The read set of a statement on a primary-key table: the rows whose keys it writes. `search`
    is needed only if it adds rows that it searched for by columns other than the key."""
    return ReadSet(snapshot_id, (), True, _bounded(search), manifest_list)


def read_files(
    snapshot_id: int, files: Iterable[str], search: RowSearch, *, manifest_list: str = ""
) -> ReadSet:
    """The read set of a statement on an append table: the names of the `files` whose rows it
    changes (each rewritten or given a deletion vector), and the rows that it searched for.

    The value is bounded: of more than FILES_MAX files only the search is kept, and conditions with
    many or long values are left out. Both make the check stricter, never laxer.
    """
    names = tuple(sorted(set(files)))
    return ReadSet(
        snapshot_id,
        names if len(names) <= FILES_MAX else None,
        search=_bounded(search),
        manifest_list=manifest_list,
    )


def read_rows(snapshot_id: int, search: RowSearch, *, manifest_list: str = "") -> ReadSet:
    """The read set of a statement that adds rows made from other rows, and leaves those
    unchanged."""
    return ReadSet(snapshot_id, None, False, _bounded(search), manifest_list)


def _bounded(search: RowSearch | None) -> RowSearch | None:
    """Without the conditions that are too large for a request."""
    if search is None:
        return None
    small = tuple(
        condition
        for condition in search.conditions
        if len(condition.values) <= _VALUES_MAX
        and sum(len(value) for value in condition.values if isinstance(value, str))
        <= _CHARACTERS_MAX
    )
    return RowSearch(small, search.adds_missing)
