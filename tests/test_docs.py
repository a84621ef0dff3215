"""What the documents name is there: the models of their examples."""

import re
from pathlib import Path

import pytest

from pipelines.specs import EMBEDDED
from pipelines.text.embedded import NAME as EMBEDDED_TEXT

ROOT = Path(__file__).resolve().parents[1]
SERVED = {EMBEDDED, EMBEDDED_TEXT}  # by a studio that was started without flags


@pytest.mark.parametrize("document", ["README.md", "docs/api.md"])
def test_the_models_of_the_examples_are_served(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = re.findall(r'model"?(?:=|: )"([^"]+)"', text)
    assert set(named) == SERVED
