"""The answers to inserts as documents, and as the text that is sent."""

from __future__ import annotations

import json

import pytest

from paimon_magics.coordinator.inserts.queue.values import (
    Accepted,
    Answer,
    Flushed,
    Mode,
    Reason,
    Refused,
)
from paimon_magics.coordinator.protocol.principals import Principal
from paimon_magics.coordinator.routes.insert_requests import (
    answer_document,
    answer_json,
    header_text,
    named_by,
    refusal,
    sender_of,
)
from paimon_magics.errors import InvalidValueError


@pytest.mark.parametrize(
    "answer",
    [
        Accepted(7, Mode.ASYNC),
        Accepted(7, Mode.ASYNC, duplicate=True),
        Accepted(7, Mode.ASYNC, trouble='a "bad" day'),
        Accepted(7, Mode.SYNC, snapshot_id=3),
        Flushed(7, 3),
        Flushed(7),
    ],
)
@pytest.mark.parametrize("label", [None, 'a "label"'])
def test_an_answer_is_sent_as_its_document(answer: Answer, label: str | None) -> None:
    sent = json.loads(answer_json(answer, label))
    assert list(sent.items()) == list(answer_document(answer, label).items())


@pytest.mark.parametrize("bad", ["a\0b", "\ud800", "x\udfff"])
def test_unstorable_labels_and_channels_are_refused(bad: str) -> None:
    with pytest.raises(InvalidValueError, match="can't contain NUL or a lone surrogate"):
        named_by(bad, None, None)
    with pytest.raises(InvalidValueError, match="can't contain NUL or a lone surrogate"):
        named_by(None, bad, 0)
    assert named_by("😀", None, None).label == "😀"
    assert sender_of(Principal(bad, None), None).encode().decode().isprintable()


def test_refusal_with_a_sentence_as_reason_ends_with_a_single_stop() -> None:
    told = refusal(Refused(Reason.DEAD, "The file is gone. Restore the file."))
    assert told["message"].endswith("The file is gone. Restore the file.")


def test_white_space_around_a_header_is_stripped() -> None:
    assert [header_text(value) for value in (b"L1", b"L1 ", b"L1\t", b" a b ")] == [
        *["L1"] * 3, "a b"
    ]  # fmt: skip
