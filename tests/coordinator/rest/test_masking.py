"""Messages of the REST catalog reach users of Paimon's Java client."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.coordinator.rest.errors import unmasked

MARKERS = "password secret token credential accesskey accountkey encryptionkey authorization"
MARKERS += " privatekey apikey signature sas"


def is_masked(message: str) -> bool:
    """`SensitiveConfigUtils.redactText`."""
    lower = message.lower()
    if any(literal in lower for literal in ("sig=", '"sig"', "'sig'")):
        return True
    letters = re.sub("[^a-z0-9]", "", lower)
    return any(marker in letters for marker in MARKERS.split())


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("`shop.t` has a snapshot.", "`shop.t` has just a snapshot."),
        ("Writers ask twice.", "Writers just ask twice."),
        ("It is as of now.", "It is just as of now."),
        ("The token is missing.", "The key is missing."),
        ("There is no table `shop.user_tokens`.", "There is no table `shop.user_…s`."),
        ("The option 's3.secret-key' is wrong.", "The option 's3.…-key' is wrong."),
        ("There is no table `shop.orders`.", "There is no table `shop.orders`."),
    ],
)
def test_masked_message_is_reworded(message: str, shown: str) -> None:
    assert is_masked(message) == (message != shown)
    assert unmasked(message) == shown


@given(st.lists(st.sampled_from([*"as. =sig'\"", "has a", " s", "to", "ken", *MARKERS.split()])))
def test_reworded_message_is_never_masked(parts: list[str]) -> None:
    assert not is_masked(unmasked("".join(parts)))


def test_message_contains_no_format_directive() -> None:
    """`BadRequestException` passes its message to `String.format`."""
    assert unmasked("There is no table `shop.50%d`.") == "There is no table `shop.50\uff05d`."
