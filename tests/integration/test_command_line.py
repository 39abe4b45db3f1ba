"""The programs' command lines as people meet them: manual pages behind --help, completion in real shells, the generated page."""

import functools
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

import harness

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGE = pathlib.Path(harness.OPERATOR).parent / "image" / "trainyard-operator"
PROGRAMS = {"trainyard": harness.BIN, "trainyard-operator": harness.OPERATOR}
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPERANDS", "OPTIONS", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]


@functools.cache
def output(program, *arguments):
    result = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, env=harness.environment())
    assert result.returncode == 0, result.stderr
    return result.stdout


def sections(page):
    """Title -> text, in the page's order."""
    parts = re.split(r"^([A-Z][A-Z ]+)\n", page, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


@functools.cache
def below(name, words=()):
    """Every command, as words behind the program's name: [(), ("launch",), ("checkpoint",), ("checkpoint", "ls"), ...]."""
    listed = sections(output(PROGRAMS[name], *words, "--help")).get("COMMANDS", "")
    found = [words]
    for command in re.findall(r"^ {4}(\S+)", listed, re.M):
        found += below(name, (*words, command))
    return found


def every_command():
    return [(name, words) for name in PROGRAMS for words in below(name)]


def options_of(page):
    return set(re.findall(r"--[a-z][\w-]*", " ".join(re.findall(r"^ {4}(-.*)$", page.get("OPTIONS", ""), re.M))))


def test_commands_are_found():
    paths = {" ".join((name, *words)) for name, words in every_command()}
    assert {"trainyard launch", "trainyard checkpoint diff", "trainyard synth language_model", "trainyard-operator local", "trainyard completion"} <= paths
    assert len(paths) > 20


def test_every_command_has_a_manual_page():
    for name, words in every_command():
        text, path = output(PROGRAMS[name], *words, "--help"), " ".join((name, *words))
        page = sections(text)
        assert list(page) == [title for title in SECTIONS if title in page], f"{path}: {list(page)}"
        missing = {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"} - set(page)
        assert not missing, f"{path}: {missing}"
        assert re.match(rf" {{4}}{re.escape(path)} - \S", page["NAME"]), page["NAME"]
        assert page["SYNOPSIS"].startswith(f"    {path}"), "named as it is called, wherever it lies"
        assert "EXIT STATUS" in page or "COMMANDS" in page, path
        assert text.isascii() and max(map(len, text.splitlines())) <= 100 and not re.search(r" $", text, re.M), path
        if "COMMANDS" not in page:
            assert output(PROGRAMS[name], *words, "-h") == text


def test_examples_use_what_there_is():
    for name, words in every_command():
        page = sections(output(PROGRAMS[name], *words, "--help"))
        for line in re.findall(r"^ {8}(\S.*)$", page["EXAMPLES"], re.M):
            for program, rest in re.findall(r"(?:^|[ (|])(trainyard(?:-operator)?) ([^|>&)]*)", line):
                command = [word for word in rest.split() if re.fullmatch(r"[a-z_-]+", word)]
                known = next((tuple(command[:n]) for n in (2, 1, 0) if tuple(command[:n]) in below(program)), None)
                assert known, line
                used = set(re.findall(r"(--[a-z][\w-]*)", rest))
                assert used <= options_of(sections(output(PROGRAMS[program], *known, "--help"))), line


def test_pages_that_are_named_are_there():
    for name, words in every_command():
        for page in re.findall(r"docs/[\w-]+\.md", output(PROGRAMS[name], *words, "--help")):
            assert (ROOT / page).exists(), f"{name} {words}: {page}"


def test_every_variable_that_the_trainer_reads_is_in_a_manual():
    """Names in the sources, against those in the manual."""
    source = "\n".join(path.read_text() for path in [*(ROOT / "trainer").rglob("*.cc"), ROOT / "trainer/base/environment.h"])
    constants = dict(re.findall(r'constexpr char (k\w+)\[\] = "(\w+)"', (ROOT / "operator/api/worker_env.h").read_text()))
    read = set(re.findall(r'(?:getenv|Env\w+|Need)\("(\w+)"', source))
    read |= {constants[name] for name in re.findall(r"env::(k\w+)", source)}
    unread = {"TRAINYARD_TEST_FAULT", "TRAINYARD_CONFIG"}  # a test's own; named through its text
    manual = output(harness.BIN, "manual")
    assert {"MASTER_PORT", "SLURM_NODEID", "TRAINYARD_STATUS_PORT"} <= read
    assert {name for name in read - unread if name not in manual} == set()


def test_choices_and_defaults_are_said():
    page = output(harness.BIN, "synth", "language_model", "--help")
    assert re.search(r"^ {4}--size tiny\|small\|full\n {12}.*Default: small\.", page, re.M), page
    assert "--out DIR" in sections(page)["SYNOPSIS"] and "Required." in page
    page = re.sub(r"\s+", " ", output(harness.OPERATOR, "run", "--help"))
    assert "--listen ADDRESS:PORT" in page and "Default: 127.0.0.1:8080." in page


def test_the_generated_page_is_up_to_date():
    made = subprocess.run([ROOT / "tools" / "cli_reference.sh", pathlib.Path(harness.BIN).parent], capture_output=True, text=True, timeout=60, check=True).stdout
    assert made == (ROOT / "docs" / "cli.md").read_text(), "docs/cli.md is out of date: run make generate"


def test_man_reads_the_manual(tmp_path):
    """groff's warnings, where Debian's groff or man-db is installed."""
    for name in PROGRAMS:
        page = output(PROGRAMS[name], "manual", "--format", "man")
        assert page.startswith(f'.TH "{name.upper()}" 1')
        if not shutil.which("groff"):
            pytest.skip("there is no groff (Debian's groff-base)")
        result = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-P-c"], input=page, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0 and not result.stderr, result.stderr
        shown = re.sub(r".\x08", "", result.stdout)
        assert "EXIT STATUS" in shown and "--version" in shown and f"{name} completion bash" in shown


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["manual"], ["completion", "bash"], ["checkpoint", "--help"], ["config-reference"], ["tasks"], ["crd"], ["crd", "--reference"]], ids=" ".join)
def test_a_full_disk_is_no_success(words):
    """What a command prints is its result: an empty or cut file of it would be taken for whole."""
    program = harness.OPERATOR if words[0] == "crd" else harness.BIN
    with open("/dev/full", "w") as full:
        result = subprocess.run([program, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=harness.environment())
    assert result.returncode == 74 and "the output cannot be written: No space left on device" in result.stderr, result


@pytest.mark.parametrize("words, what", [(["run", "--namespace", "A B"], "--namespace: 'A B' is no namespace; allowed: lower case letters"),
                                         (["run", "--leader-elect", "--lease-namespace", "x/y"], "--lease-namespace: 'x/y' is no namespace"),
                                         (["local", "--api-only", "-f", "job.yaml"], "without --serve PORT nobody sees it")])
def test_operator_options_that_cannot_be(words, what):
    result = harness.run(*words, program=harness.OPERATOR, timeout=30)
    assert result.returncode == 2 and what in result.stderr, result.stderr


def test_an_unknown_shell_is_a_usage_error():
    for program in PROGRAMS.values():
        result = subprocess.run([program, "completion", "tcsh"], capture_output=True, text=True, timeout=60)
        assert result.returncode == 2 and "bash" in result.stderr and result.stdout == ""


# What is typed, up to the cursor -> what is offered, some of it or (with "only") all of it.
CASES = [
    ("trainyard ", {"launch", "checkpoint", "completion"}, False),
    ("trainyard la", {"launch"}, True),
    ("trainyard checkpoint ", {"ls", "verify", "export", "diff"}, True),
    ("trainyard launch --n", {"--nproc", "--nnodes", "--node-rank"}, True),
    ("trainyard synth language_model --size ", {"tiny", "small", "full"}, True),
    ("trainyard synth algorithm_distillation --source a", {"ad_epsilon"}, True),
    ("trainyard launch --config j", {"job.yaml"}, True),
    ("trainyard checkpoint ls s", {"steps"}, True),
    ("trainyard completion ", {"bash", "zsh", "fish"}, True),
    ("trainyard-operator local --st", {"--state-dir"}, True),
    ("trainyard-operator validate -f j", {"job.yaml"}, True),
    ("trainyard-operator ma", {"manual"}, True),
]


@pytest.fixture
def folder(tmp_path):
    """Two names with each first letter, of which one is a folder; and the scripts."""
    (tmp_path / "job.yaml").write_text("")
    (tmp_path / "steps").mkdir()
    (tmp_path / "settings.yaml").write_text("")
    for name, program in PROGRAMS.items():
        for shell in ("bash", "zsh", "fish"):
            (tmp_path / f".{name}.{shell}").write_text(output(program, "completion", shell))
    return tmp_path


def check(case, offered):
    line, expected, only = case
    offered = {word.rstrip("/") for word in offered}
    assert expected <= offered and (not only or offered == expected), f"{line!r}: {sorted(offered)}"


@pytest.mark.parametrize("case", [*CASES, ("trainyard launch --config=j", {"job.yaml"}, True), ("trainyard launch --nproc ", set(), True)], ids=lambda case: case[0])
def test_bash_completes(folder, case):
    """The function that bash would call, in a real bash, with words cut as bash cuts them."""
    words = re.findall(r"=|[^\s=]+", case[0]) + ([""] if case[0].endswith((" ", "=")) else [])
    script = f"""
source .trainyard.bash; source .trainyard-operator.bash
COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
function=$(complete -p {words[0]} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    result = subprocess.run(["bash", "--norc", "-euo", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and not result.stderr, result.stderr
    check(case, filter(None, result.stdout.splitlines()))


def test_bash_completes_at_a_prompt(folder):
    """The whole way: a terminal, the Tab key, the line that comes of it."""
    assert "trainyard checkpoint verify steps/" in typed(["bash", "--norc", "-i"], folder, "source .trainyard.bash", "trainyard checkpoint ver\tst\t")


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh (Debian's zsh)")
@pytest.mark.parametrize("keys, line", [("trainyard chec\tver\tst\t", "trainyard checkpoint verify steps/"), ("trainyard launch --npr\t", "trainyard launch --nproc"),
                                        ("trainyard synth language_model --size ti\t", "--size tiny"), ("trainyard-operator validate -f j\t", "validate -f job.yaml")])
def test_zsh_completes(folder, keys, line):
    setup = "autoload -U compinit && compinit -u -D && source .trainyard.zsh && source .trainyard-operator.zsh"
    assert line in typed(["zsh", "-f", "-i"], folder, setup, keys)


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish (Debian's fish)")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_fish_completes(folder, case):
    script = f"source .trainyard.fish; source .trainyard-operator.fish; complete -C '{case[0]}'"
    result = subprocess.run(["fish", "--no-config", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, env={**os.environ, "HOME": str(folder)})
    assert result.returncode == 0 and not result.stderr, result.stderr
    check(case, [line.split("\t")[0] for line in result.stdout.splitlines()])


def typed(shell, folder, setup, keys):
    """What a shell on a terminal shows after these keys, without colours and cursor movements."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(TERM="dumb", PS1="> ", HOME=str(folder), INPUTRC="/dev/null")
        os.execvp(shell[0], shell)
    shown = b""

    def read(seconds, until=None):
        nonlocal shown
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (until and until in shown):
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)

    try:
        os.write(terminal, (setup + "; echo read''y\n").encode())
        read(30, b"ready")
        read(0.5)
        shown = b""
        for part in re.findall(r"[^\t]*\t", keys):
            os.write(terminal, part.encode())
            read(1.5)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|.\x08|\r", "", shown.decode(errors="replace"))
    finally:
        os.close(terminal)
        harness.kill(pid)
        os.waitpid(pid, 0)
