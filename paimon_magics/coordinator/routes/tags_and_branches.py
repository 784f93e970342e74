"""Changes of tags and branches, and rollbacks, for sessions.

`POST /v1/tables/versions` with `{table, change, repeated}` makes a change; the answer is its
receipt. A client whose first request got no answer sends it again with `repeated`.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.audited import tell
from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.threads import run_in_threadpool, run_steps
from paimon_magics.coordinator.protocol.documents import table_of
from paimon_magics.coordinator.protocol.members import member
from paimon_magics.coordinator.protocol.principals import Scope
from paimon_magics.coordinator.protocol.version_documents import change_of, version_receipt_document
from paimon_magics.coordinator.protocol.visibility import check_table
from paimon_magics.coordinator.service.served import Context
from paimon_magics.coordinator.service.tags_and_branches import change_versions

__all__ = ["version_route"]


def version_route(context: Context) -> Route:
    """The route that makes these changes."""

    async def change(request: Request) -> Response:
        body = await json_body(request)
        name = table_of(member(body, "table", Mapping))
        asked = change_of(member(body, "change", Mapping))
        repeated = member(body, "repeated", bool)
        await run_in_threadpool(
            check_table, principal_of(request), Scope.WRITE, name, context.catalog.load
        )
        about = f"{type(asked).__name__} {asked}"
        tell(request.scope, database=name.database, table=name.object_name, detail=about)
        receipt = await run_steps(change_versions(context, name, asked, repeated=repeated))
        return JSONResponse({"receipt": version_receipt_document(receipt)})

    return Route("/v1/tables/versions", change, methods=["POST"])
