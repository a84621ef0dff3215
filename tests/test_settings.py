"""One table of settings: flags, environment and file; every one documented; no key, no door."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import CliApp

from studio.settings import Settings

ROOT = Path(__file__).resolve().parents[1]


def parsed(*flags: str) -> Settings:
    return CliApp.run(Settings, cli_args=list(flags))


def test_flags_win_over_environment_and_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("STUDIO_PORT=1111\nSTUDIO_QUEUE_SIZE=3\nSTUDIO_MAX_IMAGES=2\n")
    monkeypatch.setenv("STUDIO_PORT", "2222")
    monkeypatch.setenv("STUDIO_QUEUE_SIZE", "4")
    settings = parsed("--port", "3333")
    assert (settings.port, settings.queue_size, settings.max_images) == (3333, 4, 2)


def test_keys_are_repeatable_and_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed("--api-key", "a", "--api-key", "b").api_key == ("a", "b")
    monkeypatch.setenv("STUDIO_API_KEY", "c, d")
    assert parsed().api_key == ("c", "d")


@pytest.mark.parametrize("flags", [["--share"], ["--host", "0.0.0.0"], ["--host", "192.168.1.5"]])
def test_without_a_key_the_studio_stays_on_loopback(flags: list[str]) -> None:
    with pytest.raises(ValidationError, match="--api-key"):
        parsed(*flags)
    assert parsed(*flags, "--api-key", "k")
    assert parsed(*flags, "--open")


@pytest.mark.parametrize("host", ["*.example.org", "http://a", "a b"])
def test_a_malformed_host_is_a_sentence(host: str) -> None:
    with pytest.raises(ValidationError, match="no host name"):
        parsed("--allowed-host", host)


def test_every_setting_has_help_and_a_line_in_the_docs() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        flag = f"`--{name.replace('_', '-')}`"
        assert field.description, f"{name} has no help"
        assert flag in text, f"docs/settings.md does not mention {flag}"


HTTP = ["--text-engine", "http", "--text-url", "http://there/v1"]
LOCAL_FLAGS = [
    ["--speculation", "ngram"],
    ["--draft-model", "small"],
    ["--kv-cache-format", "float32"],
    ["--rejection-sampling-strategy", "greedy"],
    ["--text-batch-priority", "balanced"],
]
HTTP_FLAGS = [["--text-url", "http://there/v1"], ["--text-key", "k"], ["--text-dialect", "vllm"]]


@pytest.mark.parametrize(
    ("engine", "flags", "way_out"),
    [
        *(("http", [*HTTP, *flags], "local") for flags in LOCAL_FLAGS),
        *(("off", ["--text-engine", "off", *flags], "local") for flags in LOCAL_FLAGS),
        *(("local", flags, "http") for flags in HTTP_FLAGS),
        *(("off", ["--text-engine", "off", *flags], "http") for flags in HTTP_FLAGS),
    ],
)
def test_text_flags_without_effect_are_refused(engine: str, flags: list[str], way_out: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parsed(*flags)
    said = str(caught.value)
    assert f"--text-engine {engine} has no use for {flags[-2]}" in said
    assert f"or take --text-engine {way_out}." in said


def test_text_flags_where_they_act_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags in LOCAL_FLAGS:
        assert parsed(*flags)
    for flags in HTTP_FLAGS:
        assert parsed(*HTTP, *flags)
    assert parsed(*HTTP, "--speculation", "auto")  # the default says nothing
    monkeypatch.setenv("STUDIO_TEXT_KEY", "")  # as compose files leave it
    assert parsed()
    with pytest.raises(ValidationError, match="needs --text-url"):
        parsed("--text-engine", "http")
