"""docker/kubernetes/ and the compose file, held against the makers' own code (tests/kubernetes: Helm's engine and linter,
Kubernetes's types read strictly, its Pod Security admission, Compose's loader), and what they say run by a real stile."""

import json
import os
import pathlib
import secrets
import shutil
import subprocess

import pytest
import yaml

from adminlib import ADMIN, Sandbox, stile_cli
from containerlib import DOCKER, REPO, engine, image  # noqa: F401 (fixtures)
from stilelib import SANITIZED, check_refusal, clean_env, wait_for
from test_reload import mount

pytestmark = pytest.mark.xdist_group("containers")
TOOL = REPO / "build" / "clients" / "kubernetes" / "kubernetes"
HERE = DOCKER / "kubernetes"
CHART = HERE / "chart"
PLAIN = {"gateway": "", "sandbox": "example.yaml,runtimeclass.yaml", "sidecar": ""}


def tool(*args, status=0, stdin="", **env):
    got = subprocess.run([str(TOOL), *map(str, args)], input=stdin, capture_output=True, text=True, timeout=120,
                         env={**clean_env(), **env})
    assert got.returncode == status, got
    return got.stdout if status == 0 else got.stdout + got.stderr


@pytest.fixture(scope="module", autouse=True)
def compiled():
    if not TOOL.exists():
        pytest.skip("tests/kubernetes was not compiled (install-deps.sh kubernetes; needs the Go of its go.mod)")


@pytest.fixture
def render(tmp_path):
    """render(values, only): the objects that the chart makes of them."""
    def call(values=None, only="", status=0, release="stile", namespace="stile"):
        (tmp_path / "values.yaml").write_text(json.dumps(values or {}))
        out = tool("render", CHART, release, namespace, tmp_path / "values.yaml", status=status, ONLY=only)
        if status:
            return out
        (tmp_path / "objects.yaml").write_text(out)
        return objects(tmp_path / "objects.yaml")
    call.file = tmp_path / "objects.yaml"
    return call


def objects(*files):
    return [json.loads(line) for line in tool("check", *files).splitlines()]


def one(all_of_them, kind, name):
    found = [o["object"] for o in all_of_them if (o["kind"], o["name"]) == (kind, name)]
    assert len(found) == 1, (kind, name)
    return found[0]


def pod_of(o):
    return o["spec"]["template"]["spec"] if o["kind"] in ("Deployment", "Job") else None


def config_of(all_of_them, name="stile"):
    return one(all_of_them, "ConfigMap", name)["data"]["stile.yaml"]


# ---- the chart ----


def test_helm_finds_no_fault_in_the_chart():
    assert tool("lint", CHART) == ""
    for name in PLAIN:
        assert tool("lint", CHART, HERE / "values" / f"{name}.yaml") == ""


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_manifests_are_what_the_chart_makes(name):
    said = tool("render", CHART, "stile", "stile", HERE / "values" / f"{name}.yaml", ONLY=PLAIN[name])
    comment, _, rest = (HERE / f"{name}.yaml").read_text().partition("\n")
    assert comment.startswith("# Of chart/") and rest == said, "make manifests"


@pytest.mark.parametrize("values, says", [
    ({"replica": 3}, "replica"), ({"replicas": 0}, "replicas"), ({"image": {"tagg": "1"}}, "tagg"),
    ({"image": {"digest": "sha256:1"}}, "digest"), ({"tokens": "yes"}, "tokens"), ({"state": {"url": "http://a"}}, "url"),
    ({"policies": None}, "policies"),
    ({"limits": {"drain": "1s"}}, "limits"), ({"sandboxNamespaces": []}, "sandboxNamespaces"),
    ({"sandboxNamespaces": ["A b"]}, "sandboxNamespaces"), ({"service": {"port": 70000}}, "port"),
    ({"networkPolicy": {"exceptIPv4": ["10.0.0.0/8"]}}, "exceptIPv4"), ({"ca": {"secretName": ""}}, "secretName"),
    ({"ca": {"bundle": "-----BEGIN PRIVATE KEY-----"}}, "bundle"), ({"listenAddress": "0.0.0.0:1\n x"}, "listenAddress"),
    ({"sidecar": {"credentials": {"stile-gateway": {}}}}, "credentials")])
def test_the_schema_refuses_a_value(render, values, says):
    said = render(values, status=1)
    assert "don't meet the specifications of the schema" in said, said
    assert says in said


