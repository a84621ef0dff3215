"""Who is at the page: the owner that the access middleware wrote into the request's scope."""

import gradio as gr


def owner_of(request: gr.Request) -> str:
    """The owner of the jobs and pictures that this browser may see.

    Gradio keeps the request that joined its queue, so the ASGI scope is that of the person who
    pressed the button. Raises `RuntimeError` where the middleware did not run: no owner is a
    mistake of ours, never a reason to show somebody's pictures.
    """
    inner = request.request
    owner = inner.scope.get("state", {}).get("owner") if inner is not None else None
    if not isinstance(owner, str) or not owner:
        raise RuntimeError("The page was reached without the access middleware: no owner is known.")
    return owner
