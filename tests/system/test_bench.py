"""Tests the load generator, the figures and the soak with small sizes: they run, report the right numbers, and find planted faults."""

import json
import math
import shutil
import signal
import subprocess
import sys

import pytest

import harness

SOURCE_DIR = harness.SOURCE_DIR
sys.path.insert(0, str(SOURCE_DIR / "bench"))

import lab  # noqa: E402
import soak  # noqa: E402


def run(*command, timeout=120):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def server(servers):
    server = servers(max_slots=8)
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    return server


def test_bench_serve_starts_its_own_server(tmp_path):
    path = tmp_path / "out.json"
    done = run(harness.BINARY_DIR / "bin" / "tandem", "bench", "serve", "--clients", "1,3", "--pairs", 2, "--requests", 2, "--modes",
               "greedy,sampled,reproducible", "--drafting", "auto,on,off", "--output-lengths", "fixed:12", "--prompt-lengths",
               "uniform:8-24", "--json", path)
    assert done.returncode == 0, done.stderr
    report = json.loads(path.read_text())
    assert len(report["rows"]) == 2 * 3 * 3
    for row in report["rows"]:
        assert row["requests"] == 2 * 2 * row["clients"]
        assert row["tokens"] == 12 * row["requests"]
        assert not row["failures"]
        assert row["tokens_per_second"] > 0
        assert row["time_to_first_token_seconds"]["p99"] >= row["time_to_first_token_seconds"]["p50"] > 0
        assert row["time_per_token_seconds"]["count"] == row["requests"]
        assert 0 < row["utilization"]["verify"] <= 1
        assert row["target_flops"] > 0
        assert {"client", "machine", "stolen", "tandem-router", "tandem-draft", "tandem-verifier"} == set(row["cpu_seconds"])
        assert (row["drafting"] != "off") == ("ratio_to_off" in row)
        if row["drafting"] == "on":
            assert row["drafted_tokens"] > 0
    assert "tokens/s" in done.stdout and "limit at 3 clients" in done.stdout


