"""Every setting once: name, type, default and help. Flags, environment and `.env` follow from it.

Order of precedence: flags, `STUDIO_…` variables, `.env`, the default here.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pipelines.cache_rules import CacheRule, CacheValueError, resolve
from pipelines.specs import EMBEDDED, Memory
from pipelines.text.requests import KVFormat, Priority, Rule, Speculating
from studio.engine.text_http.dialects import DialectName
from studio.step_cache import CACHE_FIELDS, CacheName, CacheSetting, fault_of
from studio.text_flags import TEXT_FLAGS, fault_of_flags

HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?|\[?[0-9A-Fa-f:.]+\]?")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MIB = 1024 * 1024

# What other servers call the same values: flag to flag.
OTHER_NAMES = {
    "taylor-order": "taylorseer-max-order",
    "warmup-steps": "taylorseer-warmup-steps",
    "cache-interval": "taylorseer-cache-interval",
}
# Their switches, --first-block-caching and --taylorseer, and what they mean together.
SWITCHED: dict[tuple[bool, bool], CacheName] = {
    (True, False): "first_block_caching",
    (False, True): "taylorseer",
    (True, True): "balanced",
}

Words = Annotated[tuple[str, ...], NoDecode]
Number = int | float | None


class Settings(BaseSettings):
    """A web studio and HTTP API that makes pictures with FLUX models."""

    model_config = SettingsConfigDict(
        env_prefix="STUDIO_",
        env_file=".env",
        extra="ignore",
        frozen=True,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_prog_name="app.py",
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_shortcuts=OTHER_NAMES,
    )

    model: Words = Field(
        (EMBEDDED,),
        min_length=1,
        description="Model to serve: the embedded one, black-forest-labs/FLUX.1-dev and the like, "
        "or a folder in diffusers format; repeat the flag for several, the first is the default.",
    )
    device: str = Field("auto", description="Device of the model: auto, cpu, cuda, cuda:1 …")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Number format of the model; auto is bfloat16 on CUDA, float32 on a CPU.",
    )
    memory: Memory = Field(
        "auto",
        description="On CUDA: full holds all weights on the device, offload streams text encoders "
        "and transformer to it layer by layer, auto streams what does not fit.",
    )
    compile: bool = Field(
        False,
        description="Compile the transformer's blocks: faster steps on CUDA, and a first picture "
        "that waits for it.",
    )
    hf_token: str | None = Field(
        None, description="Token for gated model repositories (else HF_TOKEN of the environment)."
    )
    data_dir: Path = Field(Path("data"), description="Folder of the history and its pictures.")
    database_url: str | None = Field(
        None, description="SQLAlchemy URL of the history; SQLite in the data folder when absent."
    )
    host: str = Field(
        "127.0.0.1", description="Address to listen on; others than loopback need a key."
    )
    port: int = Field(7860, ge=0, le=65535, description="Port to listen on.")
    root_path: str = Field("", description="Path prefix under which a proxy serves the studio.")
    api_key: Words = Field(
        (), description="Key that page and API ask for; repeat the flag for several keys."
    )
    open: bool = Field(
        False, description="Serve other hosts or a share link without any key: anybody may use it."
    )
    share: bool = Field(False, description="Open a public Gradio link to page and API.")
    allowed_host: Words = Field(
        (), description="Host name under which the studio is reached, beside its own; repeatable."
    )
    queue_size: int = Field(64, ge=1, description="Jobs that may wait; more get 429.")
    max_images: int = Field(4, ge=1, le=64, description="Pictures that one request may ask for.")
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Tokens of all pictures that step together; by default the engine's.",
    )
    debug_poison: bool = Field(
        False, description="For developers: fill fresh tensors with NaN, so that misuse is seen."
    )
    cache: CacheName | None = Field(
        None,
        description="Step cache of requests that name none: off, balanced, fast, "
        "first_block_caching or taylorseer; by default off for programs, balanced on the page.",
    )
    residual_threshold: Number = Field(
        None,
        description="How far off the first block may be where a step is predicted, relatively, "
        f"{CACHE_FIELDS['residual_threshold']}; this and the next four are the cache's by default.",
    )
    taylor_order: Number = Field(
        None,
        description=f"Order of the prediction, {CACHE_FIELDS['taylor_order']}; 0 reuses a step.",
    )
    warmup_steps: Number = Field(
        None, description=f"First steps that are always computed, {CACHE_FIELDS['warmup_steps']}."
    )
    max_skips: Number = Field(
        None, description=f"Most predicted steps in a row, {CACHE_FIELDS['max_skips']}."
    )
    cache_interval: Number = Field(
        None,
        description="Compute every n-th step behind the warm-up, whatever changes: "
        f"{CACHE_FIELDS['cache_interval']}; for taylorseer.",
    )
    first_block_caching: bool = Field(False, description="The same as --cache first_block_caching.")
    taylorseer: bool = Field(
        False,
        description="The same as --cache taylorseer; with --first-block-caching, as balanced.",
    )
    text_engine: Literal["local", "http", "off"] = Field(
        "local",
        description="Who writes text: a worker of the studio, another server at --text-url, or "
        "nobody.",
    )
    text_model: str | None = Field(
        None,
        description="Text model: SmolLM2-135M-Instruct, which is fetched once, when absent; a "
        "repository, a folder, a GGUF file; with --text-engine http, the name on that server.",
    )
    text_url: str | None = Field(
        None, description="OpenAI-compatible server for --text-engine http: http://host:port/v1."
    )
    text_key: str | None = Field(None, description="Key that the server at --text-url asks for.")
    text_dialect: DialectName | Literal["auto"] = Field(
        "auto", description="Which server answers at --text-url; auto finds out."
    )
    speculation: Speculating = Field(
        "auto",
        description="What drafts tokens for the text model: ngram (the text itself), head (a draft "
        "head made for the model), model (--draft-model), mtp (the checkpoint's own), off; auto "
        "takes what there is, and drafts only while that is faster.",
    )
    draft_model: str | None = Field(
        None, description="Smaller text model with the same tokenizer, to draft with."
    )
    rejection_sampling_strategy: Rule = Field(
        "typical-acceptance",
        description="Rule that accepts drafted tokens; all but logit-comparison are exact, greedy "
        "is so at temperature 0.",
    )
    kv_cache_format: KVFormat = Field(
        "auto",
        description="Number format of the text model's keys and values; auto is the model's own.",
    )
    text_batch_priority: Priority = Field(
        "per_replica",
        description="Whose turn it is in the text engine: prompts that are read "
        "(prefill_first), texts that are written (decode_first), the majority (balanced), or both "
        "in one forward.",
    )
    max_body_mb: int = Field(64, ge=1, description="Largest request body, MiB; more gets 413.")
    max_upload_mb: int = Field(20, ge=1, description="Largest picture file taken in, MiB.")
    max_source_mp: float = Field(50.0, gt=0, description="Largest picture taken in, megapixels.")
    fetch_timeout_s: float = Field(15.0, gt=0, description="Time for a picture by URL, seconds.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Log level."
    )

    @field_validator("model", "api_key", "allowed_host", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """One variable may hold several values, separated by commas."""
        if isinstance(value, str):
            value = value.split(",")
        if isinstance(value, list | tuple):
            parts = [part for item in value for part in str(item).split(",")]
            return tuple(part.strip() for part in parts if part.strip())
        return value

    @field_validator("allowed_host")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not HOST_NAME.fullmatch(host):
                raise ValueError(f"{host!r} is no host name; give one like studio.example.org.")
        return hosts

    @field_validator(*CACHE_FIELDS, mode="before")
    @classmethod
    def _check_cache_value(cls, value: object, info: ValidationInfo) -> object:
        assert info.field_name is not None
        number = _number(value)
        if number is not None and (fault := fault_of(info.field_name, number)):
            other = OTHER_NAMES.get(_kebab(info.field_name))
            raise ValueError(f"{fault} --{other} is another name for it." if other else fault)
        return number

    @model_validator(mode="after")
    def _check_cache(self) -> "Settings":
        switched = self._switched_cache
        if self.cache and switched and self.cache != switched:
            flags = [_flag(name) for name in ("first_block_caching", "taylorseer")]
            given = [flag for flag, is_on in zip(flags, self._switches, strict=True) if is_on]
            raise ValueError(
                f"--cache {self.cache} contradicts {' with '.join(given)}, "
                f"which means --cache {switched}: give one of them."
            )
        try:
            self._resolve_cache()
        except CacheValueError as error:
            message = error.message.replace(error.field, _flag(error.field), 1)
            raise ValueError(message) from error
        return self

    @model_validator(mode="after")
    def _need_key(self) -> "Settings":
        if self.api_key or self.open:
            return self
        if self.share:
            raise ValueError(
                "--share makes the studio public: add --api-key KEY, or --open for all."
            )
        if self.host not in LOOPBACK:
            raise ValueError(
                f"--host {self.host} can be reached from outside: "
                "add --api-key KEY, or --open for all."
            )
        return self

    @model_validator(mode="after")
    def _check_text(self) -> "Settings":
        defaults = {name: type(self).model_fields[name].default for name in TEXT_FLAGS}
        given = [name for name in TEXT_FLAGS if getattr(self, name) not in ("", defaults[name])]
        if fault := fault_of_flags(self.text_engine, given):
            raise ValueError(fault)
        if self.speculation == "model" and not self.draft_model:
            raise ValueError("--speculation model needs --draft-model: a model to draft with.")
        return self

    @property
    def cache_setting(self) -> CacheSetting:
        """The step cache of page and API; empty where none was chosen."""
        is_chosen = self.cache or self._switched_cache
        return CacheSetting(self._resolve_cache() if is_chosen else None)

    @property
    def _switches(self) -> tuple[bool, bool]:
        return self.first_block_caching, self.taylorseer

    @property
    def _switched_cache(self) -> CacheName | None:
        return SWITCHED.get(self._switches)

    def _resolve_cache(self) -> CacheRule:
        name = self.cache or self._switched_cache or "off"
        return resolve(name, **{field: getattr(self, field) for field in CACHE_FIELDS})

    @property
    def max_body_bytes(self) -> int:
        """Largest request body."""
        return self.max_body_mb * MIB

    @property
    def max_upload_bytes(self) -> int:
        """Largest picture file."""
        return self.max_upload_mb * MIB

    @property
    def max_source_px(self) -> int:
        """Largest picture in pixels."""
        return int(self.max_source_mp * 1_000_000)


def _number(value: object) -> object:
    """Flags and variables are text: a whole number where it reads as one."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def _flag(name: str) -> str:
    return f"--{_kebab(name)}"


def _kebab(name: str) -> str:
    return name.replace("_", "-")
