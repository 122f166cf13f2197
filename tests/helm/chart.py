"""Renders the chart with Helm's packages, or with the whole Helm."""

import functools
import pathlib
import subprocess

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CHART = SOURCE / "helm" / "tandem"
EXAMPLES = sorted((CHART / "examples").glob("values-*.yaml"))
EVERYTHING = pathlib.Path(__file__).resolve().parent / "everything.yaml"
GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
RELEASE, NAMESPACE = "tandem", "language"
# The oldest supported version, one in between, and the first version in which all features that the chart can use are on by default.
KUBERNETES = ("1.29", "1.33", "1.35")
NEWEST = KUBERNETES[-1]


@functools.cache
def helm(*arguments):
    """Returns the program that renders and lints, or with --whole Helm itself."""
    done = subprocess.run([SOURCE / "tools" / "fetch_helm.sh", *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def run_helm(*arguments):
    return subprocess.run([helm(), *map(str, arguments)], capture_output=True, text=True, timeout=60)


def template(*arguments, chart=CHART, release=RELEASE, kubernetes=NEWEST, apis=()):
    """Runs `helm template` and returns the finished process. `arguments` are --values, --set and the like."""
    command = ["template", release, chart, "--namespace", NAMESPACE, "--kube-version", kubernetes]
    for api in apis:
        command += ["--api-versions", api]
    return run_helm(*command, *arguments)


def apis_of(kubernetes):
    """Returns the APIs that a cluster of that version has in addition to those that Helm assumes."""
    minor = int(kubernetes.split(".")[1])
    return ("resource.k8s.io/v1",) if minor >= 34 else ()


def has_dra(kubernetes):
    return bool(apis_of(kubernetes))


def supports(example, kubernetes):
    """Dynamic resource allocation is stable from 1.34 on. values-dra.yaml also has image volumes."""
    return example.name != "values-dra.yaml" or has_dra(kubernetes)


@functools.cache
def render(example=None, kubernetes=NEWEST, *arguments):
    """Renders an example or everything.yaml (a path), or the defaults. Returns the text."""
    values = ("--values", example) if example else ()
    done = template(*values, *arguments, kubernetes=kubernetes, apis=apis_of(kubernetes))
    assert done.returncode == 0, done.stderr
    return done.stdout


class UniqueKeys(yaml.SafeLoader):
    """Refuses a key that occurs twice, which YAML forbids and PyYAML accepts."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"{node.start_mark}: keys that are there twice: {twice}"
        return super().construct_mapping(node, deep)


def documents(text):
    return [document for document in yaml.load_all(text, UniqueKeys) if document is not None]
