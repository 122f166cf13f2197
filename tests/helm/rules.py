"""Rules that must hold for every render. Each rule takes the documents of a render and yields its violations in words."""

RULES = []
FORBIDDEN = ("hostIPC", "hostPID", "hostNetwork", "privileged", "hostPort")
# Objects that the user has made, according to the values of the examples and of everything.yaml.
USERS_OWN = {
    ("Secret", "hugging-face"), ("Secret", "tandem-tokens"), ("PersistentVolumeClaim", "llama-weights"),
    ("Secret", "own-router-tls"), ("Secret", "own-workers-tls"), ("Secret", "own-client-tls"),
    ("Secret", "own-gateway-tls"), ("Secret", "own-gateway-client-tls"), ("ConfigMap", "house-rules"),
}
METRICS_PORTS = {"router": {9464}, "workers": {9465, 9466}, "gateway": {9467}}


def rule(function):
    RULES.append(function)
    return function


def broken(documents):
    """Returns all violations, each with the name of its rule."""
    return [f"{one.__name__}: {what}" for one in RULES for what in one(documents)]


# ---------------------------------------------------------------- reading documents


def name_of(document):
    return document["metadata"]["name"]


def of_kind(documents, *kinds):
    return [document for document in documents if document["kind"] in kinds]


def pods(documents):
    """Yields (name, labels, pod spec) of every object that makes pods."""
    for document in of_kind(documents, "Deployment"):
        template = document["spec"]["template"]
        yield name_of(document), template["metadata"]["labels"], template["spec"]
    for document in of_kind(documents, "Pod"):
        yield name_of(document), document["metadata"]["labels"], document["spec"]


def containers(documents):
    """Yields (place, container, pod spec, whether the container keeps running)."""
    for name, _, spec in pods(documents):
        for container in spec.get("initContainers", []):
            yield f"{name}/{container['name']}", container, spec, False
        for container in spec["containers"]:
            yield f"{name}/{container['name']}", container, spec, spec.get("restartPolicy") != "Never"


