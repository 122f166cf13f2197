"""A server in this process that answers each call of Generate as a test wants."""

import concurrent.futures
import dataclasses
import threading
import time

import grpc
from tandem.v1 import generate_pb2 as pb
from tandem.v1 import generate_pb2_grpc


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer: tokens, and then a status."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    metadata: tuple = ()
    tokens: int = 0
    hangs: bool = False  # after the tokens, until the call is canceled


class ScriptedServer(generate_pb2_grpc.GenerationServicer):

    def __init__(self, answers):
        self._answers = list(answers)
        self.requests = []
        self.metadata = []
        self.times = []
        self.canceled = threading.Event()
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        generate_pb2_grpc.add_GenerationServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Generate(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        self.times.append(time.monotonic())
        answer = self._answers.pop(0)
        ended = threading.Event()
        context.add_callback(ended.set)
        if answer.hangs:
            context.add_callback(self.canceled.set)
        for number in range(answer.tokens):
            yield pb.GenerateResponse(request_id="r", text=f"{number} ", token_ids=[number], sources=[pb.TOKEN_SOURCE_PLAIN])
        if answer.hangs:
            ended.wait(30)
        if answer.code is grpc.StatusCode.OK:
            yield pb.GenerateResponse(request_id="r", completion=pb.Completion(finish_reason=pb.FINISH_REASON_LENGTH, seed=1))
        else:
            context.set_trailing_metadata(answer.metadata)
            context.abort(answer.code, answer.details)

    def stop(self):
        self._server.stop(0).wait()
