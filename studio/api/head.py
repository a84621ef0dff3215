"""HEAD wherever there is a GET: the API's routes answer both, as proxies and probes expect."""

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadMiddleware:
    """Runs the GET of the path. The server leaves the body out, since it knows the real method."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