def matches(selector, labels):
    """Matches a LabelSelector, or the plain map of a Service."""
    if not {"matchLabels", "matchExpressions"} & set(selector):
        selector = {"matchLabels": selector}
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "In", one
        if labels.get(one["key"]) not in one["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def selected(documents, selector):
    return [(name, spec) for name, labels, spec in pods(documents) if matches(selector, labels)]


def ports_of(spec):
    return [port for container in spec["containers"] for port in container.get("ports", [])]


def option(container, flag):
    """Returns the value of a flag from the arguments, or from the verifier's environment variable for it."""
    for argument in container.get("args", []):
        if argument.startswith(f"--{flag}="):
            return argument.split("=", 1)[1]
    variable = "TANDEM_VERIFIER_" + flag.upper().replace("-", "_")
    return next((entry.get("value") for entry in container.get("env", []) if entry["name"] == variable), None)


def walk(value, path=""):
    """Yields (path, key, value) of every entry of every mapping."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield path, key, inner
            yield from walk(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from walk(inner, f"{path}[{number}]")


# ---------------------------------------------------------------- rules


@rule
def names_are_unique(documents):
    seen = set()
    for document in documents:
        key = (document["kind"], name_of(document))
        if key in seen:
            yield f"{key} is there twice"
        seen.add(key)


@rule
def names_fit_dns_labels(documents):
    for document in documents:
        if len(str(name_of(document))) > 63:
            yield f"{document['kind']} {name_of(document)} has {len(name_of(document))} characters"
        for key, value in document["metadata"].get("labels", {}).items():
            if len(str(value)) > 63:
                yield f"{document['kind']} {name_of(document)}: label {key} has {len(value)} characters"


@rule
def names_and_labels_are_text(documents):
    """YAML turns the name of a release `no` or `12` into something else, unless the name is quoted."""
    for document in documents:
        for path, key, value in walk(document):
            texts = value if key in ("labels", "matchLabels", "annotations", "nodeSelector") else {}
            if key in ("name", "serviceAccountName", "secretName"):
                texts = {key: value}
            for inner, text in texts.items():
                if not isinstance(text, str):
                    yield f"{document['kind']} {name_of(document)}{path}.{key}: {inner} is {text!r}"


@rule
def nothing_of_the_host(documents):
    for document in documents:
        for path, key, value in walk(document):
            if key in FORBIDDEN and value:
                yield f"{name_of(document)}{path}.{key}: {value}"


@rule
def pods_are_confined(documents):
    for name, _, spec in pods(documents):
        context = spec.get("securityContext", {})
        wanted = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                  "seccompProfile": {"type": "RuntimeDefault"}}
        for key, value in wanted.items():
            if context.get(key) != value:
                yield f"{name}: {key} is {context.get(key)}, want {value}"
        for key in ("automountServiceAccountToken", "enableServiceLinks"):
            if spec.get(key) is not False:
                yield f"{name}: {key} is {spec.get(key)}, want false"


@rule
def containers_are_confined(documents):
    wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for place, container, _, _ in containers(documents):
        if container.get("securityContext") != wanted:
            yield f"{place}: securityContext is {container.get('securityContext')}, want {wanted}"


@rule
def containers_have_resources(documents):
    for place, container, _, _ in containers(documents):
        resources = container.get("resources", {})
        for kind, resource in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
            if resource not in resources.get(kind, {}):
                yield f"{place}: no {kind}.{resource}"


@rule
def images_have_a_version(documents):
    for place, container, _, _ in containers(documents):
        tag = container["image"].rpartition("/")[2].partition(":")[2]
        if tag in ("", "latest"):
            yield f"{place}: {container['image']} may be another one tomorrow"


@rule
def containers_are_probed(documents):
    """The verifier's readiness is the readiness of the pod. A drafter that fails must not take a pod out of service."""
    for place, container, _, runs_on in containers(documents):
        if not runs_on:
            continue
        wanted = {"startupProbe", "livenessProbe"} | ({"readinessProbe"} if container["name"] != "drafter" else set())
        probes = {key for key in container if key.endswith("Probe")}
        if probes != wanted:
            yield f"{place}: has {sorted(probes)}, want {sorted(wanted)}"
        names = {port["name"] for port in container.get("ports", [])}
        for probe in probes:
            get = container[probe].get("httpGet", {})
            if {"verifier-admin", "drafter-admin"} <= names and probe != "readinessProbe":
                # One request asks only one worker, but a restart affects the container of both.
                command = container[probe].get("exec", {}).get("command")
                if get or command != ["tandem-healthcheck"]:
                    yield f"{place}: {probe} runs {command}, and one of two workers may hang unseen"
                if container[probe].get("timeoutSeconds", 1) < 5:
                    yield f"{place}: {probe} gives two workers {container[probe].get('timeoutSeconds', 1)} s to answer"
                continue
            if get.get("port") not in names:
                yield f"{place}: {probe} asks port {get.get('port')}, the container has {sorted(names)}"
            ready = "/readyz"
            if container["name"] == "gateway":  # a kubelet has no certificate of a client, and its admin port has no /readyz
                ready = "/health" if option(container, "tls-client-ca") is None else "/healthz"
            if get.get("path") != (ready if probe == "readinessProbe" else "/healthz"):
                yield f"{place}: {probe} asks for {get.get('path')}"
            https = option(container, "tls-certificate") is not None
            if get.get("scheme") != ("HTTPS" if https else "HTTP"):
                yield f"{place}: {probe} speaks {get.get('scheme')}, TLS is {'on' if https else 'off'}"


def startup_budget(container):
    """Returns the seconds from the start after which a container without an answer is killed."""
    probe = container.get("startupProbe", {})
    return probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)


@rule
def slow_loads_are_waited_for(documents):
    for place, container, _, runs_on in containers(documents):
        if runs_on and container["name"] in ("verifier", "drafter"):
            budget = startup_budget(container)
            if budget < 1800:
                yield f"{place}: is killed after {budget} s without an answer"


