"""The machine's clock, and how long leases last.

An answer says how long a lease lasts from now on (`lease_ms`), since the clocks of two machines may
differ by any time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from paimon_magics.coordinator.protocol.json_text import member


def now_ms() -> int:
    """Return the milliseconds since 1970 by the machine's clock."""
    return int(time.time() * 1000)


def lease_members(expires_at_ms: int) -> dict[str, int]:
    """The members of an answer that say when a lease ends: by this machine's clock, and from now
    on."""
    return {"expires_at_ms": expires_at_ms, "lease_ms": max(expires_at_ms - now_ms(), 0)}


def lease_ms_of(answer: Mapping[str, Any]) -> int:
    """How long the lease in an answer lasts from now on. For an older coordinator's answer, it is
    computed by this machine's clock.
    """
    if "lease_ms" in answer:
        return int(member(answer, "lease_ms", int))
    return int(member(answer, "expires_at_ms", int)) - now_ms()
