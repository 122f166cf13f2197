"""What goes wrong in a call. Each status of gRPC that Tandem uses has a class; docs/api.md says when each one comes and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from .results import Output


class TandemError(Exception):
    """A call has failed."""

    code: grpc.StatusCode
    """The status of gRPC."""
    message: str
    """The server's text, which names the field, the given value and the allowed values; or that of gRPC, if there was no connection."""
    emitted_tokens: int | None
    """Number of tokens that the server had streamed, of all choices (`tandem-emitted-tokens`). None if it did not say so."""
    retry_after: float | None
    """Seconds after which the server wants to be asked again (`grpc-retry-pushback-ms`). None: it named no time."""
    outputs: tuple[Output, ...]
    """What had arrived of each choice before the failure."""

    def __init__(self, message: str, *, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN, emitted_tokens: int | None = None,
                 retry_after: float | None = None, outputs: tuple[Output, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.emitted_tokens = emitted_tokens
        self.retry_after = retry_after
        self.outputs = outputs

    def __str__(self) -> str:
        after = "" if self.retry_after is None else f" (retry after {self.retry_after:.3g} s)"
        return f"{self.code.name}: {self.message}{after}"


class InvalidArgumentError(TandemError, ValueError):
    """A field of the request is out of range."""


class NotFoundError(TandemError):
    """The request names another model than the served one."""


class AlreadyExistsError(TandemError):
    """A request with this id is running."""


class ResourceExhaustedError(TandemError):
    """The queue is full, if there is a `retry_after`. Otherwise the request can never fit, or it was read too slowly."""


class FailedPreconditionError(TandemError):
    """The request is quarantined, because verifiers died while they worked on it or on its prompt; or it cannot be served at all."""


class UnavailableError(TandemError):
    """There is no connection, the server drains, or its verifier was gone for too long."""


class InternalError(TandemError):
    """The target or the verifier failed at this request."""


class UnauthenticatedError(TandemError):
    """The server wants a token, and the call had none of its tokens."""


class PermissionDeniedError(TandemError):
    """The caller may not call this method."""


class UnimplementedError(TandemError):
    """The server does not know this method."""


class DeadlineExceededError(TandemError, TimeoutError):
    """The timeout of the call has passed."""


class CanceledError(TandemError):
    """The stream was closed before its end, or the client is closed."""


CLASSES: dict[grpc.StatusCode, type[TandemError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.CANCELLED: CanceledError,
}


def _number(metadata: dict[str, str | bytes], key: str) -> int | None:
    try:
        return int(metadata[key])
    except (KeyError, ValueError):
        return None


def make_error(code: grpc.StatusCode, details: str | None, trailing: Iterable[tuple[str, str | bytes]] | None,
               outputs: tuple[Output, ...] = ()) -> TandemError:
    """Makes the error of a call that ended with `code`. A negative pushback means that the call is not to be repeated."""
    metadata = {key: value for key, value in trailing or ()}  # asyncio has a mapping whose items dict() does not take
    pushback = _number(metadata, "grpc-retry-pushback-ms")
    return CLASSES.get(code, TandemError)(
        details or "", code=code, emitted_tokens=_number(metadata, "tandem-emitted-tokens"),
        retry_after=None if pushback is None or pushback < 0 else pushback / 1000, outputs=outputs)


def canceled(outputs: tuple[Output, ...] = ()) -> CanceledError:
    return CanceledError("the stream was closed", code=grpc.StatusCode.CANCELLED, outputs=outputs)


def closed() -> CanceledError:
    return CanceledError("the client is closed; make another one", code=grpc.StatusCode.CANCELLED)
