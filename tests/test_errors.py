"""Errors as people read them."""

from __future__ import annotations

import pytest

from paimon_magics.errors import PaimonMagicsError


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("The rows could not be loaded: Restore the file..", "Restore the file. Send it again."),
        ("The rows could not be loaded: Is it there?.", "Is it there? Send it again."),
        ("The rows could not be loaded: gone.", "gone. Send it again."),
        ("It goes on...", "It goes on... Send it again."),
        ("The file is in `..`", "in `..`. Send it again."),
    ],
)
def test_message_ending_with_a_sentence_has_a_single_stop(message: str, expected: str) -> None:
    error = PaimonMagicsError(message, hint="Send it again.")
    assert str(error).endswith(expected)
