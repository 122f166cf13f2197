"""Checks and measures one NVIDIA GPU in under ten minutes. bench/gpu.sh starts this script. It prints one table and writes JSON.

Each step passes, fails or is skipped. The exit code is 0 if no step failed. A figure with a goal is met or MISSED. A missed goal is not a
failure: the measured value is right, but slower than the goal. With --shim, the same steps run over the shim of tests/simt with tiny
models. This shows on a machine without a GPU that the steps work. No speed is measured then, and no figure is judged."""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import grpc

import lab

import cluster
import harness

PROMPTS = ["Once upon a time there was a king", "The wolf said to the fox,", "In a deep forest there lived", "When the mother came home"]
# Greedy choices of two backends may differ if the difference of the two largest log-probs is smaller than this number (BF16 weights and KV
# cache).
NEAR_TIE = 0.05
LIMIT_SECONDS = 590  # limit of all steps together
NO_GPU = 3  # bench_device's exit code
ASSISTED_PAIRS = 6  # number of runs against transformers; lab.t_quantile is accurate from six pairs on


class Failed(Exception):
    """A step failed: something is wrong."""


class Skipped(Exception):
    """A step ended without a result, or with a part of one."""


class NoGpu(Failed):
    """There is no GPU that the kernels can run on."""


def run(command, timeout=None, **environment):
    """Returns the exit code and the output of the ended process. A process that takes longer is killed with its children, because
    compute-sanitizer has some."""
    command = [str(part) for part in command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**os.environ, **environment})
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class Bench:
    def __init__(self, arguments, folder):
        self.shim = arguments.shim
        self.gpu = arguments.gpu
        self.commit = arguments.commit
        self.folder = folder
        self.deadline = time.monotonic() + 300  # deadline of the step that runs
        self.bin = harness.BINARY_DIR / "bin"
        self.tests = harness.BINARY_DIR / "tests"
        self.passes = {}  # {shape: {rows: seconds}}, once `bandwidth` has measured them
        if self.shim:
            shape = dict(vocabulary_size=64, layers=1, max_positions=128)
            models = harness.Models(folder / "models")
            self.pair = (models.random(hidden_size=16, seed=3, **shape), models.random(hidden_size=8, seed=4, **shape))
            kinds = {"medusa": dict(draft_heads=3), "blockwise": dict(draft_heads=3, target_output=True), "eagle": dict(eagle=True),
                     "eagle3": dict(eagle=True, eagle3=True, layer_ids=2), "layer_skip": dict(skipped_layers=1),
                     "pass": dict(look_ahead=2)}
            deep = {**shape, "layers": 3}  # layer_skip leaves one out, and EAGLE-3 reads what enters another
            self.heads = {name: models.random(hidden_size=16, seed=5, **deep, **kind) for name, kind in kinds.items()}
            self.target_of_heads = models.random(hidden_size=16, seed=3, **deep)
            self.prompts = [[7 * i % 60 for i in range(8 + n)] for n in range(2)]
            self.num_tokens = 6
            self.draft_lengths = [2]
            self.tree_sizes = [4]
            self.num_pairs, self.run_tokens = (1, 1), (6, 6)
            self.python = arguments.python
            self.sanitizer = None
        else:
            self.pair = (harness.TALES_TARGET, harness.TALES_DRAFT)
            self.target_of_heads = harness.EMBEDDED_TARGET
            names = ["medusa", "blockwise", "eagle", "eagle3", "layer_skip", "pass"]
            self.heads = {name: self.target_of_heads.parent / name for name in names}
            if not self.heads["eagle3"].exists():  # the embedded target comes without one
                del self.heads["eagle3"]
            self.prompts = PROMPTS
            self.num_tokens = 128
            self.draft_lengths = [2, 4, 8]
            self.tree_sizes = [4, 8, 16]
            self.num_pairs, self.run_tokens = NUM_PAIRS, RUN_TOKENS
            self.python = arguments.python or "python3"
            self.sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")

    def left(self):
        """Returns the seconds that the step may still take."""
        return max(1.0, self.deadline - time.monotonic())

    def run(self, *command):
        return run(command, timeout=self.left())

    def run_tests(self, *command):
        """Prepares the environment of a test program. The program has no option for the GPU and takes the first one that it sees. It reads
        models of this folder, even if it was built elsewhere."""
        return run(command, timeout=self.left(), CUDA_VISIBLE_DEVICES=self.chosen(), TANDEM_SOURCE_DIR=str(lab.SOURCE_DIR))

    def wait_until(self, condition, what):
        harness.wait_until(condition, min(60, self.left()), what)

    def generate(self, router, prompt, **options):
        return router.generate(prompt, timeout=self.left(), ignore_eos=True, **options)

    def token_ids(self, router, prompt):
        if isinstance(prompt, list):
            return prompt
        request = cluster.pb.TokenizeRequest(text=prompt, add_special_tokens=True)
        return list(router.stub.Tokenize(request, timeout=self.left()).ids)

    def program(self, path):
        """Returns the path. A bundle may lack parts of a build."""
        if not path.exists():
            raise Skipped(f"{path.name} is not among the binaries")
        return path

    @contextlib.contextmanager
    def cluster(self, backend, pair=None, wrap=lambda program: program, verifier_arguments=()):
        """Starts both workers and a router, each as a process of its own, or no drafter if `pair` has only a target. `wrap` gets a
        worker's executable and returns the one to start instead."""
        executables = {}
        for option, name in [("verifier_executable", "tandem-verifier"), ("drafter_executable", "tandem-draft")]:
            over_shim = self.shim and backend == "cuda"
            executables[option] = wrap(self.tests / f"{name}-simt" if over_shim else self.bin / name)
        gpu = ["--gpu", self.gpu] if backend == "cuda" else []
        made = cluster.Cluster(pathlib.Path(tempfile.mkdtemp(dir=self.folder)), *(pair or self.pair), ready_seconds=self.left(),
                               worker_arguments=["--backend", backend, "--max-slots", 4, "--admin", "127.0.0.1:0", *gpu],
                               verifier_arguments=verifier_arguments, **executables)
        try:
            made.router("--heartbeat-timeout", 20)
            if made.drafter is not None:
                self.wait_until(lambda: made.routers[0].info().drafter_attached, "the drafter is attached")
            yield made
        finally:
            made.close()

    def device(self, *arguments):
        """Returns the output of bench_device."""
        program = self.tests / "bench-device-simt" if self.shim else self.bin / "bench_device"
        done = self.run(self.program(program), "--gpu", self.gpu, *arguments)
        if done.returncode != 0:
            raise (NoGpu if done.returncode == NO_GPU else Failed)(done.stderr.strip())
        return json.loads(done.stdout)

    def chosen(self):
        """Returns the name of the GPU for CUDA_VISIBLE_DEVICES and nvidia-smi."""
        visible = None if self.shim else os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return str(self.gpu)
        names = [name for name in visible.split(",") if name]
        if self.gpu not in range(len(names)):
            raise Failed(f"--gpu {self.gpu}: CUDA_VISIBLE_DEVICES={visible} has {len(names)}, counted from 0")
        return names[self.gpu]

    def nvidia_smi(self, fields, *arguments):
        """Returns a command that prints these fields of the GPU, separated by commas. The command ignores CUDA_VISIBLE_DEVICES."""
        return ["nvidia-smi", "-i", self.chosen(), f"--query-gpu={fields}", "--format=csv,noheader,nounits", *arguments]

    @contextlib.contextmanager
    def clocks(self):
        """Yields a dictionary that gets the clocks in MHz during the block: lowest, median, highest of two readings per second. It stays
        empty without nvidia-smi."""
        found = {}
        process = None
        if not self.shim:
            with contextlib.suppress(FileNotFoundError):
                process = subprocess.Popen(self.nvidia_smi("clocks.sm,clocks.mem", "-lms", "500"), stdout=subprocess.PIPE,
                                           stderr=subprocess.DEVNULL, text=True)
        try:
            yield found
        finally:
            if process is not None:
                process.terminate()
                samples = re.findall(r"^(\d+), (\d+)$", process.communicate()[0], re.MULTILINE)
                for name, values in zip(("sm", "memory"), zip(*samples)):
                    values = [int(value) for value in values]
                    found[name] = [min(values), statistics.median(values), max(values)]


