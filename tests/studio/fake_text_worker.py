"""A text worker without a model: speaks the real socket, misbehaves on request.

The prompt "die" ends it by SIGKILL in mid-text, "hang" writes nothing more until it is cancelled,
"refuse" is refused; the model's name says how it starts.
"""

import os
import signal
import sys
from multiprocessing.connection import Connection

from pipelines.text.requests import (
    Speculation,
    TextCancelled,
    TextDelta,
    TextDone,
    TextFailed,
    TextRequest,
    TextStarted,
    TextUsage,
)
from studio.engine.messages import Cancel
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import TextModel


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    config = connection.recv()
    connection.send(EngineStatus("loading", "fetching the text model, 93 MB"))
    if config.model == "broken":
        connection.send(EngineStatus("failed", "config.json is missing."))
        return
    if config.model == "slow":
        connection.recv()
    connection.send(TextModel("tiny-text", context_tokens=128, adapters=("expansion",)))
    connection.send(EngineStatus("ready"))
    try:
        while True:
            serve(connection, connection.recv())
    except EOFError:
        return


def serve(connection: Connection, message: object) -> None:
    if isinstance(message, Cancel):
        connection.send(TextCancelled(message.request_id))
    if not isinstance(message, TextRequest):
        return
    if message.prompt == "refuse":
        connection.send(TextFailed(message.id, "context_length_exceeded", "Too long.", "input"))
        return
    connection.send(TextStarted(message.id, 3, 1))
    connection.send(TextDelta(message.id, "one "))
    if message.prompt == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if message.prompt == "hang":
        return
    connection.send(TextDelta(message.id, "two"))
    usage = TextUsage(3, 2, 1, Speculation(1, 3, 1))
    connection.send(TextDone(message.id, "stop", usage))


if __name__ == "__main__":
    main()
