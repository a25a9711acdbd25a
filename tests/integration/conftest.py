"""Fixtures of the integration tests. `origin` and `proxy` are shared; `stile` makes new ones."""

import pathlib
import signal

import pytest

import canary as canarylib
import stilelib
from stilelib import Origin, Stile

# Whoever starts the tests in the background (`&` of a script, nohup) hands them ignored signals, and every
# child would inherit them.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, signal.SIG_DFL)


@pytest.fixture(scope="session")
def origin(tmp_path_factory):
    o = Origin(tmp_path_factory.mktemp("origin"))
    yield o
    o.stop()


@pytest.fixture(scope="module")
def proxy_of_all(origin, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("stile"), origin)
    yield s
    s.finish()


@pytest.fixture
def proxy(proxy_of_all):
    """A stile with the default rules (stilelib.default_rules), for a whole file of tests. What the test before
    began has its end in the log."""
    return proxy_of_all.settled()


@pytest.fixture
def stile(origin, tmp_path):
    """stile(rules=..., credentials=..., limits=..., log=..., upstream=..., listen=..., prefix=...): a
    `stile serve` of the test's own. It is stopped at the end, and must then have been right: exit 0, no report
    of a sanitizer, whole pairs in the log (exit_code=None, pairs=False: not)."""
    made = []

    def make(**options) -> Stile:
        s = Stile(tmp_path / f"stile{len(made)}", origin, **options)
        made.append(s)
        return s

    yield make
    failures = []
    for s in made:
        try:
            s.finish()
        except AssertionError as e:
            failures.append(e)
    if failures:
        raise failures[0]


@pytest.fixture
def canary():
    """A secret of this run alone."""
    return canarylib.made_up()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory):
    """No secret that a test registered is in anything that stile wrote (canary.py)."""
    yield
    found = canarylib.search(tmp_path_factory.getbasetemp())
    assert not found, "secrets outside of their sources:\n" + "\n".join(found)


@pytest.fixture(scope="session", autouse=True)
def binary():
    if not stilelib.BIN.exists():
        pytest.exit(f"{stilelib.BIN} is not built (make, or set STILE)", 2)
    return pathlib.Path(stilelib.BIN)
