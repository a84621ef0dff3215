"""How many tokens may be in flight, measured where memory is the bound."""

import torch

from pipelines.cache_rules import resolve
from pipelines.decode_memory import CudaMemory, DeviceMemory
from pipelines.denoise import step_rows
from pipelines.flux import Flux
from pipelines.requests import RenderRequest
from pipelines.row import Conditioning, Row, new_row

# CPU: a batch gains nothing (a transformer of the embedded one's shape took 58 ms for one picture
# and 56 ms each for twenty, one core), so more would only make everybody wait: four of 256 x 256.
CPU_MAX_TOKENS = 512
# CUDA: seven pictures of 1024 x 1024 with their text, or twenty of 512 x 512, however much memory
# there is. For an H200 others report a gain of 2 % from two of the former together, and from eight
# of the latter little more than from four, so more would only make everybody wait.
CUDA_MAX_TOKENS = 7 * (4096 + 512)
SHARE = 0.6  # of what is free once the model is loaded; decodes take their own share
# The most that a picture can remember: from the third computed step on, here while it warms up.
PROBE_RULE = resolve("balanced", taylor_order=2, warmup_steps=4)
PROBE_STEPS = 6


def measure_max_tokens(model: Flux, memory: DeviceMemory | None = None) -> int:
    """Tokens of all pictures and texts that step together.

    Asks `memory`, on a CUDA device the device's own.
    """
    if memory is None and model.device.type == "cuda":
        memory = CudaMemory(model.device)
    if memory is None:
        return CPU_MAX_TOKENS
    row = _probe_row(model)
    try:
        a_token = memory.peak_bytes(lambda: _fill(model, row)) / row.tokens
    except torch.OutOfMemoryError:
        return 1  # smaller pictures may still go, and any picture may alone
    return max(1, min(CUDA_MAX_TOKENS, int(SHARE * memory.free_bytes() / a_token)))


@torch.inference_mode()
def _probe_row(model: Flux) -> Row:
    width, height = model.spec.native_width, model.spec.native_height
    request = RenderRequest("probe", "", width, height, PROBE_STEPS, (0,), cache=PROBE_RULE)
    return new_row(model, request, 0, Conditioning(model.prompts.encode([("", "")])))


@torch.inference_mode()
def _fill(model: Flux, row: Row) -> None:
    """Steps until the cache is full and once more: then it and the next one are held together."""
    for _ in range(PROBE_RULE.warmup_steps):
        step_rows(model, [row])
