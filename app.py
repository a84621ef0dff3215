"""Command line of the studio: read the settings, start the worker and the server.

`python app.py doctor` with the same flags says whether that would go well.
"""

import logging
import os
import sys
from urllib.parse import urlsplit

# Before anything imports torch in a child: spinning barriers stall the other processes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from pydantic import ValidationError
from pydantic_settings import CliApp

from pipelines.errors import PipelineError
from pipelines.specs import find_specs
from studio.api.access import AccessPolicy
from studio.engine.local import LocalEngine
from studio.engine.messages import WorkerConfig
from studio.errors import CannotStart
from studio.server import create_app, make_jobs, make_policy
from studio.serving import address, bind, lock_folder, run
from studio.settings import Settings
from studio.share import ShareFailed, open_tunnel
from studio.text_engines import open_text_engine
from studio.texts import Texts

CANNOT_START = 2


def main() -> int:
    """Serve until interrupted; the exit status says whether the studio could start."""
    flags = sys.argv[1:]
    wants_doctor = flags[:1] == ["doctor"]
    try:
        settings = CliApp.run(Settings, cli_args=flags[1:] if wants_doctor else flags)
    except ValidationError as error:
        for fault in error.errors():
            print(_sentence(fault["loc"], fault["msg"]), file=sys.stderr)
        return CANNOT_START
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    if wants_doctor:
        from studio.engine import doctor  # imports torch, which the server never does

        return doctor.main(settings)
    try:
        serve(settings)
    except (PipelineError, CannotStart) as error:
        print(error, file=sys.stderr)
        return CANNOT_START
    return 0


def serve(settings: Settings) -> None:
    """Start the worker, then the server. Raises `PipelineError` and `CannotStart`."""
    specs = find_specs(settings.model)
    sock = bind(settings.host, settings.port)
    with lock_folder(settings.data_dir):
        config = WorkerConfig(
            specs=specs,
            device=settings.device,
            dtype=settings.dtype,
            hf_token=settings.hf_token,
            memory=settings.memory,
            compiles=settings.compile,
            max_tokens=settings.max_tokens,
            debug_poison=settings.debug_poison,
        )
        jobs = make_jobs(settings, specs, LocalEngine(config))
        jobs.start()  # the worker loads the model while this process imports the page
        policy = make_policy(settings)
        app = create_app(settings, jobs, policy, Texts(open_text_engine(settings)))
        print(f"The studio starts with {specs[0].name} …", flush=True)
        run(
            app,
            sock,
            log_level=settings.log_level,
            root_path=settings.root_path,
            on_started=lambda: _announce(settings, address(sock), policy),
        )


def _announce(settings: Settings, url: str, policy: AccessPolicy) -> None:
    print(f"Page  {url}/\nAPI   {url}/v1/responses   (docs: {url}/docs)", flush=True)
    if not settings.share:
        return
    here = urlsplit(url)
    try:
        public = open_tunnel(here.port or 80, host=here.hostname or "127.0.0.1")
    except ShareFailed as error:
        print(error, file=sys.stderr, flush=True)
        return
    policy.admit_host(public.partition("://")[2])
    print(f"Share {public}/", flush=True)


def _sentence(location: tuple[int | str, ...], message: str) -> str:
    name = "".join(f"--{str(part).replace('_', '-')}: " for part in location[:1])
    return name + message.removeprefix("Value error, ")


if __name__ == "__main__":
    sys.exit(main())
