"""The client for programs with threads."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast, overload

import grpc

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

    from typing_extensions import Self, TypeAlias, Unpack

    _Call: TypeAlias = "grpc._CallIterator[proto.GenerateResponse]"
    _Start: TypeAlias = "Callable[[float | None], _Call]"


def _error(error: grpc.RpcError, outputs: tuple[Output, ...] = ()) -> TandemError:
    call = cast(grpc.Call, error)  # every error of a call is the call
    return make_error(call.code(), call.details(), cast(Any, call.trailing_metadata()), outputs)


class Stream(Iterator[Part]):
    """A running request. Iteration gives its parts as they arrive and ends when all choices have ended.

    The request is under way when `Client.generate` returns. `close()`, the end of a `with` block, and the collection of the stream cancel
    it at the server. One thread may read, and any thread may close.
    """

    def __init__(self, start: _Start, assembly: Assembly, attempts: Attempts) -> None:
        self._start = start
        self._assembly = assembly
        self._attempts = attempts
        self._closed = threading.Event()
        self._lock = threading.Lock()  # a closed stream begins no other call
        self._failure: TandemError | None = None
        self._ended = False
        self._call = start(attempts.begin())

    def __next__(self) -> Part:
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise StopIteration
        while True:
            try:
                return self._assembly.add(next(self._call))
            except StopIteration:
                self._ended = True
                raise
            except grpc.RpcError as error:
                self._retry_after(error)
            except BaseException:  # a signal, for example Ctrl-C
                self.close()
                raise

    def _retry_after(self, error: grpc.RpcError) -> None:
        """Begins the next attempt, or raises the error."""
        failure = canceled(self.outputs) if self._closed.is_set() else _error(error, self.outputs)
        delay = None if self._assembly.has_begun else self._attempts.delay_after(failure)
        if delay is not None and self._closed.wait(delay):
            failure, delay = canceled(self.outputs), None
        if delay is not None:
            failure = canceled(self.outputs)
            with self._lock:
                if not self._closed.is_set():
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

    def result(self) -> Completion:
        """Reads the rest of the stream, and returns the whole result."""
        for _ in self:
            pass
        completion = self._assembly.completion()
        if completion is None:
            raise TandemError("the stream ended without a completion", code=grpc.StatusCode.UNKNOWN, outputs=self.outputs)
        return completion

    def show(self, file: TextIO | None = None, *, color: bool | None = None) -> Completion:
        """Shows the first choice while it arrives, in the notebook or in `file` (default: standard output). Returns the whole result."""
        display = live_display(file, color)
        choice = None
        try:
            for part in self:
                if part.index == 0:
                    display.add(part)
            completion = self.result()
            choice = completion.choices[0]
            return completion
        finally:
            display.end(choice)

    def close(self) -> None:
        """Cancels the request if it has not ended. A thread that reads gets CanceledError."""
        with self._lock:
            self._closed.set()
            self._call.cancel()

    cancel = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_call"):
            self._call.cancel()


class Client:
    """A connection to a Tandem server. A client may be used by several threads."""

    def __init__(self, address: str = "127.0.0.1:50051", *, tls: bool = False, ca: connection.Pem | None = None,
                 certificate: connection.Pem | None = None, key: connection.Pem | None = None, server_name: str | None = None,
                 token: connection.Secret | None = None, tenant: str | None = None, insecure: bool = False,
                 timeout: float | None = None, wait_for_ready: bool = False, retry: RetryPolicy | None = RetryPolicy(),
                 metadata: Mapping[str, str] | None = None) -> None:
        """Args:
            address: HOST:PORT, or `unix:PATH`, as in the server's line `ready:`.
            tls: speaks TLS and trusts the authorities of this machine. `ca` and `certificate` turn TLS on too.
            ca: the authorities that may have signed the server's certificate: a PEM file, or its bytes.
            certificate, key: what the client shows to a server that asks for a certificate.
            server_name: the name that the server's certificate must have. Default: the host of the address.
            token: is sent with every call. A function is called for each call, so a token may change.
            tenant: only requests of one tenant share computed prompts.
            insecure: allows a token without TLS to an address that is not on this machine.
            timeout: seconds for each call that has no timeout of its own. Default: no limit.
            wait_for_ready: calls wait for a server that cannot be reached yet, until their timeout.
            retry: when refused requests are sent again; None: never.
            metadata: is sent with every call.
        """
        self._connection = connection.Connection(
            address=address, tls=tls, ca=ca, certificate=certificate, key=key, server_name=server_name, token=token, tenant=tenant,
            insecure=insecure, metadata=metadata or {})
        self._timeout = timeout
        self._wait_for_ready = wait_for_ready
        self._retry = retry or NEVER
        self._closed = False
        credentials = self._connection.credentials()
        options = self._connection.options()
        self._channel = (grpc.insecure_channel(address, options) if credentials is None else
                         grpc.secure_channel(address, credentials, options))
        self._generate = self._channel.unary_stream(
            connection.GENERATE.path, connection.GENERATE.request.SerializeToString, connection.GENERATE.response.FromString)

    def close(self) -> None:
        """Closes the connection. Streams that run are canceled, and further calls raise CanceledError."""
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def generate(self, prompt: Prompt | None = None, *, messages: Messages | None = None, **options: Unpack[Options]) -> Stream:
        """Streams the continuation of a prompt (a text, or token ids), or the answer to messages. `Options` has all options."""
        request = parameters.make_request(prompt, messages, options)
        metadata = self._connection.call_metadata(options.get("tenant"), options.get("traceparent"))

        def start(timeout: float | None) -> _Call:
            self._check_open()
            return self._generate(request, timeout=timeout, metadata=metadata, wait_for_ready=self._wait_for_ready)

        return Stream(start, Assembly(request.sampling_params.logprobs_with_text),
                      Attempts(self._retry, self._timeout_of(options.get("timeout"))))

    def complete(self, prompt: Prompt | None = None, *, messages: Messages | None = None, **options: Unpack[Options]) -> Completion:
        """Returns the whole result of a request."""
        with self.generate(prompt, messages=messages, **options) as stream:
            return stream.result()

    def show(self, prompt: Prompt | None = None, *, messages: Messages | None = None, file: TextIO | None = None,
             color: bool | None = None, **options: Unpack[Options]) -> Completion:
        """Shows the output while it arrives, colored by source, in a terminal or a notebook. Returns the whole result."""
        options.setdefault("token_texts", True)
        with self.generate(prompt, messages=messages, **options) as stream:
            return stream.show(file, color=color)

    @overload
    def map(self, prompts: Iterable[Prompt | Messages], *, concurrency: int = 8, progress: ProgressOption | None = None,
            return_errors: Literal[False] = False, **options: Unpack[Options]) -> list[Completion]: ...

    @overload
    def map(self, prompts: Iterable[Prompt | Messages], *, concurrency: int = 8, progress: ProgressOption | None = None,
            return_errors: Literal[True], **options: Unpack[Options]) -> list[Completion | TandemError]: ...

    def map(self, prompts: Iterable[Prompt | Messages], *, concurrency: int = 8, progress: ProgressOption | None = None,
            return_errors: bool = False, **options: Unpack[Options]) -> Any:
        """Completes a batch, at most `concurrency` at a time. Returns the results in the order of the prompts.

        `progress=True` shows finished prompts, tokens per second and acceptance on standard error, or in the notebook; a function is
        called with a `Progress`. The first error cancels the rest and is raised, unless `return_errors` puts errors into the list.
        """
        batch = _Batch(self, list(prompts), progress, return_errors, options)
        return batch.run(concurrency)

    def tokenize(self, text: str, *, add_special_tokens: bool | None = None, timeout: float | None = None) -> list[int]:
        """Returns the target's token ids of a text."""
        request = parameters.make_tokenize_request(text, None, {"add_special_tokens": add_special_tokens})
        return list(self._call(connection.TOKENIZE, request, timeout).ids)

    def render_chat(self, messages: Messages, *, tools: Sequence[Mapping[str, object]] | None = None,
                    template_kwargs: Mapping[str, object] | None = None, add_generation_prompt: bool | None = None,
                    add_special_tokens: bool | None = None, timeout: float | None = None) -> RenderedChat:
        """Returns the prompt that the model's chat template makes of a conversation, and its token ids."""
        request = parameters.make_tokenize_request(None, messages, {
            "tools": tools, "template_kwargs": template_kwargs, "add_generation_prompt": add_generation_prompt,
            "add_special_tokens": add_special_tokens})
        response = self._call(connection.TOKENIZE, request, timeout)
        return RenderedChat(prompt=response.prompt, token_ids=list(response.ids))

    def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: bool | None = None, timeout: float | None = None) -> str:
        """Returns the text of token ids."""
        request = parameters.make_detokenize_request(token_ids, skip_special_tokens)
        return self._call(connection.DETOKENIZE, request, timeout).text

    def server_info(self, *, timeout: float | None = None) -> server_info.ServerInfo:
        """Returns what is served, and the server's load."""
        return convert(server_info.ServerInfo, self._call(connection.GET_SERVER_INFO, proto.GetServerInfoRequest(), timeout))

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _timeout_of(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout

    def _call(self, method: connection.Method[connection.Request, connection.Response], request: connection.Request,
              timeout: float | None) -> connection.Response:
        self._check_open()
        call = self._channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        try:
            return call(request, timeout=self._timeout_of(timeout), metadata=self._connection.call_metadata(None, None),
                        wait_for_ready=self._wait_for_ready)
        except grpc.RpcError as error:
            raise _error(error) from error


class _Batch:
    """The work of `map`: threads that take one prompt after the other."""

    def __init__(self, client: Client, items: list[Prompt | Messages], progress: ProgressOption | None, return_errors: bool,
                 options: Options) -> None:
        if options.get("request_id") is not None:
            raise TypeError("the requests of a batch cannot have one request_id")
        self._client = client
        self._items = items
        self._return_errors = return_errors
        self._options = options
        self._tracker = Tracker(len(items), progress)
        self._lock = threading.Lock()
        self._running: set[Stream] = set()
        self._stopped = False

    def run(self, concurrency: int) -> list[Completion | TandemError]:
        if not self._items:
            return []
        with concurrent.futures.ThreadPoolExecutor(max(1, min(concurrency, len(self._items))), "tandem-map") as pool:
            futures = [pool.submit(self._one, item) for item in self._items]
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()  # raises the first error
            except BaseException:
                self._stop()
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                self._tracker.end()
        return [future.result() for future in futures]

    def _one(self, item: Prompt | Messages) -> Completion | TandemError:
        prompt, messages = parameters.input_of(item)
        with self._lock:
            if self._stopped:
                raise canceled()
            stream = self._client.generate(prompt, messages=messages, **self._options)
            self._running.add(stream)
        try:
            with stream:
                for part in stream:
                    self._tracker.add(part)
                completion = stream.result()
        except TandemError as error:
            self._tracker.fail()
            if self._return_errors and not self._stopped:
                return error
            raise
        finally:
            with self._lock:
                self._running.discard(stream)
        self._tracker.finish()
        return completion

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for stream in self._running:
                stream.close()
