"""The client for programs with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast, overload

import grpc
import grpc.aio

from . import connection, proto, server_info
from .display import live_display
from .errors import CanceledError, TandemError, canceled, closed, make_error
from .progress import ProgressOption, Tracker
from .request import parameters
from .request.chat import Messages
from .request.parameters import Options, Prompt
from .results import Assembly, Completion, Output, Part, RenderedChat, convert
from .retry import NEVER, Attempts, RetryPolicy

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack

    _Call = grpc.aio.UnaryStreamCall[Any, proto.GenerateResponse]
    _Start = Callable[[float | None], _Call]


def _error(error: grpc.aio.AioRpcError, outputs: tuple[Output, ...] = ()) -> TandemError:
    return make_error(error.code(), error.details(), cast(Any, error.trailing_metadata()), outputs)


class AsyncStream(AsyncIterator[Part]):
    """A running request. Iteration gives its parts as they arrive and ends when all choices have ended.

    The request is under way when `AsyncClient.generate` returns. `cancel()`, the end of an `async with` block, the cancellation of the
    task that reads, and the collection of the stream cancel it at the server.
    """

    def __init__(self, start: _Start, assembly: Assembly, attempts: Attempts) -> None:
        self._start = start
        self._assembly = assembly
        self._attempts = attempts
        self._closed = asyncio.Event()
        self._failure: TandemError | None = None
        self._ended = False
        self._call = start(attempts.begin())

    async def __anext__(self) -> Part:
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise StopAsyncIteration
        while True:
            try:
                response = await self._call.read()
            except grpc.aio.AioRpcError as error:
                await self._retry_after(error)
                continue
            except asyncio.CancelledError:
                # gRPC raises this error for a call that was canceled here, too.
                if not self._closed.is_set():
                    self.cancel()
                    raise
                self._failure = canceled(self.outputs)
                raise self._failure from None
            if not isinstance(response, proto.GenerateResponse):  # the end of the stream
                self._ended = True
                raise StopAsyncIteration
            return self._assembly.add(response)

    async def _retry_after(self, error: grpc.aio.AioRpcError) -> None:
        """Begins the next attempt, or raises the error."""
        failure = canceled(self.outputs) if self._closed.is_set() else _error(error, self.outputs)
        delay = None if self._assembly.has_begun else self._attempts.delay_after(failure)
        if delay is not None:
            try:
                await asyncio.wait_for(self._closed.wait(), delay)
                failure = canceled(self.outputs)
            except asyncio.TimeoutError:
                try:
                    self._call = self._start(self._attempts.begin())
                    return
                except CanceledError as closed_client:
                    failure = closed_client
        self._failure = failure
        raise failure from error

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What has arrived so far, by choice."""
        return self._assembly.outputs()

    @property
    def attempts(self) -> int:
        """Number of times that the request was sent."""
        return self._attempts.count

    async def result(self) -> Completion:
        """Reads the rest of the stream, and returns the whole result."""
        async for _ in self:
            pass
        completion = self._assembly.completion()
        if completion is None:
            raise TandemError("the stream ended without a completion", code=grpc.StatusCode.UNKNOWN, outputs=self.outputs)
        return completion

    async def show(self, file: TextIO | None = None, *, color: bool | None = None) -> Completion:
        """Shows the first choice while it arrives, in the notebook or in `file` (default: standard output). Returns the whole result."""
        display = live_display(file, color)
        choice = None
        try:
            async for part in self:
                if part.index == 0:
                    display.add(part)
            completion = await self.result()
            choice = completion.choices[0]
            return completion
        finally:
            display.end(choice)

    def cancel(self) -> None:
        """Cancels the request if it has not ended. A task that reads gets CanceledError."""
        self._closed.set()
        self._call.cancel()

    async def aclose(self) -> None:
        """Does the same."""
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_call"):
            self._call.cancel()


