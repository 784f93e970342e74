"""What an entry of a manifest does with its file: Paimon's `FileKind`."""

from __future__ import annotations

__all__ = ["ADD", "DELETE"]

ADD, DELETE = 0, 1
