"""The environment variables that Tandem's executables read, from the table of flags, and the values in systemd's files."""

import json
import re

import roots


def flag_table():
    return json.loads(roots.run(roots.BINARY_DIR / "bin" / "tandem-flags").stdout)["flags"]


def known():
    """Returns the names of all variables."""
    programs = ("tandem-router", "tandem-verifier", "tandem-draft", "tandem-gateway", "tandem serve")
    names = {flag["programs"][program] for flag in flag_table() for program in programs if program in flag["programs"]} - {""}
    assert {"TANDEM_INSECURE", "TANDEM_VERIFIER_MODEL"} <= names
    return names


def drain_seconds(program="tandem serve"):
    """Returns the default time that streams have to finish under a program."""
    (flag,) = [flag for flag in flag_table() if flag["name"] == "--drain-seconds" and program in flag["programs"]]
    return int(flag["default"])


def read_unit(path):
    """Returns [(key, value)] of a unit or of its environment file, in order."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    return [tuple(line.split("=", 1)) for line in lines if line and line[0] not in "#;[" ]


def read_environment(path):
    """Returns (set, all): the settings of an example file, without and with those that it has as comments."""
    given = dict(read_unit(path))
    commented = [line[1:] for line in path.read_text().splitlines() if re.match(r"#[A-Z_]+=", line)]
    return given, given | dict(line.split("=", 1) for line in commented)
