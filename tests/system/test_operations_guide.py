"""docs/operations.md: its tables of flags are those of the executables, no variable that is read is missing, and it says what to do about
every alert.

TANDEM_UPDATE_DOCS=1 writes the tables anew.
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
COMMANDS = [("tandem-router",), ("tandem-verifier",), ("tandem-draft",), ("tandem", "serve"), ("tandem", "generate"), ("tandem", "bench"),
            ("tandem", "bench", "serve"), ("tandem", "tokenize"), ("tandem", "info"), ("tandem", "top"),
            ("tandem", "healthcheck")]
# Of `tandem`, where a variable has another name than its option.
VARIABLES = {"--connect": "TANDEM_ADDRESS"}


def help_of(command):
    done = subprocess.run([harness.BINARY_DIR / "bin" / command[0], *command[1:], "--help"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def unquoted(words):
    """What CLI11 says of an option behind its name: (values, default)."""
    words = words.replace(" REQUIRED", "").strip()
    default = ""
    if found := re.search(r"=([^=\s()\[\]]*)$", words):
        words, default = words[:found.start()], found[1]
    name, _, rule = words.partition(":")
    if rule in ("POSITIVE", "NONNEGATIVE"):
        name += " > 0" if rule == "POSITIVE" else " ≥ 0"
    elif rule.startswith("SIZE "):
        pass  # BYTES says it
    elif re.match(r"(?:\{[^}]*\}|\w+ in \[[^]]*\]|\(.*\))$", rule):
        name = re.sub(r"\{([^}]*)\}", lambda match: match[1].replace(",", "|"), rule)
        name = re.sub(r"[()]", "", name).replace(" OR ", " or ")
    else:
        name = words
    return name, default


def options_of(command):
    """[(section, names, values, default, variable, meaning)], in the order of the help text."""
    options = []
    section = ""
    for line in help_of(command).splitlines():
        if found := re.match(r"(\S[^:]*):$", line):
            section = found[1]
        elif found := re.match(r"  (?:-\w,)?(--[\w-]+)((?:,--[\w-]+)*)(.*)$", line):
            name, others, rest = found[1], found[2], found[3]
            if command[0] == "tandem":
                value, _, meaning = rest.strip().partition("  ") if rest.startswith(" ") and not rest.startswith("  ") else ("", "", rest)
                variable = VARIABLES.get(name, "TANDEM_" + name[2:].upper().replace("-", "_"))
                options.append([section, name + others, value, "", variable, meaning.strip()])
            else:
                head, _, meaning = rest.partition("   ")
                variable = ""
                if env := re.search(r" ?\(Env:(\w+)\)", head):
                    variable, head = env[1], head.replace(env[0], "")
                required = " REQUIRED" in head
                value, default = unquoted(head)
                if name == "--threads":
                    assert default == str(len(os.sched_getaffinity(0)))
                    default = "cores"
                options.append([section, name + others, value, "required" if required else default, variable, meaning.strip()])
        elif options and line.startswith(" " * 8):
            options[-1][5] = f"{options[-1][5]} {line.strip()}".strip()
    return [option for option in options if option[1] not in ("--help", "--version")]


def table_of(command):
    router = command[0] != "tandem"
    lines = [f"### `{' '.join(command)}`", ""]
    lines += ["| flag | values | default | variable | what |", "| --- | --- | --- | --- | --- |"] if router else [
        "| flag | values | variable | what |", "| --- | --- | --- | --- |"]
    for _, names, value, default, variable, meaning in options_of(command):
        flags = ", ".join(f"`{name}`" for name in names.split(","))
        cells = [flags, value and f"`{value}`", *([default and (default if default == "required" else f"`{default}`")] if router else []),
                 variable and f"`{variable}`", meaning]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def section_of(text, name):
    begin, end = f"<!-- {name}: made by tests/system/test_operations_guide.py -->\n", f"<!-- end of {name} -->"
    assert text.count(begin) == text.count(end) == 1, f"{GUIDE.name}: one section {name}"
    return text.index(begin) + len(begin), text.index(end)


def test_the_tables_of_flags_are_those_of_the_executables():
    text = GUIDE.read_text()
    begin, end = section_of(text, "flags")
    made = "\n" + "\n\n".join(table_of(command) for command in COMMANDS) + "\n\n"
    if os.environ.get("TANDEM_UPDATE_DOCS"):
        GUIDE.write_text(text[:begin] + made + text[end:])
        return
    assert text[begin:end] == made, "TANDEM_UPDATE_DOCS=1 writes the tables anew"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_option_is_understood(command):
    """What the tables are made from: a line of help that is an option is read as one, with a meaning."""
    options = options_of(command)
    lines = [line for line in help_of(command).splitlines() if re.match(r"\s*(-\w,)?--\w", line)]
    assert len(options) + sum("--help" in line or "--version" in line for line in lines) == len(lines)
    for section, name, _, _, _, meaning in options:
        assert section and len(meaning) > 8, (name, meaning)


def variables_read():
    """{variable: the scripts that read it}: of what is deployed, and of the code, but for the options' own."""
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
    for path in (harness.SOURCE_DIR / "deploy").rglob("*"):
        if path.is_file() and (text := path.read_text(errors="replace")).startswith("#!"):
            for name in re.findall(r"\$\{?(TANDEM_\w+)", text):
                found.setdefault(name, set()).add(path.name)
    return found


