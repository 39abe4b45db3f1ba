"""Says again, at the end of a long run of ctest, how the output of each failed test ended: failed.py BUILD."""

import collections
import pathlib
import sys

LINES = 25


def outputs(log):
    """Of each test that has not passed: its name, and the last lines of its output. A log may have gigabytes."""
    name, inside, last = "", False, collections.deque(maxlen=LINES)
    with open(log, errors="replace") as lines:
        for line in lines:
            line = line.rstrip("\n")[:500]
            if not inside and " Test: " in line:
                name = line.partition(" Test: ")[2]
                last.clear()
            elif line == "Output:":
                inside = True
            elif line == "<end of output>":
                inside = False
            elif inside and line.strip("-"):
                last.append(line)
            elif line == "Test Failed." or line.startswith("Test timed out"):
                yield name, list(last)


def main():
    log = pathlib.Path(sys.argv[1]) / "Testing" / "Temporary" / "LastTest.log"
    for name, last in outputs(log):
        print(f"\n== {name}, the end of its output ==", *last, sep="\n")


if __name__ == "__main__":
    main()
