"""The admin socket of a `stile serve`, as tests ask on it, and the sandboxes that it makes tokens of."""

import base64
import json
import subprocess

from stilelib import BIN, TIMEOUT, Stile, clean_env

ADMIN = "admin: unix:admin.sock"


def stile_cli(*args, cwd=None) -> subprocess.CompletedProcess:
    return subprocess.run([str(BIN), *map(str, args)], capture_output=True, text=True, timeout=TIMEOUT * 2, cwd=cwd,
                          stdin=subprocess.DEVNULL, env=clean_env())


def ask(s: Stile, *args, status: int = 0) -> subprocess.CompletedProcess:
    """`stile ARGS` with the configuration of s."""
    got = stile_cli(args[0], *args[1:], "-c", s.config)
    assert got.returncode == status, f"{args}: {got.returncode}\n{got.stdout}\n{got.stderr}"
    return got


def ask_json(s: Stile, *args, status: int = 0) -> dict:
    return json.loads(ask(s, *args, "--json", status=status).stdout)


class Sandbox:
    """A token, made by `stile sandbox new`."""

    def __init__(self, s: Stile, policy: str, *args):
        told = ask_json(s, "sandbox", "new", "--policy", policy, *args)
        self.stile, self.name, self.id, self.url, self.token = s, told["name"], told["id"], told["url"], told["token"]
        self.basic = self.field("Basic " + base64.b64encode(f"sandbox:{self.token}".encode()).decode())
        self.bearer = self.field("Bearer " + self.token)

    @staticmethod
    def field(value: str) -> str:
        return f"Proxy-Authorization: {value}\r\n"

    def listed(self) -> dict | None:
        return next((x for x in ask_json(self.stile, "sandbox", "list")["sandboxes"] if x["id"] == self.id), None)

    def revoke(self) -> None:
        ask(self.stile, "sandbox", "revoke", self.name)
