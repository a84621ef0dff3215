"""The two tokenizers, in the classes that FLUX.1 names: byte-level BPE for CLIP, Unigram for T5.

Every caption word is one token; any other word falls apart into letters, so that it does no harm.
Both are made by rule, without chance: the ids are the same wherever they are built.
"""

from __future__ import annotations

import string
from collections import Counter
from itertools import pairwise
from pathlib import Path

from tokenizers import pre_tokenizers
from transformers import CLIPTokenizer, T5TokenizerFast

from training.captions import vocabulary

MAX_TOKENS = 40
WORD_SCORE, LETTER_SCORE = -2.0, -12.0  # a whole word always beats its letters
END = "</w>"


def byte_pair_merges(words: list[str]) -> list[tuple[str, str]]:
    """Merge the most frequent neighbours (ties: alphabetically) until each word is one token."""
    split = [[*word[:-1], word[-1] + END] for word in words]
    merges: list[tuple[str, str]] = []
    while any(len(pieces) > 1 for pieces in split):
        pairs = Counter(pair for p in split for pair in pairwise(p))
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        split = [_merge(pieces, best) for pieces in split]
    return merges


def _merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def build_clip_tokenizer() -> CLIPTokenizer:
    """Byte-level BPE; ids: two special tokens, 256 bytes, 256 bytes that end a word, merges."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = byte_pair_merges(vocabulary())
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(c + END for c in letters)]
    tokens += [a + b for a, b in merges]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=MAX_TOKENS)


def build_t5_tokenizer() -> T5TokenizerFast:
    """Unigram of whole words (also Capitalised and CAPITALS) and characters; ``▁`` opens a word."""
    pieces = {"<pad>": 0.0, "</s>": 0.0, "<unk>": -30.0, "▁": LETTER_SCORE}
    for word in vocabulary():
        for form in (word, word.capitalize(), word.upper()):
            pieces.setdefault(f"▁{form}", WORD_SCORE)
    pieces["sized"] = WORD_SCORE  # of "medium-sized"
    for character in string.ascii_letters + string.digits + string.punctuation:
        pieces.setdefault(character, LETTER_SCORE)
    return T5TokenizerFast(vocab=list(pieces.items()), extra_ids=0, model_max_length=MAX_TOKENS)


def save(folder: Path) -> None:
    """Write ``tokenizer`` and ``tokenizer_2`` below ``folder``."""
    build_clip_tokenizer().save_pretrained(folder / "tokenizer")
    build_t5_tokenizer().save_pretrained(folder / "tokenizer_2")
