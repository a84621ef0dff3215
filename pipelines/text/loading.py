"""From a text model's name to a `LanguageModel` on the device, wherever its weights are."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from pipelines import hub
from pipelines.devices import find_device
from pipelines.errors import LoadFailed, ModelNotFound
from pipelines.text import embedded, packed_folder
from pipelines.text.adapters import AdapterSwitch, attach, read_adapter
from pipelines.text.agreement import check_agreement
from pipelines.text.attention import set_attention
from pipelines.text.gguf_file import keep_packed, read_plainly
from pipelines.text.language_model import LanguageModel
from pipelines.text.model_facts import DTYPES, choose_dtype, context_tokens, end_ids
from pipelines.text.module_folder import BROKEN, Progress, first_line, read_module, read_tokenizer
from pipelines.text.packed import PackedLayer, can_pack
from pipelines.text.tokens import Tokens

# A text repository's own folder; other formats of the same weights lie beside it in some.
FILES = ("*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors")
EXPANSION = "expansion"


def load_text_model(
    source: str,
    *,
    folder: Path,
    device: str,
    dtype: str = "auto",
    token: str | None = None,
    progress: Progress = lambda detail, share: None,
) -> LanguageModel:
    """The model ready to write.

    `source` is the embedded model's name, a folder in transformers format, a GGUF file or a folder
    with one, or a repository of the hub. `folder` keeps what is made of weights: conversions.
    `dtype` is auto, float32, bfloat16 or float16; auto takes 4-bit products on a CPU for weights
    that have 4 bits. Raises `PipelineError`: DeviceUnusable, ModelNotFound, ModelGated, HubOffline,
    FetchFailed, LoadFailed, and of the latter NotServed for what this engine does not run.
    """
    transformers_logging.disable_progress_bar()  # `progress` is the one that people see
    if dtype not in ("auto", *DTYPES):
        raise LoadFailed(f"There is no dtype {dtype!r}: take auto or one of {', '.join(DTYPES)}.")
    place = find_device(device)
    if source == embedded.NAME:
        made = embedded.prepare(folder, lambda words: progress(words, None))
        return _from_packed(source, made, place, dtype, progress)
    path = _find(source, token, progress)
    if path.is_file():
        return _from_gguf(path, folder, place, dtype, progress)
    if packed_folder.is_packed_folder(path):
        return _from_packed(path.name, path, place, dtype, progress)
    name = source if not Path(source).expanduser().is_dir() else path.resolve().name
    module = read_module(name, path, place, dtype, progress)
    return _checked(name, module, read_tokenizer(path), progress)


def _find(source: str, token: str | None, progress: Progress) -> Path:
    """A folder in transformers format, or a GGUF file."""
    path = Path(source).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise LoadFailed(
                f"{path} is no .gguf file: give a folder, a GGUF file or a repository."
            )
        return path
    if path.is_dir():
        return _in_folder(path)
    is_path = source.startswith((".", "/", "~")) or source.count("/") > 1
    if is_path or path.suffix.lower() == ".gguf":
        raise ModelNotFound(
            f"There is no folder or file {source}: check the path, or give a repository of the hub "
            "as owner/name."
        )
    return hub.download(source, token, progress, files=FILES, flag="--text-model")


def _in_folder(path: Path) -> Path:
    """The folder itself, or the one GGUF file in a folder without a config."""
    files = sorted(path.glob("*.gguf"))
    if (path / "config.json").is_file() or not files:
        return path
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:6])
        raise LoadFailed(f"{path} holds {len(files)} GGUF files: give one by its path ({names}).")
    return files[0]


def _from_gguf(
    path: Path, folder: Path, device: torch.device, dtype: str, progress: Progress
) -> LanguageModel:
    """4-bit layers as they are; other files as transformers reads them, widened."""
    kept = keep_packed(path, folder / "gguf", progress)
    if kept is not None:
        return _from_packed(path.stem, kept, device, dtype, progress)
    module, tokenizer = read_plainly(path, device, dtype, progress)
    return _checked(path.stem, module, tokenizer, progress)


def _from_packed(
    name: str, path: Path, device: torch.device, dtype: str, progress: Progress
) -> LanguageModel:
    """A folder of ours. Not asked for agreement: it is a Llama, and its layers are our own."""
    progress(f"Loading {name}", None)
    switch = AdapterSwitch()
    packs = device.type == "cpu" and dtype == "auto" and can_pack()
    # Four bits become sixteen without a loss that counts, and double the speed of 32.
    wide = choose_dtype(dtype, device, torch.bfloat16, 0)
    try:
        module = packed_folder.read(path, wide, switch, packs=packs)
    except BROKEN as error:
        raise LoadFailed(
            f"{path} cannot be loaded ({first_line(error)}): remove the folder, and it is made "
            "anew."
        ) from error
    if not packs:
        set_attention(module)
        module = module.to(device)
    adapters = _add_expansion(module, switch) if name == embedded.NAME else ()
    tokenizer = read_tokenizer(path)
    return LanguageModel(
        name,
        module.requires_grad_(False),
        Tokens(tokenizer, end_ids(module, tokenizer)),
        context_tokens=context_tokens(module.config),
        switch=switch,
        adapters=adapters,
    )


def _add_expansion(module: PreTrainedModel, switch: AdapterSwitch) -> tuple[str, ...]:
    """The embedded model's adapter for prompts, where this release has it."""
    path = embedded.ASSETS / f"{EXPANSION}.safetensors"
    if not path.is_file():
        return ()
    layers = module.get_decoder().layers
    try:
        adapter = read_adapter(path, EXPANSION)
        for layer in layers:
            if isinstance(layer, PackedLayer):
                layer.add(adapter)
        if not isinstance(layers[0], PackedLayer):
            attach(layers, adapter, switch)
    except (OSError, SafetensorError, LookupError, AttributeError, ValueError) as error:
        raise LoadFailed(
            f"{path} is no adapter of {embedded.NAME} ({first_line(error)}): restore the file, or "
            "remove it to do without."
        ) from error
    return (EXPANSION,)


def _checked(
    name: str, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, progress: Progress
) -> LanguageModel:
    """Served only if it writes here what it writes in transformers."""
    model = LanguageModel(
        name,
        module,
        Tokens(tokenizer, end_ids(module, tokenizer)),
        context_tokens=context_tokens(module.config),
    )
    progress(f"Trying {name} on a few tokens", None)
    check_agreement(model)
    return model
