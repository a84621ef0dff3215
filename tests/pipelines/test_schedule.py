"""The schedule equals diffusers', number for number."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from diffusers.pipelines.flux.pipeline_flux_img2img import FluxImg2ImgPipeline
from diffusers.pipelines.flux2.pipeline_flux2 import compute_empirical_mu
from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
    FlowMatchEulerDiscreteScheduler,
)

from pipelines import schedule

DEV: dict[str, Any] = {
    "use_dynamic_shifting": True,
    "base_shift": 0.5,
    "max_shift": 1.15,
    "shift": 3.0,
}
SCHNELL = {"use_dynamic_shifting": False, "shift": 1.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "dev": DEV,
    "schnell": SCHNELL,
    "static shift": {"shift": 3.0},
    "linear": DEV | {"time_shift_type": "linear"},
    "other lengths": DEV | {"base_image_seq_len": 64, "max_image_seq_len": 1024},
}


def scheduler_after_set_timesteps(config, steps, tokens):
    scheduler = FlowMatchEulerDiscreteScheduler(**config)
    names = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
    mu = calculate_shift(tokens, *(scheduler.config[name] for name in names))
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
    return scheduler


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("tokens", [4, 64, 4096, 16384])
@pytest.mark.parametrize("steps", [1, 4, 28])
def test_sigmas_equal_those_of_diffusers(name, tokens, steps):
    theirs = scheduler_after_set_timesteps(CONFIGS[name], steps, tokens).sigmas.tolist()
    assert schedule.sigmas(steps, tokens, CONFIGS[name]) == theirs


def test_sigmas_fall_from_one_to_zero():
    levels = schedule.sigmas(28, 4096, DEV)
    assert (levels[0], levels[-1], len(levels)) == (1.0, 0.0, 29)
    assert levels == sorted(levels, reverse=True)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 12, 20, 28, 50, 100])
@pytest.mark.parametrize("strength", [0.001, 0.05, 0.1, 0.3, 0.58, 0.6, 0.7, 0.95, 1.0])
def test_steps_that_run_equal_those_of_diffusers(steps, strength):
    pipeline: Any = SimpleNamespace(scheduler=scheduler_after_set_timesteps(DEV, steps, 64))
    timesteps, count = FluxImg2ImgPipeline.get_timesteps(pipeline, steps, strength, "cpu")
    assert schedule.run_steps(steps, strength) == count == len(timesteps)
    assert schedule.first_step(steps, strength) == steps - count


def test_no_step_runs_at_strength_zero():
    assert schedule.run_steps(12, 0.0) == 0


def test_an_unsupported_schedule_is_named():
    assert schedule.unsupported_option({"use_karras_sigmas": True}) == "use_karras_sigmas"
    assert schedule.unsupported_option(DEV | {"use_beta_sigmas": False}) is None


@pytest.mark.parametrize("tokens", [4, 1024, 4096, 4300, 4301, 16384])
@pytest.mark.parametrize("steps", [1, 4, 28, 50])
def test_flux2_s_shift_equals_that_of_diffusers(tokens, steps):
    assert schedule.flux2_shift(tokens, steps) == pytest.approx(
        compute_empirical_mu(tokens, steps), rel=1e-12
    )
