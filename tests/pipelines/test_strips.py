"""Decoding in strips gives the plain decode's picture, in less memory."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from torch import nn
from torch.profiler import ProfilerActivity, profile

from pipelines import strip_decoder, strips
from pipelines.specs import EMBEDDED_FOLDER
from pipelines.strip_decoder import StripDecoder, use_strips
from pipelines.strips import Moments, Strips, put_by
from tests.pipelines.reference import distance

TOLERANCE = 1e-5  # float32 gives about 2e-6: other sizes take other sums of the same terms
BROKEN = 1e-2  # what a wrong strip differs by at the least


def make_vae(seed: int = 0, vae_class: Any = AutoencoderKL, **changes: Any) -> Any:
    """FLUX.1's VAE with a sixteenth of its channels; norms are random too, so that they matter."""
    config: dict[str, Any] = {
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "block_out_channels": (8, 16, 32, 32),
        "layers_per_block": 2,
        "latent_channels": 16,
        "norm_num_groups": 4,
        "use_quant_conv": False,
        "use_post_quant_conv": False,
    }
    torch.manual_seed(seed)
    vae = vae_class(**config | changes).eval().requires_grad_(False)
    for norm in vae.decoder.modules():
        if isinstance(norm, nn.GroupNorm):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -1, 1)
    return vae


def latents_of(vae: Any, height: int, width: int, pictures: int = 1) -> torch.Tensor:
    """Brighter towards the bottom, so that no strip has the moments of the whole."""
    noise = torch.randn(pictures, vae.config["latent_channels"], height, width)
    return noise + torch.linspace(-2, 2, height)[:, None]


