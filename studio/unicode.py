"""Half of a surrogate pair passes JSON and Python, but can be neither read nor sent back."""

from studio.errors import BadRequest


def is_unicode(text: str) -> bool:
    """Whether all of `text` are characters."""
    try:
        text.encode()  # much faster than a look at each, for texts of 2,000,000
    except UnicodeEncodeError:
        return False
    return True


def check_unicode(name: str, text: str, *, param: str) -> None:
    """Raises `BadRequest` where not; `name` is what the message calls the field."""
    if not is_unicode(text):
        raise BadRequest(
            f"{name} holds half of a surrogate pair, which is no character. Send Unicode.",
            param=param,
        )
