"""What a model can draw and how to ask for it, told by a file beside its weights.

`training/world.py` writes it for the embedded model; others have none, or bring one in the same
form. Free of torch: the server reads it, for the page and for programs.
"""

import logging
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

log = logging.getLogger(__name__)

FILE = "world.json"
MAX_FILE_BYTES = 1024 * 1024  # the embedded model's has 28 KB


def _with_both(template: str) -> str:
    places = sorted(name for _, name, _, _ in Formatter().parse(template) if name is not None)
    if places != ["a", "b"]:
        raise ValueError("must hold {a} and {b}, each once")
    return template


# Words with single spaces between them.
Phrase = Annotated[str, StringConstraints(max_length=80, pattern=r"^\S+( \S+)*$")]
Phrases = tuple[Phrase, ...]
SomePhrases = Annotated[tuple[Phrase, ...], Field(min_length=1)]
Template = Annotated[Phrase, AfterValidator(_with_both)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Thing(_Row):
    """An object; `colour` is the natural one, and a paintable thing comes in all others, too."""

    name: Phrase
    synonyms: Phrases
    colour: Phrase | Literal[""]
    is_paintable: bool
    is_countable: bool = Field(description="has an article, and may be there two or three times")
    plural: Phrase | Literal[""] = ""


class Colour(_Row):
    """A colour of things and of backgrounds, as it is drawn."""

    name: Phrase
    synonyms: Phrases
    hex: Annotated[str, Field(pattern="^#[0-9a-f]{6}$")]


class Setting(_Row):
    """What may be behind the things, instead of a colour."""

    name: Phrase
    phrases: SomePhrases


class Position(_Row):
    """Where a thing may stand."""

    name: Phrase
    phrases: SomePhrases


class Size(_Row):
    """How large a thing may be."""

    name: Phrase
    words: SomePhrases


class Count(_Row):
    """How many of a countable thing."""

    count: int
    words: SomePhrases


class Relation(_Row):
    """How two things stand; `{a}` is the left one of "beside" and the upper one of "above"."""

    name: Phrase
    phrases: Annotated[tuple[Template, ...], Field(min_length=1)]


class World(_Row):
    """All that a model can draw; every phrase is one that it was taught, the usual one first."""

    objects: Annotated[tuple[Thing, ...], Field(min_length=1)]
    colours: tuple[Colour, ...]
    settings: tuple[Setting, ...]
    positions: tuple[Position, ...]
    sizes: tuple[Size, ...]
    counts: tuple[Count, ...]
    relations: tuple[Relation, ...]
    styles: Phrases = Field(description="words that it reads, and that change nothing")

    @model_validator(mode="after")
    def _check_colours(self) -> Self:
        known = {colour.name for colour in self.colours} | {""}
        for thing in self.objects:
            if thing.colour not in known:
                raise ValueError(f"{thing.name} has the colour {thing.colour}, which is none here")
        return self


def read_world(source: str) -> World | None:
    """The world of a model in the folder `source`, where it brings one.

    A file that is broken costs nothing but its own content: the log says so.
    """
    path = Path(source).expanduser() / FILE
    try:
        return World.model_validate_json(_read(path)) if path.is_file() else None
    except (OSError, ValueError) as error:
        log.warning("%s is ignored: %s", path, _fault(error))
        return None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
    return content


def _fault(error: Exception) -> str:
    """The first fault and its place; a file may have thousands."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]