@pytest.mark.parametrize("values, says", [
    ({"tokens": "required"}, "tokens live in one replica"), ({"tokens": "optional", "replicas": 2}, "tokens live in one replica"),
    ({"tokens": "required", "replicas": 1, "autoscaling": {"enabled": True}}, "tokens live in one replica"),
    ({"policy": "other"}, "there is no other under policies"), ({"sidecar": {"enabled": True}}, "without `tokens: required`")])
def test_values_that_do_not_go_together(render, values, says):
    assert says in render(values, status=1)


EVERYTHING = {
    "image": {"repository": "r.test/stile", "digest": "sha256:" + "0" * 64, "pullSecrets": ["pull"]},
    "replicas": 3, "tokens": "required", "state": {"url": "rediss://10.9.0.4:6379", "credential": "redis"},
    "credentialSecrets": [{"name": "api", "secretName": "api-token"}, {"name": "redis", "secretName": "redis"}],
    "credentials": {"redis": {"from": {"file": "/run/secrets/stile/redis/password"}, "as": "bearer"},
                    "api": {"from": {"file": "/run/secrets/stile/api/token"}, "as": "bearer"}},
    "policies": {"agents": {"rules": [{"allow": "https://a.test/x/**", "methods": ["GET"], "credential": "api"}]}},
    "limits": {"connections": 500}, "ca": {"secretName": "c", "bundle": "-----BEGIN CERTIFICATE-----\nA\n-----END\n"},
    "extraTrust": "-----BEGIN CERTIFICATE-----\nB\n", "service": {"port": 8080, "clusterIP": "10.1.2.3"},
    "listenAddress": "[::]", "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}],
    "priorityClassName": "high", "podAnnotations": {"x": "y"}, "sandboxNamespaces": ["one", "two"],
    "createNamespaces": {"gateway": True, "sandboxes": True},
    "networkPolicy": {"dns": {"nodeLocal": "169.254.20.10"}, "ports": [443],
                      "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.9.0.0/24"}}], "ports": [{"port": 5432}]}]},
    "metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "gvisor": {"enabled": True}, "example": {"enabled": True, "tokenSecret": "agent-url"}, "sidecar": {
        "enabled": True, "gatewayAddress": "10.1.2.3", "credentialSecrets": [{"name": "b", "secretName": "b"}]}}


def every_rendering(render):
    yield "defaults", render()
    yield "everything", render(EVERYTHING)
    yield "another name", render({}, release="egress", namespace="elsewhere")
    for name in PLAIN:
        yield name, objects(HERE / f"{name}.yaml")


