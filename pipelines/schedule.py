"""Which noise levels a picture passes through, and where image-to-image starts. Free of torch.

The numbers equal those of diffusers' `FlowMatchEulerDiscreteScheduler.set_timesteps` as
`FluxPipeline`, `FluxImg2ImgPipeline` and `Flux2Pipeline` call it (diffusers 0.42), in float32.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sigmas = NDArray[np.floating]

# Schedules that no FLUX checkpoint uses and that would be wrong if they were ignored.
UNSUPPORTED = (
    "use_karras_sigmas",
    "use_exponential_sigmas",
    "use_beta_sigmas",
    "use_flow_sigmas",
    "invert_sigmas",
    "shift_terminal",
    "stochastic_sampling",
)


def first_step(steps: int, strength: float) -> int:
    """Index of the first step that runs: 0 at strength 1, `steps` (none runs) at strength 0."""
    return int(max(steps - min(steps * strength, steps), 0))


def run_steps(steps: int, strength: float) -> int:
    """How many of `steps` image-to-image runs at `strength`; 0.3 of 7 is 3, as in diffusers."""
    return steps - first_step(steps, strength)


def sigmas(steps: int, image_tokens: int, scheduler_config: Mapping[str, Any]) -> list[float]:
    """FLUX.1's noise levels of a whole schedule, 1 down to 0: `steps` + 1 float32 values.

    `scheduler_config` is the checkpoint's scheduler/scheduler_config.json; with
    `use_dynamic_shifting` the levels depend on the number of picture tokens.
    """
    return shifted_sigmas(steps, _shift_of_size(image_tokens, scheduler_config), scheduler_config)


def shifted_sigmas(
    steps: int, size_shift: float, scheduler_config: Mapping[str, Any]
) -> list[float]:
    """Levels by `size_shift`, or by the configuration's own shift if that is not dynamic."""
    even = np.linspace(1.0, 1 / steps, steps).astype(np.float32)
    shifted = _shift(even, size_shift, scheduler_config)  # float32, as NumPy 2 keeps it
    return [*shifted.astype(np.float32).tolist(), 0.0]


def flux2_shift(image_tokens: int, steps: int) -> float:
    """FLUX.2's shift, fitted by its authors on ten and on 200 steps; more of either need less.

    Beyond 4,300 tokens the line of 200 steps holds for any number. Equals `compute_empirical_mu`
    of diffusers 0.42.
    """
    few, many = 8.73809524e-05 * image_tokens + 1.89833333, 0.00016927 * image_tokens + 0.45666666
    if image_tokens > 4300:
        return many
    slope = (many - few) / 190.0
    return slope * steps + (many - 200.0 * slope)


def unsupported_option(scheduler_config: Mapping[str, Any]) -> str | None:
    """The first option of a scheduler that this schedule does not follow, or None."""
    return next((name for name in UNSUPPORTED if scheduler_config.get(name)), None)


def _shift(even: Sigmas, size_shift: float, config: Mapping[str, Any]) -> Sigmas:
    if not config.get("use_dynamic_shifting", False):
        shift: float = config.get("shift", 1.0)
        return shift * even / (1 + (shift - 1) * even)
    # https://arxiv.org/abs/2403.03206, 5.3.2: larger pictures need more noise to be as noisy.
    is_linear = config.get("time_shift_type") == "linear"
    scale: float = size_shift if is_linear else math.exp(size_shift)
    return scale / (scale + (1 / even - 1))


def _shift_of_size(image_tokens: int, config: Mapping[str, Any]) -> float:
    """Straight line through (base tokens, base shift) and (max tokens, max shift)."""
    base_tokens: int = config.get("base_image_seq_len", 256)
    max_tokens: int = config.get("max_image_seq_len", 4096)
    base_shift: float = config.get("base_shift", 0.5)
    max_shift: float = config.get("max_shift", 1.15)
    slope = (max_shift - base_shift) / (max_tokens - base_tokens)
    return image_tokens * slope + (base_shift - slope * base_tokens)