def figure(bench, name, value, least=None, most=None, note=""):
    """`met` is None if nothing is judged, because there is no goal or no speed."""
    if bench.shim:
        value = None
    goal, met = None, None
    if least is not None or most is not None:
        goal = f"at least {least}" if most is None else f"at most {most}" if least is None else f"{least} to {most}"
        if value is not None:
            met = (least is None or value >= least) and (most is None or value <= most)
    return {"figure": name, "value": value, "goal": goal, "met": met, **({} if value is None else {"note": note})}


# ---------------------------------------------------------------- checks
# A step puts its results into `found`. The report includes `found` even if the step fails.


def failures_in(output):
    """Returns the end of a test program's output, without the lines about tests that passed."""
    lines = [line for line in output.splitlines() if not re.match(r"\[( RUN  |       OK|---|===)", line)]
    return "\n".join(lines)[-4000:]


def kernels(bench, found):
    """the tests that ctest -L gpu runs: every kernel against its reference, the model, the workers' sessions"""
    if bench.shim:
        raise Skipped("the shim's own tests do this")
    programs = sorted(bench.tests.glob("*_cuda_test"))
    if not programs:
        raise Skipped("there are no tests among the binaries")
    seconds = found["tests"] = {}
    failed = []  # the other programs run nevertheless, because time on a GPU may be rare
    for program in programs:
        began = time.monotonic()
        done = bench.run_tests(program)
        if done.returncode != 0 or "skipped: no GPU" in done.stdout:
            failed.append(f"{program.name}, exit code {done.returncode}: {failures_in(done.stdout + done.stderr)}")
        seconds[program.name] = round(time.monotonic() - began, 1)
    if failed:
        raise Failed("\n".join(failed))


def agreement(bench, found):
    """greedy agreement with the CPU, teacher-forced"""
    wrong = []
    found |= {"compared": 0, "near_ties": 0, "epsilon": NEAR_TIE, "wrong": wrong}
    with bench.cluster("cpu") as cpu, bench.cluster("cuda") as gpu:
        for prompt in bench.prompts:
            plain = dict(temperature=0, draft_length=0)
            on_cpu = bench.generate(cpu.routers[0], prompt, max_tokens=bench.num_tokens, logprobs=2, **plain)
            ids = bench.token_ids(cpu.routers[0], prompt)
            for position, want in enumerate(on_cpu.token_ids):
                (got,) = bench.generate(gpu.routers[0], ids + on_cpu.token_ids[:position], max_tokens=1, **plain).token_ids
                found["compared"] += 1
                if got == want:
                    continue
                best, runner_up = on_cpu.logprobs[position].top[:2]
                gap = best.logprob - runner_up.logprob
                if gap < NEAR_TIE and got in (best.token_id, runner_up.token_id):
                    found["near_ties"] += 1
                else:
                    wrong.append({"prompt": prompt, "position": position, "token_id": got, "gap": gap})
    if wrong:
        raise Failed(f"{len(wrong)} of {found['compared']} are neither the CPU's choice nor a runner-up within {NEAR_TIE}: {wrong[:3]}")


