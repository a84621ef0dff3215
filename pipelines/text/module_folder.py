"""A folder in transformers format as transformers' own module, with attention that is ours."""

import struct
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
)

from pipelines.errors import LoadFailed, OutOfMemory
from pipelines.read_ahead import has_room, read_ahead
from pipelines.specs import read_json
from pipelines.text.agreement import check_architecture, not_served
from pipelines.text.attention import set_attention
from pipelines.text.model_facts import choose_dtype

BROKEN = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    RuntimeError,
    ImportError,
    SafetensorError,
    struct.error,
)
READ = 0.8  # of the progress; the rest is for placing the weights

Progress = Callable[[str, float | None], None]


def read_module(
    name: str, folder: Path, device: torch.device, dtype: str, progress: Progress
) -> PreTrainedModel:
    """The model in `folder`. Raises `LoadFailed`, NotServed or `OutOfMemory`."""
    config = read_config(name, folder)
    module_class = find_class(name, config)
    check_architecture(name, config, module_class)
    files = _weights_files(folder)
    size = sum(path.stat().st_size for path in files)
    progress(f"Loading {name} ({size / 1e9:.2f} GB)", 0.0)
    if has_room(files):
        _explained(folder, partial(read_ahead, files, partial(_tell, name, size, progress)))
    wide = choose_dtype(dtype, device, config.get_text_config().dtype or config.dtype, size)
    return load_weights(module_class, folder, config, wide, device)


def read_config(name: str, folder: Path) -> PreTrainedConfig:
    """Raises `LoadFailed` without a config.json, NotServed for a type that nobody knows."""
    model_type = read_json(folder / "config.json").get("model_type")
    if model_type is None:
        raise LoadFailed(f"{folder / 'config.json'} names no model_type: it is no text model's.")
    if model_type not in CONFIG_MAPPING:
        raise not_served(name, f"this version of transformers does not know {model_type}")
    config: PreTrainedConfig = _explained(
        folder,
        lambda: AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False),
    )
    return config


def find_class(name: str, config: PreTrainedConfig) -> type[PreTrainedModel]:
    """transformers' causal language model for a config, alone or behind one that sees pictures."""
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING):
        if type(config) in mapping:
            found: type[PreTrainedModel] = mapping[type(config)]
            return found
    raise not_served(name, f"{config.model_type} is no causal language model")


def load_weights(
    module_class: type[PreTrainedModel],
    folder: Path,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    device: torch.device,
    **more: Any,
) -> PreTrainedModel:
    """The module on the device. transformers fills what a file lacks with random numbers and only
    logs what it has too much; here both are refused."""
    placed = {} if device.type == "cpu" else {"device_map": {"": device}}
    module, info = _explained(
        folder,
        lambda: module_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            output_loading_info=True,
            **placed,
            **more,
        ),
    )
    _check_keys(folder, config, info)
    set_attention(module)
    return module.eval().requires_grad_(False)


def _check_keys(folder: Path, config: PreTrainedConfig, info: dict[str, Any]) -> None:
    layers = config.get_text_config().num_hidden_layers
    missing = sorted(info["missing_keys"])
    unexpected = sorted(key for key in info["unexpected_keys"] if not _is_spare(key, layers))
    mismatched = sorted(str(key) for key in info["mismatched_keys"])
    for keys, what in (
        (missing, "lack {} tensors that config.json asks for"),
        (mismatched, "hold {} tensors of another shape than config.json says"),
        (unexpected, "hold {} tensors that a model of this config.json has not"),
    ):
        if keys:
            raise LoadFailed(
                f"The weights in {folder} {what.format(len(keys))}: {', '.join(keys[:3])}. "
                "Put config.json and weights of one and the same model there."
            )


def _is_spare(key: str, layers: int) -> bool:
    """Tables that are computed, and layers behind the last: modules for drafting."""
    if key.endswith(("inv_freq", "masked_bias", "attn.bias")):
        return True
    parts = key.split(".")
    if "mtp" in parts:
        return True
    numbers = [
        int(number) for name, number in pairwise(parts) if name == "layers" and number.isdigit()
    ]
    return any(number >= layers for number in numbers)


def _weights_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(read_json(index).get("weight_map", {}).values()))
        files = [folder / name for name in names]
        if absent := [path.name for path in files if not path.is_file()]:
            raise LoadFailed(f"The model's folder is incomplete: {folder / absent[0]} is missing.")
        return files
    file = folder / "model.safetensors"
    if not file.is_file():
        raise LoadFailed(
            f"{folder} holds no model.safetensors: give a folder or repository that has its "
            "weights as safetensors, or a GGUF file by its path."
        )
    return [file]


def read_tokenizer(folder: Path, **more: Any) -> PreTrainedTokenizerBase:
    """Raises `LoadFailed` where a folder has none."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **more
        )
    except Exception as error:  # tokenizers raises no narrower one for a broken file
        raise LoadFailed(
            f"The tokenizer in {folder} cannot be read ({first_line(error)}): put tokenizer.json "
            "and tokenizer_config.json of the same model there."
        ) from error
    return tokenizer


def _tell(name: str, size: int, progress: Progress, done: int) -> None:
    words = f"Loading {name} ({done / 1e9:.2f} of {size / 1e9:.2f} GB)"
    progress(words, READ * done / (size or 1))


def _explained(folder: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except torch.cuda.OutOfMemoryError as error:
        raise OutOfMemory(
            f"The device has no room for the weights in {folder}: choose a smaller --text-model, "
            "or serve it elsewhere and name that by --text-engine http."
        ) from error
    except BROKEN as error:
        raise LoadFailed(f"{folder} cannot be loaded: {first_line(error)}.") from error


def first_line(error: BaseException) -> str:
    """What a library says, without the essay below it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
