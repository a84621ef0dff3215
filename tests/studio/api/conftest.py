"""One running studio for all API tests; each test has the engine to itself."""

from collections.abc import Iterator

import httpx
import pytest
from openai import DefaultHttpxClient, OpenAI

from tests.fake_engine import FakeEngine
from tests.running import RunningStudio


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
