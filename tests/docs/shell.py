"""Types the blocks of a page into a shell, as a reader would, and compares what comes back with what the page shows."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time
import uuid

# What differs from run to run: addresses, ages and times, how far a counter is, uids, where kubectl says that it deleted.
CHANGES = [
    (r"\b127(\.\d+){3}(:\d+)?", "ADDRESS"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\b(\d+(\.\d+)? ?(ms|[hms]))+\b( ago)?", "AGE"),
    (r"\btick \d+", "tick N"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
    (r" deleted from \w+ namespace$", " deleted"),
    (r"\s+", " "),
]


NUMBER = (r"-?\b\d+(\.\d+)?", "N")


def normal(lines, numbers_vary=False):
    """What must be the same. A watch or a followed log says the same line any number of times."""
    said = []
    for line in lines:
        for pattern, name in CHANGES + [NUMBER] * numbers_vary:
            line = re.sub(pattern, name, line)
        line = line.strip()
        if line and (not said or said[-1] != line):
            said.append(line)
    return said


def line_matches(shown, line):
    """With `...` for any text: the parts between them one after the other, the first at the begin and the last at the end."""
    first, *parts = shown.split("...")
    if not parts:
        return line == first
    last = parts.pop()
    if not line.startswith(first) or not line.endswith(last) or len(line) < len(first) + len(last):
        return False
    at, end = len(first), len(line) - len(last)
    for part in parts:
        found = line.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def matches(shown, output, numbers_vary=False):
    """Whether the output is what the page shows, where `...` is any text and, alone on a line, any lines."""
    lines = normal(output, numbers_vary)
    ends = {0}  # how many lines what was shown so far may stand for
    for each in normal(shown, numbers_vary):
        if each == "...":
            ends = set(range(min(ends), len(lines) + 1)) if ends else ends
        else:
            ends = {at + 1 for at in ends if at < len(lines) and line_matches(each, lines[at])}
    return len(lines) in ends


def carriers(mark):
    """The processes whose environment has `mark`, whatever session they are in."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # gone, or another's
            continue
    return found


class Shell:
    """A shell in `folder`: its variables (`set -a` exports them all) and its current folder outlive a command, and what it started does not outlive it."""

    def __init__(self, folder, environment):
        self.mark = f"TRAINYARD_DOCS_SHELL={uuid.uuid4()}"
        self.folder, self.environment, self.background = folder, dict([self.mark.split("=")], **environment), []
        self.state = folder / ".shell"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.background:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pid in carriers(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def start(self, text, options):
        state = shlex.quote(str(self.state))
        keep = f"trap '{{ export -p; echo cd \"$(printf %q \"$PWD\")\"; }} > {state}' EXIT" if not options["until"] else ":"
        script = f"[ ! -e {state} ] || . {state}\n{keep}\nset -ea -o pipefail\n{text}\n"
        return subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if not options["until"] else subprocess.DEVNULL,
                                stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)

    def type(self, block):
        """Runs the block. Raises AssertionError with what came back where it is not what the page says."""
        options = block.options
        if options["until"]:
            return self.leave_running(block, options)
        commands = block.commands
        for command in commands:
            process = self.start(command.text, options)
            try:
                output = process.communicate(timeout=options["seconds"])[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                try:
                    output = process.communicate(timeout=5)[0]
                except subprocess.TimeoutExpired as late:  # something in a session of its own has the pipe
                    output = (late.stdout or b"").decode(errors="replace")
                raise AssertionError(f"{block.name}: not done within {options['seconds']} s: {command.text}\n{output}") from None
            if os.environ.get("TRAINYARD_SHOW_DOCS"):  # to write a page anew
                print(f"$ {command.text}\n{output}", end="")
            expected = options["exit"] if command is commands[-1] else 0
            assert process.returncode == expected, f"{block.name}: ended with {process.returncode}, not {expected}: {command.text}\n{output}"
            if command.output is not None:
                shown = "\n".join(command.output)
                assert matches(command.output, output.splitlines(), bool(options["vary"])), f"{block.name}: {command.text}\n--- the page says\n{shown}\n--- it printed\n{output}"

    def leave_running(self, block, options):
        [command] = block.commands
        assert not (self.folder / options["until"]).exists(), f"{block.name}: {options['until']} is there before the command"
        process = self.start("exec " + command.text, options)
        self.background.append(process)
        end = time.monotonic() + options["seconds"]
        while not (self.folder / options["until"]).exists():
            assert process.poll() is None, f"{block.name}: ended with {process.returncode} before {options['until']} was there: {command.text}"
            assert time.monotonic() < end, f"{block.name}: no {options['until']} within {options['seconds']} s: {command.text}"
            time.sleep(0.05)


def run_page(blocks, kind, folder, environment, rewrite=lambda text: text):
    """Types the page's blocks of `kind` (local, cluster) and writes its files, rewritten, in order. Returns what programs were missing."""
    missing = []
    with Shell(folder, environment) as shell:
        for block in blocks:
            if block.kind == "file":
                (folder / block.file).write_text(rewrite(block.code + "\n"))
            elif block.kind == kind:
                needs = block.options["needs"]
                if needs and not shutil.which(needs, path=environment["PATH"]):
                    missing.append(needs)
                else:
                    shell.type(block)
    return sorted(set(missing))
