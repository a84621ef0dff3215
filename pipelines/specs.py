"""What is known of a model before its weights are read. Free of torch, for the server too."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from pipelines.errors import LoadFailed, ModelNotFound

EMBEDDED = "flux-emoji"
EMBEDDED_FOLDER = Path(__file__).resolve().parent.parent / "assets" / EMBEDDED
Memory = Literal["auto", "full", "offload"]  # how weights are held, see `pipelines.placement`
Guidance = Literal["embedded", "true_cfg", "none"]
# model_index.json's class -> family. Those of FLUX.1 have the same components in the same folders.
FAMILIES = {
    "FluxPipeline": "flux1",
    "FluxImg2ImgPipeline": "flux1",
    "FluxKontextPipeline": "flux1",
    "Flux2Pipeline": "flux2",
    "Flux2KleinPipeline": "flux2-klein",
}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Limits and defaults of one model. Sizes in pixels of the picture."""

    name: str
    source: str  # hub repository or local folder
    family: str
    licence: str
    native_width: int
    native_height: int
    size_multiple: int
    min_side_px: int
    max_pixels: int
    max_sequence_length: int  # tokens of a prompt with all that the model adds to it
    default_steps: int
    max_steps: int
    default_guidance_scale: float
    # "embedded": an input of the transformer; "true_cfg": a second forward with the negative prompt
    # or the empty one; "none": it does nothing.
    guidance: Guidance
    weights_gb: float  # 1e9 bytes: of a published model in bfloat16, of a folder as it lies there
    takes_start: bool = True  # a picture can be the start
    takes_mask: bool = False  # a part of the picture can be kept: by none of them yet
    max_references: int = 0  # pictures to look at
    enlarges_references: bool = False  # to the native area; larger ones are always reduced to it

    @property
    def has_second_encoder(self) -> bool:
        """Whether prompts are read twice, by encoders that may be told different things."""
        return self.family == "flux1"

    @property
    def has_guidance(self) -> bool:
        return self.guidance != "none"

    @property
    def negative_scale(self) -> str:
        """The parameter that makes a negative prompt act, above 1."""
        return "guidance_scale" if self.guidance == "true_cfg" else "true_cfg_scale"


def _black_forest_labs(name: str, licence: str, **differences: Any) -> ModelSpec:
    repository = f"black-forest-labs/{name}"
    spec = ModelSpec(
        name=repository,
        source=repository,
        family="flux1",
        licence=licence,
        native_width=1024,
        native_height=1024,
        size_multiple=16,
        min_side_px=128,
        max_pixels=2048 * 2048,
        max_sequence_length=512,
        default_steps=28,
        max_steps=100,
        default_guidance_scale=3.5,
        guidance="embedded",
        weights_gb=33.8,  # T5-XXL 9.5 of them
    )
    return replace(spec, **differences)


def _klein(size: str, licence: str, weights_gb: float, *, is_base: bool) -> ModelSpec:
    name = f"FLUX.2-klein-base-{size}" if is_base else f"FLUX.2-klein-{size}"
    return _black_forest_labs(
        name,
        licence,
        family="flux2-klein",
        default_steps=50 if is_base else 4,
        default_guidance_scale=4.0 if is_base else 0.0,
        guidance="true_cfg" if is_base else "none",
        weights_gb=weights_gb,
        max_references=4,
    )


DEV_1 = "FLUX.1 [dev] Non-Commercial License"
DEV_2 = "FLUX.2 [dev] Non-Commercial License"
DEV = _black_forest_labs("FLUX.1-dev", DEV_1)
SCHNELL = _black_forest_labs(
    "FLUX.1-schnell",
    "Apache-2.0",
    max_sequence_length=256,
    default_steps=4,
    default_guidance_scale=0.0,
    guidance="none",
)
KONTEXT = _black_forest_labs(
    "FLUX.1-Kontext-dev",
    DEV_1,
    default_guidance_scale=2.5,
    takes_start=False,
    max_references=1,
    enlarges_references=True,
)
# diffusers draws 50 steps; the authors' page shows 28 as a good trade.
FLUX2_DEV = _black_forest_labs(
    "FLUX.2-dev",
    DEV_2,
    family="flux2",
    default_guidance_scale=4.0,
    weights_gb=100.4,  # Mistral's 31 layers that are kept 35.8 of them
    max_references=6,
)
KLEINS = tuple(
    _klein(*klein, is_base=is_base)
    for klein in (("4B", "Apache-2.0", 14.4), ("9B", "FLUX Non-Commercial License", 30.4))
    for is_base in (False, True)
)
TABLE = {spec.name: spec for spec in (DEV, SCHNELL, KONTEXT, FLUX2_DEV, *KLEINS)}


