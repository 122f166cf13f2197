"""Searches for leaks: watches memory and counts under a load with clients that leave and workers that are killed.

  soak.py --judge FILE           judges the growth again, from the samples of an earlier run
  soak.py [--minutes 30 | --hours 24 | --seconds N] [--load 0.8] [--kill-every 60] [--cancel-fraction 0.1] [--json FILE]

The script starts `tandem serve` with the embedded pair, and fills all its slots and its queue once. The router's heap is as large as its
largest number of simultaneous requests needs. Without this step, the heap would grow for hours because longer queues occur by chance.

Every minute, the script then measures for some seconds the largest rate of requests that the server can serve, and sends `--load` of this
rate at random times (Poisson). On a virtual machine, the largest rate can fall by a third within half an hour and rise again. In the first
half, one of the workers is killed (kill -9) every `--kill-every` seconds, and the supervisor starts it again. In the second half no worker
is killed, so that slow growth has time to show. The script samples memory, descriptors and shared memory of each process, and slots, queue
and free pages of the server. After the load, slots, queue, pages, descriptors and shared memory must have their values from before. No
request may have failed, and memory may grow by less than 1 MiB/h. Otherwise the exit code is 1.

Memory means the anonymous part of the resident memory, because pages of mapped files (weights, libraries) become resident when they are
first touched. Its growth is the median slope between pairs of samples (Theil and Sen). Only samples of processes that have run for two
and a half minutes count (in a short run, a fifth of the run), because pools and heaps have filled by then. A restarted worker begins at a
new level. Memory that is taken once does not move a median, but a leak does. In a run of less than ten minutes a slope means nothing, so
it is reported and not judged.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

import lab

import harness

SLOTS = 16
QUEUE = 256
NAMES = ("tandem-router", "tandem-draft", "tandem-verifier")
MIB = 2**20
MOST_GROWTH = 1.0  # MiB/h
SHORTEST_FOR_SLOPES = 600.0  # seconds
FEWEST_SAMPLES = 20
SETTLE_SECONDS = 30.0
WARM_SECONDS = 150.0
SEGMENT_SECONDS = 60.0
KILLED_SHARE = 0.5  # share of the time in which workers are killed
PEAK_SHARE = 0.1  # share of a segment in which the largest load is measured


def growth(samples, seconds):
    """Returns the growth of anonymous memory in MiB/h, with its quartiles."""
    first = {}  # first sample of each life
    for sample in samples:
        first.setdefault(sample["pid"], sample["seconds"])
    warm = min(WARM_SECONDS, 0.2 * seconds)
    samples = [sample for sample in samples if sample["seconds"] >= first[sample["pid"]] + warm]
    line = lab.steady_slope([sample["seconds"] / 3600 for sample in samples], [sample["anonymous"] / MIB for sample in samples],
                            [sample["pid"] for sample in samples])
    return {"mib_per_hour": line["slope"], "quartiles": line["quartiles"], "samples": len(samples)}


def grows_little(line):
    return line["samples"] >= FEWEST_SAMPLES and line["mib_per_hour"] < MOST_GROWTH


def print_growth(lines):
    for name, line in lines.items():
        print(f"soak: {name}: memory grows by {line['mib_per_hour']:+.2f} MiB/h (quartiles {line['quartiles'][0]:+.2f}, "
              f"{line['quartiles'][1]:+.2f}; {line['samples']} samples)")


class Watch:
    """Samples all processes of a server."""

    def __init__(self, server):
        self._server = server
        self.start()
        self.samples = {name: [] for name in NAMES}
        self.loads = []

    def start(self):
        """Starts the count of elapsed time."""
        self._start = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self._start

    def processes(self):
        """Returns {name: current sample}. A process that is just being restarted is left out."""
        found = {}
        for pid, name in self._server.children().items():
            try:
                memory = lab.memory_bytes(pid)
                found[name] = {"pid": pid, "resident": memory["resident"], "anonymous": memory["anonymous"],
                               "descriptors": lab.num_descriptors(pid), "shared_memory": lab.shared_memory_bytes(pid)}
            except (FileNotFoundError, ProcessLookupError, KeyError):
                continue
        return found

    def sample(self):
        now = self.elapsed()
        for name, process in self.processes().items():
            if name in self.samples:
                self.samples[name].append({"seconds": now, **process})
        load = self._server.info().load
        self.loads.append({"seconds": now, "slots": load.num_running, "queue": load.num_queued, "free pages": load.num_free_kv_pages,
                           "free draft pages": load.num_free_draft_kv_pages})

    def slopes(self):
        """Returns the growth per hour of other counts that could leak, with standard errors (least squares over the samples under load)."""
        found = {}
        for name in NAMES:
            samples = self.samples[name]
            found[f"{name}: descriptors"] = lab.slope([sample["seconds"] / 3600 for sample in samples],
                                                      [sample["descriptors"] for sample in samples], [sample["pid"] for sample in samples])
        for key in ("slots", "queue", "free pages", "free draft pages"):
            found[key] = lab.slope([load["seconds"] / 3600 for load in self.loads], [load[key] for load in self.loads])
        return {name: {"per_hour": line["slope"], "error": line["error"]} for name, line in found.items()}


def counts(server):
    """Sends one request, always the same. The server reports the pages after its last batch, so this request makes the report current."""
    server.generate([300] * 16, temperature=0, max_tokens=4, ignore_eos=True, draft_length=2)
    load = server.info().load
    return {"running": load.num_running, "queued": load.num_queued, "free_pages": load.num_free_kv_pages,
            "free_draft_pages": load.num_free_draft_kv_pages}


def baseline(server, watch):
    """Returns the values that must come back: counts, and the open descriptors and shared memory of each process."""
    return {**counts(server), **{name: {key: process[key] for key in ("descriptors", "shared_memory")}
                                 for name, process in sorted(watch.processes().items()) if name in NAMES}}


def differences(before, after):
    """Returns the values that differ. Fewer descriptors (of a connection that was closed) are not a leak; everything else must be equal."""
    found = []
    for key, value in before.items():
        now = after.get(key)
        if isinstance(value, dict) and now is not None:
            if now["descriptors"] > value["descriptors"]:
                found.append(f"{key}: {now['descriptors']} descriptors, were {value['descriptors']}")
            if now["shared_memory"] != value["shared_memory"]:
                found.append(f"{key}: {now['shared_memory']} bytes of shared memory, were {value['shared_memory']}")
        elif now != value:
            found.append(f"{key}: {now}, was {value}")
    return found


def settle(server, watch, before):
    """Waits for a limited time until all values are as before. Returns the values that are not."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while found := differences(before, baseline(server, watch)):
        if time.monotonic() > deadline:
            return found
        time.sleep(0.1)
    return []


