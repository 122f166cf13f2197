"""Tests the live page in a real browser, and `tandem top`."""

import contextlib
import html
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.request

import pytest
from PIL import Image, ImageChops

import harness

TANDEM = harness.BINARY_DIR / "bin" / "tandem"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ANSWERS = 3  # number of answers after the first: the page asks every four seconds, and draws its charts with every second answer
PICTURES = pathlib.Path(__file__).parent / "live_page"  # what the page shows of live.json there, as looked at
SIZES = {375: 3200, 1280: 1560, 1920: 1290}  # width and height of the page, pixels
LEAST_CHANGE = 24  # difference of a color of 0 to 255, after shrinking, that counts as a change
MOST_CHANGED = 0.002  # share of the pixels; events show the time of day
FONT = "body { font-family: 'DejaVu Sans'; }"  # the same on every machine that has the packages of the checks
browser_test = pytest.mark.skipif(BROWSER is None, reason="no chromium in PATH")


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode(), dict(response.headers)


@pytest.fixture(scope="module")
def server(servers):
    return servers(admin="127.0.0.1:0")


@pytest.fixture(scope="module")
def address(server):
    line = re.compile(r"^router: .* live page: http://(\S+)/$", re.MULTILINE)
    harness.wait_until(lambda: line.search(server.log()), 30, "the log has the page's address")
    (address,) = line.findall(server.log())
    return address


@pytest.fixture(scope="module")
def live(server, address):
    """A server after some seconds of drafted requests: at least eight, and until it has eleven samples."""
    until = time.monotonic() + 8
    while time.monotonic() < until or len(json.loads(fetch(f"http://{address}/live.json")[0])["samples"]) < 11:
        assert time.monotonic() < until + 60, "too few samples"
        server.generate_all([("Once upon a time", dict(temperature=0, max_tokens=100, ignore_eos=True, draft_length=4)),
                             ("The king said", dict(max_tokens=100, ignore_eos=True, draft_length=3))], 2)
    return json.loads(fetch(f"http://{address}/live.json")[0])


@contextlib.contextmanager
def load_on(server, address):
    """Runs two drafted streams at a time during the block. Their rounds are counted when it begins."""
    stop = threading.Event()

    def run(prompt, options):
        while not stop.is_set():
            server.generate(prompt, max_tokens=100, ignore_eos=True, **options)

    def rounds():
        return json.loads(fetch(f"http://{address}/live.json")[0])["samples"][-1]["rounds"]

    before = rounds()
    threads = [threading.Thread(target=run, args=arguments) for arguments in (
        ("Once upon a time", dict(temperature=0, draft_length=4)), ("The king said", dict(draft_length=3)))]
    for thread in threads:
        thread.start()
    try:
        harness.wait_until(lambda: rounds() > before, 30, "rounds are counted")
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def browse(address, tmp_path, *arguments):
    """Returns the output of chromium, and its complaints about the page."""
    done = subprocess.run(
        [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1250", f"--virtual-time-budget={ANSWERS * 4000 + 1000}", *arguments,
         f"http://{address}/"], capture_output=True, text=True, timeout=240)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, complaints


