"""What can go wrong with a model or a request, one class a failure.

PipelineError
├── ModelNotFound    no such name, repository or folder
├── ModelGated       the licence was not accepted, or no token was given
├── HubOffline       the hub cannot be reached and the weights are not here
├── LoadFailed       the weights are here and cannot be used
├── DeviceUnusable   the device or number format cannot serve
├── BadRequest       the request cannot be rendered by this model
├── OutOfMemory      the device has no room for it
└── NotFinite        the model gave NaN or infinity
"""


class PipelineError(Exception):
    """`code` is stable and for programs; `message` is a sentence that names the way out."""

    code = "pipeline_error"

    @property
    def message(self) -> str:
        return str(self)


class ModelNotFound(PipelineError):
    code = "model_not_found"


class ModelGated(PipelineError):
    code = "model_gated"


class HubOffline(PipelineError):
    code = "hub_offline"


class LoadFailed(PipelineError):
    code = "load_failed"


class DeviceUnusable(PipelineError):
    code = "device_unusable"


class BadRequest(PipelineError):
    code = "bad_request"


class OutOfMemory(PipelineError):
    code = "out_of_memory"


class NotFinite(PipelineError):
    code = "not_finite"
