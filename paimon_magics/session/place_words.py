"""What a caller of `connect` said about the place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

__all__ = ["PlaceWords"]


@dataclass(frozen=True, slots=True)
class PlaceWords:
    """What `connect` was told about the place, in its words."""

    warehouse: str | os.PathLike[str] | None = None
    catalog: Mapping[str, str] | None = field(default=None, repr=False)
    coordinator: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def names_a_place(self) -> bool:
        """Whether it says where, rather than leaving it to the environment."""
        is_at_address = "://" in (self.coordinator or "")
        return self.warehouse is not None or self.catalog is not None or is_at_address

    @property
    def shown(self) -> str:
        """The place for a person, "" where none is named."""
        warehouse = self.warehouse or (self.catalog or {}).get("warehouse") or ""
        return os.fspath(warehouse) or self.coordinator or ""
