"""Read leases over HTTP: taken and renewed.

`POST /v1/leases` with `{holder, leases: [{table, snapshot_id}]}` lists all snapshots that a holder
reads, and replaces its earlier list; an empty list gives everything up. A holder of another
principal is another one, also by the same name. The answer is
`{expires_at_ms, lease_ms, gone}`: the snapshots in `gone` have expired, and are not leased.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.audited import tell
from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.threads import run_in_threadpool
from paimon_magics.coordinator.protocol.clock import lease_members
from paimon_magics.coordinator.protocol.documents import table_document, table_of
from paimon_magics.coordinator.protocol.members import member
from paimon_magics.coordinator.protocol.principals import Scope
from paimon_magics.coordinator.protocol.visibility import check_table
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.errors import InvalidValueError

__all__ = ["lease_routes"]

_HOLDER_CHARACTERS_MAX = 100


def lease_routes(coordinator: Coordinator) -> list[Route]:
    """The route that takes and renews read leases."""

    async def renew(request: Request) -> Response:
        body = await json_body(request)
        holder = member(body, "holder", str)
        if not 0 < len(holder) <= _HOLDER_CHARACTERS_MAX:
            raise InvalidValueError("The member `holder` must be a text of 1 to 100 characters.")
        wanted = [
            (table_of(member(one, "table", Mapping)), member(one, "snapshot_id", int))
            for one in member(body, "leases", Sequence)
        ]
        for name, _ in wanted:
            tell(request.scope, database=name.database, table=name.object_name)
            await run_in_threadpool(
                check_table, principal_of(request), Scope.READ, name, coordinator.load
            )
        principal = principal_of(request).name or ""
        expires_at_ms, gone = await run_in_threadpool(coordinator.lease, holder, wanted, principal)
        return JSONResponse(
            {
                **lease_members(expires_at_ms),
                "gone": [
                    {"table": table_document(name), "snapshot_id": snapshot_id}
                    for name, snapshot_id in gone
                ],
            }
        )

    return [Route("/v1/leases", renew, methods=["POST"])]
