"""Paimon's hash of a row's keys as expressions that Spark runs in the JVM.

Equal to `columnar.bucket_hash` to the bit, for keys of fixed width that can't be NULL; other keys
have no such expression here, and are hashed by that kernel in a Python stage of their own. What is
won is that stage: a way of every row to Python and back.

The hash is 32-bit Murmur3 over the words of Java's `BinaryRow`: eight bytes of row kind and null
bits, then eight bytes for each key. Numbers are LONGs that hold a signed 32-bit value, so that no
step overflows, whatever ANSI mode says.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from paimon_magics.columnar.bucket_hash import SEED
from paimon_magics.statements.names import quoted

__all__ = ["with_row_hash"]

_KEYS_MAX = 4  # more would be a plan of dozens of steps
_HEADER_WORDS = 2
_WORD_BITS = 32
_WORD_MASK = 0xFFFFFFFF
_MIX_1, _MIX_2, _MIX_3 = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_FINAL_1, _FINAL_2 = 0x85EBCA6B, 0xC2B2AE35


def with_row_hash(frame: DataFrame, keys: Sequence[pa.Field], name: str) -> DataFrame | None:
    """`frame` with the hash of `keys`, Arrow fields of its columns, as INT column `name`.

    None where a key may be NULL or is not of a fixed width of 64 bits at most.
    """
    if len(keys) > _KEYS_MAX:
        return None
    words: list[Column | None] = []
    for key in keys:
        found = _words(key)
        if found is None:
            return None
        words += found
    steps = _Steps(name)
    state: Column = F.lit(_header_state()).cast("long")
    for word in words:
        if word is not None:
            state = state.bitwiseXOR(_times(steps.rotated(_times(word, _MIX_1), 15), _MIX_2))
        state = _wrapped(steps.rotated(state, 13) * F.lit(5) + _constant(_MIX_3))
    state = state.bitwiseXOR(F.lit(4 * (_HEADER_WORDS + len(words))).cast("long"))
    for bits, factor in ((16, _FINAL_1), (13, _FINAL_2)):
        state = _times(steps.folded(state, bits), factor)
    state = steps.folded(state, 16)
    steps.made.append(state.cast("int").alias(name))
    return frame.select("*", *steps.made).drop(*steps.names)


class _Steps:
    """Columns that later ones use more than once, each computed once: Spark resolves the names
    inside the same SELECT, and does not copy what is dear to compute."""

    def __init__(self, name: str) -> None:
        self.made: list[Column] = []
        self.names: list[str] = []
        self._name = name

    def rotated(self, value: Column, bits: int) -> Column:
        """The 32 bits rotated left."""
        kept = self._keep(value)
        right = F.shiftrightunsigned(kept.bitwiseAND(_mask()), _WORD_BITS - bits)
        return _wrapped(F.shiftleft(kept, bits).bitwiseOR(right))

    def folded(self, value: Column, bits: int) -> Column:
        """The value XOR itself shifted right."""
        kept = self._keep(value)
        return kept.bitwiseXOR(F.shiftrightunsigned(kept.bitwiseAND(_mask()), bits))

    def _keep(self, value: Column) -> Column:
        name = f"{self._name}_{len(self.names)}"
        self.names.append(name)
        self.made.append(value.alias(name))
        return F.col(name)


def _words(key: pa.Field) -> tuple[Column | None, Column | None] | None:
    """The two words of a key's slot, None for one that is zero; None for other types."""
    if key.nullable:
        return None
    value = F.col(quoted(key.name))
    if pa.types.is_boolean(key.type):
        return value.cast("int").cast("long"), None
    if pa.types.is_date32(key.type):
        return F.unix_date(value).cast("long"), None
    if pa.types.is_int8(key.type):
        return value.cast("long").bitwiseAND(F.lit(0xFF).cast("long")), None
    if pa.types.is_int16(key.type):
        return value.cast("long").bitwiseAND(F.lit(0xFFFF).cast("long")), None
    if pa.types.is_int32(key.type):
        return value.cast("long"), None
    if pa.types.is_int64(key.type):
        return _wrapped(value), F.shiftright(value, _WORD_BITS)
    return None


def _wrapped(value: Column) -> Column:
    """The low 32 bits, as a signed number."""
    return F.shiftright(F.shiftleft(value, _WORD_BITS), _WORD_BITS)


def _times(value: Column, factor: int) -> Column:
    return _wrapped(value * _constant(factor))


def _constant(bits: int) -> Column:
    return F.lit(_signed(bits)).cast("long")


def _mask() -> Column:  # a function: there is no Spark when this module is imported
    return F.lit(_WORD_MASK).cast("long")


def _signed(bits: int) -> int:
    return bits - (1 << _WORD_BITS) if bits >> (_WORD_BITS - 1) else bits


def _header_state() -> int:
    """The state after the words of the header, which are zero and add nothing of their own."""
    state = SEED
    for _ in range(_HEADER_WORDS):
        rotated = (state << 13 | state >> (_WORD_BITS - 13)) & _WORD_MASK
        state = (rotated * 5 + _MIX_3) & _WORD_MASK
    return _signed(state)