def test_bench_serve_shows_what_it_has_when_interrupted():
    process = subprocess.Popen([str(harness.BINARY_DIR / "bin" / "tandem"), "bench", "serve", "--clients", "2,3", "--pairs", "1",
                                "--drafting", "off", "--seconds", "1.5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "run 2/2" not in process.stderr.readline():  # the second step runs
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted: the table holds the measurements until then" in out
    assert [line.split()[0] for line in out.splitlines() if "greedy" in line][0] == "2"


def test_many_more_streams_than_a_connection_takes(servers):
    server = servers(max_slots=64, max_queue=1000)
    report = lab.bench_serve("--connect", server.address, "--clients", 600, "--requests", 1, "--pairs", 1, "--drafting", "off",
                             "--output-lengths", "fixed:4")
    row = report["rows"][0]
    assert row["most_open"] == 600
    assert row["requests"] == 600
    assert not row["failures"]


def test_a_full_queue_counts_as_failures_and_hurts_nobody(servers):
    server = servers(max_slots=2, max_queue=1)
    report = lab.bench_serve("--connect", server.address, "--clients", 12, "--requests", 4, "--pairs", 1, "--drafting", "off",
                             "--output-lengths", "fixed:16")
    row = report["rows"][0]
    assert row["failures"].keys() == {"RESOURCE_EXHAUSTED"}
    assert row["requests"] + row["failures"]["RESOURCE_EXHAUSTED"] == 48
    refused = row["refused_seconds"]
    assert refused["count"] == row["failures"]["RESOURCE_EXHAUSTED"]
    assert 0 < refused["p50"] <= refused["p99"] <= refused["max"]


def test_clients_that_leave_are_counted_separately(server):
    report = lab.bench_serve("--connect", server.address, "--clients", 6, "--requests", 10, "--pairs", 1, "--drafting", "auto",
                             "--cancel-fraction", 0.5, "--output-lengths", "fixed:64")
    row = report["rows"][0]
    assert row["cancelled"] + row["requests"] == 60
    assert 10 <= row["cancelled"] <= 50
    assert not row["failures"]
    harness.wait_until(lambda: server.info().load.num_running == 0, 30, "the slots are free")


def test_every_figure_can_be_measured(tmp_path):
    done = run(sys.executable, SOURCE_DIR / "bench" / "serving.py", "--quick", "--out", tmp_path, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "serving.json").read_text())["figures"]
    assert len(figures) == 13 and figures["soak"]["kills"] > 0
    assert [row["draft_length"] for row in figures["inflated_pair"]["alone"]] == [0, 2, "auto"]
    assert all(row["tokens_per_second"] > 0 for row in figures["inflated_pair"]["alone"] + figures["inflated_pair"]["rows"])
    assert figures["thousand_streams"]["met"]
    scraped = figures["thousand_streams"]["running"]["scrape"]["processes"]
    assert set(scraped) == {"router", "verifier", "draft"} and all(0 < one["p50"] <= one["p99"] for one in scraped.values())
    assert figures["prefix_cache"]["cached_tokens"] >= 480  # whole pages of 512
    text = (tmp_path / "serving.md").read_text()
    assert all(f"## {name.replace('_', ' ')}" in text for name in figures)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium in PATH")
def test_the_cost_of_the_live_page_can_be_measured(tmp_path):
    path = tmp_path / "live_page.json"
    done = run(sys.executable, SOURCE_DIR / "bench" / "live_page.py", "--seconds", 2, "--pairs", 1, "--out", path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert [one["page"] for one in report["windows"]] == ["closed", "open"]
    assert all(one["router"] > 0 and 2 <= one["wall_seconds"] < 20 for one in report["windows"])
    assert report["windows"][1]["browser"] > 0
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["router", "browser"]


def test_a_short_soak_comes_back_to_its_baseline(tmp_path):
    path = tmp_path / "soak.json"
    done = run(sys.executable, SOURCE_DIR / "bench" / "soak.py", "--seconds", 12, "--kill-every", 3, "--json", path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert report["not_back"] == []
    assert report["failures"] == {}
    assert report["requests"] > 20 and report["cancelled"] > 0
    assert len(report["kills"]) >= 1
    assert all(len(samples) > 5 for samples in report["samples"].values())


def test_the_soak_finds_values_that_do_not_come_back():
    before = {"running": 0, "free_pages": 10, "tandem-router": {"descriptors": 20, "shared_memory": 0}}
    assert soak.differences(before, before) == []
    leaks = [({"running": 1}, "running: 1, was 0"), ({"free_pages": 9}, "free_pages: 9, was 10"),
             ({"tandem-router": {"descriptors": 21, "shared_memory": 0}}, "tandem-router: 21 descriptors, were 20"),
             ({"tandem-router": {"descriptors": 20, "shared_memory": 4096}},
              "tandem-router: 4096 bytes of shared memory, were 0")]
    for change, what in leaks:
        assert soak.differences(before, {**before, **change}) == [what]


def test_slopes_are_those_of_the_lines():
    times = [0.0, 1.0, 2.0, 3.0]
    assert lab.slope(times, [5, 7, 9, 11])["slope"] == pytest.approx(2)
    # The process was restarted after the second sample. Its earlier growth does not count.
    assert lab.slope(times, [5, 7, 1, 3], ["a", "a", "b", "b"])["slope"] == pytest.approx(2)
    assert lab.slope(times, [5, 5, 1, 1], ["a", "a", "b", "b"])["slope"] == pytest.approx(0)


def test_ratios_have_the_interval_of_students_t():
    # These are the values of scipy.stats.t.ppf(0.975, [5, 19, 100]).
    for degrees, want in [(5, 2.570582), (19, 2.093024), (100, 1.983972)]:
        assert lab.t_quantile(degrees) == pytest.approx(want, abs=5e-4)
    ratio = lab.mean_ratio([2.0] * 10)
    assert ratio == {"mean": pytest.approx(2), "low": pytest.approx(2), "high": pytest.approx(2), "pairs": 10}
    wide = lab.mean_ratio([1.0, 4.0] * 3)
    # exp(ln 2 ± t(5) * sd / sqrt(6)), sd of the logarithms ln 2 * sqrt(6 / 5)
    assert wide["mean"] == pytest.approx(2.0)
    assert wide["low"] == pytest.approx(2.0**(1 - 2.570582 / 5**0.5), rel=1e-3)
    assert wide["high"] == pytest.approx(2.0**(1 + 2.570582 / 5**0.5), rel=1e-3)


def test_a_leak_differs_from_memory_that_is_taken_once():
    hours = [second / 3600 for second in range(0, 1800, 10)]

    def slope(value_at):
        return lab.steady_slope(hours, [value_at(hour) for hour in hours])["slope"]

    assert slope(lambda hour: 100 + (4 if hour > 0.2 else 0)) == 0
    assert slope(lambda hour: 100 + 2 * hour) == pytest.approx(2)
    assert slope(lambda hour: 100 + int(6 * hour)) > 1, "a MiB every ten minutes"
    assert slope(lambda hour: 100 + 2 * hour + 0.05 * math.sin(1000 * hour)) == pytest.approx(2, abs=0.3)
    # A restarted process begins at a new level.
    lives = [0 if hour < 0.25 else 1 for hour in hours]
    assert lab.steady_slope(hours, [50 * life for life in lives], lives)["slope"] == 0
