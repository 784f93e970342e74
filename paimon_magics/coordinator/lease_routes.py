"""Read leases and upkeep over HTTP: leases are taken and renewed, and counted.

`POST /v1/leases` with `{holder, leases: [{table, snapshot_id}]}` says everything that a holder
reads, each time anew; an empty list gives everything up. The answer is `{expires_at_ms, gone}`:
those in `gone` have expired, and there is no lease on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.documents import member, table_document, table_of
from paimon_magics.coordinator.service import Coordinator
from paimon_magics.errors import InvalidValueError

__all__ = ["UpkeepMetrics", "lease_routes"]

_HOLDER_CHARACTERS_MAX = 100


def lease_routes(coordinator: Coordinator) -> list[Route]:
    """The route that takes and renews read leases."""

    async def renew(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except ValueError as error:
            raise InvalidValueError("The body is not JSON.") from error
        holder = member(body, "holder", str)
        if not 0 < len(holder) <= _HOLDER_CHARACTERS_MAX:
            raise InvalidValueError("The member `holder` must be a text of 1 to 100 characters.")
        wanted = [
            (table_of(member(one, "table", Mapping)), member(one, "snapshot_id", int))
            for one in member(body, "leases", Sequence)
        ]
        expires_at_ms, gone = await run_in_threadpool(coordinator.lease, holder, wanted)
        return JSONResponse(
            {
                "expires_at_ms": expires_at_ms,
                "gone": [
                    {"table": table_document(name), "snapshot_id": snapshot_id}
                    for name, snapshot_id in gone
                ],
            }
        )

    return [Route("/v1/leases", renew, methods=["POST"])]


class UpkeepMetrics(Collector):
    """What is being read, and what has expired."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """For prometheus_client: the counts of this moment."""
        yield GaugeMetricFamily(
            "paimon_coordinator_read_leases",
            "Snapshots that sessions hold read leases on.",
            value=self._coordinator.leases.count(),
        )
        yield CounterMetricFamily(
            "paimon_coordinator_expired_snapshots",
            "Snapshots that were expired since the start.",
            value=self._coordinator.upkeep.expired,
        )
        yield CounterMetricFamily(
            "paimon_coordinator_upkeep_failures",
            "How often snapshots could not expire since the start.",
            value=self._coordinator.upkeep.failures,
        )
