"""Paimon's hash of a row's keys as an expression that Spark runs in the JVM.

It equals `columnar.bucket_hash` bit for bit, for keys of fixed width. Other keys have no such
expression here, and are hashed by that kernel in a Python stage of its own. The expression saves
that stage, which takes every row to Python and back.

The hash is 32-bit Murmur3 over the words of Java's `BinaryRow`: eight bytes of row kind and null
bits, then eight bytes for each key. All arithmetic is on LONGs of which the low 32 bits count, and
no step overflows, so that ANSI mode makes no difference. Every step uses the one before it only
once, so that the expression grows linearly with the key and Spark plans it quickly:

- A rotation by n bits is a multiplication by 2^n modulo 2^32 - 1. Java's remainder of a negative
  number is negative, so that taking 1 before and adding it after keeps both 0 and 2^32 - 1.
- The final steps need their input twice. Spark's own hash of an INT ends with the same steps. So
  the inverse of its other steps computes the INT whose Spark hash is the wanted one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from paimon_magics.columnar.bucket_hash import SEED
from paimon_magics.statements.clauses.names import quoted

__all__ = ["row_hash"]

_KEYS_MAX = 8  # of more keys, `_null_bits` has no bits in the first word
_NULL_BITS_START = 8  # after the row kind
_BITS = 32
_MASK = 0xFFFFFFFF
_MIX_1, _MIX_2, _MIX_3 = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_HEADER_BYTES = 8
_SPARK_SEED, _INT_BYTES = 42, 4  # of Spark's `hash` of an INT


def row_hash(keys: Sequence[pa.Field]) -> str | None:
    """The hash of `keys`, Arrow fields of a frame's columns, as the SQL text of an INT.

    None where a key is not of a fixed width of 64 bits at most.
    """
    if len(keys) > _KEYS_MAX:
        return None
    words = [_null_bits(keys), "0"]
    for key in keys:
        found = _words(key)
        if found is None:
            return None
        words += found
    state = str(SEED)
    for word in words:
        mixed = f"{_rotated(f'({word} * {_signed(_MIX_1)}L)', 15)} * {_MIX_2}L"
        state = f"({_rotated(f'({state} ^ ({mixed}))', 13)} * 5 + {_MIX_3}L)"
    return _ended(state, len(words) * 4)


def _ended(state: str, length_bytes: int) -> str:
    """Murmur3's final steps, as Spark's hash of the INT that has `state` before them."""
    ended = f"(({state} ^ {length_bytes ^ _INT_BYTES}) & {_MASK}L)"
    mixed = f"({_rotated(f'(({ended} - {_MIX_3}L) * {_inverse(5)}L)', 32 - 13)} ^ {_SPARK_SEED})"
    number = f"({_rotated(f'({mixed} * {_inverse(_MIX_2)}L)', 32 - 15)} * {_inverse(_MIX_1)}L)"
    return f"hash(CAST(shiftright(shiftleft({number}, {_BITS}), {_BITS}) AS INT))"


def _rotated(value: str, bits: int) -> str:
    """The low 32 bits of `value` rotated left by `bits`, as a number that is not negative."""
    return f"((({value} & {_MASK}L) * {1 << bits}L - 1) % {_MASK}L + 1)"


def _null_bits(keys: Sequence[pa.Field]) -> str:
    """The first word of the row: a bit for each key that is NULL."""
    bits = [
        f"IF(isnull({quoted(key.name)}), {1 << (_NULL_BITS_START + position)}L, 0L)"
        for position, key in enumerate(keys)
        if key.nullable
    ]
    return f"({' + '.join(bits)})" if bits else "0"


def _words(key: pa.Field) -> tuple[str, str] | None:
    """The two 32-bit words of a key's slot, zero for NULL; None for types of no fixed width."""
    name = quoted(key.name)
    if pa.types.is_boolean(key.type):
        words = f"CAST({name} AS INT)", "0"
    elif pa.types.is_date32(key.type):
        words = f"unix_date({name})", "0"
    elif pa.types.is_int8(key.type):
        words = f"({name} & 255)", "0"
    elif pa.types.is_int16(key.type):
        words = f"({name} & 65535)", "0"
    elif pa.types.is_int32(key.type):
        words = name, "0"
    elif pa.types.is_int64(key.type):
        words = f"({name} & {_MASK}L)", f"shiftright({name}, {_BITS})"
    else:
        return None
    if not key.nullable:
        return words
    return f"coalesce({words[0]}, 0)", f"coalesce({words[1]}, 0)"


def _inverse(factor: int) -> int:
    """The inverse of `factor` modulo 2^32, as a signed number."""
    return _signed(pow(factor, -1, 1 << _BITS))


def _signed(bits: int) -> int:
    return bits - (1 << _BITS) if bits >> (_BITS - 1) else bits
