"""Tests the processes' metrics, which a real Prometheus scrapes, against what clients were told."""

import contextlib
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import grpc
import pytest

import cluster
import harness
from ports import free_ports

DEPLOY_DIR = harness.SOURCE_DIR / "deploy"
# Endings of the series of a histogram.
HISTOGRAM_ENDS = ("_bucket", "_sum", "_count")


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


def status_of(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def series(text):
    """Returns {(name, labels): value}."""
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r"([a-zA-Z_:]\w*)(?:\{(.*)\})? (\S+)", line).groups()
            key = (name, tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))))
            assert key not in values, line
            values[key] = float(value)
    return values


def total(values, name, **labels):
    """Returns the sum of the series with these labels."""
    found = [value for (its_name, its_labels), value in values.items()
             if its_name == name and set(labels.items()) <= set(its_labels)]
    assert found, f"no {name} with {labels}"
    return sum(found)


@pytest.fixture(scope="module")
def tools():
    """Returns the folder of prometheus and promtool."""
    done = subprocess.run([harness.SOURCE_DIR / "tests" / "system" / "fetch_prometheus.sh"], capture_output=True, text=True, check=True)
    return pathlib.Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def server(servers):
    # The ports are fixed, so that a restarted worker listens where Prometheus looks.
    return servers(admin=f"127.0.0.1:{free_ports(3)[0]}", max_slots=4)


def requests_of_all_kinds():
    requests = []
    for seed in range(3):
        for draft_length in (1, 3, 6):
            requests.append(("Once upon a time", dict(temperature=0, max_tokens=40, draft_length=draft_length)))
            requests.append(("The king said", dict(seed=seed, reproducible=False, max_tokens=40, draft_length=draft_length)))
            requests.append(("In a forest", dict(seed=seed, max_tokens=30)))
            requests.append(("A wolf", dict(temperature=0, max_tokens=20, enabled=False)))
    return requests


@pytest.fixture(scope="module")
def completions(server):
    """Runs the requests. Nothing runs after them."""
    return [output.completion for output in server.generate_all(requests_of_all_kinds(), 4)]