def both(vae: Any, latents: torch.Tensor, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The picture in strips and diffusers' own."""
    with torch.inference_mode():
        plain = vae.decode(latents).sample
        vae.decoder = StripDecoder(vae.decoder, max_plain_px=0, strip_elements=elements)
        return vae.decode(latents).sample, plain


KINDS: dict[str, dict[str, Any]] = {
    "FLUX.1": {},
    "no attention": {"mid_block_add_attention": False},
    "post_quant_conv": {"use_post_quant_conv": True},
    "one group": {"norm_num_groups": 1},
    "a group a channel": {"norm_num_groups": 8},
    "one layer a block": {"layers_per_block": 1},
    "FLUX.2": {"vae_class": AutoencoderKLFlux2, "use_post_quant_conv": True},
    "FLUX.2, small decoder": {
        "vae_class": AutoencoderKLFlux2,
        "decoder_block_out_channels": (12, 20, 24, 24),
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_strips_are_the_plain_picture(kind):
    vae = make_vae(**KINDS[kind])
    ours, theirs = both(vae, latents_of(vae, 9, 7), elements=8 * 11 * 56)
    assert ours.shape == theirs.shape == (1, 3, 72, 56)
    assert distance(ours, theirs) <= TOLERANCE
    assert (ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max()


def test_the_embedded_vae_in_strips_is_the_plain_picture():
    vae = AutoencoderKL.from_pretrained(EMBEDDED_FOLDER / "vae").requires_grad_(False)
    ours, theirs = both(vae, latents_of(vae, 7, 5), elements=16 * 30 * 80)
    assert distance(ours, theirs) <= TOLERANCE


@pytest.mark.parametrize("height, width", [(1, 1), (1, 9), (9, 1), (3, 5), (13, 2)])
@pytest.mark.parametrize("elements", [1, 500, 10_000, 10**9])
def test_any_size_in_strips_of_any_height(height, width, elements):
    """A strip of one row, strips that do not divide the height, one strip for all."""
    vae = make_vae(layers_per_block=1)
    ours, theirs = both(vae, latents_of(vae, height, width), elements)
    assert distance(ours, theirs) <= TOLERANCE


def test_pictures_of_a_batch_keep_their_own_moments():
    vae = make_vae()
    latents = latents_of(vae, 6, 4, pictures=3) * torch.tensor([0.1, 1.0, 5.0]).view(3, 1, 1, 1)
    ours, theirs = both(vae, latents, elements=4000)
    for one, other in zip(ours, theirs, strict=True):
        assert distance(one, other) <= TOLERANCE


def test_a_factor_on_the_residual_blocks_is_obeyed():
    vae = make_vae()
    for block in vae.decoder.up_blocks[1].resnets:
        block.output_scale_factor = 1.7
    ours, theirs = both(vae, latents_of(vae, 5, 5), elements=2500)
    assert distance(ours, theirs) <= TOLERANCE


def test_bfloat16_strips_round_no_worse_than_the_plain_decode():
    vae = make_vae()
    latents = latents_of(vae, 9, 7)
    exact = vae.decode(latents).sample
    ours, theirs = both(vae.bfloat16(), latents.bfloat16(), elements=5000)
    assert ours.dtype == torch.bfloat16
    assert distance(ours.float(), exact) <= 1.2 * distance(theirs.float(), exact)


def test_moments_of_each_strip_alone_are_found_out(monkeypatch):
    def of_the_strip(norm, x):
        return lambda rows: F.silu(norm(rows))

    monkeypatch.setattr(strip_decoder, "_norm_and_silu", of_the_strip)
    vae = make_vae()
    ours, theirs = both(vae, latents_of(vae, 9, 7), elements=5000)
    assert distance(ours, theirs) > BROKEN


def test_a_missing_halo_is_found_out(monkeypatch):
    monkeypatch.setattr(strip_decoder, "HALO", 0)
    vae = make_vae()
    ours, theirs = both(vae, latents_of(vae, 9, 7), elements=5000)
    assert distance(ours, theirs) > BROKEN


def test_moments_of_a_mean_far_from_zero():
    x = torch.randn(2, 6, 23, 5) + torch.linspace(-1000, 1000, 6).view(6, 1, 1)
    norm = nn.GroupNorm(3, 6)
    nn.init.uniform_(norm.weight)
    nn.init.uniform_(norm.bias)
    moments = Moments()
    for strip in x.split([1, 7, 15], dim=2):
        moments.add(strip)
    scale, shift = (each.double() for each in moments.scale_and_shift(norm))
    theirs = norm.double()(x.double())
    assert (x.double() * scale + shift - theirs).abs().max() < 1e-4


# When


def test_pictures_up_to_the_bound_are_decoded_plainly():
    vae = make_vae()
    latents = latents_of(vae, 4, 4, pictures=2)
    plain = vae.decode(latents).sample
    decoder = use_strips(vae, max_plain_px=2 * 32 * 32)
    assert decoder is not None
    decoder.strip_elements = 1000
    assert torch.equal(vae.decode(latents).sample, plain)
    decoder.max_plain_px -= 1
    assert not torch.equal(vae.decode(latents).sample, plain)


def test_a_second_engine_sets_only_the_bound():
    vae = make_vae()
    first = use_strips(vae, 1000)
    second = use_strips(vae, 7)
    assert first is not None and first is second is vae.decoder
    assert first.max_plain_px == 7
    assert isinstance(first.plain, strip_decoder.Decoder)


class OtherConv(nn.Conv2d):
    pass


def with_other_conv() -> Any:
    vae = make_vae()
    vae.decoder.up_blocks[2].resnets[1].conv2 = OtherConv(16, 16, 3, padding=1)
    return vae


def with_a_wide_conv() -> Any:
    vae = make_vae()
    vae.decoder.up_blocks[0].upsamplers[0].conv = nn.Conv2d(32, 32, 5, padding=2)
    return vae


def with_a_wide_shortcut() -> Any:
    vae = make_vae()
    vae.decoder.up_blocks[2].resnets[0].conv_shortcut = nn.Conv2d(32, 16, 3, padding=1)
    return vae


def with_bare_norms() -> Any:
    vae = make_vae()
    vae.decoder.conv_norm_out = nn.GroupNorm(4, 8, affine=False)
    return vae


def with_attention_at_every_level() -> Any:
    return make_vae(up_block_types=("AttnUpDecoderBlock2D",) * 4)


@pytest.mark.parametrize(
    "make, name",
    [
        (with_other_conv, "ResnetBlock2D"),
        (with_a_wide_conv, "Upsample2D"),
        (with_a_wide_shortcut, "ResnetBlock2D"),
        (with_bare_norms, "Decoder"),
        (with_attention_at_every_level, "AttnUpDecoderBlock2D"),
    ],
)
def test_an_unknown_decoder_stays_plain_and_is_told(make, name, caplog):
    vae = make()
    latents = latents_of(vae, 3, 3)
    plain = vae.decode(latents).sample
    with caplog.at_level(logging.WARNING):
        assert use_strips(vae, max_plain_px=0) is None
    assert name in caplog.text
    assert torch.equal(vae.decode(latents).sample, plain)


# Memory


def peak_bytes(work: Callable[[], object]) -> int:
    """Of tensors that torch allocates on the CPU while `work` runs."""
    with (
        torch.inference_mode(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace,
    ):
        work()
    events = [e for e in trace.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def test_on_a_cpu_the_peak_is_much_lower():
    """Two full-size activations and strips of a 32nd, where the plain decode holds six."""
    vae = make_vae(mid_block_add_attention=False)
    latents = latents_of(vae, 32, 32)
    full_size = 4 * 8 * 256 * 256  # bytes of the 8 channels that stand for 128
    assert peak_bytes(lambda: vae.decode(latents)) >= 6 * full_size
    vae.decoder = StripDecoder(vae.decoder, 0, strip_elements=8 * 256 * 256 // 32)
    assert peak_bytes(lambda: vae.decode(latents)) <= 2.7 * full_size


def test_the_peak_beside_waiting_strips_depends_on_the_strip_alone(monkeypatch):
    """As on a GPU, whose strips wait on the host: here in memory that torch does not count."""
    monkeypatch.setattr(strips, "put_by", lambda x: torch.from_numpy(x.numpy().copy()))
    monkeypatch.setattr(strips, "fetch", lambda kept, device: kept.clone())
    vae = make_vae(mid_block_add_attention=False)
    vae.decoder = StripDecoder(vae.decoder, 0, strip_elements=16 * 128 * 8)
    monkeypatch.setattr(vae.decoder, "_finish", lambda x: torch.empty(0))  # the output apart

    def peak(height: int, width: int) -> int:
        latents = latents_of(vae, height, width)
        return peak_bytes(lambda: vae.decode(latents))

    square, tall = peak(16, 16), peak(64, 16)
    assert abs(tall / square - 1) < 0.1, (square, tall)


def test_strips_are_read_and_forgotten_by_rows():
    x = torch.arange(2 * 11 * 3.0).view(1, 2, 11, 3)
    kept = Strips()
    for strip in x.split([4, 1, 6], dim=2):
        kept.append(strip)
    assert (kept.height, kept.width) == (11, 3)
    for top, bottom in [(0, 2), (0, 12), (3, 6), (4, 5), (9, 99)]:
        assert torch.equal(kept.rows(top, bottom), x[:, :, top:bottom])
    kept.forget(above=5)
    assert torch.equal(kept.rows(5, 11), x[:, :, 5:])
    assert [part.first for part in kept._parts] == [5]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_peak_depends_on_the_strip(monkeypatch):
    vae = make_vae(block_out_channels=(64, 128, 128, 128), mid_block_add_attention=False).cuda()
    vae.decoder = StripDecoder(vae.decoder, 0, strip_elements=2**20)
    monkeypatch.setattr(vae.decoder, "_finish", lambda x: torch.empty(0))  # the output apart

    def peak(height: int, width: int) -> int:
        latents = latents_of(vae, height, width).cuda()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.inference_mode():
            vae.decode(latents)
        return torch.cuda.max_memory_allocated() - before

    assert abs(peak(512, 128) / peak(128, 128) - 1) < 0.1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_strips_are_the_plain_picture(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    vae = make_vae().cuda()
    ours, theirs = both(vae, latents_of(vae, 64, 64).cuda(), elements=8 * 20 * 512)
    assert distance(ours, theirs) <= TOLERANCE


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_strips_wait_in_the_layout_that_they_have(layout):
    """Another one would be copied back before each convolution."""
    made = torch.randn(1, 4, 6, 5).contiguous(memory_format=layout)
    kept = put_by(made[:, :, 1:4])
    assert torch.equal(kept, made[:, :, 1:4]) and kept.is_contiguous(memory_format=layout)
