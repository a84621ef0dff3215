"""A real studio on a free loopback port, in a thread of this process."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pipelines.specs import ModelSpec
from studio.server import create_app, make_jobs, make_policy
from studio.serving import Server, address, bind
from studio.settings import Settings
from studio.texts import Texts
from tests.fake_engine import FakeEngine
from tests.studio.conftest import SPEC

START_TIMEOUT_S = 30.0


class RunningStudio:
    """`with RunningStudio(folder, engine) as studio:` serves at `studio.url` until the end."""

    def __init__(
        self,
        folder: Path,
        engine: FakeEngine,
        *,
        specs: Sequence[ModelSpec] = (SPEC,),
        texts: Texts | None = None,
        **settings: Any,
    ) -> None:
        import uvicorn

        values: dict[str, Any] = {"data_dir": folder, "port": 0, "_env_file": None} | settings
        self.settings = Settings(**values)
        self.engine = engine
        self.jobs = make_jobs(self.settings, specs, engine)
        self.policy = make_policy(self.settings)
        self._sock = bind("127.0.0.1", 0)
        self.url = address(self._sock)
        self._started = threading.Event()
        app = create_app(self.settings, self.jobs, self.policy, texts)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, ws="none")
        self._server = Server(config, self._started.set)
        self._thread = threading.Thread(target=self._server.run, args=([self._sock],), daemon=True)

    def __enter__(self) -> Self:
        self.jobs.start()
        self._thread.start()
        assert self._started.wait(START_TIMEOUT_S), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self.engine.release()
        self._thread.join()