def load(arguments, server, seed, *what):
    """`seed` changes the prompts, so that they are not found in the prefix cache."""
    return lab.bench_serve("--connect", server.address, "--pairs", 1, "--drafting", "auto", "--modes", "sampled", "--prompt-lengths",
                           "uniform:8-64", "--output-lengths", "lognormal:48,0.6", "--cancel-fraction", arguments.cancel_fraction,
                           "--seed", arguments.seed + seed, *what)["rows"][0]


def run_segment(arguments, server, index, seconds):
    """Measures the largest load that is served, with clients that wait for their answers. Then sends a share of this load."""
    peak_seconds = max(1.0, PEAK_SHARE * seconds)
    peak = load(arguments, server, 2 * index + 1, "--clients", SLOTS, "--seconds", peak_seconds)
    most = (peak["requests"] + peak["cancelled"]) / peak["wall_seconds"]
    row = load(arguments, server, 2 * index + 2, "--rate", arguments.load * most, "--seconds", max(1.0, seconds - peak_seconds))
    return most, peak, row


def run_load(arguments, server, watch):
    """Runs the load with the kills. Returns its segments and the number of kills."""
    kills = []
    stop = threading.Event()
    randomness = random.Random(arguments.seed)

    failed = []  # failures of the threads: a soak without samples or without kills proves nothing

    def watched(work):
        def run():
            try:
                work()
            except BaseException as failure:
                failed.append(failure)
        return threading.Thread(target=run)

    def kill():
        while not stop.wait(arguments.kill_every * randomness.uniform(0.5, 1.5)) and watch.elapsed() < KILLED_SHARE * arguments.seconds:
            name = randomness.choice(["tandem-draft", "tandem-verifier"])
            pid = server.child(name)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):  # the process has just ended by itself
                    os.kill(pid, signal.SIGKILL)
                kills.append({"seconds": watch.elapsed(), "name": name})

    def sample():
        while not stop.wait(arguments.sample_every):
            watch.sample()

    threads = [watched(work) for work in ([sample, kill] if arguments.kill_every > 0 else [sample])]
    watch.start()
    for thread in threads:
        thread.start()
    segments = []
    try:
        while (left := arguments.seconds - watch.elapsed()) > 0:
            segments.append(run_segment(arguments, server, len(segments), min(SEGMENT_SECONDS, arguments.seconds / 2, left)))
            most, _, row = segments[-1]
            print(f"soak: {watch.elapsed():.0f} s of {arguments.seconds:.0f}: {most:.1f} requests/s at most, failures {row['failures']}, "
                  f"{len(kills)} kills", flush=True)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    return segments, kills