def exactness(bench, found):
    """drafted text equals plain text, chains and trees, greedy and reproducible; ring over CUDA IPC"""
    found["compared"] = 0
    with bench.cluster("cuda") as made:
        router = made.routers[0]
        if router.info().ring_transport != "cuda_ipc":
            raise Failed(f"the ring's transport is {router.info().ring_transport!r}\n{router.log()}")
        for prompt in bench.prompts:
            for mode in (dict(temperature=0), dict(seed=5, reproducible=True)):
                options = dict(max_tokens=bench.num_tokens, **mode)
                plain = bench.generate(router, prompt, draft_length=0, **options)
                for draft_length, nodes in ((1, 0), (4, 0), (3, 12)):
                    if bench.generate(router, prompt, draft_length=draft_length, max_tree_nodes=nodes, **options).bytes != plain.bytes:
                        raise Failed(f"{mode}, K = {draft_length}, {nodes} nodes, {prompt!r}: other text than plain decoding's")
                    found["compared"] += 1
            sampled = bench.generate(router, prompt, seed=6, draft_length=4, max_tokens=bench.num_tokens)
            if sampled.completion.speculation.num_draft_tokens == 0:
                raise Failed("nothing was drafted")


def heads(bench, found):
    """drafted text equals plain text with each kind of heads beside the target"""
    found["compared"] = 0
    missing = []
    for name, folder in bench.heads.items():
        if not folder.exists():
            missing.append(name)
            continue
        with bench.cluster("cuda", (bench.target_of_heads,), verifier_arguments=["--heads", folder]) as made:
            router = made.routers[0]
            drafted = 0
            for prompt in bench.prompts:
                for mode in (dict(temperature=0), dict(seed=5, reproducible=True)):
                    options = dict(max_tokens=bench.num_tokens, drafter=name.removesuffix("3"), **mode)
                    plain = bench.generate(router, prompt, draft_length=0, **options)
                    for nodes in (0, 16):
                        got = bench.generate(router, prompt, draft_length=4, max_tree_nodes=nodes, **options)
                        if got.bytes != plain.bytes:
                            raise Failed(f"{name}, {mode}, {nodes} nodes, {prompt!r}: other text than plain decoding's")
                        drafted += got.completion.speculation.num_draft_tokens
                        found["compared"] += 1
            if drafted == 0:
                raise Failed(f"{name}: nothing was drafted")
    if missing:
        raise Skipped(f"there are no heads of these kinds: {', '.join(missing)}; the others drafted the same text")


def kills(bench, found):
    """kill -9 of each worker while it has the ring open"""
    found["kills"] = 0
    with bench.cluster("cuda") as made:
        router = made.routers[0]
        options = dict(seed=5, reproducible=True, draft_length=3, max_tokens=2 * bench.num_tokens)
        want = bench.generate(router, bench.prompts[0], **options).bytes
        for worker in (made.drafter, made.verifier, made.drafter, made.verifier):
            stream = router.stream(bench.prompts[0], timeout=bench.left(), ignore_eos=True, **options)
            bench.wait_until(lambda: stream.num_tokens > 2 or stream.done, "tokens come")
            worker.kill()
            worker.start()
            if stream.result().bytes != want:
                raise Failed(f"after the death of {worker.name}: other text")
            bench.wait_until(lambda: router.info().ring_transport == "cuda_ipc", "a new ring over CUDA IPC")
            found["kills"] += 1


# The tool, the tests, and a filter of their cases. Cases that draw thousands of times would take long under the tool, and would show
# nothing more.
SANITIZED = [("memcheck", "matmul", "*"), ("memcheck", "attention", "*"), ("memcheck", "layers", "*"),
             ("memcheck", "sampling", "-*TheLaw*"),
             ("racecheck", "sampling", "LogProbs*:AcceptReject*"), ("initcheck", "sampling", "LogProbs*:AcceptReject*"),
             ("racecheck", "matmul", "*"), ("racecheck", "attention", "*")]
# The line that compute-sanitizer prints if it watches nothing. Its exit code does not help: on an unsupported device (under WSL) it is the
# code of a finding, and without the tool's libraries it is the program's own code.
WATCHES_NOTHING = re.compile(
    r"^=+ .*(?:Device not supported|terminated before first instrumented API call|No attachable process found).*", re.MULTILINE)
FINDING = 9  # the exit code that the tool is told to use for a finding
NO_FINDING = "no finding"


def sanitizer(bench, found):
    """compute-sanitizer: memcheck of the kernels and of a short generate; racecheck and initcheck of sampling"""
    if bench.sanitizer is None:
        raise Skipped("the shim runs under AddressSanitizer instead" if bench.shim else "compute-sanitizer is not installed")
    reports = found["reports"] = {}
    for check, tests, which in SANITIZED:
        reports[f"{check} of {tests}"] = watch_tests(bench, check, tests, which)
    reports["memcheck of a generate"] = watch_generate(bench) if bench.left() >= 20 else "out of time"
    unwatched = [f"{name}: {report}" for name, report in reports.items() if report != NO_FINDING]
    if unwatched:
        raise Skipped("; ".join([*unwatched, "the others without a finding"]))