class Prometheus:
    """A Prometheus that scrapes `addresses` twice per second. On a busy machine, a scrape may fail. Its series are then missing until the
    next one, so a test waits for values."""

    def __init__(self, folder, tools, addresses):
        config = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": [
            {"job_name": "tandem", "static_configs": [{"targets": list(addresses.values())}]}]}
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(
            [tools / "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             "--web.listen-address=127.0.0.1:0"], stdout=self.log, stderr=subprocess.STDOUT)
        harness.wait_until(lambda: self.port() is not None, 60, "prometheus listens")
        self.url = f"http://127.0.0.1:{self.port()}"
        harness.wait_until(lambda: status_of(f"{self.url}/-/ready") == 200, 60, "prometheus is ready")

    def port(self):
        """Prometheus does not say which port it got."""
        sockets = set()
        with contextlib.suppress(FileNotFoundError):
            for entry in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    sockets.add(str(entry.readlink()))
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:  # it listens
                return int(fields[1].split(":")[1], 16)
        return None

    def query(self, expression):
        """Returns [(labels, value)]."""
        answer = json.loads(get(f"{self.url}/api/v1/query?query={urllib.parse.quote(expression)}"))
        assert answer["status"] == "success", answer
        return [(result["metric"], float(result["value"][1])) for result in answer["data"]["result"]]

    def found(self, expression):
        """Returns what query returns, once it has found something."""
        answers = []
        harness.wait_until(lambda: answers.append(self.query(expression)) or answers[-1], 30, f"{expression} has a value")
        return answers[-1]

    def by(self, label, expression):
        """Returns {value of the label: value}."""
        return {labels[label]: value for labels, value in self.query(expression)}

    def value(self, expression):
        """Returns None while no scrape has brought a series of the expression."""
        answer = self.query(expression)
        assert len(answer) <= 1, answer
        return answer[0][1] if answer else None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.log.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory, tools, server):
    running = Prometheus(tmp_path_factory.mktemp("prometheus"), tools, harness.admin_addresses(server))
    # Two scrapes each, because rates begin from the zeros.
    harness.wait_until(lambda: [value >= 2 for _, value in running.query("sum_over_time(up[2m])")] == [True] * 3, 60,
                       "three targets are scraped")
    yield running
    running.stop()


def sums(completions):
    stats = [completion.speculation for completion in completions]
    most = max(len(one.num_tested_tokens_per_position) for one in stats)
    return {"drafts": sum(one.num_drafts for one in stats), "drafted": sum(one.num_draft_tokens for one in stats),
            "accepted": sum(one.num_accepted_tokens for one in stats), "tested": sum(one.num_tested_tokens for one in stats),
            "accepted_at": [sum(one.num_accepted_tokens_per_position[i] for one in stats
                                if i < len(one.num_accepted_tokens_per_position)) for i in range(most)],
            "tested_at": [sum(one.num_tested_tokens_per_position[i] for one in stats
                              if i < len(one.num_tested_tokens_per_position)) for i in range(most)]}


# `prometheus` comes before `completions`, because it must see the counters at zero.
def test_prometheus_agrees_with_completions(prometheus, completions):
    want = sums(completions)
    assert want["accepted"] > 100
    for expression, value in [('tandem_draft_tokens_total{model="tales",draft_model="tales-draft"}', want["drafted"]),
                              ("tandem_drafts_total", want["drafts"]), ("tandem_accepted_tokens_total", want["accepted"]),
                              ("tandem_tested_tokens_total", want["tested"])]:
        harness.wait_until(lambda: prometheus.value(f"sum({expression})") == value, 30, f"{expression} is {value}")
    for name in ("accepted", "tested"):
        at = {str(position): count for position, count in enumerate(want[f"{name}_at"]) if count > 0}
        above_zero = f"sum by (position) (tandem_{name}_tokens_per_position_total) > 0"
        harness.wait_until(lambda: prometheus.by("position", above_zero) == at, 30, f"{name} tokens by position are {at}")
        assert sum(at.values()) == want[name]
    # The queries are those of dashboards. The window is cut differently for each counter, so there is a tolerance.
    rate = "sum(rate(tandem_{}_total[2m]))"
    assert prometheus.value(f"{rate.format('accepted_tokens')} / {rate.format('draft_tokens')}") == pytest.approx(
        want["accepted"] / want["drafted"], rel=0.05)
    assert prometheus.value(f"1 + {rate.format('accepted_tokens')} / {rate.format('drafts')}") == pytest.approx(
        1 + want["accepted"] / want["drafts"], rel=0.05)
    by_position = prometheus.by("position", "sum by (position) (rate(tandem_accepted_tokens_per_position_total[2m])) "
                                "/ sum by (position) (rate(tandem_tested_tokens_per_position_total[2m]))")
    for position, (accepted, tested) in enumerate(zip(want["accepted_at"], want["tested_at"])):
        if tested >= 20:
            assert by_position[str(position)] == pytest.approx(accepted / tested, rel=0.1, abs=0.02)


def test_requests_tokens_and_times(server, prometheus, completions):
    with pytest.raises(grpc.RpcError):
        server.generate("x", temperature=-1)
    # A greedy stream writes no log-probs, of which a later test knows the number.
    stream = server.start("Once upon a time", temperature=0, max_tokens=900, ignore_eos=True)
    next(stream)
    stream.cancel()
    counts = {"CANCELLED": 1, "INVALID_ARGUMENT": 1, "OK": len(completions)}
    requests = "sum by (status) (tandem_requests_total)"
    harness.wait_until(lambda: counts.items() <= prometheus.by("status", requests).items(), 30, f"requests are counted: {counts}")
    times = "tandem_time_to_first_token_seconds"
    for expression, value in [(f"{times}_count", len(completions) + 1), ("tandem_queue_wait_seconds_count", len(completions) + 1),
                              ('tandem_slots{state="free"}', 4), ("tandem_requests_waiting", 0)]:
        harness.wait_until(lambda: prometheus.value(f"sum({expression})") == value, 30, f"{expression} is {value}")
    (_, emitted), = prometheus.found("sum(tandem_emitted_tokens_total)")
    assert emitted >= sum(completion.usage.completion_tokens for completion in completions) + 1
    (_, seconds), = prometheus.found(f"sum({times}_sum)")
    assert seconds >= sum(c.timings.time_to_first_token_seconds for c in completions)
    # A round that several requests share counts once here.
    (_, rounds), = prometheus.found("sum(tandem_round_duration_seconds_count)")
    assert 0 < rounds <= emitted


def test_workers_have_their_own_metrics(server, completions):
    page_tokens = server.info().load.kv_page_tokens
    server.generate([300 + i for i in range(2 * page_tokens)], temperature=0, max_tokens=1)
    addresses = harness.admin_addresses(server)

    def pages_are_cached():
        values = series(get(f"http://{addresses['verifier']}/metrics"))
        return (total(values, "tandem_worker_slots", state="open") == total(values, "tandem_kv_pages", state="used") == 0
                and total(values, "tandem_kv_pages", state="cached") >= 2)

    # A separate command closes slots, after the client has its answer. A worker updates its metrics after it has answered.
    harness.wait_until(pages_are_cached, 30, "all slots are closed, and the prompt's pages are cached")
    texts = {name: get(f"http://{address}/metrics") for name, address in addresses.items()}
    verifier, drafter = series(texts["verifier"]), series(texts["draft"])
    load = server.info().load
    assert total(verifier, "tandem_kv_pages", worker="verifier") == load.num_kv_pages
    assert total(drafter, "tandem_kv_pages", worker="drafter") == load.num_draft_kv_pages
    assert total(verifier, "tandem_kv_pages", state="used") == 0
    assert total(verifier, "tandem_kv_pages", state="cached") >= 2
    assert total(verifier, "tandem_worker_sessions") == total(drafter, "tandem_worker_sessions") == 1
    assert total(verifier, "tandem_worker_slots", state="open") == 0
    assert total(verifier, "tandem_worker_batches_total") > 100
    assert total(verifier, "tandem_worker_compute_seconds_total") > 0
    # Only sampled drafts need their log-probs.
    sampled = [c.speculation.num_draft_tokens for c in completions if not c.speculation.reproducible]
    ring_bytes = total(drafter, "tandem_ring_bytes_total", transport="shm")
    assert 0 < ring_bytes <= sum(sampled) * 4 * 4096
    assert ring_bytes % (4 * 4096) == 0
    for text in texts.values():
        values = series(text)
        assert total(values, "process_resident_memory_bytes") > 1e6
        assert total(values, "process_open_fds") > 3
        assert total(values, "tandem_build_info") == 1


def test_a_lost_drafter_is_seen(server, completions):
    url = f"http://{harness.admin_addresses(server)['router']}/metrics"

    def changes(reason):
        return total(series(get(url)), "tandem_epoch_changes_total", worker="drafter", reason=reason)

    lost, attached = changes("disconnected"), changes("attached")
    subprocess.run(["kill", "-9", str(server.child("tandem-draft"))], check=True)
    harness.wait_until(lambda: changes("disconnected") == lost + 1, 30, "the loss is counted")
    harness.wait_until(lambda: changes("attached") == attached + 1, 30, "it is back")
    harness.wait_until(lambda: total(series(get(url)), "tandem_drafter_attached") == 1, 30, "that is shown")


def test_health_pages(server):
    for address in harness.admin_addresses(server).values():
        assert get(f"http://{address}/healthz") == "ok\n"
        assert status_of(f"http://{address}/readyz") == 200
        assert status_of(f"http://{address}/nothing") == 404


def test_not_ready_while_the_verifier_is_gone(tmp_path):
    """There is no supervisor, which would replace the verifier, so the router stays without one for as long as the test needs."""
    pair = cluster.Cluster(tmp_path / "pair", harness.TALES_TARGET)
    try:
        router = pair.router("--admin", "127.0.0.1:0")
        address = re.search(r" metrics: http://(\S+)/metrics$", router.log(), re.MULTILINE).group(1)
        assert status_of(f"http://{address}/readyz") == 200
        pair.verifier.freeze()
        harness.wait_until(lambda: status_of(f"http://{address}/readyz") == 503, 30, "not ready")
        assert status_of(f"http://{address}/healthz") == 200
        pair.verifier.thaw()
        harness.wait_until(lambda: status_of(f"http://{address}/readyz") == 200, 30, "ready again")
    finally:
        pair.close()


def test_promtool_finds_nothing(server, tools):
    for address in harness.admin_addresses(server).values():
        done = subprocess.run([tools / "promtool", "check", "metrics"], input=get(f"http://{address}/metrics"), capture_output=True,
                              text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    folder = DEPLOY_DIR / "prometheus"
    subprocess.run([tools / "promtool", "check", "config", folder / "prometheus.yml"], check=True)
    subprocess.run([tools / "promtool", "check", "rules", folder / "alerts.yml"], check=True)
    subprocess.run([tools / "promtool", "test", "rules", folder / "alerts_test.yml"], check=True)


def test_each_alert_is_tested_and_explained():
    folder = DEPLOY_DIR / "prometheus"
    alerts = re.findall(r"- alert: (\w+)", (folder / "alerts.yml").read_text())
    tests = (folder / "alerts_test.yml").read_text()
    docs = (harness.SOURCE_DIR / "docs" / "metrics.md").read_text()
    for alert in alerts:
        assert re.search(rf"alertname: {alert}\n\s+exp_alerts:", tests), f"{alert} never fires in a test"
        assert re.search(rf"{{eval_time: \S+ alertname: {alert}}}", tests), f"{alert} is never quiet in a test"
        assert f"`{alert}`" in docs


# Metrics that only one of the processes of their section has.
ONLY_IN = {"tandem_ring_bytes_total": {"draft"},       # the drafter writes log-probs
           "tandem_draft_guesses_total": {"draft"},    # and guesses
           "tandem_ring_errors_total": {"verifier"}}   # the verifier reads them


def catalogue():
    """{process: {name: (type, labels)}}, from docs/metrics.md, which a unit test holds against the code."""
    text = (harness.SOURCE_DIR / "docs" / "metrics.md").read_text()
    text = text[text.index("<!-- made from common/metrics/catalogue.h -->"):text.index("<!-- end -->")]
    sections = {"router": ["router"], "verifier, drafter": ["verifier", "draft"], "gateway": ["gateway"],
                "all": ["router", "verifier", "draft", "gateway"]}
    found = {"router": {}, "verifier": {}, "draft": {}, "gateway": {}}
    for processes, table in re.findall(r"^### .* \((.*)\)\n\n((?:\|.*\n)+)", text, re.MULTILINE):
        for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| \w+ \| ([\w, ]*) \|", table, re.MULTILINE):
            of_all = {"model"} if name.startswith("tandem_") else set()  # the others are every exporter's
            for process in sections[processes]:
                if process in ONLY_IN.get(name, {process}):
                    found[process][name] = (kind, of_all | set(filter(None, labels.split(", "))))
    return found


def test_each_process_shows_what_the_catalogue_says_and_nothing_else(server, completions):
    """This includes series without events, because a rate needs the zero before the first event."""
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    wanted = catalogue()
    text = (harness.SOURCE_DIR / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `((?:tandem|process)_\w+)` \| \w+ \|", text, re.MULTILINE))
    assert {name for rows in wanted.values() for name in rows} == documented
    for process, address in harness.admin_addresses(server).items():
        page = get(f"http://{address}/metrics")
        kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
        shown = {}
        for name, labels in series(page):
            if name not in kinds:
                name = re.sub(rf"({'|'.join(HISTOGRAM_ENDS)})$", "", name)
            shown.setdefault(name, set()).update(label for label, _ in labels if kinds[name] != "histogram" or label != "le")
        assert {name: (kinds[name], labels) for name, labels in shown.items()} == wanted[process], process


@pytest.fixture
def gateways_admin(server):
    """The admin address of a gateway before the server, which has answered a request."""
    admin = f"127.0.0.1:{free_ports(1)[0]}"
    gateway = subprocess.Popen([harness.BINARY_DIR / "bin" / "tandem-gateway", "--listen", "127.0.0.1:0", "--connect", server.address,
                                "--admin", admin], stdout=subprocess.PIPE, text=True)
    try:
        address = gateway.stdout.readline().strip().removeprefix("http: ")
        assert status_of(f"http://{address}/v1/models") == 200
        yield admin
    finally:
        gateway.terminate()
        gateway.wait(30)
        gateway.stdout.close()


def test_names_in_rules_are_scraped(server, completions, gateways_admin):
    def names(address):
        return {name for name, _ in series(get(f"http://{address}/metrics"))}

    # The gateway counts a request after the last byte of its answer has been written, because only then the status is certain.
    harness.wait_until(lambda: "tandem_http_requests_total" in names(gateways_admin), 30, "the gateway's request is counted")
    scraped = set().union(*map(names, [*harness.admin_addresses(server).values(), gateways_admin]))
    for path in [DEPLOY_DIR / "prometheus" / "alerts.yml", *sorted((DEPLOY_DIR / "grafana").glob("*.json"))]:
        text = re.sub(r"^ *(summary|description): .*$", "", path.read_text(), flags=re.MULTILINE)
        for name in set(re.findall(r"\btandem_\w+", text)):
            assert name in scraped, f"{path.name}: {name} is in no scrape"


def test_the_dashboard_is_what_its_source_makes():
    subprocess.run([sys.executable, "-B", DEPLOY_DIR / "grafana" / "make_dashboard.py", "--check"], check=True)


@pytest.fixture
def just_now(server, prometheus):
    """Makes something of everything happen within the two minutes that the queries look back, so that no query divides by zero: a session
    that ended and one that began, and requests of all kinds. All of it is scraped."""
    losses = server.info().load.num_drafter_losses
    subprocess.run(["kill", "-9", str(server.child("tandem-draft"))], check=True)
    harness.wait_until(lambda: server.info().load.num_drafter_losses > losses, 30, "the loss is noticed")
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached again")
    server.generate_all(requests_of_all_kinds(), 4)

    def is_scraped():
        pages = [series(get(f"http://{address}/metrics")) for address in harness.admin_addresses(server).values()]
        return all(prometheus.value(f"sum({name})") == sum(value for page in pages for (of, _), value in page.items() if of == name)
                   for name in ("tandem_requests_total", "tandem_emitted_tokens_total", "tandem_worker_batches_total",
                                "tandem_ring_bytes_total"))

    harness.wait_until(is_scraped, 60, "all of it is scraped")


def test_each_query_of_the_dashboard_gives_numbers(prometheus, just_now):
    board = json.loads((DEPLOY_DIR / "grafana" / "tandem.json").read_text())
    for name, value in (("$__rate_interval", "2m"), ("$model", "tales"), ("$draft_model", "tales-draft")):
        board = json.loads(json.dumps(board).replace(name, value))
    num_queries = 0
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            answer = prometheus.found(target["expr"])
            num_queries += 1
            assert all(math.isfinite(value) for _, value in answer), f"{panel['title']}: {target['expr']}: {answer}"
    assert num_queries > 40
