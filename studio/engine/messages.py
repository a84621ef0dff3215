"""What the server tells the worker, over a socket that only the two of them hold."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.requests import RenderRequest
from pipelines.specs import Memory, ModelSpec
from pipelines.text.requests import KVFormat, Priority, Rule, Speculating, TextRequest


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The first message: what to load, and where."""

    specs: tuple[ModelSpec, ...]  # the first is loaded at once, the others when they are named
    device: str = "auto"  # auto, cpu, cuda, cuda:1 …
    dtype: str = "auto"  # auto, float32, bfloat16, float16
    hf_token: str | None = None
    memory: Memory = "auto"
    compiles: bool = False
    debug_poison: bool = False
    max_tokens: int | None = None  # of all pictures that step together; None: the engine's choice


@dataclass(frozen=True, slots=True)
class TextWorkerConfig:
    """The first message to a text worker: what to load, and how to serve it."""

    model: str  # the embedded one by name, a folder, a GGUF file, a repository
    folder: Path  # where the embedded one is kept
    device: str = "auto"
    dtype: str = "auto"
    hf_token: str | None = None
    kv_format: KVFormat = "auto"
    priority: Priority = "per_replica"
    speculation: Speculating = "auto"
    draft_model: str | None = None
    rule: Rule = "typical-acceptance"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop this request before its next step."""

    request_id: str


@dataclass(frozen=True, slots=True)
class LastWords:
    """Why the worker is about to end, from the worker itself."""

    cause: str


Message = WorkerConfig | TextWorkerConfig | RenderRequest | TextRequest | Cancel