def test_every_pod_is_restricted_and_held(render):
    """By Pod Security's own admission, and by what it does not ask for."""
    kinds = set()
    for name, found in every_rendering(render):
        for o in found:
            kinds.add(o["kind"])
            assert not o.get("forbidden"), (name, o["name"], o["forbidden"])
            if o["kind"] == "Namespace":
                assert o["object"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
            pod = pod_of(o["object"])
            if not pod:
                continue
            assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
            assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & {k for k, v in pod.items() if v}
            for c in pod["containers"] + pod.get("initContainers", []):
                s = c["securityContext"]
                assert s["readOnlyRootFilesystem"] is True and s["capabilities"] == {"drop": ["ALL"]}, c["name"]
                assert s["allowPrivilegeEscalation"] is False and c["resources"]["limits"]["memory"]
                assert not any(m.get("subPath") for m in c["volumeMounts"]), "a subPath is never replaced"
            assert not any("hostPath" in v for v in pod["volumes"])
    assert kinds == {"Namespace", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "ConfigMap", "Service",
                     "Deployment", "HorizontalPodAutoscaler", "Job", "RuntimeClass", "ServiceMonitor"}


def test_what_is_wrong_is_found(tmp_path):
    """The judges themselves: a field that no type has, one given twice, a pod that is not restricted."""
    text = (HERE / "gateway.yaml").read_text()
    for old, new, says in [("maxUnavailable: 1", "maxUnavailabel: 1", "maxUnavailabel"),
                           ("minReplicas: 2", "minReplicas: 2\n  minReplicas: 3", "already set"),
                           ("replicas: 1", "replicas: x", None), ("port: 3128, protocol", "port: [3128], protocol", "port")]:
        if old not in text:
            continue
        (tmp_path / "wrong.yaml").write_text(text.replace(old, new, 1))
        assert says in tool("check", tmp_path / "wrong.yaml", status=1)
    (tmp_path / "root.yaml").write_text(text.replace("runAsNonRoot: true", "runAsNonRoot: false"))
    forbidden = [o["forbidden"] for o in objects(tmp_path / "root.yaml") if o.get("forbidden")]
    assert len(forbidden) == 1 and "runAsNonRoot" in forbidden[0][0]


def test_the_gateway(render):
    """What hangs together: labels, ports, the drain, the probes and the socket that they ask on."""
    found = render(EVERYTHING)
    gateway = one(found, "Deployment", "stile")
    pod = pod_of(gateway)
    labels = gateway["spec"]["template"]["metadata"]["labels"]
    container, = pod["containers"]
    for selector in (gateway["spec"]["selector"]["matchLabels"], one(found, "Service", "stile")["spec"]["selector"],
                     one(found, "PodDisruptionBudget", "stile")["spec"]["selector"]["matchLabels"],
                     *(t["labelSelector"]["matchLabels"] for t in pod["topologySpreadConstraints"])):
        assert selector.items() <= labels.items()
    config = yaml.safe_load(config_of(found))
    assert config["listen"] == [{"name": "sandboxes", "proxy": "[::]:3128", "tokens": "required"}]
    assert container["ports"] == [{"name": "proxy", "containerPort": 3128, "protocol": "TCP"},
                                  {"name": "metrics", "containerPort": 9464, "protocol": "TCP"}]
    assert config["metrics"] == "[::]:9464"
    scraped = one(found, "Service", "stile-metrics")
    monitor = one(found, "ServiceMonitor", "stile")["spec"]
    assert scraped["spec"]["selector"].items() <= labels.items() and scraped["spec"]["ports"][0]["targetPort"] == "metrics"
    assert monitor["selector"]["matchLabels"].items() <= scraped["metadata"]["labels"].items()
    assert not monitor["selector"]["matchLabels"].items() <= one(found, "Service", "stile")["metadata"]["labels"].items()
    assert [e["port"] for e in monitor["endpoints"]] == [scraped["spec"]["ports"][0]["name"]]
    drain = int(config["limits"]["drain"].removesuffix("s"))
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= drain + sleep + 5
    socket = config["admin"].removeprefix("unix:")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["exec"]["command"] == ["/usr/bin/stile", "status", "--socket", socket]
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert [p for p, m in mounts.items() if not m.get("readOnly")] == [str(pathlib.Path(socket).parent)]
    assert config["ca"]["dir"] in mounts and config["log"]["to"] == "stdout" and config["reload"] == "watch"
    assert pathlib.Path(config["credentials"]["api"]["from"]["file"]).parent.as_posix() in mounts
    assert "replicas" in gateway["spec"] and "replicas" not in one(
        objects(HERE / "gateway.yaml"), "Deployment", "stile")["spec"], "the autoscaler's to say"


def test_the_environment_of_a_sandbox_is_what_stile_prints():
    want = dict(line.split("=", 1) for line in (DOCKER / "client.env").read_text().splitlines())
    want.pop("JAVA_TOOL_OPTIONS")
    for name, job, proxy in (("sandbox", "agent", "http://10.96.31.28:3128"),
                             ("sidecar", "agent-with-sidecar", "http://127.0.0.1:3128")):
        env = pod_of(one(objects(HERE / f"{name}.yaml"), "Job", job))["containers"][0]["env"]
        got = {e["name"]: e["value"] for e in env}
        assert got.pop("HOME") == "/tmp"
        assert got == {k: v.replace("http://10.213.0.2:3128", proxy) for k, v in want.items()}


def test_the_sidecar_s_secrets_are_its_own():
    """The containers of a pod share a network, and no mount: the token and the key are the sidecar's alone."""
    pod = pod_of(one(objects(HERE / "sidecar.yaml"), "Job", "agent-with-sidecar"))
    stile, = pod["initContainers"]
    agent, = pod["containers"]
    assert stile["restartPolicy"] == "Always" and stile["startupProbe"]
    shared = {m["name"] for m in stile["volumeMounts"]} & {m["name"] for m in agent["volumeMounts"]}
    assert shared == set()
    of_agent = [v for v in pod["volumes"] if v["name"] in {m["name"] for m in agent["volumeMounts"]} and "secret" in v]
    assert [v["secret"]["items"] for v in of_agent] == [[{"key": "ca.pem", "path": "ca-bundle.pem"}]]
    assert agent["securityContext"]["runAsUser"] != pod["securityContext"]["runAsUser"]
    assert not any("valueFrom" in e for e in agent["env"])


# ---- who reaches whom ----

GATEWAY = {"ip": "10.244.1.5", "namespace": "stile", "labels": {
    "app.kubernetes.io/name": "stile", "app.kubernetes.io/instance": "stile", "app.kubernetes.io/component": "gateway"}}
SANDBOX = {"ip": "10.244.2.7", "namespace": "agents", "labels": {"app.kubernetes.io/component": "sandbox"}}
# A pod says of itself what it likes.
DISGUISED = {**SANDBOX, "labels": GATEWAY["labels"]}
DNS = {"ip": "10.244.0.2", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}}
OTHER = {"ip": "10.244.3.3", "namespace": "default", "labels": {"app": "x"}}
FORGED = {"ip": "10.244.3.4", "namespace": "default", "labels": GATEWAY["labels"]}
SCRAPER = {"ip": "10.244.5.5", "namespace": "monitoring", "labels": {"app": "prometheus"}}
NEIGHBOUR = {"ip": "10.244.1.9", "namespace": "stile", "labels": {"app": "other"}}


