"""The two tokenizers, in the classes that FLUX.1 names: byte-level BPE for CLIP, Unigram for T5.

Both read lower case, and every caption word is one token. T5 reads any other word as ``<unk>``;
CLIP reads it in letters and their groups. Both are made by rule, without chance: the ids are the
same wherever they are built.
"""

from __future__ import annotations

import string
from collections import Counter
from itertools import pairwise
from pathlib import Path

import sentencepiece
from tokenizers import pre_tokenizers
from transformers import CLIPTokenizer, T5TokenizerFast

from training.grammar import vocabulary

MAX_TOKENS = 40
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
    """Unigram of whole words, digits and signs; ``▁`` opens each of them.

    An unknown word is ``▁ <unk>``, however long: neighbouring unknown letters are one token. One
    that begins with a known word is that word and ``<unk>``, without ``▁`` between.
    """
    words = [*vocabulary(), *string.digits, *string.punctuation]
    pieces = ["<pad>", "</s>", "<unk>", "▁", *(f"▁{word}" for word in words)]
    return T5TokenizerFast(
        vocab=[(piece, 0.0) for piece in pieces],
        _spm_precompiled_charsmap=lower_case_map(),
        extra_ids=0,
        model_max_length=MAX_TOKENS,
    )


def lower_case_map() -> bytes:
    """SentencePiece's compiled rules: A to a, and space around each digit and sign, as CLIP splits.

    It is the one form of normaliser that ``T5TokenizerFast.from_pretrained`` keeps.
    """
    rules = list(zip(string.ascii_uppercase, string.ascii_lowercase, strict=True))
    rules += [(sign, f" {sign} ") for sign in string.digits + string.punctuation]
    rules += [("’", " ' "), ("–", " - "), ("—", " - ")]
    sentencepiece.set_min_log_level(1)
    spec = sentencepiece.SentencePieceNormalizer(norm_map=rules).serialized_normalizer_spec()
    # A protobuf message of one field: its tag, its length in two bytes of seven bits, its bytes.
    tag, low, high = spec[:3]
    assert tag == 0x12 and (low & 0x7F) + (high << 7) == len(spec) - 3, "another form of spec"
    return bytes(spec[3:])


def save(folder: Path) -> None:
    """Write ``tokenizer`` and ``tokenizer_2`` below ``folder``."""
    build_clip_tokenizer().save_pretrained(folder / "tokenizer")
    build_t5_tokenizer().save_pretrained(folder / "tokenizer_2")
