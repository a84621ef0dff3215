"""What a text model is asked for an expansion: to go on with a prompt, or by chat.

A small model keeps to the subject only where it goes on with the person's own words. Of 30 tries
each with SmolLM2-135M-Instruct, chat with three examples kept both key words in 15, and completion
in all, by construction.
"""

import random
import re
from typing import Literal

from pipelines.text.requests import Message, Sampling, TextRequest
from studio.engine.text_protocol import TextModel
from studio.expansion import template
from studio.expansion.words import content_words
from studio.expansion.worlds import examples_of
from studio.world import World

ADAPTER = "expansion"
MAX_TOKENS = 110  # 60 words with their commas
MAX_WORLD_TOKENS = 32  # four short clauses
MAX_CHAT_TOKENS = 200  # a chat model says more around it
SMALL_PARAMETERS = 1e9  # from here on, instruct models follow the instruction

Form = Literal["adapter", "examples", "chat"]

Examples = tuple[tuple[str, str], ...]

EXAMPLES: Examples = (
    (
        "an old lighthouse",
        "an old lighthouse, standing on a rocky cliff above a stormy sea, weathered white paint, "
        "glowing lantern, dark clouds, spray in the air, dramatic side light, wide angle view",
    ),
    (
        "violin on a table",
        "violin on a table, polished wood with warm reflections, sheet music beside it, soft "
        "window light from the left, blurred background, shallow depth of field, still life "
        "photograph",
    ),
    (
        "market street",
        "market street, colourful stalls with fruit and spices, striped awnings, people in the "
        "distance, wet cobblestones, early evening, paper lanterns, detailed illustration",
    ),
)
_EXAMPLE_SUBJECTS = frozenset(content_words("lighthouse violin market stalls lanterns awnings"))
_INSTRUCTION = (
    "You turn a short idea for a picture into one prompt for an image model. Keep every word of "
    "the idea: its things, their number, colours and places. Add what can be seen: details, "
    "surroundings, light, colours, viewpoint, medium. Write one line of 20 to 50 words, phrases "
    "with commas between them. No story, no people that the idea does not name, no negations, no "
    "words around the prompt."
)
_PARAMETERS = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?) ?([mb])(?![A-Za-z])", re.IGNORECASE)
_CHAT_SAMPLING = Sampling(temperature=0.8, top_p=0.95)
# No repetition penalty: it would strike the commas, and a plain OpenAI server refuses the field.
_EXAMPLES_SAMPLING = Sampling(temperature=0.7, top_p=0.9)
_ADAPTER_SAMPLING = Sampling(
    temperature=template.TEMPERATURE,
    top_p=template.TOP_P,
    repetition_penalty=template.REPETITION_PENALTY,
)


def form_of(model: TextModel) -> Form:
    """How this model is asked. A size that its name does not tell is taken for a large one."""
    if model.completes and ADAPTER in model.adapters:
        return "adapter"
    if model.completes and (not model.chats or is_small(model.name)):
        return "examples"
    return "chat"


def is_small(name: str) -> bool:
    """Whether the name tells of less than a billion parameters: "smollm2-135m", "Qwen3-0.6B"."""
    found = _PARAMETERS.search(name)
    if found is None:
        return False
    return float(found[1]) * (1e6 if found[2].lower() == "m" else 1e9) < SMALL_PARAMETERS


def request_of(form: Form, idea: str, *, id: str, seed: int) -> TextRequest:
    """The request for one try; `idea` is one line that is not empty."""
    if form == "chat":
        turns = _turns(_INSTRUCTION, EXAMPLES, idea)
        return TextRequest(id, turns, seed, sampling=_CHAT_SAMPLING, max_tokens=MAX_CHAT_TOKENS)
    if form == "adapter":
        return TextRequest(
            id,
            template.prefix_of(idea),
            seed,
            sampling=_ADAPTER_SAMPLING,
            max_tokens=template.MAX_TOKENS,
            stop=(template.STOP,),
            adapter=ADAPTER,
        )
    return _completion(EXAMPLES, idea, id=id, seed=seed, max_tokens=MAX_TOKENS)


def world_request_of(
    form: Form, idea: str, world: World, rng: random.Random, *, id: str, seed: int
) -> TextRequest:
    """The same for a model with a world: a choice of its words, in clauses.

    The adapter has learnt other words, so a model with one completes examples here.
    """
    examples = tuple(examples_of(world, rng))
    if form != "chat":
        return _completion(examples, idea, id=id, seed=seed, max_tokens=MAX_WORLD_TOKENS)
    turns = _turns(_world_instruction(world), examples, idea)
    return TextRequest(id, turns, seed, sampling=_CHAT_SAMPLING, max_tokens=MAX_CHAT_TOKENS)


def copies_example(idea: str, text: str) -> bool:
    """Whether something of an example came into the text."""
    return bool(_EXAMPLE_SUBJECTS & set(content_words(text)) - set(content_words(idea)))


def _completion(
    examples: Examples, idea: str, *, id: str, seed: int, max_tokens: int
) -> TextRequest:
    """The examples in the layout of the request that follows them."""
    shown = "".join(
        f"{template.prefix_of(idea)}{prompt[len(idea) + 1 :]}\n\n" for idea, prompt in examples
    )
    return TextRequest(
        id,
        f"{shown}{template.prefix_of(idea)}",
        seed,
        sampling=_EXAMPLES_SAMPLING,
        max_tokens=max_tokens,
        stop=(template.STOP,),
    )


def _turns(instruction: str, examples: Examples, idea: str) -> tuple[Message, ...]:
    turns = [Message("system", instruction)]
    for example, prompt in examples:
        turns += [Message("user", example), Message("assistant", prompt)]
    return (*turns, Message("user", idea))


def _world_instruction(world: World) -> str:
    lists = {
        "size": [row.words[0] for row in world.sizes],
        "colour": [colour.name for colour in world.colours],
        "place": [row.phrases[0] for row in world.positions],
        "background": [
            *(row.phrases[0] for row in world.settings),
            *(f"{colour.name} background" for colour in world.colours),
        ],
    }
    told = "; ".join(f"{name}: {', '.join(words)}" for name, words in lists.items() if words)
    return (
        "Complete the idea for a picture with one of each list that suits it. Write the idea, then "
        f"your choices, with commas between them, and no other words. {told}."
    )