@rule
def rollouts_wait_for_slow_loads(documents):
    """All pods get enough time: a router is ready once a verifier is, and a gateway once a router is. An init container runs first, in
    every pod with weights at the same time."""
    deployments = of_kind(documents, "Deployment")
    for document in deployments:
        longest = max(startup_budget(container) for one in deployments for container in one["spec"]["template"]["spec"]["containers"])
        if document["spec"]["template"]["spec"].get("initContainers"):
            longest += 1800
        deadline = document["spec"].get("progressDeadlineSeconds", 600)
        if deadline < longest:
            yield f"{name_of(document)}: has failed after {deadline} s, and workers may need {longest}"


@rule
def streams_are_waited_for(documents):
    for place, container, spec, _ in containers(documents):
        if container["name"] in ("router", "gateway"):
            stop = container["lifecycle"]["preStop"]
            pause = stop["sleep"]["seconds"] if "sleep" in stop else int(stop["exec"]["command"][1])
            needed = pause + float(option(container, "drain-seconds"))
        elif container["name"] in ("verifier", "drafter"):
            needed = float(option(container, "drain-seconds"))
        else:
            continue
        if spec["terminationGracePeriodSeconds"] <= needed:
            yield f"{place}: {spec['terminationGracePeriodSeconds']} s of grace, and streams may need {needed}"


@rule
def mounts_have_volumes(documents):
    for name, _, spec in pods(documents):
        volumes = [volume["name"] for volume in spec.get("volumes", [])]
        if len(volumes) != len(set(volumes)):
            yield f"{name}: volumes {volumes}"
        mounted = set()
        for container in spec.get("initContainers", []) + spec["containers"]:
            mounts = container.get("volumeMounts", [])
            mounted |= {mount["name"] for mount in mounts}
            paths = [mount["mountPath"] for mount in mounts]
            if len(paths) != len(set(paths)):
                yield f"{name}/{container['name']}: mounts {paths}"
            if "/tmp" not in paths:
                yield f"{name}/{container['name']}: nothing is mounted at /tmp"
        for missing in mounted ^ set(volumes):
            yield f"{name}: volume {missing} is {'mounted, but not there' if missing in mounted else 'there, but not mounted'}"


@rule
def files_are_mounted(documents):
    """Every path in the options is mounted, or belongs to the image."""
    for place, container, _, _ in containers(documents):
        values = [argument.partition("=")[2] for argument in container.get("args", [])]
        values += [entry.get("value", "") for entry in container.get("env", [])]
        mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        for value in values:
            if value.startswith("/") and not value.startswith("/opt/tandem/"):
                if not any(value == mount or value.startswith(mount + "/") for mount in mounts):
                    yield f"{place}: {value} is in none of {mounts}"


@rule
def weights_are_read_only(documents):
    for place, container, _, runs_on in containers(documents):
        for mount in container.get("volumeMounts", []):
            if mount["name"] == "models" and runs_on and not mount.get("readOnly"):
                yield f"{place}: /models can be written"


@rule
def scratch_is_limited(documents):
    for name, _, spec in pods(documents):
        for volume in spec.get("volumes", []):
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{name}: {volume['name']} may fill the node's disk"


@rule
def workers_share_a_folder_for_the_ring(documents):
    for name, labels, spec in pods(documents):
        if labels["app.kubernetes.io/component"] != "workers":
            continue
        folder = option(spec["containers"][0], "ring-dir")
        for container in spec["containers"]:
            mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
            # The folder is below the mount. The verifier makes it with mode 0700, which an emptyDir itself does not have.
            parent = folder.rpartition("/")[0]
            if parent not in mounts or mounts[parent].get("readOnly") or mounts[parent]["name"] != "run":
                yield f"{name}/{container['name']}: cannot reach {folder}"


