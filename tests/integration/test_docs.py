"""The documentation says what the program does: examples are checked and run, and every key, reason, event,
subcommand and flag is where it belongs, and nothing else is."""

import os
import pathlib
import re
import shutil
import subprocess
import textwrap

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STILE", REPO / "build" / "stile")).resolve()
MAN1, MAN5 = REPO / "proxy/man/stile.1", REPO / "proxy/man/stile.yaml.5"
COMPLETIONS = REPO / "proxy/completions"
EXAMPLES = sorted((REPO / "proxy/examples").glob("*.yaml"))
PAGES = sorted([*REPO.glob("README.md"), *(page for folder in ("docker", "proxy", "logging", "policy", "certs", "tests")
                                           for page in REPO.glob(f"{folder}/**/*.md"))])
ALSO = {"run": {"--config", "--help", "-h"}}  # spellings that the manual has on top of `stile help`


def stile(*args, cwd=None):
    return subprocess.run([str(BIN), *map(str, args)], capture_output=True, text=True, timeout=30, cwd=cwd)


def name_of(path):
    return str(path.relative_to(REPO))


# Examples


def fenced(path, kind):
    found = re.findall(rf"^ *```{kind}\n(.*?)^ *```$", path.read_text(), re.S | re.M)
    return [textwrap.dedent(text) for text in found]


def displayed(path):
    """The examples of a manual page, as they are read."""
    found = re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", path.read_text(), re.S | re.M)
    return [text.replace("\\(dq", '"') for text in found]


def yaml_texts():
    for path in PAGES:
        for i, text in enumerate(fenced(path, "yaml")):
            yield pytest.param(text, id=f"{name_of(path)}-{i}")
    for path in (MAN1, MAN5):
        for i, text in enumerate(t for t in displayed(path) if t.startswith("version:")):
            yield pytest.param(text, id=f"{name_of(path)}-{i}")
    for path in EXAMPLES:
        yield pytest.param(path.read_text(), id=name_of(path))


def test_there_are_examples():
    assert len(EXAMPLES) >= 4
    assert fenced(REPO / "README.md", "yaml") and displayed(MAN5)


@pytest.mark.parametrize("text", yaml_texts())
def test_example_has_no_fault_and_passes_its_own_tests(text, tmp_path):
    (tmp_path / "stile.yaml").write_text(text)
    got = stile("check", "stile.yaml", cwd=tmp_path)
    assert got.returncode == 0 and got.stderr == "" and "0 warnings" in got.stdout, got.stderr
    got = stile("test", "-c", "stile.yaml", cwd=tmp_path)
    assert got.returncode == 0, got.stdout


def console(text):
    """[command, what it prints] of a console block; a here-document belongs to its command."""
    steps, end = [], None
    for line in text.splitlines():
        if end:
            steps[-1][0] += line + "\n"
            end = None if line == end else end
        elif line.startswith("$ "):
            steps.append([line[2:] + "\n", ""])
            here = re.search(r"<<'(\w+)'", line)
            end = here and here.group(1)
        else:
            steps[-1][1] += line + "\n"
    return steps


def masked(text):
    """Without what differs from run to run."""
    text = re.sub(r'"id":"\w{20}"', '"id":"ID"', text)
    return re.sub(r"after \d+ ms", "after N ms", text)


