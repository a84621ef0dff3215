"""Unknown routes of the API, which the page mounted at `/` would answer in its own way."""

from fastapi import APIRouter, Request

from studio.errors import NotFound

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def unknown_router() -> APIRouter:
    """Included last: it takes what no other route took."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/v1", methods=METHODS)
    @router.api_route("/v1/{path:path}", methods=METHODS)
    @router.api_route("/health/{path:path}", methods=METHODS)
    def unknown(request: Request) -> None:
        """Say that there is no such route, with the way out."""
        raise NotFound(
            f"There is no {request.method} {request.url.path[:100]}; /docs lists the routes.",
            code="unknown_route",
        )

    return router
