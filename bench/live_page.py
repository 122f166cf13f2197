"""Measures the cost of the live page: processor time of the router and of a browser, with the page open and without.

  live_page.py [--seconds 30] [--pairs 3] [--history 0] [--out bench/results/live_page.json]

The script starts `tandem serve` with the embedded pair under a light load of four requests of 32 tokens per second. It also starts headless
Chromium, which shows the page or about:blank. Each pair is one window of `--seconds` for each of them, one after the other, in alternating
order. The script counts utime and stime (/proc/PID/stat) of the router and of all processes of the browser. Counting begins some seconds
after the browser's start. The page draws what the router remembers, at most ten minutes: --history 600 waits until this memory is full.

Run the script with the system tests' Python, build/venv/bin/python, which tests/system/make_venv.sh makes.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import lab

import harness

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BLANK = "about:blank"
SETTLE_SECONDS = 5.0
REQUESTS_A_SECOND = 4
TOKENS = 32
GOAL = 0.01  # share of a core


@contextlib.contextmanager
def light_load(server):
    """Returns the thread of the load, which runs during the block."""
    stop = threading.Event()

    def run():
        due = time.monotonic()
        while not stop.is_set():
            server.generate("Once upon a time", temperature=0, max_tokens=TOKENS, ignore_eos=True, draft_length=4)
            due += 1 / REQUESTS_A_SECOND
            stop.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def browser(url):
    """Yields the process of a browser that shows `url` during the block."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-component-update", f"--user-data-dir={profile}", "--window-size=1400,1250",
             "--remote-debugging-port=0", url], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process
        finally:
            everybody = [*harness.descendants(process.pid), process.pid]
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                for pid in everybody:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait()


def processor_seconds(pids):
    """Returns {pid: user and system time} of the processes that exist."""
    found = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def gained(before, after):
    """A process that started in between counts with all of its time."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


def is_watched(address):
    """Returns true if there is a connection to the admin port. The port ends connections without a request for 30 s."""
    port = int(address.rpartition(":")[2])
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state = line.split()[:4]
        if state == "01" and int(remote.rpartition(":")[2], 16) == port:
            return True
    return False


def window(server, address, page, seconds):
    """Returns the processor seconds of the router and the browser, with the page open or closed."""
    with browser(f"http://{address}/" if page == "open" else BLANK) as process:
        if page == "open":  # the first start of a browser takes longer
            harness.wait_until(lambda: is_watched(address), 60, "the page is open")
        time.sleep(min(SETTLE_SECONDS, seconds))
        router = server.child("tandem-router")

        def now():
            return processor_seconds([router]), processor_seconds([process.pid, *harness.descendants(process.pid)])

        start = time.monotonic()
        before = now()
        time.sleep(seconds)
        after = now()
        wall = time.monotonic() - start
        if process.poll() is not None:
            raise RuntimeError(f"{BROWSER} ended by itself, with status {process.returncode}")
        if is_watched(address) != (page == "open"):
            raise RuntimeError(f"the page should be {page}, and the connections to {address} say otherwise")
    return {"page": page, "wall_seconds": wall, "router": gained(before[0], after[0]), "browser": gained(before[1], after[1])}


def summary(windows):
    """Returns the share of a core that the router and the browser use, with the page closed and open, and the difference."""
    figures = {}
    for who in ("router", "browser"):
        shares = {page: [one[who] / one["wall_seconds"] for one in windows if one["page"] == page] for page in ("closed", "open")}
        added = [opened - closed for opened, closed in zip(shares["open"], shares["closed"])]
        figures[who] = {page: statistics.fmean(values) for page, values in shares.items()}
        figures[who].update(added=statistics.fmean(added), added_by_pair=added, goal=GOAL, met=max(added) <= GOAL)
    return figures


def table(report):
    lines = [f"share of a core, {report['pairs']} windows of {report['seconds']:g} s each",
             f"{'':8}{'closed':>10}{'open':>10}{'added':>10}   by pair"]
    for who, figure in report["figures"].items():
        shown = "".join(f"{100 * figure[key]:8.2f} %" for key in ("closed", "open", "added"))
        lines.append(f"{who:8}{shown}   {', '.join(f'{100 * one:.2f}' for one in figure['added_by_pair'])}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="length of each window (30)")
    parser.add_argument("--pairs", type=int, default=3, help="number of windows with the page, and also without it (3)")
    parser.add_argument("--history", type=float, default=0, help="seconds under load before the first window (0)")
    parser.add_argument("--out", type=pathlib.Path, default=lab.SOURCE_DIR / "bench" / "results" / "live_page.json")
    arguments = parser.parse_args()
    if BROWSER is None:
        print("error: there is no chromium in PATH", file=sys.stderr)
        return 1

    windows = []
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        server = harness.Server(pathlib.Path(folder), admin="127.0.0.1:0", drain_seconds=0)
        try:
            address = harness.admin_addresses(server)["router"]
            with light_load(server) as load:
                time.sleep(arguments.history)
                for pair in range(arguments.pairs):
                    for page in ("closed", "open")[::1 if pair % 2 == 0 else -1]:
                        windows.append(window(server, address, page, arguments.seconds))
                        if not load.is_alive():
                            raise RuntimeError("the load ended before its time")
        finally:
            server.stop()
    report = {"machine": lab.machine(), "seconds": arguments.seconds, "pairs": arguments.pairs, "history_seconds": arguments.history,
              "requests_a_second": REQUESTS_A_SECOND, "tokens": TOKENS, "figures": summary(windows), "windows": windows}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
