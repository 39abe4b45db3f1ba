"""Takes the code of docs/adding-a-task.md out of the page, for a build that follows it literally.

usage: take_from_page.py PAGE DIRECTORY
"""

import pathlib
import re
import sys

page, directory = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
blocks = {}
for block in re.findall(r"^```cpp\n// ([^\n]*)\n(.*?)^```$", page.read_text(), re.M | re.S):
    blocks[block[0]] = block[1]
row = blocks.pop("a row of kTasks")
table = f"""#include "trainer/task/line/line_task.h"
#include "trainer/task/tasks.h"

namespace trainyard {{

std::span<const TaskEntry> Tasks() {{
  static constexpr TaskEntry kTasks[] = {{
      {row.strip()}
  }};
  return kTasks;
}}

}}  // namespace trainyard
"""
files = {**blocks, "table.cc": table}
for name, text in files.items():
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
