"""The pages hold together: every block says whether it is run, links lead somewhere, what is named is there."""

import re

import pytest

import pages
from pages import ROOT

PAGES = pages.all_pages()
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def prose(page):
    """The page without its blocks of code, and without code within a line."""
    text = re.sub(r"^(```+).*?^\1$", "", page.read_text(), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", "\n".join(line for line in text.splitlines() if not line.startswith("    ")))


def anchors(page):
    """What the page's headings are called in a link, as GitHub and the site (mkdocs.yml, toc) both make it."""
    text = re.sub(r"^(```+).*?^\1$", "", page.read_text(), flags=re.M | re.S)
    headings = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def links(page):
    """[(target page or file, anchor)] of those within the repository."""
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            found.append(((page.parent / path).resolve() if path else page, anchor))
    return found


def navigation():
    return re.findall(r"[\w-]+\.md$", (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1], re.M)


@EACH_PAGE
def test_every_shell_block_says_whether_it_is_run(page):
    blocks = pages.blocks_of(page)
    for block in blocks:
        if block.is_shell:
            assert block.kind, f"{block.name}: {block.mark or 'no mark'}; expected one of <!-- run: local -->, <!-- run: cluster -->, <!-- not run: REASON -->"
        elif block.mark:
            assert block.kind == "file", f"{block.name}: a block of {block.language} cannot be marked {block.mark!r}"
        if block.kind in ("local", "cluster"):
            assert not block.options["until"] or len(block.commands) == 1, f"{block.name}: one command goes on in the background"
    marks = re.findall(r"^<!-- (?:run|not run|file): .*", page.read_text(), re.M)
    assert len(marks) == sum(1 for block in blocks if block.kind), "a mark stands before no block, or is not one line"


@EACH_PAGE
def test_every_block_is_seen(page):
    """The runner reads fences at a line's begin, and blocks behind an empty line."""
    lines, seen = page.read_text().splitlines(), set()
    for block in pages.blocks_of(page):
        seen |= set(range(block.line, block.line + block.code.count("\n") + 1))
    for number, line in enumerate(lines, 1):
        if number not in seen:
            assert not re.match(r"\s+(```|~~~)|\t\S", line), f"{page.name}:{number}: a block inside of a list, or with tabs, is not seen by the runner"
            assert not (re.match(r" {4}\S", line) and number > 1 and lines[number - 2].startswith("<!--")), f"{page.name}:{number}: an empty line is needed between a mark and its block"


@EACH_PAGE
def test_no_command_hides_in_a_block_of_another_language(page):
    programs = "trainyard|trainyard-operator|kubectl|helm|make|podman|docker|cmake|promtool"
    for block in pages.blocks_of(page):
        if not block.is_shell and block.language != "cpp":
            hidden = re.search(rf"^(\$ .*|({programs}) [a-z-][^─]*)$", block.code, re.M)  # a line of a diagram is none
            assert not hidden, f"{block.name}: {hidden[0]!r} is a command, and the block is {block.language}"


@EACH_PAGE
def test_lists_and_tables_begin_after_an_empty_line(page):
    """Else the site shows them as a paragraph."""
    lines = re.sub(r"^(```+).*?^\1$", "", page.read_text(), flags=re.M | re.S).splitlines()
    for before, line in zip(lines, lines[1:]):
        for begins, goes_on in ((r"- |\d+\. ", r"- |\d+\. | "), (r"\|", r"\|")):
            if re.match(begins, line):
                assert not before.strip() or re.match(goes_on, before), f"{page.name}: an empty line is missing before {line!r}"


@EACH_PAGE
def test_links_lead_somewhere(page):
    for target, anchor in links(page):
        assert target.exists(), f"{page.name}: no {target}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {target.name} has no #{anchor}; it has {', '.join(sorted(anchors(target)))}"


@EACH_PAGE
def test_a_page_of_the_site_links_to_pages_of_the_site(page):
    """A link out of docs/ works on GitHub alone."""
    if page.parent == ROOT / "docs":
        outside = [str(target) for target, _ in links(page) if not target.is_relative_to(ROOT / "docs")]
        assert not outside, outside


@EACH_PAGE
def test_files_and_targets_of_make_that_a_page_names_are_there(page):
    text = page.read_text()
    folders = r"\.ci|charts|cmake|common|docker|docs|manifests|operator|scripts|tests|tools|trainer"
    for path in re.findall(rf"(?<![\w/.<$~-])(?:{folders})/[\w./-]*\w(?![\w*{{<$-]|/\*)", text):
        # common/build_info is a header and a source. That one page names the files that its reader makes.
        assert (ROOT / path).exists() or list(ROOT.glob(path + ".*")) or page.stem == "adding-a-task", f"{page.name}: no {path}"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for target in re.findall(r"`make ([a-z-]+)[` ]", text):
        assert target in targets, f"{page.name}: the Makefile has no {target}"


@EACH_PAGE
def test_no_placeholder_is_left(page):
    left = re.findall(r"@[A-Z]+@|\bTODO\b|\bTBD\b", page.read_text())
    assert not left, f"{page.name}: {left}"


def test_the_navigation_holds_every_page_once():
    there = sorted(page.name for page in PAGES if page.parent == ROOT / "docs")
    assert sorted(navigation()) == there


def test_every_page_can_be_reached_from_the_readme():
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            ahead += [target for target, _ in links(page) if target.is_file()]
    assert not set(PAGES) - seen, sorted(page.name for page in set(PAGES) - seen)


def test_the_readme_is_short_and_has_two_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    commands = next(block for block in pages.blocks_of(ROOT / "README.md") if block.is_shell).code.splitlines()
    assert [command.split("#")[0].strip() for command in commands] == ["make demo", "make test"]


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
