"""Which of the studio's two kinds of model a name means: one that draws, or one that writes."""

from collections.abc import Callable

from studio.errors import Unavailable, unknown_model
from studio.jobs import Jobs
from studio.texts import RETRY_AFTER_S, Texts

# Tags of the body's union, and with them parts of a fault's path: no field has such a name.
PICTURE = "<picture>"
TEXT = "<text>"


def kind_of(name: str, jobs: Jobs, texts: Texts) -> str:
    """`PICTURE` or `TEXT`. Raises `NotFound`, which lists both kinds, for an unknown name.

    Raises `Unavailable` while a text engine does not know yet what it serves.
    """
    if name in jobs.specs:
        return PICTURE
    model = texts.model
    if model is not None and name == model.name:
        return TEXT
    draws = f"makes pictures with {', '.join(map(repr, jobs.specs))}" if jobs.specs else ""
    writes = f"writes text with {model.name!r}" if model is not None else ""
    served = " and ".join(filter(None, (draws, writes)))
    if model is None and texts.status is not None:
        raise Unavailable(
            f"No picture model is called {name[:100]!r}, and the text engine does not know its "
            f"model yet. {texts.status.detail}",
            param="model",
            retry_after_s=RETRY_AFTER_S,
        )
    raise unknown_model(f"There is no model {name[:100]!r} here; this studio {served}.")


def kind_of_body(jobs: Jobs, texts: Texts) -> Callable[[object], str]:
    """By which schema a body is judged: its `model` says so."""

    def choose(body: object) -> str:
        name = body.get("model") if isinstance(body, dict) else None
        return kind_of(name, jobs, texts) if isinstance(name, str) else PICTURE

    return choose
