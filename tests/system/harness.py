"""Runs `tandem serve` and talks to it like any client."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import threading
import time

import grpc
from tandem.v1 import generate_pb2 as pb
from tandem.v1 import generate_pb2_grpc

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
BINARY_DIR = pathlib.Path(os.environ.get("TANDEM_BINARY_DIR", SOURCE_DIR / "build" / "cpu-release"))
# A pair like the embedded one, and a third as large: tests of the system need a trained pair, and not a good one.
MODELS_DIR = SOURCE_DIR / "tests" / "models"
TALES_TARGET = MODELS_DIR / "tales" / "target"
TALES_DRAFT = MODELS_DIR / "tales" / "draft"
EMBEDDED_TARGET = SOURCE_DIR / "models" / "tales" / "target"
EMBEDDED_DRAFT = SOURCE_DIR / "models" / "tales" / "draft"

BEGIN_OF_TEXT, END_OF_TEXT = 4094, 4095  # ids of the embedded pair

# `environment` of a server that ends no stream because its client reads too slowly. A test that needs a stream that still runs at some
# later step asks for far more tokens than it reads, and gives the stream up in the end.
PATIENT = {"TANDEM_STREAM_BUFFER_BYTES": str(1 << 28)}

# Texts that no error may contain.
TELLTALE = re.compile(r"(?<![\w:/.])/(?:[\w.+-]+/)+[\w.+-]*"  # an absolute path
                      r"|\b0x[0-9a-fA-F]{4,}"                 # a pointer
                      r"|memfd|/dev/shm|\.sock\b|ring-\d+|tandem-run-|unix:")  # regions and sockets
told = []  # texts of errors of the running test that contain such a text; conftest.py checks this list


def texts_of(error):
    """Returns everything that a client is told about a failure."""
    yield error.details()
    for metadata in (error.initial_metadata(), error.trailing_metadata()):
        for key, value in metadata or ():
            yield f"{key}: {value}"


GRPCS_OWN_TEXTS = re.compile(r"failed to connect to all addresses|connections to all backends failing|(recv|send)msg:|Socket closed|"
                             r"GOAWAY received|Cancelling all calls|Connection reset|Broken pipe|Endpoint closing")


def is_from_server(error):
    """Returns true if the other end sent the error. gRPC's own errors about a broken or missing connection have the address that this
    client was given."""
    # debug_error_string() waits for ever if the call was canceled.
    return "Error received from peer" in repr(error) and not GRPCS_OWN_TEXTS.match(error.details() or "")


def notice(error):
    """Checks the server's texts of a failure. A test whose errors say too much fails. Returns the error."""
    if is_from_server(error):
        told.extend(text for text in texts_of(error) if TELLTALE.search(text))
    return error


