"""Functions that the measurements in Python share: servers, load, statistics."""

import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE_DIR / "tests" / "system"))

import stubs  # noqa: E402

stubs.make()

import harness  # noqa: E402

BINARY_DIR = harness.BINARY_DIR


def bench(*arguments):
    """Runs `tandem bench` and returns the JSON that it writes."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        path = pathlib.Path(folder) / "out.json"
        command = [str(BINARY_DIR / "bin" / "tandem"), "bench", *map(str, arguments), "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return json.loads(path.read_text())


def bench_serve(*arguments):
    return bench("serve", *arguments)


def t_quantile(degrees):
    """Returns the 0.975 quantile of Student's t by the expansion of Abramowitz and Stegun 26.7.5, accurate to 5e-4 from 5 degrees of
    freedom on."""
    z = 1.959963985
    return (z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2) +
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3) +
            (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * degrees**4))


def mean_ratio(ratios):
    """Returns the geometric mean of the ratios of interleaved pairs and its 95% interval (Student's t on the logarithms)."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    margin = t_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return {"mean": math.exp(mean), "low": math.exp(mean - margin), "high": math.exp(mean + margin),
            "pairs": len(ratios)}


MOST_STOLEN = 0.05
MOST_RUNS_OF_PAIR = 5


def processor_ticks():
    """Returns ticks of this machine since boot: busy, and stolen (wanted by this machine, but given to another one by the hypervisor)."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields[:3] + fields[5:7]), fields[7]


def stolen_share(before, after):
    busy, stolen = after[0] - before[0], after[1] - before[1]
    return stolen / (busy + stolen) if busy + stolen else 0.0


def paired(measure_a, measure_b, pairs, ticks=processor_ticks):
    """Returns the mean_ratio of a / b. The side that goes first alternates. Pair -1 warms up and does not count. A pair in which other
    machines took more than 5% of the processor time is measured again, up to five times. `set_aside` counts such pairs."""
    ratios, set_aside = [], 0
    for pair in range(-1, pairs):
        for run in range(1, MOST_RUNS_OF_PAIR + 1):
            values = {}
            before = ticks()
            for name, measure in [("a", measure_a), ("b", measure_b)][::1 if pair % 2 else -1]:
                values[name] = measure(pair)
            if pair < 0 or run == MOST_RUNS_OF_PAIR or stolen_share(before, ticks()) <= MOST_STOLEN:
                break
            set_aside += 1
        if pair >= 0:
            ratios.append(values["a"] / values["b"])
    return {**mean_ratio(ratios), "set_aside": set_aside}


def percentile(values, fraction):
    """Returns a percentile by linear interpolation, like numpy.percentile."""
    values = sorted(values)
    at = fraction * (len(values) - 1)
    below = int(at)
    above = min(below + 1, len(values) - 1)
    return values[below] + (at - below) * (values[above] - values[below])


def slope(times, values, groups=None):
    """Returns the least-squares slope of values over times and its standard error. With `groups`, each group of samples has its own level:
    a process that was restarted begins at a new level, and only its later growth counts."""
    groups = groups or [0] * len(times)
    sums = {}
    for group, time, value in zip(groups, times, values):
        count, time_sum, value_sum = sums.get(group, (0, 0.0, 0.0))
        sums[group] = (count + 1, time_sum + time, value_sum + value)
    centered = []
    for group, time, value in zip(groups, times, values):
        count, time_sum, value_sum = sums[group]
        centered.append((time - time_sum / count, value - value_sum / count))
    spread = sum(time * time for time, _ in centered)
    degrees = len(centered) - len(sums) - 1
    if spread == 0 or degrees < 1:
        return {"slope": 0.0, "error": math.inf}
    gain = sum(time * value for time, value in centered) / spread
    rest = sum((value - gain * time)**2 for time, value in centered)
    return {"slope": gain, "error": math.sqrt(rest / degrees / spread)}


def steady_slope(times, values, groups=None, most_samples=1000):
    """Returns the median of the slopes between all pairs of samples of a group (Theil 1950; Sen 1968), and its quartiles. A value that
    grows without end has a slope between most pairs, even if it grows in large steps. A value that rises once, such as a cache that fills,
    has a slope between few pairs."""
    groups = groups or [0] * len(times)
    thin = max(1, len(times) // most_samples)
    samples = {}
    for group, time, value in list(zip(groups, times, values))[::thin]:
        samples.setdefault(group, []).append((time, value))
    slopes = sorted((later[1] - sample[1]) / (later[0] - sample[0])
                    for life in samples.values() for index, sample in enumerate(life) for later in life[index + 1:]
                    if later[0] > sample[0])
    if not slopes:
        return {"slope": 0.0, "quartiles": [-math.inf, math.inf]}
    return {"slope": percentile(slopes, 0.5), "quartiles": [percentile(slopes, 0.25), percentile(slopes, 0.75)]}


def memory_bytes(pid):
    """Returns the memory of a process: resident; private (no other process maps it); anonymous (not from a file: heap, stacks, KV
    cache)."""
    fields = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        fields[name] = int(value.split()[0]) * 1024
    return {"resident": fields["Rss"], "private": fields["Private_Clean"] + fields["Private_Dirty"],
            "anonymous": fields["Anonymous"]}


def num_descriptors(pid):
    return sum(1 for _ in pathlib.Path(f"/proc/{pid}/fd").iterdir())


def shared_memory_bytes(pid):
    """Returns the bytes of the process's mappings that exist only in memory and can be shared: memfds and /dev/shm."""
    total = 0
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "/memfd:" in line or "/dev/shm/" in line:
            first, last = line.split()[0].split("-")
            total += int(last, 16) - int(first, 16)
    return total


def machine():
    """Returns a description of the machine."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = next((line.split(": ", 1)[1] for line in info.splitlines() if line.startswith("model name")), "unknown CPU")
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return f"{model}, {info.count('processor' + chr(9))} hardware threads, {memory:.0f} GiB"
