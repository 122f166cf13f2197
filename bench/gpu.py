"""Checks and figures on one NVIDIA GPU, in under ten minutes; bench/gpu.sh starts it. One table, and JSON.

Each check says passed, failed or skipped; the exit code is 0 when none failed. With --shim the same steps run over the shim of
tests/simt, with tiny models: to see that they work, on a machine without a GPU. No speed is measured then."""

import argparse
import contextlib
import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import lab

import cluster
import harness

LONG = dict(ignore_eos=True)
PROMPTS = ["Once upon a time there was a king", "The wolf said to the fox,", "In a deep forest there lived", "When the mother came home"]
# Greedy choices of two backends may differ where the two largest logits are closer than this (log-probs, BF16 weights and KV cache).
NEAR_TIE = 0.05


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def run(command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


class Bench:
    def __init__(self, arguments, folder):
        self.shim = arguments.shim
        self.gpu = arguments.gpu
        self.folder = folder
        self.bin = harness.BINARY_DIR / "bin"
        self.tests = harness.BINARY_DIR / "tests"
        if self.shim:
            shape = dict(vocabulary_size=64, layers=1, max_positions=128)
            models = harness.Models(folder / "models")
            self.pair = (models.random(hidden_size=16, seed=3, **shape), models.random(hidden_size=8, seed=4, **shape))
            self.prompts = [[7 * i % 60 for i in range(8 + n)] for n in range(2)]
            self.num_tokens = 6
        else:
            self.pair = (harness.TALES_TARGET, harness.TALES_DRAFT)
            self.prompts = PROMPTS
            self.num_tokens = 128

    @contextlib.contextmanager
    def cluster(self, backend, pair=None):
        """Both workers and a router, as processes of their own."""
        executables = {}
        if self.shim and backend == "cuda":
            executables = {"verifier_executable": self.tests / "tandem-verifier-simt", "drafter_executable": self.tests / "tandem-draft-simt"}
        gpu = ["--gpu", self.gpu] if backend == "cuda" else []
        made = cluster.Cluster(pathlib.Path(tempfile.mkdtemp(dir=self.folder)), *(pair or self.pair),
                               worker_arguments=["--backend", backend, "--max-slots", 4, *gpu], **executables)
        try:
            made.router("--heartbeat-timeout", 20)
            harness.wait_until(lambda: made.routers[0].info().drafter_attached, 60, "the drafter is attached")
            yield made
        finally:
            made.close()

    def device(self, *arguments):
        """What bench_device prints."""
        program = self.tests / "bench-device-simt" if self.shim else self.bin / "bench_device"
        done = run([program, "--gpu", self.gpu, *arguments])
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
        return json.loads(done.stdout)


# ---------------------------------------------------------------- checks


def kernels(bench):
    """ctest -L gpu: every kernel against its reference, the model, the workers' sessions"""
    if bench.shim:
        raise Skipped("the shim's own tests do this")
    done = run(["ctest", "--test-dir", harness.BINARY_DIR, "-L", "gpu", "--output-on-failure", "--no-tests=error"])
    if done.returncode != 0 or "Skipped" in done.stdout:
        raise Failed(done.stdout[-4000:])
    return {"summary": done.stdout.strip().splitlines()[-1]}


def agreement(bench):
    """greedy agreement with the CPU, teacher-forced"""
    compared, near_ties, wrong = 0, 0, []
    with bench.cluster("cpu") as cpu, bench.cluster("cuda") as gpu:
        for prompt in bench.prompts:
            on_cpu = cpu.routers[0].generate(prompt, temperature=0, max_tokens=bench.num_tokens, logprobs=2, draft_length=0, **LONG)
            ids = list(prompt) if isinstance(prompt, list) else list(cpu.routers[0].stub.Tokenize(
                cluster.pb.TokenizeRequest(text=prompt, add_special_tokens=True)).token_ids)
            for position, want in enumerate(on_cpu.token_ids):
                got = gpu.routers[0].generate(ids + on_cpu.token_ids[:position], temperature=0, max_tokens=1, draft_length=0, **LONG)
                compared += 1
                if got.token_ids == [want]:
                    continue
                top = on_cpu.logprobs[position].top
                gap = top[0].logprob - top[1].logprob
                near_ties += gap < NEAR_TIE
                if gap >= NEAR_TIE:
                    wrong.append({"prompt": prompt, "position": position, "gap": gap})
    if wrong:
        raise Failed(f"{len(wrong)} of {compared} differ where the two best are further apart than {NEAR_TIE}: {wrong[:3]}")
    return {"compared": compared, "near_ties": near_ties, "epsilon": NEAR_TIE}


def exactness(bench):
    """drafted text equals plain text, greedy and reproducible; ring over CUDA IPC"""
    compared = 0
    with bench.cluster("cuda") as made:
        router = made.routers[0]
        if router.info().ring_transport != "cuda_ipc":
            raise Failed(f"the ring's transport is {router.info().ring_transport!r}\n{router.log()}")
        for prompt in bench.prompts:
            for mode in (dict(temperature=0), dict(seed=5, reproducible=True)):
                options = dict(max_tokens=bench.num_tokens, **mode, **LONG)
                plain = router.generate(prompt, draft_length=0, **options)
                for draft_length in (1, 4):
                    if router.generate(prompt, draft_length=draft_length, **options).bytes != plain.bytes:
                        raise Failed(f"{mode}, K = {draft_length}, {prompt!r}: other text than plain decoding's")
                    compared += 1
            sampled = router.generate(prompt, seed=6, draft_length=4, max_tokens=bench.num_tokens, **LONG)
            if sampled.completion.speculation.num_accepted_tokens + sampled.completion.speculation.num_draft_tokens == 0:
                raise Failed("nothing was drafted")
    return {"compared": compared}


def kills(bench):
    """kill -9 of each worker while it has the ring open"""
    with bench.cluster("cuda") as made:
        router = made.routers[0]
        options = dict(seed=5, reproducible=True, draft_length=3, max_tokens=2 * bench.num_tokens, **LONG)
        want = router.generate(bench.prompts[0], **options).bytes
        for worker in (made.drafter, made.verifier, made.drafter, made.verifier):
            stream = router.stream(bench.prompts[0], **options)
            harness.wait_until(lambda: stream.num_tokens > 2, 60, "tokens come")
            worker.kill()
            worker.start()
            if stream.result().bytes != want:
                raise Failed(f"after the death of {worker.name}: other text")
            harness.wait_until(lambda: router.info().ring_transport == "cuda_ipc", 60, "a new ring over CUDA IPC")
    return {"kills": 4}


def sanitizer(bench):
    """compute-sanitizer on a short run of the kernels"""
    tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if bench.shim or tool is None:
        raise Skipped("no compute-sanitizer here" if not bench.shim else "the shim runs under AddressSanitizer instead")
    reports = {}
    for check in ("memcheck", "racecheck"):
        done = run([tool, "--tool", check, "--error-exitcode", "9", bench.tests / "sampling_cuda_test"], timeout=240)
        if done.returncode != 0:
            raise Failed(f"{check}: {(done.stdout + done.stderr)[-3000:]}")
        reports[check] = "no finding"
    return reports


# ---------------------------------------------------------------- figures


def large_pair(bench):
    """The embedded pair in the shapes of Llama-3.2-3B and 1B: made once and kept."""
    made = []
    for shape, small in (("3b", harness.TALES_TARGET), ("1b", harness.TALES_DRAFT)):
        folder = lab.SOURCE_DIR / "build" / "bench-models" / f"inflated-{shape}"
        if not (folder / "complete").exists():
            done = run([bench.bin / "inflate_model", small, folder, "--shape", shape])
            if done.returncode != 0:
                raise Failed(done.stderr)
            (folder / "complete").touch()
        made.append(folder)
    return made


def bandwidth(bench):
    """decode of the 3B and 1B shapes, one stream, against copy bandwidth (goals 85 % and 80 %; 8 rows at most 1.15 times one)"""
    if bench.shim:
        report = bench.device("--copy-bytes", 4096, "--model", bench.pair[0], "--context", 4, "--rows", "1,2", "--repeats", 1)
        return {"ran": len(report["model"]["passes"]) == 2}
    figures = {}
    for name, folder in zip(("3b", "1b"), large_pair(bench)):
        report = bench.device("--model", folder)
        passes = {each["rows"]: each for each in report["model"]["passes"]}
        figures[name] = {"copy_bytes_per_second": report["copy_bytes_per_second"],
                         "decode_seconds": passes[1]["seconds"],
                         "share_of_copy_bandwidth": passes[1]["share_of_copy_bandwidth"],
                         "eight_rows_over_one": passes[8]["seconds"] / passes[1]["seconds"],
                         "passes": report["model"]["passes"]}
    return figures


def end_to_end(bench):
    """speedup over plain decoding with the 1B/3B shapes, beside the prediction from measured costs and Theorem 3.8"""
    if bench.shim:
        raise Skipped("no speed is measured over the shim")
    target, draft = large_pair(bench)
    path = bench.folder / "bench.json"
    done = run([bench.bin / "tandem", "bench", "--backend", "cuda", "--target", target, "--draft", draft, "--draft-lengths", "2,4,8",
                "--pairs", "20", "--json", path])
    if done.returncode != 0:
        raise Failed(done.stdout + done.stderr)
    return json.loads(path.read_text())


STEPS = [kernels, agreement, exactness, kills, sanitizer, bandwidth, end_to_end]


def machine(bench):
    found = bench.device("--copy-bytes", 1 << (12 if bench.shim else 30), "--repeats", 1 if bench.shim else 20)
    found["commit"] = run(["git", "-C", lab.SOURCE_DIR, "describe", "--always", "--dirty"]).stdout.strip()
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit"
    with contextlib.suppress(FileNotFoundError):
        found["nvidia_smi"] = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]).stdout.strip().splitlines()
    return found


