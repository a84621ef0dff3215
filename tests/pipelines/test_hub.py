"""The hub's own exceptions become sentences that name the way out."""

from dataclasses import replace

import huggingface_hub
import pytest
from huggingface_hub import errors

from pipelines.errors import HubOffline, LoadFailed, ModelGated, ModelNotFound
from pipelines.hub import download
from pipelines.loading import load
from pipelines.specs import find_spec

DEV = "black-forest-labs/FLUX.1-dev"


class Response:
    """What the hub's exceptions read of an HTTP response."""

    request = None

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code
        self.headers: dict[str, str] = {}


def http(error_class, status: int):
    return error_class("as the hub says", response=Response(status))


def load_when_hub_raises(monkeypatch, error, token=None):
    def snapshot_download(*args, **kwargs):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    load(find_spec(DEV), device="cpu", token=token, on_progress=lambda what, share: None)


def test_a_gated_repository_names_its_page_and_both_ways_to_give_a_token(monkeypatch):
    with pytest.raises(ModelGated) as caught:
        load_when_hub_raises(monkeypatch, http(errors.GatedRepoError, 401))
    for word in (f"https://huggingface.co/{DEV}", "HF_TOKEN", "--hf-token", "licence"):
        assert word in caught.value.message


def test_a_token_without_access_is_told_so(monkeypatch):
    with pytest.raises(ModelGated, match="token given has no access"):
        load_when_hub_raises(monkeypatch, http(errors.GatedRepoError, 403), token="hf_x")


def test_a_missing_repository(monkeypatch):
    with pytest.raises(ModelNotFound, match=f"no repository {DEV}"):
        load_when_hub_raises(monkeypatch, http(errors.RepositoryNotFoundError, 404))


@pytest.mark.parametrize(
    "error",
    [
        errors.LocalEntryNotFoundError("not in the cache"),
        errors.IncompleteSnapshotError("some files are missing", "somewhere"),
        errors.OfflineModeIsEnabled("HF_HUB_OFFLINE is set"),
        errors.HTTPError("the connection broke in mid-file"),
        ConnectionError("name resolution failed"),
    ],
)
def test_an_offline_machine_is_called_offline(monkeypatch, error):
    with pytest.raises(HubOffline, match="the machine is offline"):
        load_when_hub_raises(monkeypatch, error)


def test_a_refused_token(monkeypatch):
    with pytest.raises(ModelGated, match=r"\(401\).*HF_TOKEN"):
        load_when_hub_raises(monkeypatch, http(errors.HfHubHTTPError, 401), token="hf_old")


def test_a_hub_in_trouble(monkeypatch):
    with pytest.raises(LoadFailed, match="answered 503"):
        load_when_hub_raises(monkeypatch, http(errors.HfHubHTTPError, 503))


def test_a_full_disk(monkeypatch):
    with pytest.raises(LoadFailed, match="No space left"):
        load_when_hub_raises(monkeypatch, OSError(28, "No space left on device"))


def test_a_downloaded_repository_loads_like_a_folder(monkeypatch, tiny_folder):
    asked = []

    def snapshot_download(repository, **kwargs):
        asked.append((repository, kwargs["token"]))
        return str(tiny_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    spec = replace(find_spec(str(tiny_folder)), source="somebody/tiny-flux")
    model = load(spec, device="cpu", token="hf_x", on_progress=lambda what, share: None)
    assert model.spec is spec and asked == [("somebody/tiny-flux", "hf_x")]


def test_download_progress_counts_bytes_and_never_steps_back(monkeypatch, tmp_path):
    def snapshot_download(repository, tqdm_class, **kwargs):
        other = tqdm_class(desc="Downloading bytes", total=0, unit="B")
        bar = tqdm_class(desc="Reconstructing (incomplete total...)", total=0, unit="B")
        for total in (100, 300):  # the hub learns the total file by file
            bar.total = total
            bar.update(75)
            other.update(50)
        bar.update(150)
        return str(tmp_path)

    heard = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    download("a/b", None, lambda what, share: heard.append((what, share)))
    assert [share for _, share in heard] == [0.75, 0.75, 1.0]
    assert heard[0][0].startswith("Downloading a/b")
