"""The table of values in docs/install.md, from the comments of charts/trainyard/values.yaml.

usage: values_table.py [--write]     without --write it compares, and says what differs
"""

import difflib
import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
VALUES, PAGE = ROOT / "charts/trainyard/values.yaml", ROOT / "docs/install.md"
BEGIN, END = "<!-- charts/values_table.py writes this table -->\n", "<!-- end of the table -->\n"


def comments(text):
    """Of each key, by its path: the comment that stands right above it."""
    found, open_keys, said = {}, [], []
    for line in text.splitlines():
        key = re.match(r"( *)([A-Za-z]+):", line)
        if remark := re.match(r" *# ?(.*)", line):
            said.append(remark.group(1))
            continue
        if key:
            depth = len(key.group(1)) // 2
            open_keys[depth:] = [key.group(2)]
            found[".".join(open_keys)] = " ".join(said)
        said = []
    return found


def rows():
    text = VALUES.read_text()
    said = comments(text)

    def walk(values, path):
        for key, value in values.items():
            here = f"{path}{key}"
            block = isinstance(value, dict) and any(said[name] for name in said if name.startswith(f"{here}."))
            if block:
                if said[here]:
                    yield here, None, said[here]
                yield from walk(value, f"{here}.")
            else:
                yield here, value, said[here]

    yield from walk(yaml.safe_load(text), "")


def table():
    lines = ["| value | default | what it is |", "|---|---|---|"]
    for name, value, what in rows():
        if not what:
            raise SystemExit(f"{VALUES.relative_to(ROOT)}: {name} has no comment")
        default = "" if value is None else f"`{json.dumps(value)}`"
        lines.append(f"| `{name}` | {default} | {what} |")
    return "\n".join(lines) + "\n"


def main():
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    now = before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(now)
    elif now != page:
        sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), now.splitlines(True), str(PAGE.relative_to(ROOT)), "from values.yaml"))
        raise SystemExit("docs/install.md is out of date: run make generate")


if __name__ == "__main__":
    main()
