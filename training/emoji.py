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

# name | icon of the set | other names | natural colour, where a person would say one | marks:
# "paint": is drawn in other colours, too; "many": a plural; "mass": has no article
_TABLE = """
apple|red-apple||red|paint
banana|banana||yellow|paint
lemon|lemon||yellow|paint
strawberry|strawberry||red|paint
cherries|cherries||red|paint many
grapes|grapes||purple|paint many
peach|peach||orange|
watermelon|watermelon|melon||
pineapple|pineapple|ananas|yellow|
pear|pear||green|paint
tomato|tomato||red|paint
carrot|carrot||orange|paint
corn|ear-of-corn|maize|yellow|
eggplant|eggplant|aubergine|purple|paint
chili pepper|hot-pepper|chili,hot pepper|red|paint
broccoli|broccoli||green|mass
avocado|avocado||green|
mushroom|mushroom|toadstool|red|paint
cheese|cheese-wedge||yellow|mass
pretzel|pretzel||brown|
croissant|croissant|||
egg|egg|||
hamburger|hamburger|burger||
pizza|pizza|slice of pizza||
hot dog|hot-dog|hotdog||
fries|french-fries|french fries,chips||many
pancakes|pancakes|||many
popcorn|popcorn|||mass
donut|doughnut|doughnut||
cookie|cookie|biscuit|brown|
cake|birthday-cake|birthday cake||
cupcake|cupcake|muffin||
candy|candy|sweet,bonbon||
ice cream|soft-ice-cream|ice cream cone||
coffee|hot-beverage|cup of coffee,tea||mass
teapot|teapot|tea pot|red|
beer|beer-mug|mug of beer,pint||
cat|cat-face|kitten,kitty|orange|paint
dog|dog-face|puppy,doggy||
mouse|mouse-face|||
horse|horse|pony|brown|paint
cow|cow-face|||
pig|pig-face|piglet,piggy|pink|paint
sheep|ewe|lamb||
rabbit|rabbit-face|bunny,hare||
hedgehog|hedgehog|||
bear|bear|grizzly|brown|paint
panda|panda|panda bear||
koala|koala|koala bear||
lion|lion|||
tiger|tiger-face||orange|
fox|fox||orange|paint
monkey|monkey-face|ape,chimp||
elephant|elephant|||
giraffe|giraffe|||
camel|camel|||
frog|frog|toad|green|paint
crocodile|crocodile|alligator|green|paint
snake|snake|serpent|green|paint
penguin|penguin|||
chick|front-facing-baby-chick|baby chicken|yellow|paint
rooster|rooster|cock,chicken||
duck|duck|mallard||
owl|owl||brown|
parrot|parrot|||
flamingo|flamingo||pink|paint
fish|tropical-fish|tropical fish||
whale|spouting-whale||blue|paint
dolphin|dolphin||blue|paint
shark|shark|||
octopus|octopus|squid|orange|paint
crab|crab||red|paint
turtle|turtle|tortoise|green|paint
snail|snail|||
bee|honeybee|honeybee,bumblebee||
butterfly|butterfly||orange|paint
ladybug|lady-beetle|ladybird,beetle|red|paint
dinosaur|t-rex|dino,t-rex|green|paint
dragon|dragon-face||green|paint
unicorn|unicorn|||
tree|deciduous-tree||green|paint
pine tree|evergreen-tree|fir tree,conifer|green|
palm tree|palm-tree|palm||
christmas tree|christmas-tree|xmas tree||
cactus|cactus||green|paint
sunflower|sunflower||yellow|
tulip|tulip||pink|paint
rose|rose||red|paint
flower|blossom|blossom,daisy||
leaf|maple-leaf|maple leaf||
clover|four-leaf-clover|shamrock,four-leaf clover|green|
pumpkin|jack-o-lantern|jack-o-lantern|orange|paint
sun|sun||yellow|
moon|crescent-moon|crescent moon|yellow|paint
star|star||yellow|paint
cloud|cloud||white|
rainbow|rainbow|||
lightning|high-voltage|lightning bolt,thunderbolt|orange|paint mass
snowflake|snowflake|flake of snow|blue|
fire|fire|flame,campfire||mass
snowman|snowman-without-snow||white|
planet|ringed-planet|saturn||
volcano|volcano|||
mountain|snow-capped-mountain|snowy mountain||
island|desert-island|desert island||
car|automobile|automobile|red|paint
fire truck|fire-engine|fire engine|red|
bus|bus|coach||
taxi|taxi|cab|yellow|
truck|delivery-truck|lorry,delivery truck||
tractor|tractor|||
train|locomotive|locomotive,steam train||
bicycle|bicycle|bike||
motorcycle|motorcycle|motorbike||
airplane|airplane|plane,aeroplane,aircraft||
helicopter|helicopter|chopper||
rocket|rocket|spaceship,space rocket||
sailboat|sailboat|boat,sailing boat||
house|house|home||
castle|castle|fortress||
tent|tent||green|
heart|red-heart||red|paint
soccer ball|soccer-ball|football||
basketball|basketball||orange|paint
gift|wrapped-gift|present,gift box||
balloon|balloon||red|paint
kite|kite|||
umbrella|umbrella|parasol|purple|paint
key|key|||
bell|bell||yellow|paint
book|closed-book||red|paint
pencil|pencil|||
magnet|magnet||red|paint
bucket|bucket|pail|blue|
anchor|anchor||blue|
guitar|guitar|||
trumpet|trumpet|horn||
camera|camera|||
television|television|tv,tv set||
phone|mobile-phone|smartphone,mobile phone,cell phone||
clock|alarm-clock|alarm clock||
candle|candle|||
light bulb|light-bulb|lightbulb,lamp|yellow|
hat|top-hat|top hat||
cap|billed-cap|baseball cap|blue|paint
crown|crown||yellow|paint
diamond|gem-stone|gem,jewel|blue|paint
trophy|trophy|cup|yellow|paint
shirt|t-shirt|t-shirt|green|paint
dress|dress||blue|paint
shoe|running-shoe|sneaker,trainer||
sunglasses|sunglasses|shades||many
backpack|backpack|rucksack,school bag|red|paint
handbag|handbag|purse,bag|brown|paint
chair|chair||brown|paint
robot|robot|android||
ghost|ghost|spook|white|
skull|skull||white|
alien|alien||green|
teddy bear|teddy-bear|teddy|brown|paint
laptop|laptop|computer,notebook computer||
bomb|bomb|||
"""


@dataclass(frozen=True, slots=True)
class Emoji:
    """One object: ``name`` as people say it, ``icon`` in the set, ``colour`` or ""."""

    name: str
    icon: str
    synonyms: tuple[str, ...]
    colour: str
    is_paintable: bool
    has_article: bool
    is_plural: bool

    @property
    def is_countable(self) -> bool:
        """Whether a picture can hold two or three of it, and a caption say so."""
        return self.has_article


def _read(line: str) -> Emoji:
    name, icon, synonyms, colour, marks = line.split("|")
    others = tuple(word for word in synonyms.split(",") if word)
    is_plural = "many" in marks
    has_article = not is_plural and "mass" not in marks
    return Emoji(name, icon, others, colour, "paint" in marks, has_article, is_plural)


OBJECTS: tuple[Emoji, ...] = tuple(_read(line) for line in _TABLE.strip().splitlines())
BY_NAME: dict[str, Emoji] = {emoji.name: emoji for emoji in OBJECTS}
PAINTABLE: tuple[Emoji, ...] = tuple(emoji for emoji in OBJECTS if emoji.is_paintable)
COUNTABLE: tuple[Emoji, ...] = tuple(emoji for emoji in OBJECTS if emoji.is_countable)


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
