"""What may go wrong in a run: chosen by its seed, so that each run has its own kinds of faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["GENTLE", "KINDS", "SIMULATED", "Faults", "PanicException", "faults_of"]

SIMULATED = "simulated"
"""What errors of the simulated world say that have no message of their own."""


class PanicException(BaseException):
    """What a library in Rust raises when it panics."""


KINDS = (
    "database refuses",
    "database is unclear",
    "database freezes",
    "database outage",
    "store fails",
    "store loses answers",
    "store freezes",
    "store fails strangely",
    "child dies",
    "child freezes",
    "network loses requests",
    "network loses answers",
    "network repeats",
    "clients vanish",
    "slow",
    "crashes",
    "clock jumps",
)
GENTLE = (
    "network loses requests",
    "network loses answers",
    "network repeats",
    "clients vanish",
    "slow",
    "crashes",
)
"""Faults of processes and of the network alone."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The rates of a run's faults, by kind: 0 for those that it hasn't. `pauses` is how often a
    call lets others run first."""

    rates: dict[str, float] = field(default_factory=dict)
    pauses: float = 0.1
    lock_pauses: float = 0.02
    crashes: tuple[int, ...] = ()
    clock_jumps: tuple[tuple[int, int], ...] = ()

    def __getitem__(self, kind: str) -> float:
        return self.rates.get(kind, 0.0)


def faults_of(rng: random.Random, kinds_max: Sequence[str] = KINDS) -> Faults:
    """Draw a run's faults of these kinds. A fifth of all runs have none, only concurrency."""
    pauses = rng.choice((0.02, 0.1, 0.3, 0.6))
    lock_pauses = rng.choice((0.0, 0.02, 0.1))
    if rng.random() < 0.2:
        return Faults({}, pauses, lock_pauses)
    wanted = rng.choice((1, 2, 3, 5, 8))
    kinds = rng.sample(kinds_max, min(wanted, len(kinds_max)))
    rates = {kind: rng.choice((0.003, 0.01, 0.03, 0.1)) for kind in kinds}
    crashes: tuple[int, ...] = ()
    if "crashes" in kinds:
        crashes = tuple(rng.randrange(20, 500) for _ in range(rng.choice((1, 1, 2, 3))))
    jumps: tuple[tuple[int, int], ...] = ()
    if "clock jumps" in kinds:
        hours = (-1, 1, -24, 96)
        jumps = tuple(
            (rng.randrange(0, 8_000_000), rng.choice(hours) * 3_600_000_000)
            for _ in range(rng.choice((1, 2)))
        )
    return Faults(rates, pauses, lock_pauses, crashes, jumps)
