# SPDX-License-Identifier: Apache-2.0
"""Draws docs/start/cheat_sheet.md as docs/start/pictures/cheat_sheet.svg, for README.md.

    cheat_sheet.py             writes the picture
    cheat_sheet.py compare     fails if the picture is not up to date

The picture has the rows of both tables, without remarks, and the numbered lines of the program.
"""
import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/start/cheat_sheet.md"
PICTURE = ROOT / "docs/start/pictures/cheat_sheet.svg"
WIDTH, LINE, SECOND_COLUMN = 830, 17, 350


def tables(page):
    """Returns the rows of each table without its header, each row a list of cells in plain text."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.M):
        rows = [[re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", cell).strip() for cell in line.strip("| ").split(" | ")]
                for line in table.splitlines()]
        found.append(rows[2:])
    return found


def calls(page):
    """Returns the numbered lines of the program: code and comment."""
    program = re.search(r"```cpp\n(.*?)```", page, re.S)[1]
    return [(code.strip(), note) for code, note in re.findall(r"^(.*?) *// (\d+\. .*)$", program, re.M)]


def picture(page):
    needs, finders = tables(page)
    sections = [("Choose", needs), ("Call", [(note.replace("`", ""), code) for code, note in calls(page)]),
                ("Find faults", [(finder, re.split(r"; | \(", faults)[0]) for finder, faults in finders])]
    lines, y = [], 4
    for title, rows in sections:
        y += 20
        lines.append(f'<text class="strong" x="10" y="{y}">{title}</text>')
        lines.append(f'<path d="M10 {y + 5}h{WIDTH - 20}"/>')
        y += 5
        for left, right in rows:
            y += LINE
            kind = ' class="code"' if title == "Call" else ""
            lines.append(f'<text x="10" y="{y}">{html.escape(left)}</text><text{kind} x="{SECOND_COLUMN}" y="{y}">{html.escape(right)}</text>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 12}" role="img" aria-label="Cheat sheet">
<style>
  svg {{ --ink: #1c2430; --paper: #f6f8fa }}
  @media (prefers-color-scheme: dark) {{ svg {{ --ink: #e6e9ef; --paper: #1c2430 }} }}
  rect {{ fill: var(--paper) }} path {{ stroke: var(--ink) }}
  text {{ font: 12px system-ui, sans-serif; fill: var(--ink) }} .strong {{ font-weight: 600 }} .code {{ font: 11px ui-monospace, monospace }}
</style>
<rect width="100%" height="100%" rx="6"/>
{chr(10).join(lines)}
</svg>
"""


def main():
    drawn = picture(PAGE.read_text())
    if sys.argv[1:] != ["compare"]:
        PICTURE.write_text(drawn)
    elif PICTURE.read_text() != drawn:
        sys.exit(f"{PICTURE.relative_to(ROOT)} is not up to date: run {pathlib.Path(__file__).relative_to(ROOT)}")


main()
