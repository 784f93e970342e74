"""Whether a manifest entry adds or deletes its file: Paimon's `FileKind`."""

from __future__ import annotations

__all__ = ["ADD", "DELETE"]

ADD, DELETE = 0, 1