class AsyncClient:
    """A connection to a Tandem server, which belongs to the event loop of its first call. The arguments are those of `Client`."""

    def __init__(self, address: str = "127.0.0.1:50051", *, tls: bool = False, ca: connection.Pem | None = None,
                 certificate: connection.Pem | None = None, key: connection.Pem | None = None, server_name: str | None = None,
                 token: connection.Secret | None = None, tenant: str | None = None, insecure: bool = False,
                 timeout: float | None = None, wait_for_ready: bool = False, retry: RetryPolicy | None = RetryPolicy(),
                 metadata: Mapping[str, str] | None = None) -> None:
        self._connection = connection.Connection(
            address=address, tls=tls, ca=ca, certificate=certificate, key=key, server_name=server_name, token=token, tenant=tenant,
            insecure=insecure, metadata=metadata or {})
        self._timeout = timeout
        self._wait_for_ready = wait_for_ready
        self._retry = retry or NEVER
        self._closed = False
        self._opened: grpc.aio.Channel | None = None

    @property
    def _channel(self) -> grpc.aio.Channel:
        self._check_open()
        if self._opened is None:
            credentials = self._connection.credentials()
            options = self._connection.options()
            address = self._connection.address
            self._opened = (grpc.aio.insecure_channel(address, options) if credentials is None else
                            grpc.aio.secure_channel(address, credentials, options))
        return self._opened

    async def close(self) -> None:
        """Closes the connection. Streams that run are canceled, and further calls raise CanceledError."""
        self._closed = True
        if self._opened is not None:
            await self._opened.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def generate(self, prompt: Prompt | None = None, *, messages: Messages | None = None, **options: Unpack[Options]) -> AsyncStream:
        """Streams the continuation of a prompt (a text, or token ids), or the answer to messages. `Options` has all options."""
        request = parameters.make_request(prompt, messages, options)
        metadata = self._connection.call_metadata(options.get("tenant"), options.get("traceparent"))
        method = self._channel.unary_stream(
            connection.GENERATE.path, connection.GENERATE.request.SerializeToString, connection.GENERATE.response.FromString)

        def start(timeout: float | None) -> _Call:
            self._check_open()
            return method(request, timeout=timeout, metadata=cast(Any, metadata), wait_for_ready=self._wait_for_ready)

        return AsyncStream(start, Assembly(request.sampling_params.logprobs_with_text),
                           Attempts(self._retry, self._timeout_of(options.get("timeout"))))

    async def complete(self, prompt: Prompt | None = None, *, messages: Messages | None = None,
                       **options: Unpack[Options]) -> Completion:
        """Returns the whole result of a request."""
        async with self.generate(prompt, messages=messages, **options) as stream:
            return await stream.result()

    async def show(self, prompt: Prompt | None = None, *, messages: Messages | None = None, file: TextIO | None = None,
                   color: bool | None = None, **options: Unpack[Options]) -> Completion:
        """Shows the output while it arrives, colored by source, in a terminal or a notebook. Returns the whole result."""
        options.setdefault("token_texts", True)
        async with self.generate(prompt, messages=messages, **options) as stream:
            return await stream.show(file, color=color)

    @overload
    async def map(self, prompts: Iterable[Prompt | Messages], *, concurrency: int = 8, progress: ProgressOption | None = None,
                  return_errors: Literal[False] = False, **options: Unpack[Options]) -> list[Completion]: ...

    @overload
    async def map(self, prompts: Iterable[Prompt | Messages], *, concurrency: int = 8, progress: ProgressOption | None = None,
                  return_errors: Literal[True], **options: Unpack[Options]) -> list[Completion | TandemError]: ...

    async def map(self, prompts: Iterable[Prompt | Messages], *, concurrency: int = 8, progress: ProgressOption | None = None,
                  return_errors: bool = False, **options: Unpack[Options]) -> Any:
        """Completes a batch like `Client.map`, with tasks in place of threads."""
        if options.get("request_id") is not None:
            raise TypeError("the requests of a batch cannot have one request_id")
        items = list(prompts)
        results: list[Completion | TandemError | None] = [None] * len(items)
        tracker = Tracker(len(items), progress)
        todo = iter(enumerate(items))

        async def work() -> None:
            for number, item in todo:
                try:
                    results[number] = await self._tracked(item, tracker, options)
                    tracker.finish()
                except TandemError as error:
                    tracker.fail()
                    if not return_errors:
                        raise
                    results[number] = error

        tasks = [asyncio.ensure_future(work()) for _ in range(max(1, min(concurrency, len(items))))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tracker.end()
        return results

    async def _tracked(self, item: Prompt | Messages, tracker: Tracker, options: Options) -> Completion:
        prompt, messages = parameters.input_of(item)
        async with self.generate(prompt, messages=messages, **options) as stream:
            async for part in stream:
                tracker.add(part)
            return await stream.result()

    async def tokenize(self, text: str, *, add_special_tokens: bool | None = None, timeout: float | None = None) -> list[int]:
        """Returns the target's token ids of a text."""
        request = parameters.make_tokenize_request(text, None, {"add_special_tokens": add_special_tokens})
        return list((await self._call(connection.TOKENIZE, request, timeout)).ids)

    async def render_chat(self, messages: Messages, *, tools: Sequence[Mapping[str, object]] | None = None,
                          template_kwargs: Mapping[str, object] | None = None, add_generation_prompt: bool | None = None,
                          add_special_tokens: bool | None = None, timeout: float | None = None) -> RenderedChat:
        """Returns the prompt that the model's chat template makes of a conversation, and its token ids."""
        request = parameters.make_tokenize_request(None, messages, {
            "tools": tools, "template_kwargs": template_kwargs, "add_generation_prompt": add_generation_prompt,
            "add_special_tokens": add_special_tokens})
        response = await self._call(connection.TOKENIZE, request, timeout)
        return RenderedChat(prompt=response.prompt, token_ids=list(response.ids))

    async def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: bool | None = None,
                         timeout: float | None = None) -> str:
        """Returns the text of token ids."""
        request = parameters.make_detokenize_request(token_ids, skip_special_tokens)
        return (await self._call(connection.DETOKENIZE, request, timeout)).text

    async def server_info(self, *, timeout: float | None = None) -> server_info.ServerInfo:
        """Returns what is served, and the server's load."""
        return convert(server_info.ServerInfo, await self._call(connection.GET_SERVER_INFO, proto.GetServerInfoRequest(), timeout))

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _timeout_of(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout

    async def _call(self, method: connection.Method[connection.Request, connection.Response], request: connection.Request,
                    timeout: float | None) -> connection.Response:
        call = self._channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        try:
            return await call(request, timeout=self._timeout_of(timeout),
                              metadata=cast(Any, self._connection.call_metadata(None, None)), wait_for_ready=self._wait_for_ready)
        except grpc.aio.AioRpcError as error:
            raise _error(error) from error