def outside(ip):
    return {"ip": ip, "namespace": "", "labels": {}}


PEERS = [GATEWAY, SANDBOX, DISGUISED, DNS, OTHER, FORGED, NEIGHBOUR, SCRAPER, *map(outside, (
    "192.0.2.80", "203.0.113.9", "2001:db8::1", "169.254.169.254", "169.254.20.10", "10.0.0.1", "10.96.0.1", "127.0.0.1",
    "172.20.0.1", "192.168.1.1", "100.64.0.1", "168.63.129.16", "fd00:ec2::254", "fe80::1", "::1", "64:ff9b::a9fe:a9fe"))]
PORTS = [(p, t) for p in (22, 53, 80, 443, 3128, 6443, 8443, 9464, 10250) for t in ("TCP", "UDP", "SCTP")]
WAY_OUT = {(80, "TCP"), (443, "TCP")}
INTERNET = {"192.0.2.80", "203.0.113.9", "2001:db8::1", "168.63.129.16"}


def reaches(file, source, target=None):
    """Where `source` gets to (or, with target, who gets to target): a set of (ip or name, port, protocol)."""
    asked, names = [], []
    for peer in PEERS:
        for port, protocol in PORTS:
            a, b = (source, peer) if target is None else (peer, target)
            if a is b:
                continue
            asked.append(json.dumps({"from": a, "to": b, "port": port, "protocol": protocol}))
            names.append((peer["namespace"] + "/" + peer["ip"] if peer["namespace"] else peer["ip"], port, protocol))
    said = tool("reach", file, stdin="\n".join(asked) + "\n").split()
    assert len(said) == len(asked)
    return {n for n, yes in zip(names, said) if yes == "true"}


@pytest.mark.parametrize("name", ["gateway", "sidecar"])
def test_a_sandbox_reaches_the_gateway_and_nothing_else(name):
    file = HERE / f"{name}.yaml"
    for who in (SANDBOX, DISGUISED):
        assert reaches(file, who) == {("stile/10.244.1.5", 3128, "TCP")}
        assert reaches(file, None, target=who) == set(), "and nobody reaches it"


@pytest.mark.parametrize("name", ["gateway", "sidecar"])
def test_the_gateway_reaches_dns_and_the_internet(name):
    file = HERE / f"{name}.yaml"
    dns = {("kube-system/10.244.0.2", 53, "TCP"), ("kube-system/10.244.0.2", 53, "UDP")}
    assert reaches(file, GATEWAY) == dns | {(ip, *port) for ip in INTERNET for port in WAY_OUT}
    assert reaches(file, None, target=GATEWAY) == {("agents/10.244.2.7", 3128, "TCP")}
    # What else is in its namespace has no part in it.
    assert reaches(file, NEIGHBOUR) == set() and reaches(file, None, target=NEIGHBOUR) == set()


def test_values_of_the_network_policies(render):
    render({"sandboxNamespaces": ["a", "agents"], "networkPolicy": {
        "dns": {"nodeLocal": "169.254.20.10"}, "ports": [443],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 22}]}]}})
    got = reaches(render.file, GATEWAY)
    assert {g for g in got if g[0] not in INTERNET} == {
        ("kube-system/10.244.0.2", 53, "TCP"), ("kube-system/10.244.0.2", 53, "UDP"), ("169.254.20.10", 53, "TCP"),
        ("169.254.20.10", 53, "UDP"), ("10.0.0.1", 22, "TCP")}
    assert {g[1:] for g in got if g[0] in INTERNET} == {(443, "TCP")}
    assert reaches(render.file, {**SANDBOX, "namespace": "a"}) == {("stile/10.244.1.5", 3128, "TCP")}


