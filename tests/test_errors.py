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


@pytest.mark.parametrize(
    ("message", "hint", "told"),
    [
        (
            "`t` was not changed: it is gone. Run the statement again.",
            "Run the statement again.",
            "`t` was not changed: it is gone. Run the statement again.",
        ),
        (
            "`t` was changed. Nothing was written. Run the statement again.",
            "Nothing was written. Run the statement again: it plans anew.",
            "`t` was changed. Nothing was written. Run the statement again: it plans anew.",
        ),
        ("It failed.", "Wait a bit. Try it. Wait a bit.", "It failed. Wait a bit. Try it."),
        ("Yes. Yes.", "No. No.", "Yes. Yes. No. No."),
    ],
)
def test_composed_error_says_no_sentence_twice(message: str, hint: str, told: str) -> None:
    error = PaimonMagicsError(message, hint=hint)
    assert str(error) == told
    assert error.text().replace("\n", " ") == f"PaimonMagicsError: {told}"
    changed = PaimonMagicsError(message)
    changed.hint = hint
    assert str(changed) == told
