"""What is read from the log is what was written to it, or an error: never anything else."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from paimon_magics.coordinator.inserts.log.records import (
    DamagedError,
    Format,
    Record,
    Segment,
    read_segment,
    read_segments,
    seal,
)

RECORDS = [
    Record(1, Format.JSON, 0, 1, 1_000, b'{"rows":[[1]]}', "l:a", -1, b"digest"),
    Record(2, Format.JSON, 0, 2, 1_000, b'{"rows":[[2],[3]]}', user="Zoë"),
    Record(3, Format.ARROW, 7, 9, 1_001, b"\x00\xff arrow", "c:channel ü", 12, b"d"),
    Record(4, Format.CHANGES, 7, 0, 1_002, b"", "l:ä", -1, b"d", "service:etl"),
]


def sealed(*cuts: int) -> list[Segment]:
    """RECORDS in segments that end with these lsns."""
    segments, chain, begin = [], 0, 0
    for cut in cuts:
        segments.append(seal(RECORDS[begin:cut], chain))
        chain, begin = segments[-1].chain, cut
    return segments


def content(segments: Sequence[Segment]) -> list[tuple[int, bytes]]:
    return [(segment.first, segment.body) for segment in segments]


def prefix_of(found: Sequence[Record]) -> bool:
    return list(found) == RECORDS[: len(found)]


@pytest.mark.parametrize("cuts", [(4,), (1, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("after", range(5))
def test_records_round_trip_through_segments(cuts: tuple[int, ...], after: int) -> None:
    segments = [segment for segment in sealed(*cuts) if segment.last > after]
    actual, chain = read_segments(content(segments), after)
    assert actual == RECORDS[after:]
    assert chain == (segments[-1].chain if segments else None)


def test_records_are_read_up_to_a_place_within_a_segment() -> None:
    cut = seal(RECORDS[1:3], sealed(1)[0].chain)
    assert read_segments(content(sealed(1, 4)), 0, 0, upto=3) == (RECORDS[:3], cut.chain)


def test_truncated_segment_is_damaged() -> None:
    whole = sealed(4)[0].body
    for end in range(len(whole)):
        with pytest.raises(DamagedError):
            read_segment(whole[:end], 1, 0)


def test_any_flipped_bit_is_noticed() -> None:
    segments = sealed(2, 4)
    for position, segment in enumerate(segments):
        for bit in range(len(segment.body) * 8):
            changed = bytearray(segment.body)
            changed[bit // 8] ^= 1 << bit % 8
            stored = content(segments)
            stored[position] = (segment.first, bytes(changed))
            with pytest.raises(DamagedError):
                read_segments(stored, 0, 0)


@pytest.mark.parametrize(
    ("kept", "lsn"), [([1, 2], 1), ([0, 2], 2), ([0, 1, 1], 3), ([1, 0], 1), ([0, 2, 1], 2)]
)
def test_missing_or_misplaced_segment_is_noticed(kept: list[int], lsn: int) -> None:
    segments = sealed(1, 2, 4)
    with pytest.raises(DamagedError) as raised:
        read_segments(content([segments[number] for number in kept]), 0, 0)
    assert raised.value.lsn == lsn


def test_segment_of_another_history_is_refused() -> None:
    other = [Record(1, Format.JSON, 0, 1, 1_000, b"another"), *RECORDS[1:]]
    mixed = [*sealed(1), seal(other[1:], seal(other[:1], 0).chain)]
    with pytest.raises(DamagedError, match="does not follow"):
        read_segments(content(mixed), 0, 0)


def test_known_chain_of_published_records_is_checked() -> None:
    segments = sealed(2, 4)
    with pytest.raises(DamagedError, match="does not follow"):
        read_segments(content(segments[1:]), 2, segments[0].chain ^ 1)
    assert read_segments(content(segments[1:]), 2, segments[0].chain)[0] == RECORDS[2:]


@given(
    cuts=st.sets(st.integers(1, 3)),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=9)), max_size=3),
)
def test_overwritten_segments_yield_a_prefix_of_the_records(
    cuts: set[int], damage: list[tuple[int, bytes]]
) -> None:
    stored = []
    for first, body in content(sealed(*sorted(cuts), 4)):
        changed = bytearray(body)
        for place, written in damage:
            begin = place % len(changed)
            changed[begin : begin + len(written)] = written
        stored.append((first, bytes(changed)))
    actual: list[Record] = []
    for count in range(1, len(stored) + 1):
        try:
            actual, _ = read_segments(stored[:count], 0, 0)
        except DamagedError as error:
            assert error.lsn > len(actual)
            break
    assert prefix_of(actual)


def test_records_with_gaps_are_not_written() -> None:
    with pytest.raises(ValueError, match="record 3 where 2 comes next"):
        seal([RECORDS[0], RECORDS[2]], 0)
