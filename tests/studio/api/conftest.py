"""Running studios for all API tests, with text and without; each test has the engine to itself."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from openai import DefaultHttpxClient, OpenAI

from studio.texts import Texts
from tests.fake_engine import FakeEngine
from tests.running import RunningStudio
from tests.studio.api.text_site import SteeredEngine


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    folder = tmp_path_factory.mktemp("studio")
    with RunningStudio(folder, FakeEngine(), max_body_mb=1, max_upload_mb=1, max_source_mp=4) as it:
        yield it


@pytest.fixture
def http(studio: RunningStudio) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=studio.url, timeout=20, trust_env=False) as client:
        yield client


@pytest.fixture
def openai(studio: RunningStudio) -> OpenAI:
    client = DefaultHttpxClient(trust_env=False)
    return OpenAI(base_url=f"{studio.url}/v1", api_key="none", http_client=client, max_retries=0)


@dataclass
class TextStudio:
    """A running studio that writes text, and its engine."""

    url: str
    engine: SteeredEngine
    texts: Texts
    pictures: FakeEngine


@pytest.fixture(scope="session")
def running_text_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextStudio]:
    engine, pictures = SteeredEngine(), FakeEngine()
    texts = Texts(engine, max_in_flight=6, max_per_owner=4)
    folder = tmp_path_factory.mktemp("text-studio")
    with RunningStudio(folder, pictures, texts=texts, max_body_mb=4) as running:
        yield TextStudio(running.url, engine, texts, pictures)
    assert engine.is_closed


@pytest.fixture
def text_studio(running_text_studio: TextStudio) -> Iterator[TextStudio]:
    yield running_text_studio
    running_text_studio.engine.reset()
    running_text_studio.pictures.become("ready")


@pytest.fixture
def text_http(text_studio: TextStudio) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=text_studio.url, timeout=20, trust_env=False) as client:
        yield client


@pytest.fixture
def text_openai(text_studio: TextStudio) -> OpenAI:
    client = DefaultHttpxClient(trust_env=False)
    url = f"{text_studio.url}/v1"
    return OpenAI(base_url=url, api_key="none", http_client=client, max_retries=0)
