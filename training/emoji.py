"""The drawn objects: a table of everyday names and the flat emoji that shows each of them.

The icons are those of Microsoft's Fluent Emoji (MIT licence) in the npm package
``@iconify-json/fluent-emoji-flat``; its ``icons.json`` is all we read. Where none is given, npm
fetches it once.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import resvg_py
from PIL import Image

PACKAGE = "@iconify-json/fluent-emoji-flat@1.2.6"
ICONS = Path(__file__).parent / "runs" / "icons.json"
SPRITE_PX = 256

# name | icon of the set | natural colour, where a person would say one | "many" for a plural
_TABLE = """
apple|red-apple|red
banana|banana|yellow
lemon|lemon|yellow
strawberry|strawberry|red
cherries|cherries|red|many
grapes|grapes|purple|many
watermelon|watermelon|
pineapple|pineapple|yellow
pear|pear|green
tomato|tomato|red
carrot|carrot|orange
avocado|avocado|green
mushroom|mushroom|red
cheese|cheese-wedge|yellow|many
hamburger|hamburger|
pizza|pizza|
donut|doughnut|
cookie|cookie|brown
cake|birthday-cake|
cupcake|cupcake|
ice cream|soft-ice-cream|
cat|cat-face|
dog|dog-face|
horse|horse|brown
cow|cow-face|
pig|pig-face|pink
rabbit|rabbit-face|
bear|bear|brown
panda|panda|
lion|lion|
fox|fox|orange
frog|frog|green
monkey|monkey-face|
elephant|elephant|
penguin|penguin|
chick|front-facing-baby-chick|yellow
duck|duck|
owl|owl|brown
fish|tropical-fish|
whale|spouting-whale|blue
octopus|octopus|
crab|crab|red
turtle|turtle|green
snail|snail|
bee|honeybee|
butterfly|butterfly|
ladybug|lady-beetle|red
dinosaur|t-rex|green
unicorn|unicorn|
tree|deciduous-tree|green
pine tree|evergreen-tree|green
palm tree|palm-tree|
cactus|cactus|green
sunflower|sunflower|yellow
tulip|tulip|pink
rose|rose|red
sun|sun|yellow
moon|crescent-moon|yellow
star|star|yellow
cloud|cloud|white
rainbow|rainbow|
snowflake|snowflake|blue
fire|fire||many
snowman|snowman-without-snow|white
car|automobile|red
bus|bus|
taxi|taxi|yellow
truck|delivery-truck|
tractor|tractor|
train|locomotive|
bicycle|bicycle|
airplane|airplane|
rocket|rocket|
sailboat|sailboat|
house|house|
castle|castle|
heart|red-heart|red
soccer ball|soccer-ball|
basketball|basketball|orange
gift|wrapped-gift|
balloon|balloon|red
umbrella|umbrella|purple
key|key|
bell|bell|yellow
book|closed-book|red
pencil|pencil|
guitar|guitar|
camera|camera|
clock|alarm-clock|
light bulb|light-bulb|yellow
hat|top-hat|black
crown|crown|yellow
diamond|gem-stone|blue
robot|robot|
ghost|ghost|white
skull|skull|white
alien|alien|
teddy bear|teddy-bear|brown
laptop|laptop|
coffee|hot-beverage||many
"""


@dataclass(frozen=True, slots=True)
class Emoji:
    """One object: ``name`` as people say it, ``icon`` in the set, ``colour`` or ""."""

    name: str
    icon: str
    colour: str
    is_plural: bool


def _read(line: str) -> Emoji:
    name, icon, colour, *plural = line.split("|")
    return Emoji(name, icon, colour, bool(plural))


OBJECTS: tuple[Emoji, ...] = tuple(_read(line) for line in _TABLE.strip().splitlines())
BY_NAME: dict[str, Emoji] = {emoji.name: emoji for emoji in OBJECTS}


def rasterise(svg: str, size_px: int = SPRITE_PX) -> Image.Image:
    """The SVG text as an RGBA picture of ``size_px`` squared."""
    png = resvg_py.svg_to_bytes(svg_string=svg, width=size_px, height=size_px)
    return Image.open(BytesIO(bytes(png))).convert("RGBA")


def fetch_icons(path: Path) -> None:
    """Put the package's icons.json at ``path``. Raises CalledProcessError where npm cannot."""
    with tempfile.TemporaryDirectory() as folder:
        npm = ["npm", "pack", "--silent", PACKAGE]
        subprocess.run(npm, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        archive = next(Path(folder).glob("*.tgz"))
        with tarfile.open(archive) as package:
            icons = package.extractfile("package/icons.json")
            assert icons is not None, "the package has no icons.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(icons.read())


def load_sprites(icons_json: Path) -> dict[str, Image.Image]:
    """Object name -> RGBA sprite of 256x256, cropped to its ink so that sizes are honest."""
    if icons_json == ICONS and not icons_json.is_file():
        fetch_icons(icons_json)
    icons = json.loads(icons_json.read_text())["icons"]
    sprites: dict[str, Image.Image] = {}
    for emoji in OBJECTS:
        body = icons[emoji.icon]["body"]
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{body}</svg>'
        sprites[emoji.name] = centre(rasterise(svg))
    return sprites


def centre(sprite: Image.Image) -> Image.Image:
    """The sprite's ink scaled to fill a square and centred in it."""
    ink = sprite.crop(sprite.getchannel("A").getbbox())
    scale = SPRITE_PX / max(ink.size)
    size = (max(1, round(ink.width * scale)), max(1, round(ink.height * scale)))
    square = Image.new("RGBA", (SPRITE_PX, SPRITE_PX))
    corner = ((SPRITE_PX - size[0]) // 2, (SPRITE_PX - size[1]) // 2)
    square.paste(ink.resize(size, Image.Resampling.BICUBIC), corner)
    return square