def main():
    names = [step.__name__ for step in STEPS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=0, help="which GPU, as the driver counts (0)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help=", ".join(names))
    parser.add_argument("--out", type=pathlib.Path, help="where to write the JSON (default: bench/results/gpu.json; with --shim: nowhere)")
    parser.add_argument("--shim", action="store_true", help="over the shim of tests/simt, tiny: only whether everything runs")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(names):
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    with tempfile.TemporaryDirectory(prefix="tandem-gpu-") as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        try:
            report = {"measured": datetime.date.today().isoformat(), "machine": machine(bench), "steps": {}}
        except Failed as error:
            sys.exit(f"skipped: no GPU: {error}")
        print(f"{report['machine']['device']}, {report['machine']['copy_bytes_per_second'] / 1e9:.0f} GB/s copied")
        for step in STEPS:
            if step.__name__ not in arguments.only:
                continue
            began = time.monotonic()
            result = {}
            try:
                result = {"status": "passed", **step(bench)}
            except Skipped as why:
                result = {"status": "skipped", "why": str(why)}
            except (Failed, AssertionError, subprocess.TimeoutExpired) as why:
                result = {"status": "failed", "why": str(why)}
            result["seconds"] = round(time.monotonic() - began, 1)
            report["steps"][step.__name__] = result
            print(f"{result['status']:8} {step.__name__:11} {result['seconds']:6.1f} s  {step.__doc__}", flush=True)
            if result["status"] != "passed":
                print(f"         {result['why']}")
    out = arguments.out or (None if arguments.shim else lab.SOURCE_DIR / "bench" / "results" / "gpu.json")
    if out is not None:
        out.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    sys.exit(any(result["status"] == "failed" for result in report["steps"].values()))


if __name__ == "__main__":
    main()
