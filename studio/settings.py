"""Every setting once: name, type, default and help. Flags, environment and `.env` follow from it.

Order of precedence: flags, `STUDIO_…` variables, `.env`, the default here.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pipelines.specs import EMBEDDED

HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?|\[?[0-9A-Fa-f:.]+\]?")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MIB = 1024 * 1024

Words = Annotated[tuple[str, ...], NoDecode]


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
    )

    model: str = Field(
        EMBEDDED,
        description="Model to serve: the embedded one, black-forest-labs/FLUX.1-dev, "
        "black-forest-labs/FLUX.1-schnell, or a folder in diffusers format.",
    )
    device: str = Field("auto", description="Device of the model: auto, cpu, cuda, cuda:1 …")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Number format of the model; auto is bfloat16 on CUDA, float32 on a CPU.",
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
    max_body_mb: int = Field(64, ge=1, description="Largest request body, MiB; more gets 413.")
    max_upload_mb: int = Field(20, ge=1, description="Largest picture file taken in, MiB.")
    max_source_mp: float = Field(50.0, gt=0, description="Largest picture taken in, megapixels.")
    fetch_timeout_s: float = Field(15.0, gt=0, description="Time for a picture by URL, seconds.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Log level."
    )

    @field_validator("api_key", "allowed_host", mode="before")
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
