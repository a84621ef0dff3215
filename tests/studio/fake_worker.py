"""A worker process without a model: speaks the real socket, misbehaves on request.

The prompt "die" ends it by SIGKILL in the middle of a picture; the model's name says how it starts.
"""

import os
import signal
import sys
from multiprocessing.connection import Connection

import numpy as np

from pipelines import requests as render
from studio.engine.protocol import EngineStatus


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    config = connection.recv()
    connection.send(EngineStatus("loading", "weights", 0.5))
    if config.specs[0].name == "broken":
        connection.send(EngineStatus("failed", "vae/config.json is missing."))
        return
    if config.specs[0].name == "dies":
        os._exit(3)
    connection.send(EngineStatus("ready"))
    try:
        while True:
            serve(connection, connection.recv())
    except EOFError:
        return


def serve(connection: Connection, message: object) -> None:
    if not isinstance(message, render.RenderRequest):
        return
    connection.send(render.Started(message.id))
    connection.send(render.StepDone(message.id, 0, 1, message.steps))
    if message.prompt == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    pixels = np.zeros((message.height, message.width, 3), np.uint8)
    for index, seed in enumerate(message.seeds):
        steps = message.steps
        connection.send(render.PictureDone(message.id, index, seed, pixels, steps, steps, 0))
    connection.send(render.RequestDone(message.id))


if __name__ == "__main__":
    main()
