"""A client of Tandem. `Client` is for programs with threads, `AsyncClient` for programs with asyncio.

    from tandem_client import Client

    with Client("127.0.0.1:50051") as client:
        for part in client.generate("Once upon a time", max_tokens=64):
            print(part.text, end="", flush=True)

`Options` has every option of a request, and `TandemError` is what goes wrong.
"""

from .async_client import AsyncClient, AsyncStream
from .client import Client, Stream
from .connection import VERSION as __version__
from .errors import (AlreadyExistsError, CanceledError, DeadlineExceededError, FailedPreconditionError, InternalError,
                     InvalidArgumentError, NotFoundError, PermissionDeniedError, ResourceExhaustedError, TandemError,
                     UnauthenticatedError, UnavailableError, UnimplementedError)
from .progress import Progress
from .request.chat import Message, Messages
from .request.parameters import DraftSampling, Options, Prompt
from .results import (Choice, Completion, DrafterStats, FinishReason, Output, Part, PromptLogprob, RenderedChat, Source, SpeculationStats,
                      Timings, Token, TopLogprob, Usage)
from .retry import RetryPolicy
from .server_info import AuditDrafterStats, AuditStats, DraftModelInfo, ServerInfo, ServerLoad

__all__ = [
    "AlreadyExistsError", "AsyncClient", "AsyncStream", "AuditDrafterStats", "AuditStats", "CanceledError", "Choice", "Client",
    "Completion", "DeadlineExceededError", "DraftModelInfo", "DraftSampling", "DrafterStats", "FailedPreconditionError", "FinishReason",
    "InternalError", "InvalidArgumentError", "Message", "Messages", "NotFoundError", "Options", "Output", "Part", "PermissionDeniedError",
    "Progress", "Prompt", "PromptLogprob", "RenderedChat", "ResourceExhaustedError", "RetryPolicy", "ServerInfo", "ServerLoad", "Source",
    "SpeculationStats", "Stream", "TandemError", "Timings", "Token", "TopLogprob", "UnauthenticatedError", "UnavailableError",
    "UnimplementedError", "Usage", "__version__",
]
