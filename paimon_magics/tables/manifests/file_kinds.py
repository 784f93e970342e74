"""Whether a manifest entry adds or deletes its file (Paimon's `FileKind`), and whether the file's
rows were written for the first time or compacted (`FileSource`)."""

from __future__ import annotations

__all__ = ["ADD", "APPENDED", "COMPACTED", "DELETE"]

ADD, DELETE = 0, 1
APPENDED, COMPACTED = 0, 1
