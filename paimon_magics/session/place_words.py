"""The arguments of `connect` that name a place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PlaceWords:
    """The arguments of `connect` that name a place, as the caller gave them."""

    warehouse: str | os.PathLike[str] | None = None
    catalog: Mapping[str, str] | None = field(default=None, repr=False)
    coordinator: str | None = None
    token: str | Callable[[], str] | None = field(default=None, repr=False)

    @property
    def names_a_place(self) -> bool:
        """Whether they name a place, rather than leave it to the environment."""
        is_at_address = "://" in (self.coordinator or "")
        return self.warehouse is not None or self.catalog is not None or is_at_address

    @property
    def shown(self) -> str:
        """The place as text for messages, "" if none is named."""
        warehouse = self.warehouse or (self.catalog or {}).get("warehouse") or ""
        return os.fspath(warehouse) or self.coordinator or ""