def test_variables_that_are_no_options_have_their_rows():
    text = GUIDE.read_text()
    section = text[text.index("### Variables of scripts and of the system\n"):]
    listed = {name: readers for names, readers in re.findall(r"^\| (`.+?`) \| (.+?) \| .+ \|$", section, re.MULTILINE)
              for name in re.findall(r"`(\w+)`", names)}
    read = variables_read()
    assert {"TANDEM_WORKERS_STOP_SECONDS", "XDG_RUNTIME_DIR"} <= set(read)
    assert set(listed) == set(read)
    for name, scripts in read.items():
        assert scripts <= set(re.findall(r"`([\w-]+)`", listed[name])), name


def test_it_says_what_to_do_about_every_alert():
    rules = (harness.SOURCE_DIR / "deploy" / "prometheus" / "alerts.yml").read_text()
    alerts = re.findall(r"^\s*- alert: (\w+)$", rules, re.MULTILINE)
    assert len(alerts) >= 9
    rows = re.findall(r"^\| `(Tandem\w+)` \| (.+) \| (.+) \|$", GUIDE.read_text(), re.MULTILINE)
    assert [name for name, _, _ in rows] == alerts


def test_it_leads_to_every_table_of_metrics():
    def anchor(title):
        return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")

    text = (GUIDE.parent / "metrics.md").read_text()
    named = set(re.findall(r"\(metrics\.md#([\w-]+)\)", GUIDE.read_text()))
    assert named <= {anchor(title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    assert named >= {anchor(title) for title in re.findall(r"^### (.+)$", text, re.MULTILINE)}


def test_no_link_of_the_guide_leads_nowhere():
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", GUIDE.read_text()):
        assert (GUIDE.parent / target).exists(), target


def test_a_worker_takes_the_memory_that_the_guide_says(servers):
    slots, longest, pool = 8, 16, 48 * 2**20
    server = servers(max_slots=slots, kv_cache_bytes=pool)
    harness.wait_until(lambda: server.info().drafter_attached, 10, "the drafter is attached")
    randomness = random.Random(1)
    prompts = [[randomness.randrange(300, 4000) for _ in range(510)] for _ in range(24)]  # more than the verifier's pool holds
    server.generate_all([(prompt, dict(temperature=0, max_tokens=40, draft_length=longest, ignore_eos=True)) for prompt in prompts], slots)

    def most(folder, logits_rows):
        config = json.loads((folder / "config.json").read_text())
        heads = 2 * (config["num_attention_heads"] + config["num_key_value_heads"]) * config["head_dim"]
        rows = 512 * (2 * config["hidden_size"] + heads + 2 * config["intermediate_size"]) * 4
        return rows + logits_rows * config["vocab_size"] * 4 + 20 * 2**20

    token = 2 * 2 * 2 * 32 * 4  # of the drafter: its pool is larger than what all prompts fill
    for name, folder, logits_rows, filled in [("tandem-verifier", harness.TALES_TARGET, slots * (longest + 1), pool),
                                              ("tandem-draft", harness.TALES_DRAFT, slots, 24 * 550 * token)]:
        took = lab.memory_bytes(server.child(name))["anonymous"]
        assert 0.9 * filled < took < filled + most(folder, logits_rows), f"{name}: {took / 2**20:.1f} MiB"