def text_of(dom, name):
    match = re.search(rf'<(\w+)[^>]* id="{name}"[^>]*>(.*?)</\1>|<(\w+) id="{name}"[^>]*>(.*?)</\3>', dom, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", match.group(2) or match.group(4))).strip()


def page_color(address, scheme):
    """Returns the background of the body according to the style sheet."""
    light, dark = (bytes.fromhex(color) for color in re.findall(r"--page: #([0-9a-f]{6})", fetch(f"http://{address}/live.css")[0]))
    assert max(dark) < 64 < 192 < min(light)
    return tuple(dark if scheme == "dark" else light)


def test_the_json_says_what_happened(live):
    samples = live["samples"]
    assert len(samples) >= 6
    gaps = [after["t"] - before["t"] for before, after in zip(samples, samples[1:])]
    assert all(0 < gap < 10 for gap in gaps)
    assert sum(gap < 0.5 for gap in gaps) <= 2  # the two workers may attach between two seconds
    last = samples[-1]
    assert last["accepted"] > 50 and last["drafted"] >= last["tested"] >= last["accepted"]
    assert live["state"]["verifier"] and live["state"]["drafter"] and live["state"]["transport"] == "shm"
    assert live["state"]["pods"] == {"total": 1, "ready": 1}
    assert live["model"] == "tales" and live["state"]["draft_model"] == "tales-draft"
    assert sum(live["positions"]["accepted"]) > 50
    assert any("attached" in event["text"] for event in live["events"])
    assert "Once upon" not in json.dumps(live)


def test_only_new_samples_are_sent(live, address):
    last = live["samples"][-1]["t"]

    def newer():
        return json.loads(fetch(f"http://{address}/live.json?since={last}")[0])["samples"]

    harness.wait_until(newer, 30, "a new sample is sent")
    assert all(sample["t"] > last for sample in newer())
    for odd in ("since=", "since=nan", "since=x", "since=-1e400", "x=1"):
        assert len(json.loads(fetch(f"http://{address}/live.json?{odd}")[0])["samples"]) >= len(live["samples"])


def test_the_page_is_small_and_asks_nobody_else(address):
    total = 0
    for path in ("/", "/live.css", "/live.js"):
        text, headers = fetch(f"http://{address}{path}")
        total += len(text.encode())
        assert "'self'" in headers["Content-Security-Policy"]
        assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", text)
    assert total <= 60 * 1024


@browser_test
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(live, server, address, tmp_path, scheme):
    preferred = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    with load_on(server, address):
        dom, complaints = browse(address, tmp_path, preferred, "--dump-dom")
    assert complaints == []
    assert text_of(dom, "models") == "tales  drafted by  tales-draft"
    assert re.fullmatch(r"\d+\s+± \d+ %", text_of(dom, "acceptance"))
    assert float(text_of(dom, "length")) > 1
    assert re.fullmatch(r"[1-9][\d.]*k?", text_of(dom, "tokens"))
    gain, = re.fullmatch(r"(\d+\.\d\d)×\s+± \d+\.\d\d", text_of(dom, "gain")).groups()
    assert 0.1 < float(gain) < 17
    running, slots = re.fullmatch(r"(\d+)\s+of\s+(\d+)", text_of(dom, "slots")).groups()
    assert int(running) <= 2 and int(slots) == live["state"]["slots"]
    milliseconds = dict(re.findall(r"(\w+)\s+([\d.]+)", text_of(dom, "round-legend")))
    assert set(milliseconds) == {"verify", "draft", "transfer", "router"}
    assert all(0 < float(milliseconds[stage]) < 1000 for stage in ("verify", "draft"))
    for name, of_json in (("kv", "kv"), ("draft-kv", "draft_kv")):
        pages = re.fullmatch(r"([\d\s]+) of ([\d\s]+) pages", text_of(dom, f"{name}-text")).groups()
        used, total = (int(re.sub(r"\s", "", number)) for number in pages)
        assert 0 <= used <= total == live["state"][of_json]["total"] > 0
        value, = re.search(rf'<meter id="{name}"[^>]* value="([^"]+)"', dom).groups()
        assert float(value) == pytest.approx(max(used / total, 0.04) if used else 0, abs=1e-3)
    assert re.findall(r'<li class="(\w+)" data-name="(\w+)">([^<]*)<', dom) == [
        ("good", "verifier", "verifier"), ("good", "drafter", "drafter"), ("good", "transport", "ring: shm")]
    latencies = re.findall(r"(queue|first token|between tokens|whole request)((?:\s+[\d.]+ ms){3})", text_of(dom, "latencies"))
    assert [name for name, _ in latencies] == ["queue", "first token", "between tokens", "whole request"]
    for _, quantiles in latencies:
        p50, p95, p99 = map(float, re.findall(r"[\d.]+", quantiles))
        assert 0 < p50 <= p95 <= p99 < 1e5
    assert "attached" in text_of(dom, "events")
    assert re.search(r'id="positions"[^>]* aria-label="position 1: \d+ %', dom)
    assert re.search(r'id="tokens-chart"[^>]*aria-label="accepted \S+', dom)
    assert 'id="lost" role="status" hidden' in dom
    picture = pathlib.Path(tmp_path) / f"{scheme}.png"
    _, complaints = browse(address, tmp_path, preferred, f"--screenshot={picture}")
    assert complaints == []
    assert picture.stat().st_size > 20000
    assert Image.open(picture).convert("RGB").getpixel((0, 0)) == pytest.approx(page_color(address, scheme), abs=3)


@contextlib.contextmanager
def page_without_router(folder):
    """The page's files, from a server that has nothing else: (folder, HOST:PORT)."""
    shutil.copytree(harness.SOURCE_DIR / "services" / "router" / "watch" / "live_page", folder)
    server = subprocess.Popen(["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", folder, "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield folder, "127.0.0.1:" + re.search(r"port (\d+)", server.stdout.readline()).group(1)
    finally:
        server.kill()
        server.wait()


@browser_test
def test_the_page_says_when_the_router_is_gone(tmp_path):
    with page_without_router(tmp_path / "page") as (folder, its_address):
        # This shows that a complaint is noticed. Other tests expect none.
        with open(folder / "live.js", "a") as script:
            script.write('console.error("planted by the test");\n')
        dom, complaints = browse(its_address, tmp_path, "--dump-dom")
    assert "No answer from the router" in text_of(dom, "lost")
    assert any("planted by the test" in complaint for complaint in complaints)


@browser_test
def test_the_page_counts_pods_if_there_are_several(live, tmp_path):
    with page_without_router(tmp_path / "page") as (folder, its_address):
        state = {**live["state"], "pods": {"total": 3, "ready": 2}}
        (folder / "live.json").write_text(json.dumps({**live, "state": state}))
        dom, complaints = browse(its_address, tmp_path, "--dump-dom")
    assert complaints == []
    assert re.findall(r'<li class="(\w+)" data-name="(\w+)">([^<]*)<', dom)[3:] == [("warn", "pods", "pods: 2 of 3")]


def take_picture(folder, scheme, width, style=""):
    """Returns the page with a router's recorded answer. A frame gives it the width, because a window has at least 500 pixels."""
    with page_without_router(folder / "page") as (page, its_address):
        shutil.copy(PICTURES / "live.json", page)
        with open(page / "live.css", "a") as sheet:
            sheet.write(FONT + style)
        (page / "frame.html").write_text(
            f'<body style="margin:0"><iframe src="/index.html" width="{width}" height="{SIZES[width]}" frameborder="0">')
        picture = folder / "picture.png"
        preferred = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
        _, complaints = browse(its_address + "/frame.html#", folder, preferred,
                               f"--window-size={max(width, 600)},{SIZES[width]}", "--hide-scrollbars", f"--screenshot={picture}")
    assert complaints == []
    return Image.open(picture).convert("RGB").crop((0, 0, width, SIZES[width]))


def changed_share(before, after):
    """Returns the share of pixels that differ, after both pictures were shrunk to a quarter."""
    assert before.size == after.size
    small = [picture.resize((picture.width // 4, picture.height // 4), Image.BOX) for picture in (before, after)]
    difference = ImageChops.difference(*small).split()
    most = ImageChops.lighter(ImageChops.lighter(difference[0], difference[1]), difference[2])
    histogram = most.histogram()
    return sum(histogram[LEAST_CHANGE:]) / sum(histogram)


@browser_test
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_looks_as_it_did(tmp_path, scheme, width):
    """To take the pictures anew: TANDEM_UPDATE_PICTURES=1. Look at them before they are kept."""
    picture = take_picture(tmp_path, scheme, width)
    kept = PICTURES / f"{scheme}-{width}.png"
    if os.environ.get("TANDEM_UPDATE_PICTURES"):
        picture.quantize(192).save(kept, optimize=True)
    picture.save(tmp_path / "now.png")
    assert len(picture.crop((0, picture.height - 8, width, picture.height)).getcolors()) == 1, "the page is longer than the picture"
    assert changed_share(Image.open(kept).convert("RGB"), picture) <= MOST_CHANGED, f"compare {kept} with {tmp_path / 'now.png'}"


@browser_test
@pytest.mark.parametrize("style", ["#positions { display: none; }", ".number b { color: transparent; }", "main { gap: 24px; }"])
def test_a_changed_page_is_noticed(tmp_path, style):
    kept = Image.open(PICTURES / "light-1280.png").convert("RGB")
    assert changed_share(kept, take_picture(tmp_path, "light", 1280, style)) > MOST_CHANGED


def test_top_shows_the_same(live, server, address):
    with load_on(server, address):  # some figures are those of the last minute
        done = subprocess.run([TANDEM, "top", "--admin", address, "--once"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tales drafted by tales-draft  Tandem ")
    assert "● verifier   ● drafter   ● ring: shm" in done.stdout
    assert re.search(r"^ *tokens/s +expected +acceptance +α +tokens/pass +running +waiting$", done.stdout, re.MULTILINE)
    assert re.search(r"^by source   accepted \S+, bonus \S+, recovered \S+, plain \S+ tokens/s$", done.stdout, re.MULTILINE)
    assert re.search(r"by position  1 .*\d %", done.stdout)
    totals = re.search(r"^since start (\d+) requests finished, (\d+) tokens, (\d+) drafted, (\d+) accepted$", done.stdout, re.MULTILINE)
    finished, tokens, drafted, accepted = map(int, totals.groups())
    last = live["samples"][-1]
    assert finished > 2 and tokens >= sum(last["emitted"]) and drafted >= last["drafted"] and accepted >= last["accepted"]
    assert re.search(r"^ +0 preempted, 0 verifier losses, 0 drafter losses, 0 ring errors$", done.stdout, re.MULTILINE)
    assert "verifier: attached" in done.stdout
    assert "\x1b" not in done.stdout


REPEATING = "The king said: bring me the golden bird. " * 6


@pytest.fixture(scope="module")
def copying(servers):
    """A server whose greedy requests copied from a text that repeats, with heads that drafted nothing: (server, address, completions)."""
    running = servers(target=harness.EMBEDDED_TARGET, drafter="none", admin="127.0.0.1:0", heads=harness.EMBEDDED_TARGET.parent / "eagle",
                      environment={"TANDEM_DRAFTERS": "suffix,eagle"})
    outputs = [running.generate(REPEATING, temperature=0, max_tokens=200, ignore_eos=True, drafter="suffix") for _ in range(6)]
    return running, running.info().admin_address, [output.completion for output in outputs]


def test_gains_are_those_of_the_drafter_that_drafted(copying):
    _, address, completions = copying
    stats = [used for completion in completions for used in completion.speculation.drafters]
    assert {used.name for used in stats} == {"suffix"} and sum(used.num_drafts for used in stats) > 30
    tokens, plain_tokens = sum(used.num_round_tokens for used in stats), sum(used.num_plain_tokens for used in stats)
    assert tokens > 1.1 * plain_tokens > 0, "text that repeats is found"
    shown = re.findall(r'^tandem_drafter_(plain_tokens|tokens)_total{(.*)} (\S+)$', fetch(f"http://{address}/metrics")[0], re.MULTILINE)
    values = {(name, re.search(r'drafter="(\w+)"', labels).group(1)): float(value) for name, labels, value in shown}
    assert values.pop(("tokens", "suffix")) == tokens
    assert values.pop(("plain_tokens", "suffix")) == pytest.approx(plain_tokens)
    assert len(values) == 2 * 9 and set(values.values()) == {0}, "the others have zeros"


def test_the_page_and_top_show_gains_and_heads(copying, tmp_path):
    running, address, _ = copying

    def drafters():
        return json.loads(fetch(f"http://{address}/live.json")[0])["drafters"]

    running.generate_all([(REPEATING, dict(temperature=0, max_tokens=200, ignore_eos=True, drafter="suffix"))] * 4, 2)
    harness.wait_until(lambda: drafters() and drafters()[0]["gain"], 30, "a sample has the gain")
    one, = drafters()
    assert one["name"] == "suffix" and one["gain"]["drafts"] >= 30
    assert one["gain"]["ratio"] > 1 and 0 < one["gain"]["error"] < one["gain"]["ratio"]
    state = json.loads(fetch(f"http://{address}/live.json")[0])["state"]
    assert state["heads"] == [{"name": "eagle", "drafter": "eagle", "pods": 1}]
    done = subprocess.run([TANDEM, "top", "--admin", address, "--once"], capture_output=True, text=True)
    assert done.stdout.startswith("target with heads eagle (eagle)  Tandem ")
    assert re.search(r"^drafters    suffix +\d+ % of \d+ accepted, gain \d+\.\d\d× ± \d+\.\d\d$", done.stdout, re.MULTILINE)
    if BROWSER is not None:
        dom, complaints = browse(address, tmp_path, "--dump-dom")
        assert complaints == []
        assert text_of(dom, "models") == "target  with heads  eagle  (eagle)"
        assert re.search(r"suffix\s+[\d\s]+\s\d+ %\s+\d+ %\s+\d+\.\d\d× ± \d+\.\d\d", text_of(dom, "drafters"))


def test_top_finds_the_admin_port_of_a_server(server):
    assert server.info().admin_address
    done = subprocess.run([TANDEM, "top", "--connect", server.address, "--once"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tales drafted by tales-draft  Tandem ")
    both = subprocess.run([TANDEM, "top", "--connect", server.address, "--admin", "127.0.0.1:1"], capture_output=True, text=True)
    assert both.returncode == 2 and "not both" in both.stderr


def test_top_on_a_terminal_continues_until_ctrl_c(live, address):
    terminal, its_end = pty.openpty()
    top = subprocess.Popen([TANDEM, "top", "--admin", address, "--interval", "0.3"], stdin=its_end, stdout=its_end, stderr=its_end)
    os.close(its_end)
    shown = b""
    while shown.count(b"\x1b[H\x1b[J") < 3:
        shown += os.read(terminal, 65536)
    top.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(terminal, 65536):
            shown += piece
    text = shown.decode()
    assert top.wait(30) == 0
    os.close(terminal)
    assert text.startswith("\x1b[?25l") and text.rstrip().endswith("\x1b[?25h")


@pytest.mark.parametrize("admin,message", [("127.0.0.1:1", "Connection refused"), ("nowhere", "want HOST:PORT"),
                                            ("unix:/tmp/x", "want HOST:PORT"), ("127.0.0.1:0", "want HOST:PORT")])
def test_top_reports_errors(admin, message):
    done = subprocess.run([TANDEM, "top", "--admin", admin], capture_output=True, text=True)
    assert done.returncode in (1, 2)
    assert message in done.stderr and "--admin" in done.stderr


def test_top_refuses_a_server_that_is_not_tandem(server):
    done = subprocess.run([TANDEM, "top", "--admin", server.address], capture_output=True, text=True)
    assert done.returncode == 1
    assert "error:" in done.stderr


def test_top_says_that_a_server_has_no_admin_address(servers):
    address = servers().address
    done = subprocess.run([TANDEM, "top", "--connect", address, "--once"], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"the server at {address} has no admin address (--admin none)" in done.stderr


def test_top_reaches_an_admin_address_of_any_interface_where_the_router_is(servers):
    address = servers(admin="0.0.0.0:0", environment={"TANDEM_INSECURE": "1"}).address
    done = subprocess.run([TANDEM, "top", "--connect", address, "--once"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tales")
