"""An engine without a model: flat pictures, coloured by their seed, at a pace that tests set."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

import numpy as np

from pipelines import requests as render
from pipelines.cache_rules import OFF, CacheRule, idle_value
from pipelines.requests import RenderRequest
from pipelines.schedule import run_steps
from studio.engine.protocol import EngineEvent, EngineState, EngineStatus, WorkerLost


class FakeEngine:
    """Implements `studio.engine.protocol.Engine` on one thread.

    `step_s` is the time of a step; `hold()` stops before the next step until `release()`.
    """

    def __init__(self, *, step_s: float = 0.0, ready: bool = True) -> None:
        self.status = EngineStatus("starting")
        self.received: list[RenderRequest] = []
        self.step_s = step_s
        self.mute = False  # takes requests and says nothing, as before the first step
        self._ready = ready
        self._restarts = 0
        self._inbox: SimpleQueue[RenderRequest | None] = SimpleQueue()
        self._cancelled: set[str] = set()
        self._free = threading.Event()
        self._free.set()
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._rendering = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, on_event: Callable[[EngineEvent], None]) -> None:
        self._tell = on_event
        self._thread.start()
        self.become("ready" if self._ready else "loading")

    def submit(self, request: RenderRequest, *, restarts: int) -> None:
        assert restarts == self.status.restarts
        self.received.append(request)
        self._inbox.put(request)

    def cancel(self, request_id: str) -> None:
        self._cancelled.add(request_id)

    def close(self) -> None:
        self._stop.set()
        self._free.set()
        self._inbox.put(None)
        self._thread.join()

    def become(self, state: EngineState, detail: str = "") -> None:
        """Change the status and tell it."""
        self.status = EngineStatus(state, detail, restarts=self._restarts)
        self._tell(self.status)

    def hold(self) -> None:
        """Stop before the next step."""
        self._free.clear()

    def release(self) -> None:
        """Go on after `hold`."""
        self._free.set()

    def lose_worker(self, cause: str = "The worker was ended by SIGKILL.") -> None:
        """What a killed worker looks like from the server: everything handed in is gone."""
        self._lost.set()
        self._free.set()
        while True:
            try:
                self._inbox.get_nowait()
            except Empty:
                break
        with self._rendering:  # the old worker's last picture must not reach into the new one
            self._restarts += 1
            self.become("restarting", cause)
        self._tell(WorkerLost(cause))

    def recover(self) -> None:
        """The worker is back."""
        self._lost.clear()
        self.become("ready")

    def _run(self) -> None:
        while (request := self._inbox.get()) is not None:
            with self._rendering:
                if not self._lost.is_set() and not self.mute:
                    self._render(request)

    def _render(self, request: RenderRequest) -> None:
        self._tell(render.Started(request.id))
        if request.prompt.startswith("fail"):
            self._tell(render.RequestFailed(request.id, "out_of_memory", "Out of memory."))
            return
        steps = request.steps
        if request.source is not None:
            steps = run_steps(request.steps, request.strength)
        if request.cache != OFF and (param := idle_value(request.cache, steps)):
            message = f"Because of {param} every step is computed."
            self._tell(render.Warned(request.id, "cache_idle", param, message))
        predicted = predicted_steps(request.cache, steps)
        pixels = [_flat(request, seed) for seed in request.seeds]
        for step in range(1, steps + 1):
            self._free.wait()
            if self._stop.wait(self.step_s) or self._lost.is_set():
                return
            if request.id in self._cancelled:
                self._tell(render.RequestCancelled(request.id))
                return
            for index in range(len(request.seeds)):
                preview = pixels[index][::4, ::4] if index == 0 else None
                self._tell(render.StepDone(request.id, index, step, steps, preview))
        for index, seed in enumerate(request.seeds):
            done = render.PictureDone(
                request.id,
                index,
                seed,
                pixels[index],
                steps_run=steps,
                steps_computed=steps - predicted,
                steps_predicted=predicted,
            )
            self._tell(done)
        self._tell(render.RequestDone(request.id))


def predicted_steps(rule: CacheRule, steps: int) -> int:
    """As many as of a calm picture: two of three steps between the warm-up and the last."""
    if idle_value(rule, steps):
        return 0
    free = steps - 1 - max(1, rule.warmup_steps)
    return free - free // (min(2, rule.max_skips) + 1)


def _flat(request: RenderRequest, seed: int) -> render.Pixels:
    colour = np.random.default_rng(seed).integers(40, 220, 3, dtype=np.uint8)
    if request.source is not None:
        colour = request.source.reshape(-1, 3).mean(axis=0).astype(np.uint8)
    return np.broadcast_to(colour, (request.height, request.width, 3)).copy()
