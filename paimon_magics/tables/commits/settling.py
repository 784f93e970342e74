"""Removes what a committed transaction wrote and did not commit."""

from __future__ import annotations

import contextlib

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.commits.decoded_request import DecodedRequest, left_out_paths
from paimon_magics.tables.writing.cleanup import tidy_up

__all__ = ["settle"]


def settle(asked: DecodedRequest) -> None:
    """After a commit, remove the files of messages that it left out and of attempts that do not
    count. It does not wait, and ignores failures.

    Files that were left out go first: an attempt that wrote some of them counts where others of its
    files were committed, and then its notes, which lead to them, are removed.
    """
    with contextlib.suppress(PaimonMagicsError, OSError):
        asked.table.paths.delete(left_out_paths(asked))
    tidy_up(asked.table, asked.request.transaction, asked.file_names)
