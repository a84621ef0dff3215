"""The tray of words: each once, in words that the model was taught, and nothing becomes markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from studio.ui.words import groups_of
from studio.ui.world import world_tray
from studio.world import World
from tests.worlds import small_world
from training import world as training_world
from training.grammar import vocabulary
from training.tokenizers import MAX_TOKENS, build_t5_tokenizer

EXAMPLES = Path(__file__).resolve().parents[3] / "assets" / "prompts.json"
SMALL = World.model_validate_json(json.dumps(small_world()))
TAUGHT = World.model_validate_json(json.dumps(training_world.describe()))


class Chips(HTMLParser):
    """The attributes of each chip of a fragment, and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.chips: list[dict[str, str | None]] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = dict(attrs)
        if "word" in (values.get("class") or "").split():
            self.chips.append(values)


def test_a_world_becomes_groups_of_words() -> None:
    shown = {group.key: [word.text for word in group.words] for group in groups_of(SMALL)}
    assert shown == {
        "things": ["carrot", "car", "apple", "mouse", "ice cream", "unicorn", "cherries"],
        "colours": ["red", "orange"],
        "backgrounds": [
            "on a red background",
            "on an orange background",
            "in the snow",
            "at night",
        ],
        "places": ["on the left", "in the top left"],
        "sizes": ["small", "large", "two", "three"],
        "pairs": ["and", "next to", "to the left of", "above", "under"],
    }


def test_forms_of_places_and_settings_are_those_that_mean_nothing_else() -> None:
    forms = {word.text: word.forms for group in groups_of(SMALL) for word in group.words}
    assert forms["in the snow"] == ("in the snow", "on the snow")
    assert forms["on the left"] == ("on the left", "to the left")
    assert forms["at night"] == ("at night", "under a starry sky")
    assert "scarlet background" in forms["on a red background"]


def test_a_world_without_settings_and_colours_has_no_backgrounds() -> None:
    poor = SMALL.model_copy(update={"colours": (), "settings": ()})
    assert [group.key for group in groups_of(poor)] == ["things", "places", "sizes", "pairs"]


def test_every_word_of_the_embedded_models_world_is_one_that_it_was_taught() -> None:
    known = set(vocabulary())
    words = [word for group in groups_of(TAUGHT) for word in group.words]
    for word in words:
        assert set(re.findall("[a-z]+", " ".join((word.text, *word.forms)))) <= known, word
    assert len({(word.kind, word.text) for word in words}) == len(words) > 180


def test_each_word_is_a_chip_that_says_how_it_is_written() -> None:
    chips = Chips(world_tray(SMALL)).chips
    words = [word for group in groups_of(SMALL) for word in group.words]
    assert [(c["data-kind"], c["data-text"]) for c in chips] == [(w.kind, w.text) for w in words]
    assert [json.loads(c["data-forms"] or "") for c in chips] == [list(w.forms) for w in words]
    mouse, cherries = chips[3], chips[6]
    assert (mouse["data-plural"], mouse["data-article"]) == ("mice", "a")
    assert "data-plural" not in cherries and "data-article" not in cherries


def test_nothing_that_a_file_says_becomes_markup() -> None:
    evil = "<script>x</script>'\"><img"
    world = small_world()
    world["objects"][0] |= {"name": evil, "synonyms": [evil], "plural": evil}
    world["settings"][0]["phrases"] = [evil]
    world["styles"] = [evil]
    html = world_tray(World.model_validate_json(json.dumps(world)))
    found = Chips(html)
    assert not {"script", "img"} & found.tags
    assert found.chips[0]["data-text"] == found.chips[0]["data-plural"] == evil


# The examples on the empty stage


@pytest.fixture(scope="module")
def examples() -> list[str]:
    prompts: list[str] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return prompts


def test_the_examples_are_within_the_embedded_models_world(examples: list[str]) -> None:
    tokenizer = build_t5_tokenizer()
    for prompt in examples:
        ids = tokenizer(prompt).input_ids
        assert tokenizer.unk_token_id not in ids and len(ids) <= MAX_TOKENS, prompt
        names = [re.escape(form) for word in groups_of(TAUGHT)[0].words for form in word.forms]
        assert re.search(rf"\b({'|'.join(names)})s?\b", prompt), prompt


@pytest.mark.parametrize("kind", ["colour", "background", "place", "size", "count", "relation"])
def test_the_examples_show_what_else_there_is(examples: list[str], kind: str) -> None:
    words = [word for group in groups_of(TAUGHT) for word in group.words if word.kind == kind]
    forms = [form for word in words for form in word.forms]
    assert any(re.search(rf"\b{re.escape(form)}\b", text) for text in examples for form in forms)