def test_the_session_of_the_readme_prints_what_it_says(tmp_path):
    first, second = map(console, fenced(REPO / "README.md", "console"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/stile").symlink_to(BIN)
    (tmp_path / "work").mkdir()
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def run(*argv):
        return subprocess.run(argv, cwd=tmp_path / "work", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60).stdout

    for command, printed in first:
        assert run("bash", "-c", command) == printed, command
    # The shell of the second block gets its commands at once; they run inside and nowhere else.
    start, *inside, end = second
    assert start[0].startswith("stile run ") and start[0].endswith("-- bash\n") and end[0] == "exit\n"
    argv = start[0].split()
    curl = 'curl() { command curl -sS "$@"; }\n'  # as it is at a terminal
    got = run(*argv, "-c", curl + "".join(command for command, _ in inside))
    assert masked(got) == masked("".join(printed for _, printed in second))


def test_a_refusal_looks_as_the_readme_says(tmp_path):
    text = (REPO / "README.md").read_text()
    told = re.search(r"^```\n(HTTP/1\.1 403 .*?)^```$", text, re.S | re.M).group(1)
    got = stile("run", "--log", "run.jsonl", "--", "curl", "-si", "http://169.254.169.254/", cwd=tmp_path)
    assert masked(got.stdout.replace("\r", "")) == masked(told)


# Keys, reasons, events


def test_every_key_is_in_the_manual_and_the_reverse():
    known = stile("help", "yaml").stdout.split()
    told = re.findall(r"^\.It Ic (\S+)$", MAN5.read_text(), re.M)
    assert len(known) > 40
    assert sorted(told) == sorted(known)


def listed(section):
    text = (REPO / "logging/README.md").read_text()
    return re.findall(r"^- ((?:`[\w.]+`(?:, )?)+): ", text.split(f"\n## {section}\n")[1].split("\n## ")[0], re.M)


def words(entries):
    return sorted(w for e in entries for w in re.findall(r"`([\w.]+)`", e))


def test_every_reason_is_listed_and_the_reverse():
    known = re.findall(r'^\tX\(\w+, "(\w+)", \d+,', (REPO / "logging/reason.h").read_text(), re.M)
    assert len(known) > 30
    assert words(listed("Reasons")) == sorted(known)


def test_every_event_is_listed_and_the_reverse():
    source = "".join((REPO / f"logging/record.{x}").read_text() for x in "ch")
    known = set(re.findall(r'"((?:request|tunnel|dns|proxy|policy|sandbox)\.[a-z]+)"', source))
    assert len(known) >= 13
    assert words(listed("Events")) == sorted(known)
    for f in COMPLETIONS.iterdir():
        told = set(re.findall(r"\b(?:request|tunnel|dns|proxy|policy|sandbox)\.[a-z]+\b", f.read_text()))
        assert told == known, f.name


# The command line


def commands():
    return re.findall(r"^  stile (\w+)", stile("help").stdout, re.M)


def flags(command):
    """Those of `stile help COMMAND`: what its lines begin with and what its usage says."""
    usage, _, text = stile("help", command).stdout.partition("\n\n")
    found = set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", usage.partition(command)[2]))
    return found | set(re.findall(r"^  (--?[a-z][\w-]*)", text, re.M))


def manual_flags(command):
    section = MAN1.read_text().split(f"\n.Ss {command}\n")[1].split("\n.Ss ")[0].split("\n.Sh ")[0]
    return {"-" + f for line in re.findall(r"^\.It (Fl .*)$", section, re.M)
            for f in re.findall(r"Fl (\S+)", line)}


def bash_flags(command):
    ca = " show" if command == "ca" else ""
    script = (f"source {COMPLETIONS / 'stile.bash'}; COMP_WORDS=(stile {command}{ca} -); "
              'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _stile; printf "%s\\n" "${COMPREPLY[@]}"')
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=10).stdout
    return {f for f in out.split() if f != "--"}


def zsh_flags(command):
    branch = re.search(rf"^\t\t(?:\w+ \| )*{command}(?: \| \w+)*\) ?(.*?);;$", (COMPLETIONS / "_stile").read_text(),
                       re.S | re.M).group(1)
    return set(re.findall(r"['\"*](--?[a-z-]+)\[", branch)) | ({"-c"} if "$config" in branch else set())


def fish_flags(command):
    found = set()
    text = (COMPLETIONS / "stile.fish").read_text()
    loop = re.search(r"^for command in ([^\n]*)\n(.*?)^end", text, re.S | re.M)
    if command in loop.group(1).split():
        found.add("-" + re.search(r" -s (\w)", loop.group(2)).group(1))
    for of, rest in re.findall(r"^complete -c stile -n '__fish_seen_subcommand_from ([^']*)' (.*)$", text, re.M):
        if command in of.split():
            found |= {"-" + f for f in re.findall(r"(?:^| )-s (\w)(?= )", rest)}
            found |= {"--" + f for f in re.findall(r"(?:^| )-l ([\w-]+)(?= )", rest)}
    return found


def test_every_command_is_documented():
    named = commands()
    assert len(named) >= 8
    assert re.findall(r"^\.Ss (\w+)$", MAN1.read_text(), re.M) == named
    script = (f"source {COMPLETIONS / 'stile.bash'}; COMP_WORDS=(stile ''); COMP_CWORD=1; _stile; "
              'echo "${COMPREPLY[@]}"')
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=10).stdout.split()
    assert sorted(out) == sorted([*named, "--version", "--help"])
    assert re.findall(r"^\t\t['\"]([a-z]+):", (COMPLETIONS / "_stile").read_text(), re.M) == named
    fish = (COMPLETIONS / "stile.fish").read_text()
    assert re.search(r"^set -l commands (.*)$", fish, re.M).group(1).split() == named
    assert re.findall(r"^complete -c stile .* -a (\w+) -d", fish, re.M) == named


def usage(command):
    """What stands behind `stile COMMAND`, as words: flags with their value's place, brackets taken away."""
    text = stile("help", command).stdout.partition("\n\n")[0].removeprefix(f"usage: stile {command}")
    return re.sub(r"[][|]|\.\.\.", " ", text).split()


def test_the_synopsis_of_the_manual_is_that_of_the_help():
    section = MAN1.read_text().split("\n.Sh SYNOPSIS\n")[1].split("\n.Sh ")[0]
    told = {}
    for piece in section.split(".Nm\n")[1:]:
        first, _, rest = piece.partition("\n")
        for command in re.findall(r"\w+", first.removeprefix(".Cm ")):
            told.setdefault(command, set()).update("-" + f for f in re.findall(r"Fl (-?[a-z][\w-]*)", rest))
    assert {c: told.get(c) for c in commands()} == {c: {w for w in usage(c) if re.fullmatch(r"--?[a-z][\w-]*", w)}
                                                    for c in commands()}


def test_a_usage_names_every_flag():
    for command in commands():
        assert {w for w in usage(command) if re.fullmatch(r"--?[a-z][\w-]*", w)} == flags(command), command


