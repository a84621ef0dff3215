"""Let the embedded text model write, and keep what a draft head learns from.

`python -m training.speculation.write --kind expansions --count 6000 --out FILE`: expansions of the
grammar's ideas with the adapter, edits of whole prompts, or answers in a chat.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from pipelines.text import embedded
from pipelines.text.engine import EngineOptions, TextEngine
from pipelines.text.loading import load_text_model
from pipelines.text.requests import Message, Sampling, TextRequest
from studio.expansion import template
from training.expansion.pairs import Pair, pairs
from training.speculation.recording import Recorder, save_texts

ROWS = 64  # texts at once: a forward of many rows costs little more than one of few

EDITS = (
    "Rewrite this prompt so that it happens at night: {prompt}",
    "Change the light to golden evening light and keep everything else: {prompt}",
    "Shorten this prompt to its most important parts: {prompt}",
    "Replace the subject with a dog and keep the rest of the prompt: {prompt}",
    "Correct the spelling and punctuation, change nothing else: {prompt}",
    "Repeat this prompt and add a medium at the end: {prompt}",
)
QUESTIONS = (
    "Describe {idea} in one paragraph.",
    "Write an image prompt about {idea}.",
    "Tell me three facts about {idea}.",
    "What colours and light would suit a picture of {idea}?",
)


def requests_of(kind: str, count: int, seed: int) -> Iterator[TextRequest]:
    """`count` requests of a kind, the same for the same seed."""
    draw = Random(seed)
    for number, pair in enumerate(pairs(count, seed)):
        prompt, adapter, temperature = _asked(kind, pair, draw)
        yield TextRequest(
            id=str(number),
            prompt=prompt,
            seed=draw.randrange(2**32),
            sampling=Sampling(temperature=temperature, top_p=template.TOP_P),
            max_tokens=template.MAX_TOKENS,
            stop=(template.STOP,) if kind == "expansions" else (),
            adapter=adapter,
        )


def _asked(
    kind: str, pair: Pair, draw: Random
) -> tuple[str | tuple[Message, ...], str | None, float]:
    if kind == "expansions":
        return pair.prefix, "expansion", template.TEMPERATURE
    if kind == "edits":
        return (Message("user", draw.choice(EDITS).format(prompt=pair.prompt)),), None, 0.0
    return (Message("user", draw.choice(QUESTIONS).format(idea=pair.idea)),), None, 0.7


def main() -> None:
    """Write from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("expansions", "edits", "answers"), required=True)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("data/text"))
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    model = load_text_model(embedded.NAME, folder=asked.folder, device="cpu")
    recorder = Recorder()
    # Nothing is reused: the head needs the states of every token.
    options = EngineOptions(max_rows=ROWS, prefix_bytes=0)
    engine = TextEngine(model, lambda event: None, options, recorder)
    for request in requests_of(asked.kind, asked.count, asked.seed):
        engine.submit(request)
    told = 0
    while engine.is_busy:
        engine.step()
        if len(recorder.texts) >= told + 250:
            told = len(recorder.texts)
            print(f"{told} texts", flush=True)
            save_texts(recorder.texts, asked.out)
    save_texts(recorder.texts, asked.out)


if __name__ == "__main__":
    main()
