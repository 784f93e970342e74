"""A checkpoint as a kill in its very first write leaves it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

__all__ = ["leave_half_a_write"]


def leave_half_a_write(checkpoint: Path) -> Path:
    """Make the checkpoint of a query that died while it wrote its first offsets; return the file
    of which Spark says that it should not be there."""
    folder = checkpoint / "offsets"
    folder.mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    half = folder / f".0.{uuid.uuid4()}.tmp"
    half.write_text("v1")
    half.with_name(f".{half.name}.crc").write_bytes(b"crc")
    return half