def test_a_flag_of_run_is_not_taken_for_its_command():
    words = usage("run")
    for flag, value in zip(words, words[1:]):
        if flag.startswith("--") and len(flag) > 2:
            script = (f"source {COMPLETIONS / 'stile.bash'}; COMP_WORDS=(stile run {flag} x -- curl y); COMP_CWORD=6; "
                      "_stile_command_at; COMP_WORDS=(stile run x curl); COMP_CWORD=3; _stile_command_at; "
                      f"COMP_WORDS=(stile run {flag} x y); COMP_CWORD=4; _stile_command_at")
            out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=10).stdout.split()
            assert value.isupper() and out == ["5", "2"], flag


@pytest.mark.parametrize("command", ["run", "serve", "check", "explain", "test", "log", "ca", "doctor", "export", "sandbox",
                                     "credentials", "status", "help"])
def test_every_flag_is_documented(command):
    known = flags(command)
    assert known or command == "help"
    assert manual_flags(command) == known | ALSO.get(command, set())
    assert bash_flags(command) == known or command == "help"
    assert zsh_flags(command) == known
    assert fish_flags(command) == known


def test_the_list_of_commands_above_is_whole():
    assert commands() == ["run", "serve", "check", "explain", "test", "log", "ca", "doctor", "export", "sandbox",
                          "credentials", "status", "help"]


@pytest.mark.parametrize("shell, file", [("bash", "stile.bash"), ("zsh", "_stile"), ("fish", "stile.fish")])
def test_completions_are_read_by_their_shell(shell, file):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    got = subprocess.run([shell, "-n", str(COMPLETIONS / file)], capture_output=True, text=True, timeout=10)
    assert got.returncode == 0 and got.stderr == ""


# The pages themselves


@pytest.mark.parametrize("page", [MAN1, MAN5], ids=name_of)
def test_manual_pages_are_without_a_warning(page):
    if not shutil.which("man"):
        pytest.skip("man (man-db) is not installed")
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "MANPAGER": "cat", "MANROFFSEQ": ""}
    got = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, timeout=30, env=env)
    assert got.returncode == 0 and got.stderr == ""
    assert len(got.stdout) > 5000


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        assert "://" in target or (path.parent / target).exists(), target


FOLDERS = sorted({path.parent for layer in ("logging", "policy", "certs", "proxy/*") for path in REPO.glob(f"{layer}/*.c")}
                 - {REPO / "proxy"})


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folder_s_page_names_its_modules(folder):
    """Each by its name, its file, or a pattern such as `load_*.c`; an internal header needs no mention."""
    words = {w for span in re.findall(r"`([^`]+)`", (folder / "README.md").read_text()) for w in re.findall(r"[\w./*-]+", span)}
    patterns = [w for w in words if re.fullmatch(r"\w+\*\.[ch]", w)]
    for file in sorted(folder.glob("*.[ch]")):
        named = words & {file.stem, f"{file.stem}.h", f"{file.stem}.c"} or any(file.match(p[:-1] + "[ch]") for p in patterns)
        assert named or file.stem.endswith("internal"), f"{file.name} is not on its folder's page"
    for word in words:
        if re.fullmatch(r"[\w./-]+\.[ch]", word):
            assert (folder / word).exists() or (REPO / word).exists(), f"{word} is not there"


def test_the_page_of_the_tests_names_its_folders():
    text = (REPO / "tests/README.md").read_text()
    for folder in sorted({path.parts[-2] for path in (REPO / "tests").glob("*/*") if path.is_file()} - {"__pycache__"}):
        assert f"`{folder}/`" in text


@pytest.mark.parametrize("folder, files", [("bench", "*.[cp]*"), ("soak", "*.[cp]*"), ("fuzz", "*_fuzz.c")])
def test_a_page_of_tests_names_its_files(folder, files):
    text = (REPO / "tests" / folder / "README.md").read_text()
    for file in sorted((REPO / "tests" / folder).glob(files)):
        name = file.name.removesuffix("_fuzz.c")
        assert f"`{name}`" in text, file.name


def test_what_may_skip_is_in_the_table():
    """By its file; where a file of helpers skips, the files that use it have their own line."""
    section = (REPO / "tests/README.md").read_text().split("\n## Which tests may skip\n")[1]
    skips = {f.name for f in (REPO / "tests/integration").glob("test_*.py")
             if re.search(r"pytest\.skip\(|mark\.skipif\(|pytest\.importorskip\(", f.read_text())}
    assert skips - set(re.findall(r"`(test_\w+\.py)`", section)) == set()


def test_unit_of_systemd_is_installable(tmp_path):
    text = (REPO / "proxy/systemd/stile.service").read_text()
    assert "Type=notify\n" in text and "@PREFIX@/bin/stile serve" in text and "ExecReload=" in text
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze (systemd) is not installed")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/stile").symlink_to(BIN)
    unit = tmp_path / "stile.service"
    unit.write_text(text.replace("@PREFIX@", str(tmp_path)))
    got = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True,
                         timeout=30)
    assert "stile.service:" not in got.stderr, got.stderr
