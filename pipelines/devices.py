"""Whether a device can serve in a number format, before any weight is read."""

import torch
from torch.nn import functional as F

from kernels import backend
from pipelines.errors import DeviceUnusable

ELSEWHERE = "or serve with --device cpu"


def find_device(name: str) -> torch.device:
    """The device of a name; `auto` is CUDA where there is one.

    Raises DeviceUnusable with what is missing and the way out.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceUnusable(
            f"There is no device {name!r}. Give auto, cpu, cuda or cuda:1."
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise DeviceUnusable(f"The engine runs on cpu and cuda, not on {device.type}.")
    if device.type == "cuda":
        _check_cuda(device)
    return device


def _check_cuda(device: torch.device) -> None:
    if torch.version.cuda is None:
        raise DeviceUnusable(
            f"This PyTorch ({torch.__version__}) is a build without CUDA. Install one with it, "
            f"{ELSEWHERE}."
        )
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:  # no driver, one that is too old, no device
        cause = str(error).splitlines()[0].rstrip(".")
        raise DeviceUnusable(f"CUDA cannot be used: {cause}. Mend that, {ELSEWHERE}.") from error
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        last = f"cuda:{count - 1}" if count > 1 else "cuda:0"
        raise DeviceUnusable(f"There is no {device}: the last CUDA device here is {last}.")


def default_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where there are units for it; on a CPU float32 is exact and not slower."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def check_dtype(device: torch.device, dtype: torch.dtype) -> None:
    """Raises DeviceUnusable where what a FLUX consists of does not run, or gives no numbers."""
    name = str(dtype).removeprefix("torch.")
    if device.type == "cuda" and dtype == torch.bfloat16 and not _has_bfloat16():
        raise DeviceUnusable(
            f"{_name_of(device)} has no units for bfloat16. Serve with --dtype float32, "
            f"{ELSEWHERE}."
        )
    try:
        is_finite = bool(_try_out(device, dtype).isfinite().all())
    except (RuntimeError, NotImplementedError) as error:
        cause = str(error).splitlines()[0].rstrip(".")
        raise DeviceUnusable(
            f"{_name_of(device)} does not compute in {name}: {cause}. Give another --dtype, "
            f"{ELSEWHERE}."
        ) from error
    if not is_finite:
        raise DeviceUnusable(
            f"{_name_of(device)} gives values that are not numbers in {name}. Give another "
            f"--dtype, {ELSEWHERE}."
        )


def check_kernels() -> backend.Choice:
    """What `STUDIO_KERNELS` says. Raises DeviceUnusable for a word that it does not know."""
    try:
        return backend.choice()
    except ValueError as error:
        raise DeviceUnusable(str(error)) from error


def poison_fresh_memory() -> None:
    """Tensors are born full of NaN, so that one which is read before it is written is seen.

    PyTorch does it for `torch.empty` and its kin while deterministic algorithms are on.
    """
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def _has_bfloat16() -> bool:
    return torch.cuda.is_bf16_supported(including_emulation=False)


def _name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "This CPU"


@torch.inference_mode()
def _try_out(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """A matrix product, attention, norms and a convolution, each on a few numbers."""
    x = torch.linspace(-1, 1, 256, device=device, dtype=dtype).view(1, 4, 8, 8)
    x = F.scaled_dot_product_attention(x, x, x) @ x
    x = F.layer_norm(x, (8,)) + F.rms_norm(x, (8,))
    return F.silu(F.group_norm(F.conv2d(x, x[:, :, :3, :3].expand(4, -1, -1, -1), padding=1), 2))
