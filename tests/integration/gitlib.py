"""A git server as the tests make one: `git http-backend` behind TLS, and repositories to push to it."""

import os
import pathlib
import ssl
import subprocess
import threading

import http.server

from mirrorlib import Server, call, tool
from stilelib import Origin, clean_env

MIB = 1 << 20


class GitHandler(http.server.BaseHTTPRequestHandler):
    """As much of CGI as `git http-backend` needs."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers.get("Content-Length") or 0)
            while left > 0:
                part = self.rfile.read(min(left, MIB))
                if not part:
                    raise ConnectionError
                left -= len(part)
                yield part

    def cgi(self) -> None:
        path, _, query = self.path.partition("?")
        root = self.server.root
        env = clean_env(GIT_PROJECT_ROOT=root, GIT_HTTP_EXPORT_ALL="1", REMOTE_USER="tester", PATH_INFO=path,
                        QUERY_STRING=query, REQUEST_METHOD=self.command, HOME=root, GIT_CONFIG_NOSYSTEM="1",
                        CONTENT_TYPE=self.headers.get("Content-Type", ""),
                        HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
                        GIT_PROTOCOL=self.headers.get("Git-Protocol", ""))
        if self.headers.get("Content-Length"):
            env["CONTENT_LENGTH"] = self.headers["Content-Length"]
        p = subprocess.Popen(["git", "http-backend"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        out = []
        reader = threading.Thread(target=lambda: out.append(p.stdout.read()))
        reader.start()
        for part in self.body():
            p.stdin.write(part)
        p.stdin.close()
        reader.join()
        p.wait()
        self.server.asked.append((self.command, self.path, dict(self.headers)))
        head, _, body = out[0].partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = cgi


class GitServer:
    """Serves the repositories below self.root; self.asked is what it was asked for: method, path, fields."""

    def __init__(self, origin: Origin, root: pathlib.Path):
        tool("git")
        self.root, self.server = root, Server(("127.0.0.1", 0), GitHandler)
        self.asked = self.server.asked = []
        self.server.root = str(root)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(origin.pki / "good.pem", origin.pki / "good.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.base = f"https://origin.test:{self.server.server_address[1]}"

    def make(self, name: str) -> str:
        """A bare repository that may be pushed to; its URL."""
        git(self.root, "init", "-q", "--bare", "-b", "main", self.root / name)
        git(self.root / name, "config", "http.receivepack", "true")
        return f"{self.base}/{name}"

    def posts(self, service: str) -> list[dict]:
        return [fields for method, path, fields in self.asked if method == "POST" and path.endswith(service)]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def git_env(**more: str) -> dict[str, str]:
    """Nothing of the machine's own, and a name for commits."""
    who = {f"GIT_{w}_{k}": v for w in ("AUTHOR", "COMMITTER") for k, v in (("NAME", "t"), ("EMAIL", "t@origin.test"))}
    return clean_env(**{**who, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull, **more})


def git(tree: pathlib.Path, *args, status=0, **env: str) -> str:
    """git in a folder, with no network; what it printed."""
    tree.mkdir(parents=True, exist_ok=True)
    return call("git", *args, cwd=tree, env=git_env(HOME=str(tree), **env), status=status).stdout.decode().strip()


def work_tree(tree: pathlib.Path, size: int) -> pathlib.Path:
    """A repository with one commit of `size` bytes that do not compress."""
    git(tree, "init", "-q", "-b", "main")
    (tree / "blob").write_bytes(os.urandom(size))
    (tree / "README").write_text("hello\n")
    for args in (["config", "core.compression", "0"], ["config", "pack.compression", "0"], ["add", "."],
                 ["commit", "-q", "-m", "first"]):
        git(tree, *args)
    return tree
