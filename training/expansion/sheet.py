"""The 40 held-out ideas through the studio's own way, as the table of docs/expansion.md.

`python -m training.expansion.sheet --folder data/text`: the served model, its checks and retries,
seed i for idea i; none is left out and none is drawn again.
"""

import argparse
import asyncio
from pathlib import Path

from pipelines.specs import find_spec
from pipelines.text.embedded import NAME
from studio.engine.messages import TextWorkerConfig
from studio.engine.text_local import LocalTextEngine
from studio.errors import ExpansionFailed
from studio.expansion.expand import Expander, Expansion
from studio.texts import Texts
from training.expansion.pairs import held_out_ideas

PICTURE_MODEL = "black-forest-labs/FLUX.1-dev"
READY_POLL_S = 0.2


async def expansions(folder: Path) -> list[tuple[str, str, int]]:
    """Each idea with its prompt, or why it has none, and how many tries it took."""
    engine = LocalTextEngine(TextWorkerConfig(NAME, folder))
    engine.start()
    while engine.status.state in ("starting", "loading"):  # noqa: ASYNC110 (another process)
        await asyncio.sleep(READY_POLL_S)
    expander, spec, rows = Expander(Texts(engine)), find_spec(PICTURE_MODEL), []
    for seed, idea in enumerate(held_out_ideas()):
        try:
            async for step in expander.expand(idea, owner="sheet", spec=spec, seed=seed):
                if isinstance(step, Expansion):
                    rows.append((idea, step.text, step.attempts))
        except ExpansionFailed as error:
            rows.append((idea, f"({error.message})", 0))
    engine.close()
    return rows


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("data/text"))
    rows = asyncio.run(expansions(parser.parse_args().folder))
    print("| | idea | prompt | tries |\n|---|---|---|---|")
    for number, (idea, text, tries) in enumerate(rows):
        print(f"| {number} | {idea} | {text} | {tries} |")


if __name__ == "__main__":
    main()
