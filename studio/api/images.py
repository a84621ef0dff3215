"""Finished pictures: list, files, delete; each to its owner alone."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse

from studio.errors import NotFound
from studio.job import Picture
from studio.jobs import Jobs
from studio.pictures import media_type

# A picture's bytes never change under its id; only its owner may keep them.
CACHE_HEADERS = {
    "Cache-Control": "private, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}


def images_router(jobs: Jobs) -> APIRouter:
    """Routes under `/v1/images/{id}`."""
    router = APIRouter(prefix="/v1/images", tags=["images"])

    @router.get("")
    def list_images(
        request: Request, before: str | None = None, limit: Annotated[int, Query(ge=1, le=100)] = 24
    ) -> dict[str, Any]:
        """The owner's pictures, newest first; `next` is the `before` of the following page."""
        page = jobs.history(request.state.owner, before=before, limit=limit)
        pictures = [_entry(picture) for picture in page.pictures]
        return {"object": "list", "data": pictures, "next": page.next}

    @router.delete("/{picture_id}")
    def delete_image(picture_id: str, request: Request) -> dict[str, Any]:
        """Remove a picture and its files for good."""
        jobs.delete_picture(picture_id, request.state.owner)
        return {"id": picture_id, "object": "image", "deleted": True}

    @router.get("/{picture_id}/content", response_class=FileResponse)
    def content(picture_id: str, request: Request, download: bool = False) -> FileResponse:
        """The picture in its output format; `download` makes a browser save it."""
        picture = jobs.picture(picture_id, request.state.owner)
        path = jobs.library.content_path(picture_id, request.state.owner)
        if not path.is_file():
            raise NotFound("The file of this picture is gone.", code="picture_not_found")
        return FileResponse(
            path,
            media_type=media_type(picture.format),
            filename=f"studio-{picture.seed}-{picture.id[:8]}{path.suffix}",
            content_disposition_type="attachment" if download else "inline",
            headers=CACHE_HEADERS,
        )

    @router.get("/{picture_id}/thumbnail", response_class=FileResponse)
    def thumbnail(picture_id: str, request: Request) -> FileResponse:
        """A WebP of at most 256 px a side."""
        path = jobs.library.thumbnail_path(picture_id, request.state.owner)
        if not path.is_file():
            raise NotFound("The thumbnail of this picture is gone.", code="picture_not_found")
        return FileResponse(path, media_type="image/webp", headers=CACHE_HEADERS)

    return router


def _entry(picture: Picture) -> dict[str, Any]:
    return {
        "id": picture.id,
        "object": "image",
        "created_at": int(picture.created_at),
        "response_id": f"resp_{picture.job_id}",
        "content_path": picture.content_path,
        "steps": picture.steps_run,
        "steps_computed": picture.steps_computed,
        "steps_predicted": picture.steps_predicted,
        "settings": picture.request.to_dict() | {"seed": picture.seed, "count": 1},
    }
