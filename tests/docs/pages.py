"""The pages of the documentation, and the blocks of code in them.

A block is shell when it is indented, or when its fence names no language, `sh` or `console`. Each shell block says in an
HTML comment right before it, which no reader sees, what becomes of it:

    <!-- run: local -->      test_commands.py types it, in the order of the page
    <!-- run: cluster -->    tests/cluster/test_chart.py types it, on real nodes
    <!-- not run: REASON -->

and `<!-- file: NAME -->` before a block of any language writes it where the page's commands run. Options follow `run:`,
each behind a semicolon:

    exit N           the last command ends with N; every other one with 0
    in N s           it has so long (60)
    needs PROGRAM    left out, and said, where PATH has no such program
    until FILE       it goes on in the background, and the page when FILE is there; at the page's end it gets SIGTERM
    with JOB         for a cluster on which manifests/examples/JOB.yaml was applied
    numbers vary     the output's numbers are an example

In a block with prompts, `$ `, what follows a command is its output. A line of it that is `...` stands for any lines, `...`
within a line for any text; what differs from run to run (`shell.CHANGES`) is not compared.
"""

import dataclasses
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELL = ("", "sh", "console")


def all_pages():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclasses.dataclass
class Command:
    text: str
    output: list | None  # lines; None: the page shows none


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int  # of its first line of code, from 1
    language: str
    code: str
    mark: str | None  # the comment before it

    @property
    def name(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_shell(self):
        return self.language in SHELL

    @property
    def kind(self):
        """local, cluster, not run, file; None: nothing valid is said."""
        match = re.match(r"run: (local|cluster)(?=;|$)|(not run): \S|(file): [\w.-]+$", self.mark or "")
        return match and next(group for group in match.groups() if group)

    @property
    def file(self):
        return self.mark.removeprefix("file: ")

    @property
    def options(self):
        """The values of all options. Raises ValueError for another."""
        options = {"exit": 0, "seconds": 60, "needs": None, "until": None, "job": None, "vary": None}
        for option in filter(None, (part.strip() for part in self.mark.split(";")[1:])):
            match = re.fullmatch(r"exit (?P<exit>\d+)|in (?P<seconds>\d+) s|needs (?P<needs>\S+)|until (?P<until>\S+)|with (?P<job>\S+)|(?P<vary>numbers vary)", option)
            if not match:
                raise ValueError(f"{self.name}: unknown option {option!r} of a mark; the first lines of pages.py have them")
            options |= {key: int(value) if value.isdigit() else value for key, value in match.groupdict().items() if value}
        return options

    @property
    def commands(self):
        """What is typed, one by one; without prompts the whole block at once."""
        if not re.search(r"^\$ ", self.code, re.M):
            return [Command(self.code, None)]
        commands = []
        for line in self.code.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:], []))
            elif not commands:
                raise ValueError(f"{self.name}: output before the first prompt: {line}")
            elif commands[-1].text.endswith("\\") and not commands[-1].output:
                commands[-1].text += "\n" + line
            else:
                commands[-1].output.append(line)
        return [Command(c.text, c.output or None) for c in commands]


def blocks_of(page):
    lines, blocks, mark, at = page.read_text().splitlines(), [], None, 0
    while at < len(lines):
        line = lines[at]
        if fence := re.match(r"(```+|~~~+)\s*([\w+-]*)", line):
            end = next((i for i in range(at + 1, len(lines)) if re.fullmatch(re.escape(fence[1]) + fence[1][0] + "*", lines[i].strip())), None)
            if end is None:
                raise ValueError(f"{page.name}:{at + 1}: the block that begins here has no end")
            blocks.append(Block(page, at + 2, fence[2], "\n".join(lines[at + 1 : end]), mark))
            at, mark = end + 1, None
        elif re.match(r" {4}\S", line) and (at == 0 or not lines[at - 1].strip()):
            end = next((i for i in range(at, len(lines)) if lines[i].strip() and not lines[i].startswith("    ")), len(lines))
            blocks.append(Block(page, at + 1, "", "\n".join(text[4:] for text in lines[at:end]).rstrip(), mark))
            at, mark = end, None
        else:
            if comment := re.match(r"<!-- (.*) -->$", line):
                mark = comment[1]
            elif line.strip():
                mark = None
            at += 1
    return blocks


def cluster_blocks():
    """Of every page with some, its blocks for a cluster and its files, in order: [(page, [Block])]."""
    found = [(page, [b for b in blocks_of(page) if b.kind in ("cluster", "file")]) for page in all_pages()]
    return [(page, blocks) for page, blocks in found if any(b.kind == "cluster" for b in blocks)]


def main():
    """Lists the blocks of a kind, or the unmarked ones: tests/docs/pages.py [local|cluster|file|not run|none]"""
    wanted = sys.argv[1] if len(sys.argv) > 1 else "cluster"
    for page in all_pages():
        for block in blocks_of(page):
            if (block.kind or ("none" if block.is_shell else "")) == wanted:
                print(f"{block.name}\t{block.mark or ''}\t{block.code.splitlines()[0]}")


if __name__ == "__main__":
    main()