def watch_tests(bench, check, tests, which):
    """Returns the result of tests under the tool: NO_FINDING, or the reason why there is no result. Raises Failed for a finding and for a
    failed test."""
    program = bench.program(bench.tests / f"{tests}_{'simt' if bench.shim else 'cuda'}_test")
    try:
        done = bench.run_tests(bench.sanitizer, "--tool", check, "--error-exitcode", FINDING, program, f"--gtest_filter={which}")
    except subprocess.TimeoutExpired as late:  # a slow tool is not a finding
        return f"out of time: not done after {late.timeout:.0f} s"
    said = done.stdout + done.stderr
    if nothing := WATCHES_NOTHING.search(said):
        return f"did not run: {nothing.group()}"
    if done.returncode == FINDING or done.returncode != 0 and "[==========] Running" in said:
        raise Failed(f"{check} of {tests}, exit code {done.returncode}: {said[-3000:]}")
    if done.returncode == 0 and re.search(r"^\[  PASSED  \] [1-9]\d* test", said, re.MULTILINE) and "[  SKIPPED ]" not in said:
        return NO_FINDING
    return f"did not run, exit code {done.returncode}: {said.strip()[-500:]}"


def signal_workers(workers, how):
    """Returns the processes that run under a tool, without the tool's own processes."""
    for worker in filter(lambda worker: worker.alive(), workers):
        for pid, name in harness.descendants(worker.pid).items():
            if name.startswith("tandem-"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)


def watch_generate(bench):
    """Runs both workers under memcheck with a greedy and a sampled request. Returns the result in the form of watch_tests."""
    logs = []

    def under_memcheck(program):
        log, script = (bench.folder / f"{program.name}.{end}" for end in ("memcheck", "sh"))
        command = shlex.join(str(part) for part in (bench.sanitizer, "--tool", "memcheck", "--log-file", log, program))
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
        logs.append(log)
        return script

    broke = None
    try:
        with bench.cluster("cuda", wrap=under_memcheck) as made:
            try:
                for options in (dict(temperature=0), dict(seed=6)):
                    bench.generate(made.routers[0], bench.prompts[0], draft_length=3, max_tokens=min(16, bench.num_tokens), **options)
                # The tool reports after the end of the process that it watches.
                made.routers[0].kill()
                signal_workers(made.workers(), signal.SIGTERM)
                for worker in made.workers():
                    worker.process.wait(bench.left())
            finally:
                signal_workers(made.workers(), signal.SIGKILL)
    except Exception as error:  # the tool's report comes first, because it may have the cause
        broke = error
    reports = {log.stem: log.read_text(errors="replace").strip() if log.exists() else "" for log in logs}
    for name, text in reports.items():
        if nothing := WATCHES_NOTHING.search(text):
            return f"did not run: {nothing.group()}"
        if re.search(r"ERROR SUMMARY: [1-9]", text):
            raise Failed(f"memcheck of a generate, {name}: {text[-3000:]}")
    if broke is not None and any(reports.values()):
        raise broke
    for name, text in reports.items():
        if "ERROR SUMMARY: 0 errors" not in text:
            return f"did not run, {name}: {broke or text[-500:] or 'no report'}"
    return NO_FINDING


# ---------------------------------------------------------------- figures


# Goals: the share of the copy bandwidth that decoding with this shape should reach.
SHAPES = {"3B": 0.85, "1B": 0.80}
LEAST_OVER_TRANSFORMERS = 3
MOST_OF_EIGHT_ROWS = 1.10  # in times of one row
MOST_SAMPLING_SECONDS = 60e-6  # for 40 rows of 128,256 tokens, in every mode
# Most seconds for a prompt of 2,000 tokens of the 3B shape, on the GPU that the goal was stated for.
MOST_PROMPT_SECONDS = {"NVIDIA H200": 0.060}
# The small pair knows 1,024 positions. Its inflated shapes are also timed with longer contexts.
MAX_POSITIONS = 16384
MOST_ROUND_OVERHEAD = 0.08
# Smallest and largest numbers for `tandem bench`; the available time decides. Intervals are meaningful from six pairs on.
NUM_PAIRS, RUN_TOKENS = (6, 20), (24, 96)


def large_pair(bench):
    """Returns the embedded pair in the shapes of Llama-3.2-3B and 1B, which is made once and kept."""
    if bench.shim:
        return bench.pair
    made = []
    for shape, small in zip(SHAPES, bench.pair):
        folder = lab.SOURCE_DIR / "build" / "bench-models" / f"inflated-{shape.lower()}"
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            done = bench.run(bench.program(bench.bin / "inflate_model"), small, folder, "--shape", shape.lower())
            if done.returncode != 0:
                raise Failed(done.stderr)
            config = folder / "config.json"
            config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": MAX_POSITIONS}))
            (folder / "complete").touch()
        made.append(folder)
    return tuple(made)


def shape_of(folder):
    config = json.loads((folder / "config.json").read_text())
    names = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
             "head_dim"]
    return {name: config.get(name) for name in names}


