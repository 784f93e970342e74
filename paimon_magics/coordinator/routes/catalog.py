"""All routes that change or show a catalog: for Paimon's REST clients, and for sessions."""

from __future__ import annotations

from starlette.routing import Route

from paimon_magics.coordinator.rest.catalog import rest_catalog_routes
from paimon_magics.coordinator.routes.definitions import definition_routes
from paimon_magics.coordinator.routes.tags_and_branches import version_route
from paimon_magics.coordinator.service.served import Context

__all__ = ["catalog_routes"]


def catalog_routes(context: Context, warehouse: str | None = None) -> list[Route]:
    """The routes. `warehouse` is a name that REST clients may use beside the warehouse's own."""
    return [
        *rest_catalog_routes(context, warehouse),
        version_route(context),
        *definition_routes(context),
    ]
