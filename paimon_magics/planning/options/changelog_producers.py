"""The changelog producers: where the changelog of a table comes from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChangelogProducer:
    """Where the changelog of a table comes from (`CoreOptions.ChangelogProducer`): from written
    rows, or from compactions, which look rows up or merge all rows."""

    name: str
    is_input: bool = False
    looks_up: bool = False
    compacts_fully: bool = False

    @property
    def of_compactions(self) -> bool:
        """Whether compactions make it."""
        return self.looks_up or self.compacts_fully


CHANGELOG_PRODUCERS: Mapping[str, ChangelogProducer] = {
    producer.name: producer
    for producer in (
        ChangelogProducer("none"),
        ChangelogProducer("input", is_input=True),
        ChangelogProducer("full-compaction", compacts_fully=True),
        ChangelogProducer("lookup", looks_up=True),
    )
}
NO_CHANGELOG = CHANGELOG_PRODUCERS["none"]
