"""A text model in one GGUF file: a Llama with 4-bit layers as it is, any other widened."""

import logging
import tempfile
from pathlib import Path

import torch
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from pipelines.errors import LoadFailed
from pipelines.text import packed_folder
from pipelines.text.agreement import check_architecture
from pipelines.text.gguf_llama import read_gguf
from pipelines.text.model_facts import choose_dtype
from pipelines.text.module_folder import (
    BROKEN,
    Progress,
    find_class,
    first_line,
    load_weights,
    read_tokenizer,
)

log = logging.getLogger(__name__)


def keep_packed(path: Path, folder: Path, progress: Progress) -> Path | None:
    """The file converted once into a folder of ours under `folder`; None for another model.

    Raises `LoadFailed` where it cannot be read.
    """
    stat = path.stat()
    target = folder / f"{path.stem}-{stat.st_size:x}-{stat.st_mtime_ns:x}"
    if packed_folder.is_packed_folder(target):
        return target
    progress(f"Reading {path.name}", None)
    try:
        config, tensors = read_gguf(path)
    except (ValueError, LookupError, ImportError) as error:  # also a file that is damaged
        log.info("%s is not kept in 4 bits: %s", path.name, error)
        return None
    except OSError as error:
        raise LoadFailed(f"{path} cannot be read: {error}.") from error
    progress(f"Converting {path.name}", None)
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that one rename makes it whole, or it is not there.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as making:
        made = Path(making) / "model"
        made.mkdir()
        read_tokenizer(path.parent, gguf_file=path.name).save_pretrained(made)
        packed_folder.write(made, config, tensors, source=path.name)
        made.rename(target)
    return target


def read_plainly(
    path: Path, device: torch.device, dtype: str, progress: Progress
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """As transformers reads GGUF: every weight widened to the number format served in.

    Raises `LoadFailed` and NotServed.
    """
    log.warning(
        "%s is widened by transformers, which takes a while and several times the file's memory: "
        "this engine keeps 4 bits only of a Llama with Q4_1 or Q4_0 layers.",
        path.name,
    )
    progress(f"Widening {path.name}: its layers are not Q4_1 of a Llama", None)
    try:
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    except BROKEN as error:
        raise LoadFailed(
            f"{path} is no GGUF file that transformers reads ({first_line(error)}): serve it with "
            "llama.cpp and name that by --text-engine http, or give a folder with safetensors."
        ) from error
    module_class = find_class(path.stem, config)
    check_architecture(path.stem, config, module_class)
    wide = choose_dtype(dtype, device, torch.float16, path.stat().st_size)
    module = load_weights(module_class, path.parent, config, wide, device, gguf_file=path.name)
    return module, read_tokenizer(path.parent, gguf_file=path.name)
