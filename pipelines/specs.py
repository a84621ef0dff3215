"""What is known of a model before its weights are read. Free of torch, for the server too."""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pipelines.errors import LoadFailed, ModelNotFound

EMBEDDED = "flux-emoji"
EMBEDDED_FOLDER = Path(__file__).resolve().parent.parent / "assets" / EMBEDDED
FLUX1_PIPELINES = ("FluxPipeline", "FluxImg2ImgPipeline")  # the same components in the same folders


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
    max_sequence_length: int  # T5 tokens, the closing one included
    default_steps: int
    max_steps: int
    default_guidance_scale: float
    has_guidance_embedding: bool


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
        has_guidance_embedding=True,
    )
    return replace(spec, **differences)


DEV = _black_forest_labs("FLUX.1-dev", "FLUX.1 [dev] Non-Commercial License")
SCHNELL = _black_forest_labs(
    "FLUX.1-schnell",
    "Apache-2.0",
    max_sequence_length=256,
    default_steps=4,
    default_guidance_scale=0.0,
    has_guidance_embedding=False,
)
TABLE = {spec.name: spec for spec in (DEV, SCHNELL)}


def find_spec(model: str) -> ModelSpec:
    """Spec of a served name, of the embedded model, or of a local folder in diffusers format.

    Raises ModelNotFound for a name that is none of them and LoadFailed for a folder that is broken
    or holds something else than FLUX.1.
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
    pipeline = read_json(folder / "model_index.json").get("_class_name")
    if pipeline not in FLUX1_PIPELINES:
        raise LoadFailed(f"{folder / 'model_index.json'} names a {pipeline}, not FLUX.1.")
    own = read_json(folder / "studio.json") if (folder / "studio.json").is_file() else {}
    return _with_own_settings(_spec_of_configs(folder), own, folder / "studio.json")


def _spec_of_configs(folder: Path) -> ModelSpec:
    transformer = read_json(folder / "transformer" / "config.json")
    vae = read_json(folder / "vae" / "config.json")
    has_guidance = bool(transformer.get("guidance_embeds", False))
    multiple = vae_scale(vae) * 2  # the transformer's patches are 2 x 2 latents
    side = max(int(vae.get("sample_size", 1024)), 128) // multiple * multiple
    return replace(
        DEV if has_guidance else SCHNELL,
        name=folder.resolve().name,
        source=str(folder),
        licence="see the model's folder",
        native_width=side,
        native_height=side,
        size_multiple=multiple,
    )


def vae_scale(vae_config: dict[str, Any]) -> int:
    """Pixels a side of one latent: each level but the last halves the picture."""
    return int(2 ** (len(vae_config["block_out_channels"]) - 1))


def _with_own_settings(spec: ModelSpec, own: dict[str, Any], path: Path) -> ModelSpec:
    settings = dict(own)
    if "native_size" in settings:
        settings["native_width"], settings["native_height"] = settings.pop("native_size")
    allowed = {field.name for field in fields(ModelSpec)} - {"source"}
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