def find_spec(model: str) -> ModelSpec:
    """Spec of a served name, of the embedded model, or of a local folder in diffusers format.

    Raises ModelNotFound for a name that is none of them and LoadFailed for a folder that is broken
    or holds something else than a FLUX.
    """
    if model in TABLE:
        return TABLE[model]
    if model == EMBEDDED:
        return _folder_spec(EMBEDDED_FOLDER)
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _folder_spec(folder)
    known = ", ".join([EMBEDDED, *TABLE])
    raise ModelNotFound(
        f"There is no model {model!r}. Give one of {known}, "
        "or an existing folder in diffusers format."
    )


def find_specs(models: Sequence[str]) -> tuple[ModelSpec, ...]:
    """Those of several models. Raises as `find_spec` does, and LoadFailed for two of one name."""
    specs = tuple(find_spec(model) for model in models)
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise LoadFailed(f"Two models are called {name!r}: serve one of them, or rename one.")
    return specs


def snap_size(spec: ModelSpec, width: int, height: int) -> tuple[int, int]:
    """Floors both sides to the model's `size_multiple`."""
    multiple = spec.size_multiple
    return width // multiple * multiple, height // multiple * multiple


def _folder_spec(folder: Path) -> ModelSpec:
    """Reads the configurations; `studio.json`, where there is one, has the last word."""
    if not (folder / "model_index.json").is_file():
        raise ModelNotFound(
            f"{folder} holds no model_index.json. Give a folder in diffusers format, as "
            f"`FluxPipeline.save_pretrained` writes it."
        )
    index = read_json(folder / "model_index.json")
    if index.get("_class_name") not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise LoadFailed(
            f"{folder / 'model_index.json'} names a {index.get('_class_name')}, none of {known}."
        )
    own = read_json(folder / "studio.json") if (folder / "studio.json").is_file() else {}
    return _with_own_settings(_spec_of_configs(folder, index), own, folder / "studio.json")


def _spec_of_configs(folder: Path, index: dict[str, Any]) -> ModelSpec:
    """What the checkpoint's own files say; the rest as the published model that it is like."""
    transformer = read_json(folder / "transformer" / "config.json")
    vae = read_json(folder / "vae" / "config.json")
    multiple = vae_scale(vae) * 2  # the transformer's patches are 2 x 2 latents
    side = max(int(vae.get("sample_size", 1024)), 128) // multiple * multiple
    return replace(
        _like(index, bool(transformer.get("guidance_embeds", False))),
        name=folder.resolve().name,
        source=str(folder),
        licence="see the model's folder",
        native_width=side,
        native_height=side,
        size_multiple=multiple,
        weights_gb=sum(p.stat().st_size for p in folder.glob("*/*.safetensors") if p.is_file())
        / 1e9,
    )


def _weights_bytes(folder: Path) -> int:
    """As it lies there; what is missing is told when it is loaded."""
    return sum(path.stat().st_size for path in folder.glob("*/*.safetensors") if path.is_file())


def _like(index: dict[str, Any], has_guidance_embedding: bool) -> ModelSpec:
    """The published model with the same parts."""
    match index["_class_name"]:
        case "Flux2Pipeline":
            return FLUX2_DEV
        case "Flux2KleinPipeline":
            return KLEINS[0] if index.get("is_distilled", False) else KLEINS[1]
        case "FluxKontextPipeline":
            return KONTEXT
        case _:
            return DEV if has_guidance_embedding else SCHNELL


def vae_scale(vae_config: dict[str, Any]) -> int:
    """Pixels a side of one latent: each level but the last halves the picture."""
    return int(2 ** (len(vae_config["block_out_channels"]) - 1))


def _with_own_settings(spec: ModelSpec, own: dict[str, Any], path: Path) -> ModelSpec:
    settings = dict(own)
    if "native_size" in settings:
        settings["native_width"], settings["native_height"] = settings.pop("native_size")
    allowed = {field.name for field in fields(ModelSpec)} - {"source", "takes_mask"}
    if unknown := sorted(set(settings) - allowed):
        raise LoadFailed(f"{path} has unknown settings: {', '.join(unknown)}.")
    return replace(spec, **settings)


def read_json(path: Path) -> dict[str, Any]:
    """One configuration file; LoadFailed names the file that is missing or is no JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LoadFailed(f"The model's folder is incomplete: {path} is missing.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LoadFailed(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(value, dict):
        raise LoadFailed(f"{path} is not a JSON object.")
    return value
