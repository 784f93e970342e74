"""The version of the package, and the build that runs. Imports nothing of the package."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

__version__ = "0.1.0"

_COMMIT = re.compile(r"[0-9a-f]{40}")


def build() -> str:
    """The version with the commit that it was built from, where that is known: from a checkout, or
    an install from a repository. For people, as `0.1.0 (commit 1a2b3c4d5e6f)`."""
    commit = _commit_of_checkout(Path(__file__).parent.parent / ".git") or _commit_of_install()
    return f"{__version__} (commit {commit[:12]})" if commit else __version__


def _commit_of_checkout(git: Path) -> str:
    try:
        if git.is_file():  # of a worktree
            git = Path(git.read_text().partition("gitdir:")[2].strip())
        head = (git / "HEAD").read_text().strip()
        name = head.partition("ref: ")[2]
        if not name:
            return head if _COMMIT.fullmatch(head) else ""
        common = git / "commondir"
        root = git / common.read_text().strip() if common.exists() else git
        if (root / name).exists():
            return (root / name).read_text().strip()
        packed = (root / "packed-refs").read_text()
        line = re.search(rf"^([0-9a-f]{{40}}) {re.escape(name)}$", packed, re.MULTILINE)
        return line[1] if line else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _commit_of_install() -> str:
    """The commit of an install by `pip install git+…` (PEP 610)."""
    try:
        text = metadata.distribution("paimon-magics").read_text("direct_url.json")
        commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id", "")
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return ""
    return str(commit)
