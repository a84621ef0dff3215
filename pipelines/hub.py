"""Weights from the Hugging Face hub, with progress in bytes and errors that name the way out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import errors
from tqdm.auto import tqdm

from pipelines.errors import HubOffline, LoadFailed, ModelGated, ModelNotFound, PipelineError

OnProgress = Callable[[str, float], None]  # what is going on, and how much of it is done: 0 to 1

# The components' own folders; the original single files beside them are twice the same weights.
FILES = [
    "model_index.json",
    *(f"*/*.{end}" for end in ("json", "txt", "model", "jinja", "safetensors")),
]


def download(
    repository: str,
    token: str | None,
    on_progress: OnProgress,
    files: Sequence[str] = FILES,
    flag: str = "--model",
) -> Path:
    """Folder of a repository in the local cache, downloaded where it is not there yet.

    `files` are patterns of names; `flag` is the setting that named the repository.
    Raises ModelGated, ModelNotFound, HubOffline or LoadFailed.
    """
    with _explained(repository, token, flag):
        folder = huggingface_hub.snapshot_download(
            repository,
            token=token,
            allow_patterns=list(files),
            tqdm_class=_bar_class(f"Downloading {repository}", on_progress),
        )
    return Path(folder)


@contextmanager
def _explained(repository: str, token: str | None, flag: str) -> Iterator[None]:
    try:
        yield
    except (errors.HTTPError, errors.HFValidationError, OSError) as error:
        raise explain(error, repository, token, flag) from error


def explain(
    error: Exception, repository: str, token: str | None, flag: str = "--model"
) -> PipelineError:
    """The hub's exception as one of ours, in a sentence for the person who starts the studio."""
    page = f"https://huggingface.co/{repository}"
    give_token = "give a token of that account in HF_TOKEN or with --hf-token"
    match error:
        case errors.GatedRepoError() if token is None:
            return ModelGated(
                f"{repository} is gated: accept its licence at {page} and {give_token}."
            )
        case errors.GatedRepoError():
            return ModelGated(
                f"The token given has no access to {repository}: accept its licence at {page} "
                f"with the token's account, or {give_token}."
            )
        case errors.RepositoryNotFoundError() | errors.HFValidationError():
            return ModelNotFound(
                f"The hub has no repository {repository}, or it is private: check the name at "
                f"{page}; for a private one, {give_token}."
            )
        case errors.HfHubHTTPError():
            return _explain_status(error, repository, give_token)
        case errors.LocalEntryNotFoundError() | ConnectionError() | errors.HTTPError():
            # Any HTTP error that is left has no answer: no route, no name, no time, a proxy.
            return HubOffline(
                f"{repository} is not on this machine and the hub cannot be reached: the machine "
                "is offline. Connect it to the internet (and unset HF_HUB_OFFLINE), or give "
                f"{flag} a local folder."
            )
        case _:
            return LoadFailed(f"Downloading {repository} failed: {error}")


def _explain_status(
    error: errors.HfHubHTTPError, repository: str, give_token: str
) -> PipelineError:
    status = error.response.status_code
    if status in (401, 403):
        return ModelGated(f"The hub refused {repository} ({status}): {give_token}.")
    return LoadFailed(f"The hub answered {status} for {repository}; try again later.")


def _bar_class(what: str, on_progress: OnProgress) -> type[tqdm]:
    """A tqdm that draws nothing and tells `on_progress` of the bytes on disk."""

    class Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The hub opens several bars; only this one counts bytes towards a known total.
            self._counts = kwargs.get("desc", "").startswith("Reconstructing")
            self._most = 0.0
            super().__init__(*args, **kwargs)

        def display(self, *args: Any, **kwargs: Any) -> None:
            """Nothing on the terminal."""

        def update(self, n: float | None = 1) -> bool | None:
            shown: bool | None = super().update(n)
            if self._counts and self.total:
                # The total grows as files are listed, and a bar that steps back looks broken.
                self._most = max(self._most, min(self.n / self.total, 1.0))
                on_progress(f"{what}: {self.n / 1e9:.1f} GB", self._most)
            return shown

    return Bar