def totals(segments):
    """Returns the totals of all segments: requests, their results, and their times by segment."""
    rows = [row for _, peak, share in segments for row in (peak, share)]
    failures = collections.Counter()
    for row in rows:
        failures.update(row["failures"])
    return {**{key: sum(row[key] for row in rows) for key in ("requests", "cancelled", "tokens")}, "failures": dict(failures),
            "most_requests_per_second": [most for most, _, _ in segments],
            **{key: [row[key] for _, _, row in segments] for key in ("time_to_first_token_seconds", "time_per_token_seconds")}}


def soak(arguments):
    """Runs with the parsed arguments and returns the report, which --json keeps."""
    with tempfile.TemporaryDirectory(prefix="tandem-soak-") as folder:
        server = harness.Server(pathlib.Path(folder), max_slots=SLOTS, max_queue=QUEUE)
        try:
            harness.wait_until(lambda: server.info().drafter_attached, 10, "the drafter is attached")
            load(arguments, server, 0, "--clients", SLOTS + QUEUE, "--seconds", max(1.0, min(20.0, arguments.seconds / 10)))
            watch = Watch(server)
            settle_until_idle(server)
            before = baseline(server, watch)
            segments, kills = run_load(arguments, server, watch)
            harness.wait_until(lambda: all(server.child(name) for name in NAMES) and server.info().drafter_attached, 20,
                               "all processes run again")
            left = settle(server, watch, before)
            lines = {name: growth(watch.samples[name], arguments.seconds) for name in NAMES}
            slopes = watch.slopes()
            stopped = server.stop()
        except BaseException:
            server.stop(signal.SIGTERM)
            raise
    total = totals(segments)
    verdicts = {
        "back to baseline": not left,
        "no request failed": not total["failures"],
        "stopped in order": stopped == 0,
        "workers were killed": bool(kills) or arguments.kill_every == 0,
    }
    if arguments.seconds >= SHORTEST_FOR_SLOPES:
        verdicts["memory"] = all(map(grows_little, lines.values()))
    report = {"machine": lab.machine(), "seconds": arguments.seconds, "load": arguments.load, **total,
              "kills": kills, "growth": lines, "slopes": slopes, "loads": watch.loads, "before": before, "not_back": left,
              "verdicts": verdicts, "passed": all(verdicts.values()), "samples": watch.samples}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return report


def settle_until_idle(server):
    harness.wait_until(lambda: (load := server.info().load).num_running == 0 and load.num_queued == 0, 10, "the server is idle")


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float)
    length.add_argument("--minutes", type=float)
    length.add_argument("--seconds", type=float)
    parser.add_argument("--load", type=float, default=0.8, help="share of the largest load that the server can serve (0.8)")
    parser.add_argument("--kill-every", type=float, default=60,
                        help="seconds between two kills, on average, in the first half; 0: none (60)")
    parser.add_argument("--cancel-fraction", type=float, default=0.1, help="share of requests whose client leaves early (0.1)")
    parser.add_argument("--sample-every", type=float, default=None, help="seconds between two samples (5, fewer in a short run)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="write everything to this file")
    parser.add_argument("--judge", type=pathlib.Path, metavar="FILE", help="judge the samples of an earlier --json again, without a run")
    arguments = parser.parse_args(arguments)
    if arguments.seconds is None:
        arguments.seconds = (arguments.hours * 60 if arguments.hours else arguments.minutes or 30) * 60
    arguments.sample_every = arguments.sample_every or min(5.0, arguments.seconds / 20)
    return arguments


def main():
    arguments = parse()
    if arguments.judge:
        report = json.loads(arguments.judge.read_text())
        lines = {name: growth(report["samples"][name], report["seconds"]) for name in NAMES}
        print_growth(lines)
        return 0 if all(map(grows_little, lines.values())) else 1
    report = soak(arguments)
    print(f"soak: {report['requests']} requests done, {report['cancelled']} left early, failures {report['failures']}, "
          f"{len(report['kills'])} kills")
    print_growth(report["growth"])
    for name, line in report["slopes"].items():
        print(f"soak: {name}: {line['per_hour']:+.1f} ± {2 * line['error']:.1f} an hour under load")
    for what in report["not_back"]:
        print(f"soak: not back to baseline: {what}")
    print("soak: " + ", ".join(f"{what}: {'yes' if good else 'NO'}" for what, good in report["verdicts"].items()))
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
