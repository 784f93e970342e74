"""Amounts as a person reads them."""

from __future__ import annotations

import pytest

from paimon_magics.planning.formatting import age_text, count_text, size_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"),
     (172_799, "47 h"), (172_800, "2 days"), (864_000_000, "10,000 days")],
)  # fmt: skip
def test_age_is_shown_in_its_largest_unit(seconds: int, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (128 << 20, "128 MiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_size_uses_binary_units(size: int, text: str) -> None:
    assert size_text(size) == text


def test_count_of_1_is_singular() -> None:
    assert (count_text(1, "small file"), count_text(1204, "file")) == (
        "1 small file",
        "1,204 files",
    )