@rule
def references_exist(documents):
    there = {(document["kind"], name_of(document)) for document in documents} | USERS_OWN
    there |= {("Secret", document["spec"]["secretName"]) for document in of_kind(documents, "Certificate")}
    for name, _, spec in pods(documents):
        wanted = [("ServiceAccount", spec["serviceAccountName"])]
        for volume in spec.get("volumes", []):
            if "secret" in volume:
                wanted.append(("Secret", volume["secret"]["secretName"]))
            if "configMap" in volume:
                wanted.append(("ConfigMap", volume["configMap"]["name"]))
            if "persistentVolumeClaim" in volume:
                wanted.append(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
        for claim in spec.get("resourceClaims", []):
            wanted.append(("ResourceClaimTemplate", claim["resourceClaimTemplateName"]))
        for _, key, value in walk(spec):
            if key in ("secretKeyRef", "secretRef"):
                wanted.append(("Secret", value["name"]))
            if key in ("configMapKeyRef", "configMapRef"):
                wanted.append(("ConfigMap", value["name"]))
        for reference in wanted:
            if reference not in there:
                yield f"{name}: there is no {reference[0]} {reference[1]}"


@rule
def claims_are_used(documents):
    for name, _, spec in pods(documents):
        claims = {claim["name"] for claim in spec.get("resourceClaims", [])}
        for container in spec["containers"]:
            used = {claim["name"] for claim in container["resources"].get("claims", [])}
            if used != claims:
                yield f"{name}/{container['name']}: uses claims {used} of {claims}"
        if claims and len(spec["containers"]) > 1 and not spec.get("shareProcessNamespace"):
            yield f"{name}: CUDA IPC needs one PID namespace"


@rule
def a_device_plugins_gpu_is_in_one_container(documents):
    for name, _, spec in pods(documents):
        holders = [container["name"] for container in spec["containers"] if "nvidia.com/gpu" in container["resources"].get("limits", {})]
        if holders and len(spec["containers"]) > 1:
            yield f"{name}: {holders} cannot share a GPU with siblings"


@rule
def selectors_select(documents):
    for document in of_kind(documents, "Deployment"):
        template = document["spec"]["template"]
        if not matches(document["spec"]["selector"], template["metadata"]["labels"]):
            yield f"{name_of(document)}: its selector misses its own pods"
        for constraint in template["spec"].get("topologySpreadConstraints", []):
            if not matches(constraint["labelSelector"], template["metadata"]["labels"]):
                yield f"{name_of(document)}: topology spread counts other pods"
        if len(selected(documents, document["spec"]["selector"])) != 1:
            yield f"{name_of(document)}: its selector finds {[name for name, _ in selected(documents, document['spec']['selector'])]}"
    for document in of_kind(documents, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        selector = document["spec"].get("podSelector", document["spec"].get("selector"))
        if [name for name, _ in selected(documents, selector)] != [name_of(document)]:
            yield f"{document['kind']} {name_of(document)}: selects {[name for name, _ in selected(documents, selector)]}"


@rule
def services_find_ports(documents):
    for document in of_kind(documents, "Service"):
        for _, spec in selected(documents, document["spec"]["selector"]):
            names = {port["name"] for port in ports_of(spec)}
            for port in document["spec"]["ports"]:
                if port["targetPort"] not in names:
                    yield f"{name_of(document)}: no container has the port {port['targetPort']}"


@rule
def routers_find_workers(documents):
    services = {name_of(document): document["spec"] for document in of_kind(documents, "Service")}
    for place, container, _, _ in containers(documents):
        if container["name"] != "router":
            continue
        for flag in ("verifier", "drafter"):
            address = option(container, flag)
            if flag == "drafter" and address == "none":
                continue
            kind, service, port = address.split(":")
            spec = services.get(service, {})
            if kind != "dns" or spec.get("clusterIP") != "None" or not spec.get("publishNotReadyAddresses"):
                yield f"{place}: --{flag} {address} names no headless Service with the addresses of all pods"
            elif int(port) not in [one["port"] for one in spec["ports"]]:
                yield f"{place}: --{flag} {address}: the Service has other ports"


@rule
def gateways_find_routers(documents):
    services = {name_of(document): document["spec"] for document in of_kind(documents, "Service")}
    for place, container, spec, _ in containers(documents):
        if container["name"] != "gateway":
            continue
        service, port = option(container, "connect").split(":")
        if int(port) not in [one["port"] for one in services.get(service, {"ports": []})["ports"]]:
            yield f"{place}: --connect {service}:{port} names no Service"
        # The routers' Secret has their key, too.
        for volume in spec["volumes"]:
            if volume["name"] == "router-ca" and [item["key"] for item in volume["secret"].get("items", [])] != ["ca.crt"]:
                yield f"{place}: has the routers' key"


@rule
def processes_listen_where_ports_are(documents):
    for place, container, _, runs_on in containers(documents):
        if not runs_on:
            continue
        ports = {port["containerPort"] for port in container["ports"]}
        for flag in ("listen", "admin"):
            address = option(container, flag)
            if address is None or int(address.rpartition(":")[2]) not in ports:
                yield f"{place}: --{flag} {address}, and ports {sorted(ports)}"


@rule
def network_policies_open_ports_that_exist(documents):
    for document in of_kind(documents, "NetworkPolicy"):
        component = document["metadata"]["labels"]["app.kubernetes.io/component"]
        (_, spec), = selected(documents, document["spec"]["podSelector"]) or [(None, {"containers": []})]
        own = {port["containerPort"] for port in ports_of(spec)} | {50062, 9466}  # the drafter's, which may be off
        opened = set()
        for entry in document["spec"]["ingress"]:
            ports = {port["port"] for port in entry["ports"]}
            opened |= ports
            if component == "workers" and 50061 in ports and not entry.get("from"):
                yield f"{name_of(document)}: everybody may command the workers"
            if not ports <= own:
                yield f"{name_of(document)}: opens {sorted(ports)}, the pods have {sorted(own)}"
            if component == "router" and 50051 in ports and entry.get("from"):
                for name, labels, _ in pods(documents):
                    let_in = any(matches(peer["podSelector"], labels) for peer in entry["from"] if list(peer) == ["podSelector"])
                    if labels["app.kubernetes.io/component"] == "gateway" and not let_in:
                        yield f"{name_of(document)}: keeps {name} out"
        if not METRICS_PORTS[component] <= opened:
            yield f"{name_of(document)}: Prometheus is kept out"
        asked = [port["port"] for entry in document["spec"]["egress"] for port in entry.get("ports", [])]
        if asked.count(53) != 2:
            yield f"{name_of(document)}: no DNS"
        if component == "gateway" and sorted(asked) != [53, 53, 50051]:
            yield f"{name_of(document)}: may reach {sorted(asked)}, and needs only routers"


@rule
def monitors_reach_every_admin_port(documents):
    for document in of_kind(documents, "PodMonitor"):
        found = selected(documents, document["spec"]["selector"])
        there = {port["name"] for _, spec in found for port in ports_of(spec) if port["name"].endswith("-admin")}
        asked = {endpoint["port"] for endpoint in document["spec"]["podMetricsEndpoints"]}
        if asked != there:
            yield f"{name_of(document)}: scrapes {sorted(asked)}, there are {sorted(there)}"
        for endpoint in document["spec"]["podMetricsEndpoints"]:
            labels = {one["targetLabel"]: one["replacement"] for one in endpoint["relabelings"]}
            if labels != {"job": "tandem", "role": endpoint["port"].removesuffix("-admin")}:
                yield f"{name_of(document)}: {endpoint['port']} gets {labels}, which the alerts do not know"


@rule
def scaling_is_by_load(documents):
    for document in of_kind(documents, "HorizontalPodAutoscaler", "ScaledObject"):
        if "accept" in str(document["spec"]).lower():
            yield f"{name_of(document)}: acceptance says nothing about load"
        target = document["spec"]["scaleTargetRef"]["name"]
        deployment, = [one for one in of_kind(documents, "Deployment") if name_of(one) == target] or [{"spec": {"replicas": "?"}}]
        if "replicas" in deployment["spec"]:
            yield f"{name_of(document)}: {target} is not there, or fixes its replicas at every upgrade"


@rule
def plaintext_is_said(documents):
    """A process that listens in plaintext or without tokens was told that this is intended. Otherwise it was not."""
    for place, container, _, runs_on in containers(documents):
        if runs_on:
            has_tls, has_tokens = option(container, "tls-certificate"), option(container, "token-file")
            needs = not has_tokens or (container["name"] in ("verifier", "drafter") and not has_tls)
            if container["name"] == "gateway":  # its token would go to a router in plaintext
                needs = not has_tokens or not option(container, "router-ca")
            if (option(container, "insecure") == "true") != needs:
                yield f"{place}: --insecure is {option(container, 'insecure')}"
