"""Which drafter a model gets: the one that was asked for, or the best that it has."""

import logging
from collections.abc import Callable

from pipelines.errors import LoadFailed
from pipelines.text import embedded
from pipelines.text.draft_head import load_head
from pipelines.text.drafts import Drafter, NgramDrafter
from pipelines.text.head_drafter import HeadDrafter
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel
from pipelines.text.model_drafter import ModelDrafter
from pipelines.text.mtp import MtpDrafter, read_mtp
from pipelines.text.requests import Rule, Speculating

log = logging.getLogger(__name__)

HEAD = embedded.ASSETS / "draft-head.safetensors"


class NoDrafter(LoadFailed):
    """The model has no such drafter; `--speculation auto` takes what there is."""


def open_drafter(
    kind: Speculating,
    model: LanguageModel,
    cache: KVCache,
    rule: Rule,
    open_draft_model: Callable[[], LanguageModel] | None,
) -> Drafter | None:
    """None where nothing is to be drafted.

    `auto` drafts from the text itself while that is accepted, else from a draft model if one was
    named, the model's own head or its MTP modules. Raises `NoDrafter`.
    """
    if kind == "off":
        return None
    if kind == "ngram":
        return NgramDrafter()
    if kind == "model" or (kind == "auto" and open_draft_model is not None):
        return _from_model(model, cache.slots, rule, open_draft_model)
    if kind == "head" or (kind == "auto" and has_head(model)):
        return _from_head(model, cache, rule, is_auto=kind == "auto")
    if kind == "mtp":
        return MtpDrafter(read_mtp(model), model, cache)
    return NgramDrafter(_own_modules(model, cache))


def has_head(model: LanguageModel) -> bool:
    """Whether a draft head was made for it."""
    return model.name == embedded.NAME and HEAD.is_file()


def _from_head(model: LanguageModel, cache: KVCache, rule: Rule, *, is_auto: bool) -> Drafter:
    if not has_head(model):
        raise NoDrafter(f"There is no draft head for {model.name}; try --speculation auto.")
    drafter = HeadDrafter(load_head(HEAD), model, cache, rule, packs=model.packs)
    return NgramDrafter(drafter) if is_auto else drafter


def _from_model(
    model: LanguageModel,
    slots: int,
    rule: Rule,
    open_draft_model: Callable[[], LanguageModel] | None,
) -> Drafter:
    if open_draft_model is None:
        raise NoDrafter("--speculation model needs --draft-model: a smaller model to draft with.")
    draft = open_draft_model()
    if not draft.tokens.is_same(model.tokens):
        raise NoDrafter(
            f"{draft.name} and {model.name} have different tokenizers: name a draft model of the "
            "same family."
        )
    return ModelDrafter(draft, model.vocabulary, slots, rule)


def _own_modules(model: LanguageModel, cache: KVCache) -> Drafter | None:
    """The checkpoint's MTP modules, where it has some that can be used."""
    if not getattr(model.config, "num_mtp_layers", 0):
        return None
    try:
        return MtpDrafter(read_mtp(model), model, cache)
    except LoadFailed as error:
        log.warning("%s", error)
        return None