class Models:
    """Makes random models, once for each set of options."""

    def __init__(self, folder):
        self._folder = folder
        self._made = {}

    def random(self, **options):
        key = tuple(sorted(options.items()))
        if key not in self._made:
            path = self._folder / f"model{len(self._made)}"
            self.write(path, **options)
            self._made[key] = path
        return self._made[key]

    @staticmethod
    def write(path, **options):
        command = [str(BINARY_DIR / "tests" / "make_random_model"), str(path)]
        for name, value in options.items():
            command.append("--" + name.replace("_", "-"))
            if value is not True:
                command.append(str(value))
        subprocess.run(command, check=True)

    def tales_sized_draft(self):
        """Returns a model with random weights and the tokenizer of the embedded pair. It proposes noise."""
        return self.random(vocabulary_size=4096, hidden_size=32, layers=1, dtype="bf16", max_positions=1024, seed=7,
                           tokenizer_from=TALES_DRAFT)

    def spoiled_double(self, **options):
        """A drafter for `random(**options)`: its double, but with output rows of zeros for a quarter of the vocabulary.

        All other logits are the target's to the bit, and a logit of 0 is far below the largest logit. A greedy or reproducible
        draft is therefore rejected if the target chooses a token of that quarter, and hardly ever otherwise. This is one token in
        four of a random model's output. The models must be untied: a tied random model, whose logits are products with
        embeddings, repeats its last token.
        """
        assert options["untied"]
        key = ("spoiled", *sorted(options.items()))
        if key not in self._made:
            path = self._folder / f"model{len(self._made)}"
            self.write(path, **options)
            overwrite_tensor(path / "model.safetensors", "lm_head.weight", 0.0,
                             count=options["vocabulary_size"] // 4 * options["hidden_size"])
            self._made[key] = path
        return self._made[key]


def run_cli(*arguments):
    """Runs a command of `tandem` to its end."""
    command = [str(BINARY_DIR / "bin" / "tandem"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def descendants(pid):
    """Returns {pid: name} of all children, their children and so on."""
    found = {}
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, fields = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
        if fields[0] != "Z":
            parents[int(entry.name)] = (int(fields[1]), name)
    todo = [pid]
    while todo:
        parent = todo.pop()
        for child, (its_parent, name) in parents.items():
            if its_parent == parent:
                found[child] = name
                todo.append(child)
    return found


def wait_until(condition, timeout, what):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.01)


class Server:
    """`tandem serve` with its three processes. Its temporary files are in its own folder."""

    def __init__(self, folder, *, target=None, draft=None, environment=None, executables=None, **options):
        self.folder = folder
        self.temp_dir = folder / "tmp"
        self.temp_dir.mkdir()
        command = [str((executables or BINARY_DIR / "bin") / "tandem"), "serve", "--listen", options.pop("listen", "127.0.0.1:0"),
                   "--admin", options.pop("admin", "none")]
        if target is not None:
            command += ["--target", str(target)]
        if draft is not None:
            command += ["--draft", str(draft)]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        self.log_path = folder / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.temp_dir), "XDG_RUNTIME_DIR": str(self.temp_dir),
                     **(environment or {})})
        self._address = None
        ready = threading.Event()

        def read_output():
            for line in self.process.stdout:
                match = re.fullmatch(r"ready: (\S+)\n", line)
                if match:
                    self._address = match.group(1)
                    ready.set()
            ready.set()

        self._reader = threading.Thread(target=read_output, daemon=True)
        self._reader.start()
        if not ready.wait(60) or self._address is None:
            self.process.kill()
            raise AssertionError(f"not ready: {' '.join(command)}\n{self.log()}")
        self.address = self._address
        self.channel = grpc.insecure_channel(self.address)
        self.stub = generate_pb2_grpc.GenerationStub(self.channel)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def new_channel(self):
        """Makes a new connection. Otherwise channels to one address share one."""
        return grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)])

    def children(self):
        return descendants(self.process.pid)

    def child(self, name):
        """Returns the process id of a worker, or None while it does not run."""
        pids = [pid for pid, its_name in self.children().items() if its_name == name]
        return pids[0] if len(pids) == 1 else None

    def stop(self, how=signal.SIGINT, timeout=25):
        """Returns the exit code."""
        self.channel.close()
        self.process.send_signal(how)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            for pid in [*self.children(), self.process.pid]:
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"did not stop within {timeout} s\n{self.log()}") from None

    def info(self):
        return self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=30)

    def start(self, prompt, *, timeout=120, stub=None, **options):
        return (stub or self.stub).Generate(request(prompt, **options), timeout=timeout)

    def generate(self, prompt, **options):
        return Output.read(self.start(prompt, **options))

    def generate_all(self, requests, concurrency):
        """Runs [(prompt, options)] with this concurrency. Returns [Output]."""
        if concurrency == 1:
            return [self.generate(prompt, **options) for prompt, options in requests]
        with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(lambda item: self.generate(item[0], **item[1]), requests))


def admin_addresses(server, processes=("router", "verifier", "draft")):
    """Returns {process: HOST:PORT} of a server with admin ports, from its log."""
    found = {}

    def all_there():
        found.update(re.findall(r"^(\w+): .* metrics: https?://(\S+)/metrics$", server.log(), re.MULTILINE))
        return set(found) >= set(processes)

    wait_until(all_there, 30, f"the admin addresses of {processes} in\n{server.log()}")
    return found


