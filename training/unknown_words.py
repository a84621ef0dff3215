"""Words outside the vocabulary, put into some captions so that they come to mean nothing."""

from __future__ import annotations

import random
import string

from training.backgrounds import COLOUR_WORDS
from training.emoji import OBJECTS
from training.grammar import vocabulary

KNOWN = frozenset(vocabulary())
_CONSONANTS = (*"bcdfghjklmnprstvwz", "br", "ch", "cl", "gr", "pl", "sh", "sp", "st", "th", "tr")
_ENDINGS = ("", "", "n", "r", "s", "t", "ll", "nd", "ng", "st")
_ENGLISH = """
about after again always amazing ancient angry another army bank beach bed been before
better board body both bottle boy brave bread bridge brother building butter called city class
clever clothes cold company concrete cool country crazy dancing day doctor door dream drinking
driver early earth eating electric empty end every evening eyes face family famous fast father
feeling fighting find finger first floor flying forest friend friendly fruit full future game
giving glass going good grandmother great guy hair happy has have having head heavy her his
holding hungry idea inside its jumping just kind king kitchen knight lady last laughing long
looking love machine magic man many mirror money morning most music must new nobody not number
office old only other our outside paper people photo photorealistic playing portrait president
princess queen quick quiet reading realistic ready rich river road room running sad scary science
shiny shop silver singing sitting sleeping sleepy slow smart smiling soft sound standing station
steel stone street strong summer table talking tall than their them then they thing thinking time
today together tower town toy travel very walking warm was watching wearing weather were which
while who wild window wise woman wooden word work world young your
"""
# Words that begin with a known one. Others are made by rule.
_COMPOUNDS = """
appletree balloonist bearing beefsteak bookshelf cakewalk capital caravan carbon career carnival
carpet cartoonist catalog catapult caterpillar catfish cattle crabby dogma dogwood dragonfly
foxglove frogman giftwrapped hatred heartburn horseshoe housewife keyboard keyhole
lionheart moonshine mousepad owlish pigment planetary redwood rosemary starfish starlight sunny
sunset sunrise tentative treetop truckload turtleneck whitewash blackboard blueberry greenhouse
"""
ENGLISH, COMPOUNDS = _ENGLISH.split(), _COMPOUNDS.split()
_STEMS = tuple(name for name in (*(e.name for e in OBJECTS), *COLOUR_WORDS) if name.isalpha())


def unknown_word(rng: random.Random) -> str:
    """A word of one to sixteen letters that no caption means anything by."""
    makers = (_letters, _syllables, _syllables, _english, _english, _compound)
    while (word := rng.choice(makers)(rng)) in KNOWN:
        pass
    return word


def _letters(rng: random.Random) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 7)))


def _syllables(rng: random.Random) -> str:
    count = rng.randint(1, 2)
    parts = [rng.choice(_CONSONANTS) + rng.choice("aeiou") for _ in range(count)]
    return "".join(parts) + rng.choice(_ENDINGS)


def _english(rng: random.Random) -> str:
    return rng.choice(ENGLISH)


def _compound(rng: random.Random) -> str:
    """A word that begins with a known one and does not mean it."""
    if rng.random() < 0.4:
        return rng.choice(COMPOUNDS)
    return rng.choice(_STEMS) + _syllables(rng)
