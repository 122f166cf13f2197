"""Runs the router and the workers as processes of the test, which can kill, stop and restart them."""

import os
import pathlib
import signal
import subprocess
import threading
import time

import grpc
from tandem.v1 import generate_pb2 as pb
from tandem.v1 import generate_pb2_grpc
from tandem.v1 import worker_pb2
from tandem.v1 import worker_pb2_grpc

import harness

# A lost connection is tried again every 20 to 50 ms. gRPC calls the time that one attempt may take the minimum of the backoff. It must be
# long, because a busy machine or a stopped process may delay the handshake.
OWN_CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 20),
               ("grpc.min_reconnect_backoff_ms", 10_000), ("grpc.max_reconnect_backoff_ms", 50)]


class Process:
    """An executable that prints `ready: ADDRESS`. All its lives listen at the same address."""

    def __init__(self, folder, name, *arguments, executable=None, tag="", ready_seconds=60):
        self.name = name + tag
        self.folder = folder
        self.arguments = [str(executable or harness.BINARY_DIR / "bin" / name), "--listen", f"unix:{folder}/{self.name}.sock",
                          *map(str, arguments)]
        self.address = f"unix:{folder}/{self.name}.sock"
        self.log_path = folder / f"{self.name}.log"
        self.ready_seconds = ready_seconds  # time to get ready; large models take long to load
        self.process = None
        self.stopped = False
        self.ready_at = 0.0

    @property
    def pid(self):
        return self.process.pid

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.arguments, stdout=subprocess.PIPE, stderr=log, text=True,
                                            env={**os.environ, "TMPDIR": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder)})
        self.stopped = False
        timer = threading.Timer(self.ready_seconds, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        assert line.startswith("ready: "), f"{self.name} was not ready:\n{self.log()}"
        self.ready_at = time.monotonic()
        return self

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        pathlib.Path(self.address[len("unix:"):]).unlink(missing_ok=True)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def terminate(self, timeout=25):
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        finally:
            self.process.stdout.close()

    def rss_bytes(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def open_files(self, kind):
        """Returns the number of descriptors that point to something whose name starts with `kind`."""
        count = 0
        for entry in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                count += os.readlink(entry).startswith(kind)
            except FileNotFoundError:
                pass
        return count


class Worker(Process):
    """A worker, which can be asked about its state while it computes (WorkerHealth)."""

    def start(self):
        super().start()
        self._watch = Watch(grpc.insecure_channel(self.address, OWN_CHANNEL))
        return self

    def kill(self):
        super().kill()
        self._watch.close()

    def terminate(self, timeout=25):
        try:
            return super().terminate(timeout)
        finally:
            self._watch.close()

    def pong(self):
        return self._watch.ping()

    def computing(self):
        return self.pong().computing


class Watch:
    """One WorkerHealth stream with one ping at a time."""

    def __init__(self, channel):
        self._channel = channel
        self._ready = threading.Semaphore(0)
        self._closed = False
        self._pongs = worker_pb2_grpc.WorkerHealthStub(channel).Watch(self._pings(), wait_for_ready=True)

    def _pings(self):
        while True:
            self._ready.acquire()
            if self._closed:
                return
            yield worker_pb2.WatchPing()

    def ping(self):
        self._ready.release()
        return next(self._pongs)

    def close(self):
        self._closed = True
        self._ready.release()
        self._pongs.cancel()
        self._channel.close()


class Router(Process):

    def start(self):
        super().start()
        self.channel = grpc.insecure_channel(self.address, OWN_CHANNEL)
        self.stub = generate_pb2_grpc.GenerationStub(self.channel)
        return self

    def kill(self):
        self.channel.close()
        super().kill()

    def info(self):
        return self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=30)

    def load(self):
        return self.info().load

    def stream(self, prompt, *, timeout=120, **options):
        return Stream(self.stub, prompt, timeout, options)

    def generate(self, prompt, **options):
        return self.stream(prompt, **options).result()


class Stream(threading.Thread):
    """Reads one Generate call to its end."""

    def __init__(self, stub, prompt, timeout, options):
        super().__init__(daemon=True)
        self.output = harness.Output([], "", [], [], None, set())
        self.error = None
        self.call = stub.Generate(harness.request(prompt, **options), timeout=timeout)
        self.start()

    def run(self):
        try:
            for response in self.call:
                self.output.add(response)
        except grpc.RpcError as error:
            self.error = harness.notice(error)

    @property
    def num_tokens(self):
        return len(self.output.token_ids)

    @property
    def done(self):
        return not self.is_alive()

    def cancel(self):
        """Gives the call up if it still runs. Returns the tokens until then."""
        self.call.cancel()
        self.join()
        if self.error is not None and self.error.code() != grpc.StatusCode.CANCELLED:
            raise self.error
        return self.output.token_ids

    def result(self):
        self.join()
        if self.error is not None:
            raise self.error
        assert self.output.completion is not None, "the stream ended without a completion"
        return self.output


class Cluster:
    """A pair of workers and any number of routers."""

    def __init__(self, folder, target, draft=None, *, worker_arguments=(), router_arguments=(), verifier_arguments=(),
                 verifier_executable=None, drafter_executable=None, ready_seconds=60):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.target = target
        self.verifier = Worker(folder, "tandem-verifier", "--model", target, *worker_arguments, *verifier_arguments,
                               executable=verifier_executable, ready_seconds=ready_seconds)
        self.drafter = None if draft is None else Worker(folder, "tandem-draft", "--model", draft, *worker_arguments,
                                                            executable=drafter_executable, ready_seconds=ready_seconds)
        self.routers = []
        self._router_arguments = router_arguments
        try:
            for worker in self.workers():
                worker.start()
        except BaseException:  # nobody will close an object that was not made
            for worker in self.workers():
                if worker.alive():
                    worker.process.kill()
            raise

    def workers(self):
        return [self.verifier] if self.drafter is None else [self.verifier, self.drafter]

    def router(self, *arguments, verifier=None, drafter=None):
        """Starts one more router."""
        drafter = drafter or (self.drafter.address if self.drafter is not None else "none")
        self.routers.append(Router(self.folder, "tandem-router", "--target", self.target, "--verifier",
                                   verifier or self.verifier.address, "--drafter", drafter, *self._router_arguments, *arguments,
                                   tag=f"-{len(self.routers)}"))
        return self.routers[-1].start()

    def close(self):
        for process in [*self.routers, *self.workers()]:
            if process.alive():
                process.kill()
