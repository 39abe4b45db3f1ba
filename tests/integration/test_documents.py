"""Tests that documents name are there."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_test_of_the_clients_table_exists():
    page = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| (\d+) \| .*? \| (.*) \|$", page.split("## The client, line by line")[1].split("\n## ")[0], re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 28))
    there = set()
    for file in (ROOT / "tests").rglob("*_test.cc"):
        there.update(f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", file.read_text(), re.M))
    for file in (ROOT / "tests").rglob("test_*.py"):
        there.update(f"{file.stem}.{name}" for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.M))
    named = {name for _, tests in rows for name in re.findall(r"\w+\.\w+", tests)}
    assert named and named <= there, named - there
