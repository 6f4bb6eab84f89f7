# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/planner.md: planner_pictures.py FOLDER. `--check` compares existing ones."""
import pathlib
import sys

UNIT, LEFT, BOTTOM = 26, 40, 20


class Picture:
    """A picture with time across and addresses upwards, both in units."""

    def __init__(self, name, title, width, height):
        self.name, self.height = name, height
        w, h = LEFT + width * UNIT + 70, height * UNIT + BOTTOM + 14
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
                      f'font-family="sans-serif" font-size="12" text-anchor="middle"><title>{title}</title>',
                      '<style>text{fill:#222}rect{stroke:#456}@media(prefers-color-scheme:dark){text{fill:#ddd}'
                      '.in{fill:#222}}</style>']

    def y(self, offset):
        return (self.height - offset) * UNIT + 10

    def block(self, name, begin, end, offset, size, fill="#9bc4e2"):
        x, y = LEFT + begin * UNIT, self.y(offset + size)
        self.parts.append(f'<rect x="{x}" y="{y}" width="{(end - begin) * UNIT}" height="{size * UNIT}" fill="{fill}"/>'
                          f'<text class="in" x="{x + (end - begin) * UNIT / 2}" y="{y + size * UNIT / 2 + 4}">{name}</text>')

    def line(self, offset, begin, end, label):
        self.parts.append(f'<path d="M{LEFT + begin * UNIT} {self.y(offset)}H{LEFT + end * UNIT}" stroke="#c33" '
                          f'stroke-width="2"/><text x="{LEFT + end * UNIT + 6}" y="{self.y(offset) + 4}" '
                          f'text-anchor="start">{label}</text>')

    def annotate(self, text, at, offset):
        self.parts.append(f'<text x="{LEFT + at * UNIT}" y="{self.y(offset) + 4}">{text}</text>')

    def text(self):
        return "\n".join(self.parts) + "\n</svg>\n"


def pictures():
    p = Picture("planner_sections", "Four buffers and the two sections that they make", 9, 4)
    for block in (("a", 0, 4, 0, 1), ("b", 2, 9, 1, 1), ("c", 5, 9, 2, 1), ("d", 1, 3, 2, 1)):
        p.block(*block)
    for text, at in (("section 0", 2.5), ("section 1", 7)):
        p.annotate(text, at, -0.3)
    yield p
    p = Picture("planner_skyline", "A skyline with a plateau between two higher sides", 9, 5)
    for block in (("", 0, 3, 0, 3), ("", 3, 6, 0, 1), ("", 6, 9, 0, 2)):
        p.block(*block)
    p.block("fits", 3, 6, 1, 1, "#f3d28b")
    p.line(1, 3, 6, "")
    p.annotate("plateau", 4.5, 0.5)
    yield p
    p = Picture("planner_along_time", "Two buffers that die together, and two that are born in their place", 10, 5)
    for block in (("a", 0, 10, 0, 1), ("b", 0, 5, 1, 2), ("c", 0, 5, 3, 1), ("d", 0, 10, 4, 1)):
        p.block(*block)
    for block in (("e", 5, 10, 1, 1), ("f", 5, 10, 2, 2)):
        p.block(*block, "#f3d28b")
    p.annotate("b and c die, e and f are born", 5, -0.3)
    yield p


if __name__ == "__main__":
    folder, checks = pathlib.Path(sys.argv[1]), "--check" in sys.argv[2:]
    for picture in pictures():
        path = folder / f"{picture.name}.svg"
        if not checks:
            path.write_text(picture.text())
        elif path.read_text() != picture.text():
            sys.exit(f"{path} is not what planner/docs/planner_pictures.py draws")
