"""The runner of the pages notices what it should: a command that fails, other output, a mark that is none; and a browser that hangs."""

import os
import pathlib
import time

import pytest

import browser
import pages
import shell


def page_of(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)


def run(tmp_path, text):
    return shell.run_page(pages.blocks_of(page_of(tmp_path, text)), "local", tmp_path, dict(os.environ))


@pytest.mark.parametrize(
    "text, kinds",
    [
        ("<!-- run: local -->\n\n    one\n\n    two\n\ntext\n", ["local"]),
        ("<!-- run: cluster; in 5 s -->\n```sh\none\n```\n", ["cluster"]),
        ("<!-- not run: it formats the disk -->\n```\none\n```\n", ["not run"]),
        ("<!-- not run: -->\n```\none\n```\n", [None]),
        ("<!-- run: here -->\n\n    one\n", [None]),
        ("<!-- run: locally -->\n\n    one\n", [None]),
        ("<!-- run: local -->\n\nA line between.\n\n    one\n", [None]),
        ("```\none\n```\n\n    two\n", [None, None]),
        ("<!-- file: a.yaml -->\n```yaml\na: 1\n```\n", ["file"]),
        ("- item\n  goes on\n    and on\n", []),
    ],
)
def test_marks(tmp_path, text, kinds):
    assert [block.kind for block in pages.blocks_of(page_of(tmp_path, text))] == kinds


def test_a_block_without_an_end_is_named(tmp_path):
    with pytest.raises(ValueError, match="page.md:3: the block that begins here has no end"):
        pages.blocks_of(page_of(tmp_path, "text\n\n```sh\none\n"))


def test_a_longer_fence_ends_a_block(tmp_path):
    [block] = pages.blocks_of(page_of(tmp_path, "```\none\n`````\ntext\n"))
    assert block.code == "one"


def test_a_process_that_left_the_session_holds_nobody_up(tmp_path):
    """It keeps the pipe, which is waited for no longer than the block's time and some seconds."""
    began = time.monotonic()
    with pytest.raises(AssertionError, match="not done within 1 s"):
        run(tmp_path, "<!-- run: local; in 1 s -->\n\n    setsid sleep 20 &\n    sleep 20\n")
    assert time.monotonic() - began < 15


def test_a_process_that_left_the_session_ends_with_the_page(tmp_path):
    run(tmp_path, "<!-- run: local; in 5 s -->\n\n    setsid sh -c 'echo $$ >pid; exec sleep 600' >out 2>&1 &\n    while [ ! -s pid ]; do sleep 0.05; done\n")
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 5
    while pathlib.Path(f"/proc/{pid}").exists() and "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < end, "it sleeps on"
        time.sleep(0.05)


@pytest.mark.parametrize("shown, output, same", [
    (["a...b"], ["axb"], True), (["a...b"], ["ab"], True), (["ab...b"], ["ab"], False), (["...x...y..."], ["1x2y3"], True), (["...x...y..."], ["1y2x3"], False),
    (["...", "end"], ["1", "2", "end"], True), (["...", "end"], ["end", "more"], False), (["a", "...", "...", "b"], ["a", "b"], True), (["..."], [], True), (["a"], [], False)])
def test_what_stands_for_any_text(shown, output, same):
    assert shell.matches(shown, output) == same


def test_many_places_for_any_lines_take_no_time():
    shown = ["...", "x..."] * 6 + ["never"]
    assert not shell.matches(shown, [f"x{letter}{other}" for letter in "abcdefghijklmnopqrst" for other in "abcdefghijklmno"])


def test_a_file_that_is_there_before_is_no_sign(tmp_path):
    (tmp_path / "there").touch()
    with pytest.raises(AssertionError, match="there is there before the command"):
        run(tmp_path, "<!-- run: local; until there -->\n\n    sleep 5\n")


def test_an_unknown_option_is_named(tmp_path):
    with pytest.raises(ValueError, match="unknown option 'quickly'"):
        run(tmp_path, "<!-- run: local; quickly -->\n\n    true\n")