def test_who_may_scrape(render):
    render({"metrics": {"enabled": True}})
    assert reaches(render.file, None, target=GATEWAY) == {("agents/10.244.2.7", 3128, "TCP"),
                                                           ("monitoring/10.244.5.5", 9464, "TCP")}
    assert reaches(render.file, SANDBOX) == {("stile/10.244.1.5", 3128, "TCP")}


# ---- what stile says of it ----


def test_every_configuration_is_one(render, origin, tmp_path):
    seen = 0
    for mounted in ("extra-trust.pem", "ca-bundle.pem"):
        shutil.copy(origin.pki / "ca.pem", tmp_path / mounted)
    for name, found in every_rendering(render):
        for o in found:
            if o["kind"] != "ConfigMap" or "stile.yaml" not in o["object"]["data"]:
                continue
            seen += 1
            text = o["object"]["data"]["stile.yaml"]
            (tmp_path / "stile.yaml").write_text(text.replace("/etc/stile/", "").replace("/run/stile-trust/", ""))
            got = stile_cli("check", tmp_path / "stile.yaml")
            assert got.returncode == 0 and ": ok (" in got.stdout, (name, got)
    assert seen == 7


def test_the_defaults_deny_everything(render, tmp_path):
    (tmp_path / "stile.yaml").write_text(config_of(render()))
    for url in ("https://docs.example.com/", "http://192.0.2.1/", "https://api.github.com/"):
        got = stile_cli("explain", "-c", tmp_path / "stile.yaml", "GET", url)
        assert got.returncode == 1 and "no_rule" in got.stdout, got


def test_the_sidecar_is_the_only_one_that_the_gateway_serves(stile, origin, tmp_path):
    """Both configurations as the manifests have them, run beside each other: the sidecar gets through by its token and adds
    its credential; who comes past it is refused."""
    found = objects(HERE / "sidecar.yaml")
    gateway, side = yaml.safe_load(config_of(found)), yaml.safe_load(config_of(found, "agent-stile"))
    rule = gateway["policies"]["agents"]["rules"][0]
    assert rule == {"allow": "api.example.com", "tls": "passthrough"}
    out = stile(listen=[{**gateway["listen"][0], "proxy": "127.0.0.1:0"}], extra=ADMIN,
                policies={"agents": [{**rule, "allow": "origin.test:*", "addresses": ["127.0.0.0/8"]}]})
    token = Sandbox(out, "agents")
    upstream, api = tmp_path / "upstream", tmp_path / "token"
    value = "canary-" + secrets.token_hex(12)
    for file, text in ((upstream, f"sandbox:{token.token}"), (api, value)):
        file.write_text(text)
        file.chmod(0o600)
    proxy = {**side["upstream"]["proxy"], "url": f"http://127.0.0.1:{out.port}"}
    credentials = {"stile-gateway": {**side["credentials"]["stile-gateway"], "from": {"file": str(upstream)}},
                   "api": {**side["credentials"]["api"], "from": {"file": str(api)}}}
    rules = [{**side["policies"]["default"]["rules"][0], "allow": "https://origin.test:*/echo/**",
              "addresses": ["127.0.0.0/8"]}]
    agent = stile(listen=[{**side["listen"][0], "proxy": "127.0.0.1:0"}],
                  upstream={"proxy": proxy, "hosts": {"unused.test": "127.0.0.1"}}, credentials=credentials,
                  policies={"default": rules}, extra="deny: explain")
    got = agent.tls_get("/echo/x")
    assert got.status == 200 and value in json.dumps(got.json()), got
    check_refusal(agent.tls_get("/ok/a"), 403, "no_rule")
    # Past the sidecar, as any container of the pod could.
    with out.client() as c:
        assert c.connect(f"origin.test:{origin.tls}").status == 407
    record = out.wait_record(event="tunnel.start")
    assert record["sandbox"] == token.name
    agent.stop()  # which holds a connection through the gateway


# ---- in a container ----


@pytest.fixture
def unsanitized():
    if SANITIZED:
        pytest.skip("needs a build without a sanitizer, as the image is one")


