"""The words between an idea and its prompt: one text for training and for serving.

The model completes, it does not chat. The idea stands at the beginning of the prompt already, so
its subject cannot get lost; the model goes on after the comma and ends with a newline.
"""

import re

TEMPLATE = "Idea: {idea}\nPrompt: {idea},"
STOP = "\n"

# Lower, the same few clauses come under every idea; higher, more of them miss the subject.
TEMPERATURE = 0.6
TOP_P = 0.9
REPETITION_PENALTY = 1.0  # a penalty strikes the commas, too
MAX_TOKENS = 96  # the longest of the training texts has 80

_SPACES = re.compile(r"\s+")
_LOOSE_ENDS = " ,.;:"


def clean_idea(idea: str) -> str:
    """The idea on one line, without the punctuation at its end; all other letters untouched."""
    return _SPACES.sub(" ", idea).strip().rstrip(_LOOSE_ENDS)


def prefix_of(idea: str) -> str:
    """What the model goes on with. Raises `ValueError` where there is no idea to go on with."""
    if not (cleaned := clean_idea(idea)):
        raise ValueError(
            "There is no idea to expand. Type a few words, such as 'a cat on a chair'."
        )
    return TEMPLATE.format(idea=cleaned)
