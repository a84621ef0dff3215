"""FLUX.2's prompts: hidden states of a chat model that reads the prompt as a message.

Three of its layers side by side are a token's vector. What lies behind the last of them is never
computed: those layers and the vision tower are dropped at load.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers.pipelines.flux2.system_messages import SYSTEM_MESSAGE
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from pipelines.flux import PromptEncoding, PromptLength
from pipelines.prompt_tokens import lost_words


@dataclass(frozen=True, slots=True)
class Chat:
    """How a family asks its chat model."""

    layers: tuple[int, ...]  # hidden states that are read; 0 are the embeddings
    system: str | None = None
    has_parts: bool = False  # a message is a list of typed parts, not a string
    drops: str = ""  # taken out of prompts: it would be read as a picture's place
    options: Mapping[str, bool] = field(default_factory=dict)  # of the chat template

    def text(self, tokenizer: PreTrainedTokenizerBase, prompt: str) -> str:
        """The whole conversation as the model reads it."""
        messages = [self._message("user", self.cleaned(prompt))]
        if self.system is not None:
            messages.insert(0, self._message("system", self.system))
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **self.options))

    def cleaned(self, prompt: str) -> str:
        return prompt.replace(self.drops, "") if self.drops else prompt

    def _message(self, role: str, text: str) -> dict[str, Any]:
        return {
            "role": role,
            "content": [{"type": "text", "text": text}] if self.has_parts else text,
        }


# As diffusers' Flux2Pipeline and Flux2KleinPipeline have them (0.42).
MISTRAL = Chat((10, 20, 30), system=SYSTEM_MESSAGE, has_parts=True, drops="[IMG]")
QWEN = Chat((9, 18, 27), options={"add_generation_prompt": True, "enable_thinking": False})


def shortened(decoder: Any, chat: Chat) -> nn.Module:
    """Without the layers that nobody reads, changed in place."""
    # One more than is read: the last one's output goes through the final norm.
    decoder.layers = decoder.layers[: chat.layers[-1] + 1]
    module: nn.Module = decoder
    return module


class ChatPrompts:
    """`limit` counts all tokens of the conversation."""

    def __init__(
        self,
        chat: Chat,
        *,
        decoder: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        limit: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.chat, self.tokenizer, self.limit = chat, tokenizer, limit
        self.decoder = decoder
        self.device = device  # where it computes
        self.dtype = dtype  # of what comes out

    def encode(self, prompts: Sequence[tuple[str, str]]) -> list[PromptEncoding]:
        """The second text of each pair is read: `[limit, layers * hidden]`, pads included."""
        texts = [self.chat.text(self.tokenizer, text) for _, text in prompts]
        encoded = self._tokens(
            texts, padding="max_length", truncation=True, max_length=self.limit, return_tensors="pt"
        )
        states = self.decoder(
            input_ids=encoded.input_ids.to(self.device),
            attention_mask=encoded.attention_mask.to(self.device),
            output_hidden_states=True,
            use_cache=False,
        ).hidden_states
        read: Tensor = torch.cat([states[layer] for layer in self.chat.layers], dim=-1)
        return [PromptEncoding(text) for text in read.to(self.dtype)]

    def measure(self, prompt: str) -> PromptLength:
        """The conversation's tokens, the words of the prompt beyond the limit."""
        prompt = self.chat.cleaned(prompt)
        text = self.chat.text(self.tokenizer, prompt)
        encoded = self._tokens(text, return_offsets_mapping=True, verbose=False)
        tokens = len(encoded.input_ids)
        if tokens <= self.limit:
            return PromptLength(tokens, self.limit, "")
        starts = text.find(prompt.strip()) - (len(prompt) - len(prompt.lstrip()))
        cut_at = encoded.offset_mapping[self.limit][0] - starts
        return PromptLength(tokens, self.limit, lost_words(prompt, max(cut_at, 0)))

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """None: these tokenizers fall back to bytes."""
        return ()

    def _tokens(self, texts: str | list[str], **options: Any) -> Any:
        # The template wrote the special tokens.
        return self.tokenizer(texts, add_special_tokens=False, **options)
