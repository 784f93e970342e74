"""Which steps of a compaction look up what was merged before, and which give a changelog.

Source: `LookupMergeTreeCompactRewriter`, `FullChangelogMergeTreeCompactRewriter`,
`ChangelogMergeTreeRewriter`, `LookupStrategy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_magics.planning.compaction.levels import BucketFile
from paimon_magics.planning.compaction.steps import Rewrite, Upgrade
from paimon_magics.planning.schemas.table_schema import TableSchema

__all__ = ["LookupRules", "with_lookups"]

_FULL = "full-compaction"
_LOOKUP = "lookup"


@dataclass(frozen=True, slots=True)
class LookupRules:
    """What the compactions of a table look up and tell, by its options.

    `formats` are the file formats of the levels from 0 on. Full compactions write `max_level`, or
    a level above it that a file had before. `sees_all` tells whether the merged rows of level 0 are
    what they would be with the rows above: deduplicate without sequence fields.
    """

    looks_up: bool
    changelog_producer: str
    has_deletion_vectors: bool
    sees_all: bool
    formats: tuple[str, ...]
    max_level: int

    @classmethod
    def of(cls, schema: TableSchema, formats: Sequence[str], max_level: int) -> LookupRules:
        """The rules of a table whose levels have these file formats."""
        return cls(
            looks_up=schema.looks_up and schema.changelog_producer != _FULL,
            changelog_producer=schema.changelog_producer,
            has_deletion_vectors=schema.deletion_vectors_enabled,
            sees_all=schema.merge_engine == "deduplicate" and not schema.sequence_fields,
            formats=tuple(formats),
            max_level=max_level,
        )

    def looks_up_in(self, files: Sequence[BucketFile], output_level: int) -> bool:
        """Whether rewriting these files looks up rows above the output level."""
        return self.looks_up and output_level > 0 and any(file.level == 0 for file in files)

    def tells_changes_of(self, files: Sequence[BucketFile], output_level: int) -> bool:
        """Whether rewriting these files gives a changelog."""
        if self.changelog_producer == _FULL:
            return output_level >= self.max_level
        return self.changelog_producer == _LOOKUP and self.looks_up_in(files, output_level)


def with_lookups(
    steps: Sequence[Rewrite | Upgrade], output_level: int, rules: LookupRules
) -> list[Rewrite | Upgrade]:
    """The steps of a pick, with what upgrades need in a table that looks up or tells changes.

    An upgraded file is rewritten, or read for its changes and for the rows that it replaces, where
    these matter. Source: `upgradeStrategy` of the rewriters.
    """
    return [
        _upgraded(step, output_level, rules) if isinstance(step, Upgrade) else step
        for step in steps
    ]


def _upgraded(step: Upgrade, output_level: int, rules: LookupRules) -> Rewrite | Upgrade:
    file = step.file
    if rules.changelog_producer == _FULL:
        return replace(step, is_read=output_level >= rules.max_level)
    if not rules.looks_up or file.level != 0:
        return step
    may_delete = file.deleted_rows is None or file.deleted_rows > 0
    to_top = output_level >= rules.max_level
    if (
        rules.formats[0] != rules.formats[output_level]
        or (rules.has_deletion_vectors and may_delete)
        or not (to_top or rules.sees_all)
    ):
        return Rewrite((((file,),),), drops_deletes=rules.has_deletion_vectors)
    tells = rules.changelog_producer == _LOOKUP
    return replace(step, is_read=tells or (rules.has_deletion_vectors and not to_top))