def bandwidth(bench, found):
    """decode of the 3B and 1B shapes, one stream, against copy bandwidth; passes of several rows against one of one"""
    sizes = (["--copy-bytes", 4096, "--context", 4, "--rows", "1,3,8", "--repeats", 1] if bench.shim
             else ["--rows", "1,2,3,4,5,8,9,16,32,33,64,128,256", "--repeats", 20])
    models = found["models"] = {}
    figures = found["figures"] = []
    with bench.clocks() as clocks:
        found["clocks_mhz"] = clocks
        for (name, least), folder in zip(SHAPES.items(), large_pair(bench)):
            report = bench.device("--model", folder, *sizes)
            model = report["model"]
            passes = {each["rows"]: each for each in model["passes"]}
            bench.passes[name] = {rows: each["seconds"] for rows, each in passes.items()}
            models[name] = {"shape": shape_of(folder), "weight_bytes": model["weight_bytes"], "context": model["context"],
                            "copy_bytes_per_second": report["copy_bytes_per_second"], "passes": model["passes"]}
            figures += [
                figure(bench, f"decode of the {name} shape, share of copy bandwidth", passes[1]["share_of_copy_bandwidth"], least=least,
                       note=f"{1e3 * passes[1]['seconds']:.3f} ms a step"),
                figure(bench, f"8 rows over one, {name} shape", passes[8]["seconds"] / passes[1]["seconds"], most=MOST_OF_EIGHT_ROWS)]
            figures += [figure(bench, f"{rows} rows over one, {name} shape", passes[rows]["seconds"] / passes[1]["seconds"],
                               note=f"{1e3 * passes[rows]['seconds']:.2f} ms") for rows in (33, 64, 128, 256) if rows in passes]


def prompts(bench, found):
    """prompts of the 3B shape, and one row after contexts of several lengths"""
    lengths, contexts = ([5, 9], [4, 20]) if bench.shim else ([512, 2000, 8000], [128, 2000, 8000])
    sizes = ["--copy-bytes", 4096, "--repeats", 1 if bench.shim else 5]
    folder = large_pair(bench)[0]
    figures = found["figures"] = []

    def measure(context, rows):
        """Returns the name of the device, and the passes."""
        report = bench.device("--model", folder, *sizes, "--context", context, "--rows", rows)
        for each in report["model"]["passes"]:
            del each["share_of_copy_bandwidth"]  # it means nothing for a prompt, and the copy is small here
        return report["device"], report["model"]["passes"]

    device, found["prompts"] = measure(0, ",".join(map(str, lengths)))
    for each in found["prompts"]:
        most = MOST_PROMPT_SECONDS.get(device) if each["rows"] == 2000 else None
        figures.append(figure(bench, f"seconds of a prompt of {each['rows']} tokens, 3B shape", each["seconds"], most=most))
    found["contexts"] = {}
    for context in contexts:
        _, passes = measure(context, "1,8")
        found["contexts"][context] = passes
        figures.append(figure(bench, f"seconds of a row after {context} tokens, 3B shape", passes[0]["seconds"],
                              note=f"8 rows: {1e3 * passes[1]['seconds']:.2f} ms"))


def sampling(bench, found):
    """the sampling kernels in each mode, for many rows of a large vocabulary"""
    vocabulary, rows = (300, 10) if bench.shim else (128256, 40)
    report = bench.device("--copy-bytes", 4096, "--repeats", 1 if bench.shim else 30, "--sampling-vocabulary", vocabulary,
                          "--sampling-rows", f"1,{rows}")
    found["sampling"] = report["sampling"]
    found["figures"] = [figure(bench, f"seconds of {rows} rows, {name}", seconds, most=MOST_SAMPLING_SECONDS)
                        for name, seconds in report["sampling"][-1]["seconds"].items()]


def ring_bytes(drafter):
    """Returns {transport: bytes} of the log-probs that the drafter handed over, from its metrics."""
    url = re.search(r"metrics: (http://\S+/metrics)", drafter.log()).group(1)
    with urllib.request.urlopen(url, timeout=10) as response:
        text = response.read().decode()
    return {transport: float(count)
            for transport, count in re.findall(r'^tandem_ring_bytes_total\{.*\btransport="(\w+)".*\} (\S+)$', text, re.MULTILINE)}


def token_seconds(bench, router):
    """Returns the mean seconds of a token over all draft lengths. The number is rather too large, because it is sampled, which is slower,
    and includes the time of the prompt."""
    num_tokens = min(16, bench.num_tokens)
    lengths = [0, *bench.draft_lengths]
    for _ in range(2):  # the first one warms up
        began = time.monotonic()
        for length in lengths:
            bench.generate(router, bench.prompts[0], seed=1, reproducible=False, draft_length=length, max_tokens=num_tokens)
    return (time.monotonic() - began) / len(lengths) / num_tokens


def small_prompts(bench):
    """Returns a file of prompts for the shim's models, which know only single letters."""
    prompts = bench.folder / "prompts"
    prompts.write_text("the king\nthe wolf\n")
    return prompts


