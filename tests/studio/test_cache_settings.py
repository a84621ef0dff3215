"""`--cache` and its values, by our names and by those of other servers."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import CliApp

from pipelines.cache_rules import OFF, PRESETS, CacheRule, resolve
from studio.request import Draft
from studio.server import make_jobs
from studio.settings import OTHER_NAMES, Settings
from tests.fake_engine import FakeEngine
from tests.studio.conftest import SPEC

DOCS = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def rule(flags: str) -> CacheRule | None:
    return CliApp.run(Settings, cli_args=flags.split()).cache_setting.rule


def refused(flags: str) -> str:
    with pytest.raises(ValidationError) as caught:
        rule(flags)
    (fault,) = caught.value.errors()
    return " ".join([*map(str, fault["loc"]), fault["msg"]])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", None),
        ("--cache off", OFF),
        ("--cache balanced", PRESETS["balanced"]),
        ("--first-block-caching", PRESETS["first_block_caching"]),
        ("--taylorseer", PRESETS["taylorseer"]),
        ("--first-block-caching --taylorseer", PRESETS["balanced"]),
        ("--cache balanced --taylorseer --first-block-caching", PRESETS["balanced"]),
        (
            "--first-block-caching --residual-threshold 0.2",
            resolve("first_block_caching", residual_threshold=0.2),
        ),
        (
            "--taylorseer --taylorseer-cache-interval 4 --taylorseer-warmup-steps 2 "
            "--taylorseer-max-order 2",
            resolve("taylorseer", cache_interval=4, warmup_steps=2, taylor_order=2),
        ),
        (
            "--cache fast --residual-threshold 1 --taylor-order 0 --warmup-steps 0 --max-skips 7",
            resolve("fast", residual_threshold=1, taylor_order=0, warmup_steps=0, max_skips=7),
        ),
    ],
)
def test_flags_choose_a_rule(flags: str, expected: CacheRule | None) -> None:
    assert rule(flags) == expected


def test_variables_do_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUDIO_CACHE", "fast")
    monkeypatch.setenv("STUDIO_MAX_SKIPS", "2")
    assert rule("") == resolve("fast", max_skips=2)
    assert rule("--cache balanced") == resolve("balanced", max_skips=2)
    monkeypatch.setenv("STUDIO_MAX_SKIPS", "2.5")
    assert "max_skips" in refused("")


def test_the_studio_runs_with_what_was_chosen(tmp_path: Path) -> None:
    settings = Settings(cache="fast", max_skips=2, data_dir=tmp_path)
    jobs = make_jobs(settings, [SPEC], FakeEngine())
    request, _ = jobs.plan(Draft("an apple"))
    assert request.cache == resolve("fast", max_skips=2)
    jobs.library.close()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--cache slow", ["cache", "'off'", "'taylorseer'"]),
        ("--cache fast --residual-threshold -1", ["residual_threshold", "0 to 1", "-1"]),
        ("--cache fast --residual-threshold nan", ["residual_threshold", "0 to 1"]),
        ("--cache fast --taylor-order 3", ["taylor_order", "0 to 2", "3"]),
        ("--taylorseer --taylorseer-max-order 3", ["--taylorseer-max-order", "0 to 2"]),
        ("--cache fast --warmup-steps 2.5", ["warmup_steps", "whole number from 0 to 100"]),
        ("--taylorseer --cache-interval none", ["cache_interval", "1 to 100"]),
        ("--max-skips 3", ["--max-skips", "balanced", "not off"]),
        ("--taylorseer --residual-threshold 0.1", ["--residual-threshold", "not taylorseer"]),
        ("--cache fast --first-block-caching", ["--cache fast", "--first-block-caching"]),
        ("--cache off --taylorseer", ["--cache off", "--taylorseer"]),
        (
            "--cache taylorseer --taylorseer --first-block-caching",
            ["--cache taylorseer", "--first-block-caching with --taylorseer", "--cache balanced"],
        ),
    ],
)
def test_what_cannot_be_is_one_sentence_that_names_flag_and_range(
    flags: str, words: list[str]
) -> None:
    sentence = refused(flags)
    for word in words:
        assert word in sentence


def test_every_other_name_of_a_flag_is_documented() -> None:
    text = DOCS.read_text()
    for name in OTHER_NAMES.values():
        assert f"`--{name}`" in text
