"""Which environment variables Tandem's executables read, from what they say of themselves; values of systemd's files."""

import re

import roots


def help_of(name, *arguments):
    return roots.run(roots.BINARY_DIR / "bin" / name, *arguments, "--help").stdout


def known():
    """Names of all variables."""
    names = set()
    for name in ("tandem-router", "tandem-verifier", "tandem-draft"):
        names |= set(re.findall(r"\(Env:(TANDEM_\w+)\)", help_of(name)))
    # `tandem` states the rule once, instead of each name.
    options = set(re.findall(r"^ +--([a-z-]+)", help_of("tandem", "serve"), re.MULTILINE))
    assert "insecure" in options and "TANDEM_VERIFIER_MODEL" in names
    return names | {"TANDEM_" + option.upper().replace("-", "_") for option in options}


def drain_seconds():
    """What streams have to finish in under `tandem serve`, when nobody says otherwise."""
    (seconds,) = re.findall(r"--drain-seconds N\s+[^(]*\((\d+)\)", help_of("tandem", "serve"))
    return int(seconds)


def read_unit(path):
    """[(key, value)] of a unit or of its environment file, in order."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    return [tuple(line.split("=", 1)) for line in lines if line and line[0] not in "#;[" ]


def read_environment(path):
    """With those settings that an example leaves out: (set, all)."""
    given = dict(read_unit(path))
    commented = [line[1:] for line in path.read_text().splitlines() if re.match(r"#[A-Z_]+=", line)]
    return given, given | dict(line.split("=", 1) for line in commented)
