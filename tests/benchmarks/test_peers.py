"""Peers forget each picture, leave nothing behind, and are counted as they compute."""

import numpy as np
import pytest

from benchmarks.fidelity import compare
from benchmarks.flops import counter
from benchmarks.peers import CacheDit, FirstBlockCache, TaylorSeer
from benchmarks.ways import Ours, Plain
from pipelines.cache_rules import resolve

PEERS = (
    FirstBlockCache(0.5),
    TaylorSeer(interval=3, warmup_steps=3),
    TaylorSeer(interval=3, warmup_steps=3, is_lite=True),
    CacheDit(0.9, warmup_steps=3, max_skips=-1),
)
OURS = Ours(resolve("balanced", residual_threshold=1.0, max_skips=2))


def draw_all(bench, way, requests):
    with way.open(bench) as draw:
        return [draw(request) for request in requests]


@pytest.mark.parametrize("way", PEERS, ids=lambda way: way.name)
def test_a_peer_forgets_each_picture_and_leaves_nothing_behind(bench, requests, way):
    before = draw_all(bench, Plain(), requests)
    first, second, again = draw_all(bench, way, [*requests, requests[0]])
    assert np.array_equal(first, again)
    assert not np.array_equal(first, before[0]) or not np.array_equal(second, before[1])
    assert all(map(np.array_equal, before, draw_all(bench, Plain(), requests)))


def test_a_peer_that_kept_its_state_would_be_seen(bench, requests):
    """As diffusers' cache does after a call that failed."""
    way = TaylorSeer(interval=3, warmup_steps=3, is_lite=True)
    pipeline = bench.pipeline
    with way.open(bench) as draw:
        fresh = draw(requests[0])

        def fail(*_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pipeline("a frog", width=64, height=64, callback_on_step_end=fail)
        assert not np.array_equal(draw(requests[0]), fresh)


@pytest.mark.parametrize("way", [Plain(), *PEERS], ids=lambda way: way.name)
def test_the_tally_equals_torchs_counter(bench, requests, way):
    with way.open(bench) as draw:
        bench.tally.calls.clear()
        with counter() as flops:
            draw(requests[0])
    # Its own sum for the transformer has the VAE in it where cache-dit wraps the blocks.
    others = ("CLIPTextModel", "T5EncoderModel", "Decoder")
    by_module = flops.get_flop_counts()
    theirs = flops.get_total_flops() - sum(sum(by_module[name].values()) for name in others)
    assert bench.tally.flops == theirs
    is_plain = isinstance(way, Plain)
    assert (theirs == requests[0].steps * bench.step_flops) == is_plain


def test_a_predicted_step_of_ours_costs_the_head(bench, requests):
    (found,) = compare(bench, OURS, [(requests[0], draw_all(bench, Plain(), requests)[0])])
    request = requests[0]
    in_head = ("transformer_blocks.0.", "time_text_embed.", "x_embedder", "context_embedder")
    head = sum(flops for name, flops in bench.tally.flops_of.items() if name.startswith(in_head))
    computed = round(found.steps * request.steps)
    assert 0 < computed < request.steps
    expected = computed * bench.step_flops + (request.steps - computed) * head
    assert found.fraction == pytest.approx(expected / (request.steps * bench.step_flops))


def test_without_a_cache_ours_is_diffusers_picture(bench, requests):
    (picture,) = draw_all(bench, Ours(resolve("off")), requests[:1])
    (theirs,) = draw_all(bench, Plain(), requests[:1])
    assert np.abs(picture.astype(int) - theirs).max() <= 1