class Neighbors:
    """Runs a greedy and a reproducible stream on `server` again and again. Each must always give the same output."""

    REQUESTS = [
        ("The king said to his daughter,", dict(temperature=0, max_tokens=200, ignore_eos=True)),
        ("In a deep forest there lived", dict(seed=77, max_tokens=200, ignore_eos=True)),
    ]

    def __init__(self, server):
        self._server = server
        self._want = [server.generate(prompt, **options).bytes for prompt, options in self.REQUESTS]
        self._stop = threading.Event()
        self.counts = [0] * len(self.REQUESTS)  # streams that ended normally
        self.wrong = []
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(len(self.REQUESTS))]
        for thread in self._threads:
            thread.start()

    def _run(self, i):
        prompt, options = self.REQUESTS[i]
        while not self._stop.is_set():
            try:
                if self._server.generate(prompt, **options).bytes != self._want[i]:
                    self.wrong.append(i)
            except grpc.RpcError as error:
                self.wrong.append(error)
            self.counts[i] += 1

    def check(self):
        assert self.wrong == []

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.check()


SPECULATION_FIELDS = {"enabled", "draft_length", "drafter", "reproducible", "lenience", "prediction", "max_tree_nodes",
                      "draft_sampling"}
REQUEST_FIELDS = {"request_id", "model", "add_special_tokens"}


def request(prompt, **options):
    """Makes a GenerateRequest from flat options. `prompt` is a text, a list of token ids, or None for no input."""
    message = pb.GenerateRequest()
    if isinstance(prompt, str):
        message.prompt = prompt
    elif prompt is not None:
        message.prompt_token_ids.ids.extend(prompt)
        message.prompt_token_ids.SetInParent()
    for name, value in options.items():
        if name in REQUEST_FIELDS:
            part = message
        else:
            part = message.speculation if name in SPECULATION_FIELDS else message.sampling_params
        if name == "logit_bias":
            part.logit_bias.update(value)
        elif name == "prediction":
            part.prediction.CopyFrom(value)
        elif name == "draft_sampling":
            part.draft_sampling.CopyFrom(pb.DraftSampling(**value))
        elif isinstance(value, (list, tuple)):
            getattr(part, name).extend(value)
        else:
            setattr(part, name, value)
    return message


@dataclasses.dataclass
class Output:
    token_ids: list
    text: str
    sources: list
    logprobs: list
    completion: object
    request_ids: set

    @staticmethod
    def read(responses):
        output = Output([], "", [], [], None, set())
        try:
            for response in responses:
                output.add(response)
        except grpc.RpcError as error:
            notice(error)
            raise
        assert output.completion is not None, "the stream ended without a completion"
        return output

    def add(self, response):
        assert self.completion is None, "a message came after the completion"
        self.request_ids.add(response.request_id)
        self.token_ids.extend(response.token_ids)
        self.text += response.text
        self.sources.extend(response.sources)
        self.logprobs.extend(response.logprobs)
        if response.HasField("completion"):
            self.completion = response.completion

    @property
    def bytes(self):
        """Returns the parts that 'byte-identical' is about."""
        return (tuple(self.token_ids), self.text)


def read_safetensors_header(path):
    """Returns (header as a dictionary, where the data starts)."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size)), 8 + size


def overwrite_tensor(path, name, value, first=0, count=None):
    """Sets `count` values of an F32 or BF16 tensor, beginning with value number `first`."""
    header, start = read_safetensors_header(path)
    # A BF16 is the upper half of an F32.
    packed = struct.pack("<f", value)[{"F32": 0, "BF16": 2}[header[name]["dtype"]]:]
    begin, end = header[name]["data_offsets"]
    count = (end - begin) // len(packed) - first if count is None else count
    with open(path, "r+b") as file:
        file.seek(start + begin + len(packed) * first)
        file.write(packed * count)
