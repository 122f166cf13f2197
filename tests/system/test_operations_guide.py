"""Tests docs/operations.md. Its tables of flags, and the limits in docs/api.md, are made from the table of flags. No variable that is read
is missing, and the guide says what to do about every alert.

TANDEM_UPDATE_DOCS=1 writes the tables again.
"""

import json
import os
import random
import re
import subprocess
import sys

import pytest

import harness

sys.path.insert(0, str(harness.SOURCE_DIR / "bench"))

import lab  # noqa: E402

GUIDE = harness.SOURCE_DIR / "docs" / "operations.md"
API = harness.SOURCE_DIR / "docs" / "api.md"
# Names of sets of programs in the column that says which programs take a flag. A set stands for all of its programs or is not used.
SETS = {"workers": ["tandem-verifier", "tandem-draft"],
        "clients": ["tandem generate", "tandem chat", "tandem batch", "tandem bench", "tandem bench serve", "tandem tokenize",
                    "tandem info"]}

# The limits in docs/api.md: the flag, the limit, and what a default of 0 means.
LIMITS = [
    ("--max-slots", "running requests", ""),
    ("--max-queue", "waiting requests", ""),
    ("--max-streams", "simultaneous calls of one connection", ""),
    ("--max-message-bytes", "size of a message", ""),
    ("--stream-buffer-bytes", "part of a stream that waits for its reader", ""),
    ("--stream-padding-bytes", "messages of a stream are padded to a multiple of this size", "no padding"),
    ("--max-prompt-bytes", "size of a prompt, or of a text to tokenize", ""),
    ("--max-context", "tokens of prompt and output", "the limit of the model, or what the KV cache holds"),
    ("--default-max-tokens", "`max_tokens` of a request that does not set it", ""),
    ("--max-draft-length", "`draft_length` of a request", ""),
    ("--draft-length", "`draft_length` of a request that does not set it", ""),
    ("--max-stops", "stop strings of a request", ""),
    ("--max-stop-bytes", "size of a stop string", ""),
    ("--max-stop-token-ids", "stop token ids of a request", ""),
    ("--max-logit-bias", "entries of `logit_bias`", ""),
    ("--max-logprobs", "`logprobs`", ""),
    ("--max-choices", "`n`", ""),
    ("--verifier-timeout", "seconds without a verifier before requests end", ""),
    ("--drafter-timeout", "seconds for a drafter's answer", ""),
    ("--heartbeat-timeout", "seconds without a sign of life after which a worker counts as hung", ""),
    ("--kv-cache-bytes", "size of the target's KV cache", "a quarter of the memory, or what all slots can fill"),
    ("--draft-kv-cache-bytes", "size of the drafter's KV cache", "a quarter of the memory, or what all slots can fill"),
    ("--backend", "backend of the workers", ""),
    ("--gpu", "number of the GPU", ""),
    ("--gpu-memory-bytes", "device memory of the target's worker",
     "weights, scratch and what all slots can fill, within two fifths of the GPU's memory"),
    ("--draft-gpu-memory-bytes", "device memory of the drafter's worker",
     "weights, scratch and what all slots can fill, within two fifths of the GPU's memory"),
    ("--step-rows", "rows of one batch", ""),
    ("--step-seconds", "seconds of prompts between two rounds of decoding requests", ""),
    ("--cohorts", "groups of slots that take turns", ""),
    ("--max-crashes", "consecutive verifiers that may die during a request", ""),
    ("--drain-seconds", "seconds for running streams after a signal to stop", ""),
    ("--drafter-wait", "seconds that `ready` waits for a drafter", ""),
    ("--max-connection-age", "seconds after which a client is told to reconnect", "never"),
    ("--audit-fraction", "share of requests that the [audit](audit.md) examines", ""),
]


