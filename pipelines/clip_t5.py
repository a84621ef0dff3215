"""FLUX.1's prompts: a pooled vector from CLIP, a vector for each token from T5."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import CLIPTextModel, PreTrainedTokenizerBase, T5EncoderModel

from pipelines.flux import PromptEncoding, PromptLength
from pipelines.prompt_tokens import lost_words
from pipelines.unknown_words import unknown_words


class ClipT5:
    """`limit` is the number of T5's tokens, the closing one included."""

    def __init__(
        self,
        *,
        clip: CLIPTextModel,
        t5: T5EncoderModel,
        clip_tokenizer: PreTrainedTokenizerBase,
        t5_tokenizer: PreTrainedTokenizerBase,
        limit: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.clip, self.t5 = clip, t5
        self.clip_tokenizer, self.t5_tokenizer = clip_tokenizer, t5_tokenizer
        self.limit = limit
        self.device = device  # where they compute
        self.dtype = dtype  # of what comes out

    def encode(self, prompts: Sequence[tuple[str, str]]) -> list[PromptEncoding]:
        """What CLIP reads and what T5 reads. No attention mask: pads are attended to."""
        clip_length = self.clip_tokenizer.model_max_length
        clip_ids = _ids(self.clip_tokenizer, [clip for clip, _ in prompts], clip_length)
        t5_ids = _ids(self.t5_tokenizer, [t5 for _, t5 in prompts], self.limit)
        pooled = self.clip(clip_ids.to(self.device)).pooler_output.to(self.dtype)
        text = self.t5(t5_ids.to(self.device))[0].to(self.dtype)
        return [PromptEncoding(*pair) for pair in zip(text, pooled, strict=True)]

    def measure(self, prompt: str) -> PromptLength:
        """How much of a prompt T5 reads; the closing token counts and is never cut."""
        encoded = self.t5_tokenizer(prompt, return_offsets_mapping=True, verbose=False)
        tokens = len(encoded.input_ids)
        if tokens <= self.limit:
            return PromptLength(tokens, self.limit, "")
        cut_at = encoded.offset_mapping[self.limit - 1][0]
        return PromptLength(tokens, self.limit, lost_words(prompt, cut_at))

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """Words that T5 reads, wholly or in part, as `<unk>`; not those beyond the limit."""
        encoded = self.t5_tokenizer(
            prompt, max_length=self.limit, truncation=True, return_offsets_mapping=True
        )
        spans, words = encoded.offset_mapping, encoded.word_ids()
        unknown_id = self.t5_tokenizer.unk_token_id
        return unknown_words(prompt, encoded.input_ids, spans, words, unknown_id)


def _ids(tokenizer: PreTrainedTokenizerBase, texts: list[str], length: int) -> Tensor:
    """`[rows, length]`, padded and cut."""
    encoded = tokenizer(
        texts, padding="max_length", max_length=length, truncation=True, return_tensors="pt"
    )
    ids: Tensor = encoded.input_ids
    return ids