def test_the_gateway_in_a_container(unsanitized, engine, image, render, tmp_path):  # noqa: F811
    """The pod of the Deployment by Podman: volumes as the kubelet lays them, the probe, a ConfigMap that is edited, the end."""
    found = render({"policies": {"default": {"rules": [{"allow": "https://docs.example.com/**"}]}}})
    pod = pod_of(one(found, "Deployment", "stile"))
    container, = pod["containers"]
    group = pod["securityContext"]["fsGroup"]
    config, ca = tmp_path / "config", tmp_path / "ca"
    made = stile_cli("ca", "bundle", "-c", write(tmp_path / "make.yaml", f"version: 1\nca: {{dir: {tmp_path}/made}}\n"
                                                 "policies: {p: {}}\n"), "--dir", tmp_path / "trust")
    assert made.returncode == 0, made

    def lend(folder, generation, **files):
        """As the kubelet does with an fsGroup."""
        mount(folder, generation, mode=0o440, group=group, **files)
    lend(config, 1, **{"stile.yaml": config_of(found)})
    lend(ca, 1, **{n: (tmp_path / "made" / n).read_text() for n in ("ca.pem", "ca.key")})
    tmp_path.chmod(0o755)
    run = tmp_path / "run"
    run.mkdir()
    os.chown(run, 0, group)
    run.chmod(0o2777)
    name = "stile-test-" + secrets.token_hex(6)
    probe = container["readinessProbe"]["exec"]["command"]
    engine.podman("run", "--detach", "--name", name, "--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL",
                  "--security-opt", "no-new-privileges", "--network", "none",
                  "--user", f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}",
                  "--group-add", group, "-v", f"{config}:/etc/stile:ro", "-v", f"{ca}:/var/lib/stile/ca:ro",
                  "-v", f"{run}:/run/stile", image, *container["args"])

    def logs():
        got = engine.podman("logs", name)
        return got.stdout + got.stderr
    try:
        try:
            wait_for(lambda: "listening on 0.0.0.0:3128" in logs(), 60)
        except AssertionError:
            pytest.fail(f"stile did not start: {logs()}")
        wait_for(lambda: engine.podman("exec", name, *probe, check=False).returncode == 0, 60)
        lend(config, 2, **{"stile.yaml": config_of(found).replace("docs.", "other.")})
        wait_for(lambda: "reloaded /etc/stile/stile.yaml" in logs(), 60)
        # A broken one ends nothing, and the probe stays content.
        lend(config, 3, **{"stile.yaml": "version: 1\nx: 1\n"})
        wait_for(lambda: "the old policy stays" in logs(), 60)
        assert engine.podman("exec", name, *probe, check=False).returncode == 0
        engine.podman("stop", "--time", pod["terminationGracePeriodSeconds"], name)
        assert engine.podman("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0"
    finally:
        engine.podman("rm", "--force", "--volumes", "--time", "0", name)


def write(path, text):
    path.write_text(text)
    return path


# ---- compose ----


@pytest.mark.parametrize("more", [[], ["compose.docker.yaml"]])
def test_compose_reads_the_file_as_it_is_meant(more, tmp_path):
    """By Compose's own schema and loader, resolved."""
    files = [DOCKER / n for n in ("compose.yaml", *more)]
    env = {"SANDBOX_IMAGE": "agent", "WORKSPACE": str(tmp_path), "STILE_CONFIG": str(DOCKER / "stile.yaml")}
    project = json.loads(tool("compose", *files, **env))
    services, networks = project["services"], project["networks"]
    assert set(services) == {"trust", "stile", "sandbox"} and networks["inside"]["internal"] is True
    assert set(services["sandbox"]["networks"]) == {"inside"} and services["trust"]["network_mode"] == "none"
    for name, s in services.items():
        assert s["cap_drop"] == ["ALL"] and s["read_only"] is True, name
        assert s["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode", "ports", "use_api_socket"} & set(s), name
        assert not any("sock" in v["source"] for v in s["volumes"]), name
        if name != "trust":
            assert int(s["mem_limit"]) > 0 and s["pids_limit"] > 0 and s["ulimits"]["core"] == {}, name
    sandbox = services["sandbox"]
    assert sandbox["memswap_limit"] == sandbox["mem_limit"] and sandbox["cpus"] == 2 and sandbox["user"] == "65532:65532"
    assert sandbox["dns"] == ["127.0.0.1"]
    if more:
        assert networks["inside"]["driver_opts"], "the host is taken off the inner network"


def test_compose_refuses_what_it_does_not_know(tmp_path):
    text = (DOCKER / "compose.yaml").read_text().replace("cap_drop:", "cap_dropp:", 1)
    said = tool("compose", write(tmp_path / "compose.yaml", text), status=1)
    assert "cap_dropp" in said