def flag_table():
    done = subprocess.run([harness.BINARY_DIR / "bin" / "tandem-flags"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["flags"]


def programs_cell(flag):
    names = list(flag["programs"])
    for name, members in SETS.items():
        if set(members) <= set(names):
            names = [name if one == members[0] else one for one in names if one not in members[1:]]
    return ", ".join(name.removeprefix("tandem-").removeprefix("tandem ") for name in names)


def values_cell(flag):
    if flag["kind"] in ("switch", "text"):
        return ""  # the name of the value describes the values
    if flag["kind"] == "bytes":
        return "bytes, such as `4G`"
    several = ", with commas between several" if flag["values"] == "commas" else ""
    return flag["allowed"] + several


def default_cell(flag):
    if flag["required"]:
        return "required"
    return f"`{flag['default']}`" if "default" in flag else flag.get("computed_default", "")


def table_of(flags):
    lines = ["| flag | programs | values | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for flag in flags:
        names = ", ".join(f"`{flag[key]}`" for key in ("name", "short_name", "negation") if key in flag)
        if "value" in flag:
            names = names.replace(f"{flag['name']}`", f"{flag['name']} {flag['value']}`")
        cells = [names, programs_cell(flag), values_cell(flag), default_cell(flag), flag["help"]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def usual_variable(flag, program):
    prefixes = {"tandem-verifier": "TANDEM_VERIFIER_", "tandem-draft": "TANDEM_DRAFT_", "tandem-gateway": "TANDEM_GATEWAY_"}
    return prefixes.get(program, "TANDEM_") + flag["name"][2:].upper().replace("-", "_")


def exceptions(flags):
    """Returns sentences about the flags whose variable has another name."""
    for flag in flags:
        others = {variable for program, variable in flag["programs"].items() if variable != usual_variable(flag, program)}
        for variable in others:
            yield f"The variable of `{flag['name']}` is `{variable}`." if variable else f"`{flag['name']}` has no variable."


def chapter(flags):
    """Returns the guide's text about all flags. The groups that executables take come first."""
    groups = {}
    for flag in flags:
        groups.setdefault(flag["group"], []).append(flag)

    def is_of_commands(group):
        return not any(name.startswith("tandem-") for flag in groups[group] for name in flag["programs"])

    text = ["*Programs:* `router`, `verifier`, `draft` and `gateway` are the executables `tandem-router`, `tandem-verifier`, "
            "`tandem-draft` and `tandem-gateway`. "
            "The others are commands of `tandem`, such as `tandem serve`. *Workers* are `tandem-verifier` and `tandem-draft`, and "
            "*clients* are " + ", ".join(f"`{name}`" for name in SETS["clients"]) + ".",
            "*Variables:* the environment variable of a flag is `TANDEM_` and the name of the flag: `TANDEM_MAX_QUEUE` sets `--max-queue`. "
            "For the workers it is `TANDEM_VERIFIER_` or `TANDEM_DRAFT_` and the name, and for the gateway `TANDEM_GATEWAY_`: "
            "`TANDEM_DRAFT_MAX_SLOTS` sets `--max-slots` of `tandem-draft`. " + " ".join(dict.fromkeys(exceptions(flags)))]
    for group in sorted(groups, key=is_of_commands):
        text += [f"### {group}", table_of(groups[group])]
    return "\n\n".join(text)


def section_of(text, name):
    begin, end = f"<!-- {name}: made by tests/system/test_operations_guide.py -->\n", f"<!-- end of {name} -->"
    assert text.count(begin) == text.count(end) == 1, f"want one section {name}"
    return text.index(begin) + len(begin), text.index(end)


def test_the_guide_has_every_flag_once_as_the_table_says():
    text = GUIDE.read_text()
    begin, end = section_of(text, "flags")
    made = "\n" + chapter(flag_table()) + "\n\n"
    if os.environ.get("TANDEM_UPDATE_DOCS"):
        GUIDE.write_text(text[:begin] + made + text[end:])
        return
    assert text[begin:end] == made, "TANDEM_UPDATE_DOCS=1 writes the tables again"


def limit_text(flag):
    """Returns the default of a limit for people: "4 MiB", "1,024", "`auto`"."""
    default = flag["default"]
    if not re.fullmatch(r"[\d.]+", default):
        return f"`{default}`"
    if "." in default:
        return default
    if flag["name"].endswith("-bytes"):
        for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if int(default) >= unit and int(default) % unit == 0:
                return f"{int(default) // unit} {name}"
        return f"{default} bytes"
    return f"{int(default):,}"


def limits_table(flags):
    """Returns the table of limits in docs/api.md. A limit of the router is described by the router's flag."""
    lines = ["| limit | default | option | environment |", "| --- | --- | --- | --- |"]
    for name, limit, meaning_of_zero in LIMITS:
        by_program = {program: flag for flag in flags if flag["name"] == name for program in flag["programs"]}
        program = "tandem-router" if "tandem-router" in by_program else "tandem serve"
        flag, served = by_program[program], by_program.get("tandem serve")
        default = limit_text(flag)
        if flag["default"] == "0" and meaning_of_zero:
            default = f"0: {meaning_of_zero}"
        if served is not None and served["default"] != flag["default"]:
            default += f"; `tandem serve` sets {limit_text(served)}"
        option = f"`{name}`" + (" *" if served is not None else "") + (" (of the workers)" if program == "tandem serve" else "")
        lines.append(f"| {limit} | {default} | {option} | `{flag['programs'][program]}` |")
    return "\n".join(lines)


def test_the_limits_of_the_api_are_those_of_the_table_of_flags():
    text = API.read_text()
    begin, end = section_of(text, "limits")
    made = "\n" + limits_table(flag_table()) + "\n\n"
    if os.environ.get("TANDEM_UPDATE_DOCS"):
        API.write_text(text[:begin] + made + text[end:])
        return
    assert text[begin:end] == made, "TANDEM_UPDATE_DOCS=1 writes the tables again"


PROGRAMS = ["tandem-router", "tandem-verifier", "tandem-draft", "tandem-gateway", "tandem serve", "tandem generate", "tandem chat",
            "tandem batch", "tandem bench", "tandem bench serve", "tandem tokenize", "tandem info", "tandem top",
            "tandem healthcheck", "tandem doctor", "tandem index build", "tandem drafter"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_takes_exactly_the_flags_of_the_table(program):
    """A program that does not bind one of its flags, or binds another one, aborts at its start."""
    command = program.split()
    done = subprocess.run([harness.BINARY_DIR / "bin" / command[0], *command[1:], "--help-all"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^  (?:-\w,)?(--[\w-]+)", done.stdout, re.MULTILINE)
    expected = [flag["name"] for flag in flag_table() if program in flag["programs"]]
    assert [name for name in listed if name not in ("--help", "--help-all", "--version")] == expected


def test_the_programs_of_the_table_are_known_here():
    assert {program for flag in flag_table() for program in flag["programs"]} == set(PROGRAMS)


def variables_read():
    """Returns {variable: the scripts and sources that read it}, without the variables of options."""
    found = {}
    for folder in ("common", "kernels", "services"):
        for path in (harness.SOURCE_DIR / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".cu", ".cuh"):
                text = path.read_text()
                names = re.findall(r'\bgetenv\("(\w+)"\)', text)
                assert len(names) == text.count("getenv("), f"{path}: a variable whose name is not seen"
                if "temp_directory_path(" in text:
                    names.append("TMPDIR")
                for name in names:
                    found.setdefault(name, set())
    for folder in ("deploy", "tools"):
        for path in (harness.SOURCE_DIR / folder).rglob("*"):
            if path.is_file() and (text := path.read_text(errors="replace")).startswith("#!"):
                for name in re.findall(r"\$\{?(TANDEM_\w+)", text):
                    found.setdefault(name, set()).add(path.name)
    return found


def test_variables_without_an_option_have_their_rows():
    text = GUIDE.read_text()
    section = text[text.index("### Variables of scripts and of the system\n"):]
    listed = {name: readers for names, readers in re.findall(r"^\| (`.+?`) \| (.+?) \| .+ \|$", section, re.MULTILINE)
              for name in re.findall(r"`(\w+)`", names)}
    read = variables_read()
    assert {"TANDEM_WORKERS_STOP_SECONDS", "XDG_RUNTIME_DIR"} <= set(read)
    assert set(listed) == set(read)
    for name, scripts in read.items():
        assert scripts <= set(re.findall(r"`([\w-]+)`", listed[name])), name


def test_the_guide_says_what_to_do_about_every_alert():
    rules = (harness.SOURCE_DIR / "deploy" / "prometheus" / "alerts.yml").read_text()
    alerts = re.findall(r"^\s*- alert: (\w+)$", rules, re.MULTILINE)
    assert len(alerts) >= 9
    rows = re.findall(r"^\| `(Tandem\w+)` \| (.+) \| (.+) \|$", GUIDE.read_text(), re.MULTILINE)
    assert [name for name, _, _ in rows] == alerts


def test_the_guide_links_to_every_table_of_metrics():
    def anchor(title):
        return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")

    text = (GUIDE.parent / "metrics.md").read_text()
    named = set(re.findall(r"\(metrics\.md#([\w-]+)\)", GUIDE.read_text()))
    assert named <= {anchor(title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    assert named >= {anchor(title) for title in re.findall(r"^### (.+)$", text, re.MULTILINE)}


def test_every_link_of_the_guide_has_a_target():
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", GUIDE.read_text()):
        assert (GUIDE.parent / target).exists(), target


def test_a_worker_takes_the_memory_that_the_guide_says(servers):
    slots, longest, pool = 8, 16, 48 * 2**20
    server = servers(max_slots=slots, kv_cache_bytes=pool)
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    randomness = random.Random(1)
    prompts = [[randomness.randrange(300, 4000) for _ in range(510)] for _ in range(24)]  # more than the pool of the verifier holds
    server.generate_all([(prompt, dict(temperature=0, max_tokens=40, draft_length=longest, ignore_eos=True)) for prompt in prompts], slots)

    def most(folder, logits_rows):
        config = json.loads((folder / "config.json").read_text())
        heads = 2 * (config["num_attention_heads"] + config["num_key_value_heads"]) * config["head_dim"]
        rows = 512 * (2 * config["hidden_size"] + heads + 2 * config["intermediate_size"]) * 4
        return rows + logits_rows * config["vocab_size"] * 4 + 20 * 2**20

    token = 2 * 2 * 2 * 32 * 4  # bytes of a token of the drafter, whose pool is larger than all prompts
    for name, folder, logits_rows, filled in [("tandem-verifier", harness.TALES_TARGET, slots * (longest + 1), pool),
                                              ("tandem-draft", harness.TALES_DRAFT, slots, 24 * 550 * token)]:
        took = lab.memory_bytes(server.child(name))["anonymous"]
        assert 0.9 * filled < took < filled + most(folder, logits_rows), f"{name}: {took / 2**20:.1f} MiB"