@pytest.mark.parametrize(
    "block",
    [
        "<!-- run: local -->\n\n    true\n    false\n    true\n",
        "<!-- run: local -->\n\n    false | true\n",
        "<!-- run: local; exit 3 -->\n\n    exit 4\n",
        "<!-- run: local -->\n\n    $ echo a\n    b\n",
        "<!-- run: local -->\n\n    $ printf 'a\\nb\\n'\n    a\n",
        "<!-- run: local -->\n\n    $ echo a\n    a\n    ...\n    b\n",
        "<!-- run: local -->\n\n    $ exit 64\n    ...\n",
        "<!-- run: local -->\n\n    $ echo a; kill -SEGV $$\n    a\n    $ true\n",
        "<!-- run: local; numbers vary -->\n\n    $ echo '{a: 1.5, b: 20}'\n    {a: 7, c: 0.1}\n",
        "<!-- run: local; in 1 s -->\n\n    sleep 5\n",
        "<!-- run: local; until there -->\n\n    false\n",
        "<!-- run: local; in 1 s; until there -->\n\n    sleep 60\n",
    ],
)
def test_what_is_not_as_the_page_says_fails(tmp_path, block):
    with pytest.raises(AssertionError, match=r"page\.md:\d+"):
        run(tmp_path, block)


@pytest.mark.parametrize(
    "block",
    [
        "<!-- run: local; exit 4 -->\n\n    exit 4\n",
        "<!-- run: local -->\n\n    $ printf 'a\\nb\\nc\\n'\n    a\n    ...\n    c\n",
        "<!-- run: local -->\n\n    $ echo a; echo in 17 s at 2026-01-02T03:04:05Z of 127.0.0.1:99\n    ...\n    in 3.5 s at 1999-01-02T03:04:05Z of 127.1.2.3:8\n",
        "<!-- run: local; numbers vary -->\n\n    $ echo '{a: 1.5, b: 20}'\n    {a: 7, b: 0.1}\n",
        "<!-- run: local -->\n\n    $ echo loss 1.2345\n    loss 1.2...\n",
        "<!-- run: local; exit 1 -->\n\n    $ cat nothing\n    cat: nothing: No such file or directory\n",
        "<!-- run: local -->\n\n    $ cat nothing || echo ended with $?\n    cat: nothing: No such file or directory\n    ended with 1\n",
        "<!-- run: local -->\n\n    $ echo one \\\n      two\n    one two\n",
        "<!-- run: local -->\n\n    mkdir a; cd a; B=2\n\ntext\n\n<!-- run: local -->\n\n    $ echo $B ${PWD##*/}\n    2 a\n",
        "<!-- file: a.yaml -->\n```yaml\na: 1\n```\n\n<!-- run: local -->\n```\n$ cat a.yaml\na: 1\n```\n",
        "<!-- run: local; until there -->\n\n    bash -c 'touch there; sleep 60'\n",
        "<!-- run: cluster -->\n\n    false\n",
        "<!-- not run: it fails -->\n\n    false\n",
    ],
)
def test_what_is_as_the_page_says_passes(tmp_path, block):
    assert run(tmp_path, block) == []


def test_what_needs_a_program_is_left_out_and_said(tmp_path):
    assert run(tmp_path, "<!-- run: local; needs no-such-program -->\n\n    false\n") == ["no-such-program"]


def test_nothing_is_left_behind(tmp_path):
    # The file has its name when it is whole: the shell is ended as soon as it is there.
    run(tmp_path, "<!-- run: local; until pid -->\n\n    bash -c 'echo $$ > new; mv new pid; sleep 60'\n")
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")


def test_a_browser_that_does_not_answer_ends_the_test_and_is_ended(tmp_path, monkeypatch):
    program = tmp_path / "chromium"
    program.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(browser, "PROGRAM", str(program))
    monkeypatch.setattr(browser, "SECONDS", 1, raising=False)
    with pytest.raises(RuntimeError, match="has not answered for 1 s"), browser.Browser():
        pass
    assert not pathlib.Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