def workload(bench, seconds_of_token, seconds, cells=None):
    """Returns the pairs, and the tokens of a run, that `tandem bench` can do in `seconds`. It reduces the pairs first and the length of
    runs later. `cells` is the number of cases that it measures: by default plain decoding and each draft length."""
    cells = cells or 2 * (1 + len(bench.draft_lengths))  # greedy and sampled
    tokens = int(seconds / seconds_of_token / cells)  # tokens of all runs of a cell; one run warms up
    pairs = min(max(tokens // bench.run_tokens[1] - 1, bench.num_pairs[0]), bench.num_pairs[1])
    run_tokens = min(tokens // (pairs + 1), bench.run_tokens[1])
    if run_tokens < bench.run_tokens[0]:
        raise Skipped(f"out of time: a token takes {1e3 * seconds_of_token:.0f} ms, and {pairs} pairs of {bench.run_tokens[0]} tokens more "
                      f"than {seconds:.0f} s")
    return pairs, run_tokens


def end_to_end(bench, found):
    """speedup with the 1B/3B shapes beside its prediction, overhead of a round; no log-probs go through the host"""
    path = bench.folder / "bench.json"
    options = ["--draft-lengths", ",".join(map(str, bench.draft_lengths)), "--json", path]
    if bench.shim:
        options += ["--prompts", small_prompts(bench)]
    with bench.cluster("cuda", large_pair(bench)) as made:
        router = made.routers[0]
        # A run that is cut short has no figures. A fifth of the time is reserved for work that token_seconds does not see.
        pairs, run_tokens = workload(bench, token_seconds(bench, router), 0.8 * bench.left())
        done = bench.run(bench.bin / "tandem", "bench", "--connect", router.address, "--pairs", pairs, "--max-tokens", run_tokens, *options)
        if done.returncode != 0:
            raise Failed(done.stdout + done.stderr)
        handed_over = ring_bytes(made.drafter)
    report = json.loads(path.read_text())
    found |= {"ring_bytes": handed_over, "bench": report, "figures": round_figures(bench, report["rows"])}
    if not handed_over["cuda_ipc"] > 0 or handed_over["shm"] + handed_over["inline"] > 0:
        raise Failed(f"log-probs of drafts went through the host: {handed_over}")


def round_figures(bench, rows):
    """Returns figures from the report of `tandem bench` (docs/cli.md): speedups beside their predictions, and the stages of a round."""
    figures = []
    for row in rows:
        length = row["draft_length"]
        if length == 0:
            continue
        at = f"{row['mode']}, K = {length}"
        predicted = row["predicted_speedup_measured_costs"]
        interval = "too few pairs" if row["speedup_95_percent"] is None else "{:.2f} to {:.2f}".format(*row["speedup_95_percent"])
        figures.append(figure(
            bench, f"speedup over its prediction, {at}", row["speedup"] / predicted if predicted else None, 0.95, 1.05,
            note=f"{row['speedup']:.2f} ({interval}), predicted {predicted:.2f}; Theorem 3.8: "
                 f"{row['predicted_speedup_theorem_3_8']:.2f}; alpha {row['alpha']:.2f}"))
        seconds = row["round_seconds"]
        whole = sum(seconds.values())
        outside = seconds["transfer"] + seconds["router"]
        judged = length == bench.draft_lengths[len(bench.draft_lengths) // 2]  # K = 4, as in docs/benchmarks.md
        figures.append(figure(bench, f"router, messages and transfer, share of a round, {at}", outside / whole if whole else None,
                              most=MOST_ROUND_OVERHEAD if judged else None, note=f"{1e3 * outside:.2f} ms of {1e3 * whole:.2f}"))
        # The workers' seconds include work of the host and gaps between launches. This figure is the part of a round that is not in passes
        # as bench_device measured them. Sampling kernels and rows for catching up the drafter count too, so the figure is an upper bound
        # and is not judged.
        target, draft = bench.passes.get("3B", {}), bench.passes.get("1B", {})
        if whole and 1 in draft and 1 in target and length + 1 in target:
            passes = length * draft[1] + target[length + 1]
            figures.append(figure(bench, f"beyond the models' passes, share of a round, {at}", 1 - passes / whole))
            # The prediction above takes its costs from the same run that it is compared with. This prediction takes only alpha from the
            # run.
            tokens = sum(row["alpha"]**i for i in range(length + 1))  # tokens of a round; equation 1 of Leviathan et al. 2023
            predicted = tokens * target[1] / passes
            figures.append(figure(bench, f"speedup over what passes alone predict, {at}", row["speedup"] / predicted,
                                  note=f"predicted {predicted:.2f}"))
    return figures


def trees(bench, found):
    """trees of the draft model against its chains, with the 1B/3B shapes"""
    path = bench.folder / "trees.json"
    lengths = [2] if bench.shim else [2, 3, 4]
    options = ["--drafters", "model", "--draft-lengths", ",".join(map(str, lengths)), "--json", path,
               "--max-tree-nodes", ",".join(map(str, [0, *bench.tree_sizes]))]
    pairs, run_tokens = 1, bench.run_tokens[0]
    if bench.shim:
        options += ["--prompts", small_prompts(bench)]
    with bench.cluster("cuda", large_pair(bench)) as made:
        router = made.routers[0]
        if not bench.shim:
            cells = 2 * (1 + len(lengths) * (1 + len(bench.tree_sizes)))
            pairs, run_tokens = workload(bench, token_seconds(bench, router), 0.8 * bench.left(), cells)
        done = bench.run(bench.bin / "tandem", "bench", "--connect", router.address, "--pairs", pairs, "--max-tokens", run_tokens, *options)
        if done.returncode != 0:
            raise Failed(done.stdout + done.stderr)
    report = json.loads(path.read_text())
    found |= {"bench": report, "figures": []}
    for mode in ("greedy", "sampled"):
        rows = [row for row in report["rows"] if row["mode"] == mode and row["draft_length"] != 0]
        best = {name: max((row for row in rows if (row["max_tree_nodes"] > 0) == is_tree), key=lambda row: row["speedup"])
                for name, is_tree in (("chain", False), ("tree", True))}
        note = "; ".join(f"{name}: K = {row['draft_length']}, {row['max_tree_nodes']} nodes, {row['speedup']:.2f} of plain, "
                         f"{row['tokens_per_pass']:.2f} tokens a pass" for name, row in best.items())
        found["figures"].append(figure(bench, f"the best tree over the best chain, {mode}",
                                       best["tree"]["speedup"] / best["chain"]["speedup"], note=note))


class Transformers:
    """Runs bench/transformers_assisted.py with the machine's own Python, which may have PyTorch."""

    def __init__(self, bench, target, draft):
        if shutil.which(bench.python) is None:
            raise Skipped(f"transformers is not installed: there is no {bench.python}")
        self._log = bench.folder / "transformers.log"
        command = [bench.python, lab.SOURCE_DIR / "bench" / "transformers_assisted.py", target, draft, "--gpu", bench.gpu]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                             text=True)
        self._seconds = bench.left()
        self._deadline = time.monotonic() + self._seconds
        self._timer = threading.Timer(self._seconds, self._process.kill)
        self._timer.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()

    def read(self):
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        text = self._log.read_text(errors="replace").strip()
        if code == -signal.SIGKILL and time.monotonic() >= self._deadline:
            raise subprocess.TimeoutExpired("transformers", self._seconds)
        if code == 3:  # something that the script needs is missing
            raise Skipped(text.splitlines()[-1])
        raise Failed(f"transformers ended with {code}: {text[-3000:]}")

    def generate(self, prompt_ids, num_tokens, assisted):
        with contextlib.suppress(BrokenPipeError):  # read() reports the reason
            self._process.stdin.write(json.dumps({"prompt_ids": prompt_ids, "num_tokens": num_tokens, "assisted": assisted}) + "\n")
            self._process.stdin.flush()
        return self.read()


def num_equal(first, second):
    """Returns the number of tokens before the first difference."""
    count = 0
    for one, other in zip(first, second):
        if one != other:
            break
        count += 1
    return count


def assisted(bench, found):
    """tokens/s over those of Hugging Face transformers' assisted generation: same weights, prompts and lengths, greedy, in turns"""
    if bench.python is None:
        raise Skipped("no speed is measured over the shim")
    target, draft = large_pair(bench)
    rates = {"tandem": {}, "transformers": {}, "transformers_plain": {}}  # by pair; pair -1 warms up
    outputs = {"tandem": {}, "transformers": {}, "transformers_plain": {}}
    with Transformers(bench, target, draft) as other:
        versions = other.read()  # the script can run here, and loads the models meanwhile
        with bench.cluster("cuda", (target, draft)) as made:
            router = made.routers[0]
            prompts = [bench.token_ids(router, prompt) for prompt in bench.prompts]
            other.read()

            # Both sides measure the seconds of the whole call, including the prompt.
            def measure(name, pair):
                prompt = prompts[max(pair, 0) % len(prompts)]
                if name == "tandem":
                    began = time.monotonic()
                    token_ids = bench.generate(router, prompt, temperature=0, max_tokens=bench.num_tokens).token_ids
                    seconds = time.monotonic() - began
                else:
                    answer = other.generate(prompt, bench.num_tokens, assisted=name == "transformers")
                    token_ids, seconds = answer["token_ids"], answer["seconds"]
                outputs[name][pair] = token_ids
                rates[name][pair] = len(token_ids) / seconds
                return rates[name][pair]

            ratio = lab.paired(lambda pair: measure("tandem", pair), lambda pair: measure("transformers", pair), ASSISTED_PAIRS)
            for pair in range(-1, 2):
                measure("transformers_plain", pair)
    # Activations are F32 here and BF16 there, so the outputs diverge at near ties. This figure is informative only.
    equal = [num_equal(outputs["tandem"][pair], outputs["transformers"][pair]) for pair in range(ASSISTED_PAIRS)]
    medians = {name: statistics.median(rate for pair, rate in of.items() if pair >= 0) for name, of in rates.items()}
    note = f"{ratio['low']:.2f} to {ratio['high']:.2f}; " + ", ".join(f"{name} {rate:.0f} tokens/s" for name, rate in medians.items())
    found |= {"versions": versions, "num_tokens": bench.num_tokens, "equal_tokens": equal, "ratio": ratio, "tokens_per_second": medians,
              "figures": [figure(bench, "tokens/s over transformers' assisted generation", ratio["mean"], LEAST_OVER_TRANSFORMERS,
                                 note=note)]}


# Each step with the seconds that it may take if all other steps use up their time.
STEPS = {kernels: 90, agreement: 30, exactness: 20, heads: 30, kills: 20, sanitizer: 70, bandwidth: 50, prompts: 30, sampling: 20,
         end_to_end: 70, trees: 70, assisted: 100}
# Steps with small workloads, which are equal on every GPU. Such a step hangs if it exceeds its time.
SMALL = {agreement, exactness, heads, kills}


# Steps that check. The others measure, and get only the time that the checks leave.
CHECKS = {kernels, agreement, exactness, heads, kills, sanitizer}


def seconds_reserved(selected, limit):
    """Returns for each selected step the seconds that steps after it are to have. Figures reserve for later figures. A check reserves for
    later checks, and for figures what the limit has beyond all checks."""
    checks = sum(share for step, share in selected if step in CHECKS)
    figures = sum(share for step, share in selected if step not in CHECKS)
    of_figures = min(figures, max(0, limit - checks))
    reserved = []
    for i, (step, _) in enumerate(selected):
        is_check = step in CHECKS
        later = sum(share for other, share in selected[i + 1:] if (other in CHECKS) == is_check)
        reserved.append(later + of_figures if is_check else later)
    return reserved


def out_of_time(bench, error):
    if isinstance(error, grpc.RpcError) and error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return True
    return isinstance(error, subprocess.TimeoutExpired) or time.monotonic() >= bench.deadline


def outcome(bench, step, share):
    """Returns the status, the reason if the step did not pass, and the results so far. `share` is the number of seconds that the step
    should have."""
    began = time.monotonic()
    given = bench.deadline - began
    if given < share / 2:
        return {"status": "skipped", "why": "out of time"}
    found = {}
    try:
        step(bench, found)
    except Skipped as why:
        return {"status": "skipped", "why": str(why), **found}
    except Failed as why:
        return {"status": "failed", "why": str(why), **found}
    except Exception as error:  # the next steps may still work
        why = f"{type(error).__name__}: {error}"
        if not out_of_time(bench, error):
            return {"status": "failed", "why": why, **found}
        hangs = step in SMALL and given > 0.8 * share  # earlier steps may have left this step less than its share
        return {"status": "failed" if hangs else "skipped", **found,
                "why": f"out of time: not done after {time.monotonic() - began:.0f} s ({why})"}
    return {"status": "passed", **found}


def machine(bench):
    found = {"commit": bench.commit or "unknown"}
    if bench.commit is None:
        with contextlib.suppress(FileNotFoundError):
            found["commit"] = run(["git", "-C", lab.SOURCE_DIR, "describe", "--always", "--dirty"]).stdout.strip() or "unknown"
    fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit"
    if not bench.shim:
        with contextlib.suppress(FileNotFoundError):
            done = run(bench.nvidia_smi(fields))
            if done.returncode == 0:
                found["nvidia_smi"] = dict(zip(fields.split(","), (value.strip() for value in done.stdout.split(","))))
                found["driver"] = found["nvidia_smi"]["driver_version"]
    try:
        found |= bench.device("--copy-bytes", 1 << (12 if bench.shim else 30), "--repeats", 1 if bench.shim else 20)
    except Skipped as why:
        if "nvidia_smi" not in found:
            raise NoGpu(f"{why}, and nvidia-smi finds none") from None
        found["device"] = found["nvidia_smi"]["name"]
    return found


def verdict(entry):
    if entry["goal"] is None:
        return "no goal"
    return {True: "met", False: "MISSED", None: "not judged"}[entry["met"]]


def show(name, description, result):
    print(f"{result['status']:8} {name:11} {result['seconds']:6.1f} s  {description}")
    if result["status"] != "passed":
        print(f"         {result['status']}: {result['why']}")
    for entry in result.get("figures", []):
        value = "" if entry["value"] is None else f": {entry['value']:.3g}"
        goal = "" if entry["goal"] is None else f" (goal: {entry['goal']})"
        note = f"; {entry['note']}" if entry.get("note") else ""
        print(f"         {verdict(entry):10} {entry['figure']}{value}{goal}{note}")
    sys.stdout.flush()


def summary(steps):
    statuses = [step["status"] for step in steps.values()]
    verdicts = [verdict(entry) for step in steps.values() for entry in step.get("figures", [])]
    return (", ".join(f"{statuses.count(status)} {status}" for status in ("passed", "failed", "skipped")) + "; goals: " +
            ", ".join(f"{verdicts.count(each)} {each}" for each in ("met", "MISSED", "not judged")))


def main():
    names = [step.__name__ for step in STEPS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU in nvidia-smi (0)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help=", ".join(names))
    parser.add_argument("--out", type=pathlib.Path, help="where to write the JSON (default: bench/results/gpu.json; with --shim: nowhere)")
    parser.add_argument("--python", help="a Python that has torch and transformers (python3)")
    parser.add_argument("--commit", help="commit of the binaries, if git does not know it")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS,
                        help=f"seconds for all steps ({LIMIT_SECONDS}); steps that do not fit are skipped")
    parser.add_argument("--shim", action="store_true", help="use the shim of tests/simt with tiny models: only checks that all steps run")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(names):
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the order of nvidia-smi
    out = arguments.out or (None if arguments.shim else lab.SOURCE_DIR / "bench" / "results" / "gpu.json")

    end = time.monotonic() + arguments.limit
    with tempfile.TemporaryDirectory(prefix="tandem-gpu-") as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        try:
            report = {"measured": datetime.date.today().isoformat(), "machine": machine(bench), "steps": {}}
        except NoGpu as why:
            sys.exit(f"skipped: no GPU: {why}")
        except (Failed, subprocess.TimeoutExpired) as why:
            sys.exit(f"error: {why}")
        of = report["machine"]
        print(f"{of['device']}, driver {of.get('driver', 'unknown')}, {of.get('copy_bytes_per_second', 0) / 1e9:.0f} GB/s copied; "
              f"{of['commit']}")
        selected = [(step, share) for step, share in STEPS.items() if step.__name__ in arguments.only]
        for (step, share), reserved in zip(selected, seconds_reserved(selected, arguments.limit)):
            bench.deadline = end - reserved
            began = time.monotonic()
            result = outcome(bench, step, share)
            result["seconds"] = round(time.monotonic() - began, 1)
            report["steps"][step.__name__] = result
            show(step.__name__, step.__doc__, result)
            if out is not None:  # written after each step, because the machine may be lost
                out.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(summary(report["steps"]))
    sys.exit(any(result["status"] == "failed" for result in report["steps"].values()))


if __name__ == "__main__":
    main()
