# SPDX-License-Identifier: Apache-2.0
"""Counts sentences of comments and pages that are hard to read, and words of pages and class comments.

    voice.py             fails if a folder, a page or a class comment exceeds a limit below
    voice.py PATH...     lists the candidates in these files or folders, and their counts

The openings are those that seldom start a sentence in RMM, LLVM and Abseil (at most 0.9 %). A sentence that passes may still be hard to
read: the lists are for a reader to judge.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPENINGS = "What|Of|Where|Who|Whose|Whether|So|That|Those|Which|None|There"
PLACEHOLDERS = r"\bso (?:many|much)\b"
MAX_OPENING_SHARE = 0.01   # of a folder's sentences
MAX_MEAN_WORDS = 13        # of a folder's sentences
MAX_PAGE_WORDS = 1500
MAX_CLASS_WORDS = 120      # without code
# Tables that a reader searches, and the list of changes.
REFERENCE_PAGES = ("docs/reference/", "docs/benchmarks.md", "docs/coverage.md", "docs/decisions/index.md", "CHANGELOG.md")
CODE = (".hpp", ".cpp", ".cu", ".cuh", ".cppm", ".h")
HASH = (".py", ".cmake", ".txt")
GENERATED = ("docs/coverage.md", "docs/reference/")


def comment_blocks(path):
    """Returns the comments of a source file, each as one string: neighbouring lines of comment are one."""
    mark, trailing = (r"(?://[/!]?<?|\*)", r"//[/!]?<?") if path.suffix in CODE else ("#", "#")
    blocks, lines = [], []
    for line in path.read_text().split("\n") + [""]:
        if match := re.fullmatch(rf"\s*{mark}\s?(.*)", line):
            lines.append(match[1])
            continue
        if lines:
            blocks.append("\n".join(lines))
        lines = []
        if match := re.search(rf"[;,{{}})]\s+{trailing} ?([^\"]*)$", line):  # after a statement or a member
            lines = [match[1]]
    return [block for block in blocks if "SPDX" not in block]


def page_blocks(path):
    """Returns the paragraphs, items and cells of a page in Markdown, without code."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    blocks = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )|\n(?=\|)", text):
        blocks += [cell for cell in block.split("|")] if block.lstrip().startswith("|") else [block]
    return blocks


def sentences(block):
    """Returns the sentences of a comment or a paragraph."""
    block = re.sub(r"^\s*(?:[-*+]|\d+\.|#+)\s+", "", block.strip())
    block = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block)         # links
    block = re.sub(r"[@\\](?:param|tparam)\s+\S+", ". ", block)      # each tag starts a sentence
    block = re.sub(r"[@\\]\w+", ". ", block)
    block = re.sub(r"\s+", " ", block)
    found = re.split(r"(?<=[.!?])[*_)\"]*\s+(?=[*_(\"`]*[A-Z0-9`@])", block)
    return [s.strip(" *_.") for s in found if len(s.strip(" *_.").split()) >= 3]


def texts_of(path):
    """Returns the sentences of a file."""
    blocks = page_blocks(path) if path.suffix == ".md" else comment_blocks(path)
    return [sentence for block in blocks for sentence in sentences(block)]


def files_below(path):
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if (p.suffix in CODE + HASH + (".md",)) and p.is_file()
                  and not any(part.startswith((".", "build")) for part in p.relative_to(ROOT).parts))


def candidates(sentences_):
    return [s for s in sentences_ if re.match(rf"[*_(\"]*(?:{OPENINGS})\b", s) or re.search(PLACEHOLDERS, s)]


def measured(paths):
    """Returns the sentences below `paths`, and those that are candidates, each with its file."""
    all_, found = [], []
    for path in (f for p in paths for f in files_below(p)):
        if str(path.relative_to(ROOT)).startswith(GENERATED):
            continue
        texts = texts_of(path)
        all_ += texts
        found += [(path, s) for s in candidates(texts)]
    return all_, found


def long_class_comments(path):
    """Returns classes of a header whose comment is too long, with the number of words."""
    found = []
    lines, comment = path.read_text().split("\n"), []
    for line in lines:
        if line.startswith("///"):
            comment.append(line[3:])
        elif line.startswith(("template", "  requires", "//")):
            continue  # between a comment and its class
        else:
            if match := re.match(r"(?:class|struct) (?:\[\[\w+\]\] )?(\w+)", line):
                words = len(re.sub(r"```.*?```", "", "\n".join(comment), flags=re.S).split())
                if words > MAX_CLASS_WORDS:
                    found.append((match[1], words))
            comment = []
    return found


def main(arguments):
    if arguments:
        all_, found = measured([pathlib.Path(a).resolve() for a in arguments])
        for path, sentence in found:
            print(f"{path.relative_to(ROOT)}: {sentence[:160]}")
        words = sum(len(s.split()) for s in all_)
        print(f"{len(found)} of {len(all_)} sentences ({100 * len(found) / max(len(all_), 1):.1f} %), "
              f"{words / max(len(all_), 1):.1f} words in the mean")
        return 0
    failures = []
    for folder in sorted(p for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "build"))):
        all_, found = measured([folder])
        if not all_:
            continue
        share = len(found) / len(all_)
        mean = sum(len(s.split()) for s in all_) / len(all_)
        print(f"{folder.name:20} {len(all_):6} sentences {100 * share:5.1f} % {mean:5.1f} words")
        if share > MAX_OPENING_SHARE:
            failures.append(f"{folder.name}: {100 * share:.1f} % of the sentences start with {OPENINGS}, or say 'so many'")
        if mean > MAX_MEAN_WORDS:
            failures.append(f"{folder.name}: {mean:.1f} words a sentence")
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "planner/docs").rglob("*.md")]):
        words = len(re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S).split())
        if words > MAX_PAGE_WORDS and not str(page.relative_to(ROOT)).startswith(REFERENCE_PAGES):
            failures.append(f"{page.relative_to(ROOT)}: {words} words")
    for header in sorted(path for folder in ("pmr", "thrust_adapters", "adapters", "planner") for path in (ROOT / folder).rglob("*.hpp")):
        failures += [f"{header.relative_to(ROOT)}: the comment of {name} has {words} words" for name, words in long_class_comments(header)]
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
