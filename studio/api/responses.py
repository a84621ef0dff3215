"""`/v1/responses` for pictures, and the door to text: the shape that the OpenAI SDK reads."""

from collections.abc import Sequence
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import Discriminator, Tag
from starlette.status import HTTP_200_OK

from studio.api.answers import answer_with, field_of, source_notices
from studio.api.disconnect import ClientGone, hung_up, until_disconnect
from studio.api.kinds import PICTURE, TEXT, kind_of_body
from studio.api.schemas import InputImage, InputText, ResponsesBody, ignored_fields
from studio.api.text_responses import answer_text
from studio.api.text_schemas import TextBody
from studio.api.upsampling import upsampled
from studio.errors import BadRequest, Conflict, StudioError, Unavailable
from studio.expansion.expand import Expander
from studio.fetch import decode_data_url, fetch_picture
from studio.job import JobView
from studio.jobs import Jobs
from studio.pictures import LoadedPicture, load_picture
from studio.request import Draft, Notice
from studio.roles import roles_of
from studio.settings import Settings
from studio.step_cache import CACHE_FIELDS, CacheChoice
from studio.texts import Texts

AnyBody = Annotated[ResponsesBody, Tag(PICTURE)] | Annotated[TextBody, Tag(TEXT)]


def responses_router(
    jobs: Jobs, texts: Texts, settings: Settings, expander: Expander | None = None
) -> APIRouter:
    """Routes that make pictures or text, and that look after what `background` asked for."""
    router = APIRouter(prefix="/v1", tags=["responses"])

    @router.post("/responses")
    async def create_response(
        body: Annotated[AnyBody, Discriminator(kind_of_body(jobs, texts))], request: Request
    ) -> Any:
        """Make pictures or write text, as `model` says.

        Answers when they are done, at once with `background`, as events with `stream`.
        """
        if isinstance(body, TextBody):
            return await answer_text(request, texts, body)
        owner: str = request.state.owner
        spec = jobs.spec_of(body.model)
        if body.stream:
            raise BadRequest(
                "stream is not offered yet; leave it out, or send background: true and poll.",
                param="stream",
                code="unsupported",
            )
        prompt, images = _read_input(body)
        # Before anything is fetched.
        roles_of(len(images), spec, body.provider_options.image.strength)
        pictures = [await _load_picture(image, settings) for image in images]
        draft = _draft(body, prompt, pictures)
        notices = ignored_fields(body) + source_notices(pictures)
        if body.provider_options.image.prompt_upsampling:
            try:
                expanding = upsampled(expander, jobs, draft, owner=owner)
                draft, said = await until_disconnect(request, expanding)
            except ClientGone:
                return hung_up()
            notices += said
        job = await to_thread.run_sync(lambda: _submit(jobs, draft, owner, pictures, body, notices))
        if body.background:
            return await answer_with(request, jobs, job)
        try:
            job = await until_disconnect(request, _finished(jobs, job.id, owner))
        except ClientGone:
            await to_thread.run_sync(jobs.cancel, job.id, owner)
            return hung_up()
        _raise_unless_done(job)
        return await answer_with(request, jobs, job)

    @router.get("/responses/{response_id}")
    async def get_response(response_id: str, request: Request) -> Any:
        """How far a response is; with its pictures once it is completed."""
        job = await to_thread.run_sync(jobs.get, _job_id(response_id), request.state.owner)
        return await answer_with(request, jobs, job)

    @router.post("/responses/{response_id}/cancel", status_code=HTTP_200_OK)
    async def cancel_response(response_id: str, request: Request) -> Any:
        """Stop before the next step; a finished response stays as it is."""
        job = await to_thread.run_sync(jobs.cancel, _job_id(response_id), request.state.owner)
        return await answer_with(request, jobs, job)

    return router


def _read_input(body: ResponsesBody) -> tuple[str, list[InputImage]]:
    if isinstance(body.input, str):
        return body.input, []
    if len(body.input) != 1:
        raise BadRequest(
            f"input has {len(body.input)} messages; a picture takes exactly one.", param="input"
        )
    content = body.input[0].content
    if isinstance(content, str):
        return content, []
    images = [part for part in content if isinstance(part, InputImage)]
    prompt = "\n".join(part.text for part in content if isinstance(part, InputText))
    return prompt, images


async def _load_picture(image: InputImage, settings: Settings) -> LoadedPicture:
    limit = settings.max_upload_bytes
    if image.image_url[:5].lower() == "data:":
        data = await to_thread.run_sync(lambda: decode_data_url(image.image_url, max_bytes=limit))
    else:
        data = await fetch_picture(
            image.image_url, max_bytes=limit, timeout_s=settings.fetch_timeout_s
        )
    return await to_thread.run_sync(
        lambda: load_picture(
            data, max_bytes=limit, max_pixels=settings.max_source_px, param="input"
        )
    )


def _draft(body: ResponsesBody, prompt: str, pictures: Sequence[LoadedPicture]) -> Draft:
    options = body.provider_options.image
    return Draft(
        prompt=prompt,
        model=body.model,
        negative_prompt=options.negative_prompt,
        secondary_prompt=options.secondary_prompt,
        secondary_negative_prompt=options.secondary_negative_prompt,
        width=options.width,
        height=options.height,
        steps=options.steps,
        guidance_scale=options.guidance_scale,
        true_cfg_scale=options.true_cfg_scale,
        strength=options.strength,
        seed=body.seed,
        count=options.num_images,
        output_format=options.output_format,
        quality=options.output_quality,
        picture_sizes=tuple(picture.size for picture in pictures),
        cache=CacheChoice(options.cache, {name: getattr(options, name) for name in CACHE_FIELDS}),
    )


def _submit(
    jobs: Jobs,
    draft: Draft,
    owner: str,
    pictures: Sequence[LoadedPicture],
    body: ResponsesBody,
    notices: tuple[Notice, ...],
) -> JobView:
    try:
        return jobs.submit(
            draft,
            owner=owner,
            origin="background" if body.background else "api",
            pictures=[picture.pixels for picture in pictures],
            notices=notices,
            client={
                "metadata": body.metadata or {},
                "response_format": body.provider_options.image.response_format,
            },
        )
    except StudioError as error:
        error.param = field_of(error.param)
        raise


async def _finished(jobs: Jobs, job_id: str, owner: str) -> JobView:
    async for job in jobs.watch(job_id, owner):
        if job.is_final:
            return job
    raise AssertionError("a watch ends with a final job")


def _raise_unless_done(job: JobView) -> None:
    if job.status == "cancelled":
        raise Conflict("The job was cancelled before its pictures were done.", code="cancelled")
    if job.status == "failed":
        cause = job.error_message or "The picture could not be made."
        if job.error_code == "bad_request":
            raise BadRequest(cause)
        if job.error_code in ("engine_failed", "worker_lost", "out_of_memory", "save_failed"):
            raise Unavailable(cause, code=job.error_code)
        raise StudioError(cause, code=job.error_code)


def _job_id(response_id: str) -> str:
    return response_id.removeprefix("resp_")
