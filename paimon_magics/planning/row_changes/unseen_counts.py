"""How many rows of an UPDATE the merge engine would not take, or not as they are, and why."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.merge_rules import field_option_keys
from paimon_magics.planning.schemas.table_schema import TableSchema

__all__ = ["ALL_SEEN", "UnseenCounts", "unseen_notes"]


@dataclass(frozen=True, slots=True)
class UnseenCounts:
    """The numbers of rows that were not written, because they are `older` than the stored ones or
    none of their values would be taken (`unchanged`), and of those that were changed `partly`."""

    older: int = 0
    unchanged: int = 0
    partly: int = 0

    @property
    def unwritten(self) -> int:
        """How many rows did not change."""
        return self.older + self.unchanged

    def __bool__(self) -> bool:
        return bool(self.older or self.unchanged or self.partly)

    def __add__(self, other: UnseenCounts) -> UnseenCounts:
        return UnseenCounts(
            self.older + other.older,
            self.unchanged + other.unchanged,
            self.partly + other.partly,
        )


ALL_SEEN = UnseenCounts()
"""Where each row is changed as it was assigned."""


def unseen_notes(schema: TableSchema, counts: UnseenCounts, be: str = "were") -> tuple[str, ...]:
    """A sentence for each reason for which rows did not change, or not as assigned. `be` is "were",
    or "would be" where nothing has been written."""
    notes = []
    if counts.older:
        fields = ", ".join(f"`{name}`" for name in schema.sequence_fields)
        notes.append(
            f"{_not_changed(counts.older, be)}: {'its' if counts.older == 1 else 'their'} sequence "
            f"({fields}, 'sequence.field') would get smaller, so that the old row would win."
        )
    if counts.unchanged:
        notes.append(f"{_not_changed(counts.unchanged, be)}: {_reason(schema)}.")
    if counts.partly:
        verb = "was" if counts.partly == 1 and be == "were" else be
        notes.append(
            f"{counts.partly:,} of the updated rows {verb} changed in part: {_reason(schema)}."
        )
    return tuple(notes)


def _not_changed(rows: int, be: str) -> str:
    if be == "were":
        return f"{count_text(rows, 'row')} {'was' if rows == 1 else 'were'} not changed"
    return f"{count_text(rows, 'row')} would not be changed"


def _reason(schema: TableSchema) -> str:
    suffixes = [suffix for _, _, suffix in field_option_keys(schema)]
    if "sequence-group" not in suffixes:
        return "with the merge engine partial-update a NULL leaves a value as it is"
    return (
        "with the merge engine partial-update a sequence group takes no values with a smaller or "
        "no sequence, and a NULL outside of groups leaves a value as it is"
    )
