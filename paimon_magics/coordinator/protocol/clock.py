"""The machine's clock, and how long leases last.

An answer says how long a lease lasts from now on (`lease_ms`), since the clocks of two machines may
differ by any time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from paimon_magics.coordinator.protocol.json_text import member

_RENEWALS_PER_LEASE = 4
_PAUSE_SECONDS_MIN = 0.1
_PAUSE_SECONDS_MAX = 20.0  # a third of the default lease
_PAUSE_SECONDS_WITHOUT_LEASE = 1.0


def now_ms() -> int:
    """Return the milliseconds since 1970 by the machine's clock."""
    return int(time.time() * 1000)


def machine_ms(at_ms: int, clock_ms: int) -> int:
    """A moment of a coordinator's own clock by this machine's clock, for a person or a file's
    time. `clock_ms` is the present time of the first.

    The coordinator's clock advances by one that never goes back, and does not follow the machine's
    when that is set.
    """
    return now_ms() + at_ms - clock_ms


def lease_members(expires_at_ms: int, at_ms: int) -> dict[str, int]:
    """The members of an answer that say when a lease ends: by this machine's clock, and from now
    on.

    `expires_at_ms` and the present time `at_ms` are of one clock, the coordinator's own, which does
    not follow the machine's clock when that is set.
    """
    lease_ms = max(expires_at_ms - at_ms, 0)
    return {"expires_at_ms": now_ms() + lease_ms, "lease_ms": lease_ms}


def lease_ms_of(answer: Mapping[str, Any]) -> int:
    """How long the lease in an answer lasts from now on. For an older coordinator's answer, it is
    computed by this machine's clock.
    """
    if "lease_ms" in answer:
        return int(member(answer, "lease_ms", int))
    return int(member(answer, "expires_at_ms", int)) - now_ms()


def renewal_seconds(answer: Mapping[str, Any]) -> float:
    """How long a client waits before it renews the lease in an answer: a quarter of the lease,
    within bounds.

    A lease that is said to be hours long, or no time at all, comes from a coordinator whose clock
    was set. The bounds keep such a lease from its end, and the coordinator from a flood of
    requests.
    """
    lease_ms = lease_ms_of(answer)
    if lease_ms <= 0:
        return _PAUSE_SECONDS_WITHOUT_LEASE
    seconds = lease_ms / 1000 / _RENEWALS_PER_LEASE
    return min(max(seconds, _PAUSE_SECONDS_MIN), _PAUSE_SECONDS_MAX)
