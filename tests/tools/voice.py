# SPDX-License-Identifier: Apache-2.0
"""Counts sentences of comments, docstrings, shell scripts and pages that are hard to read, and words of pages and class comments.

    voice.py             fails if a folder, a page of reference or a class comment exceeds a limit below
    voice.py PATH...     lists the candidates in these files or folders, and their counts

A failure names each sentence that starts with a counted opening, or the longest sentences, each with its file. The openings are
those that seldom start a sentence in RMM, LLVM and Abseil (at most 0.9 %). A sentence that passes may still be hard to read: the
lists are for a reader to judge.
"""
import ast
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
REFERENCE_PAGES = ("docs/reference/", "docs/benchmarks.md", "docs/benchmarks/", "docs/coverage.md", "docs/decisions/index.md", "CHANGELOG.md")
CODE = (".hpp", ".cpp", ".cu", ".cuh", ".cppm", ".h")
HASH = (".py", ".cmake", ".txt")
GENERATED = ("docs/coverage.md",                     # tests/tools/coverage.py writes it from names of tests
             "docs/reference/classes.md",            # Doxygen writes it from comments of headers, which are counted there
             "docs/reference/gpu_measurements.md")   # scripts/document_gpu.py writes it from results of a run
REFERENCE = ROOT / "docs/reference"
LONGEST_NAMED = 10                                   # sentences that a failure of the mean names


def comment_blocks(path):
    """Returns the comments of a source file, each as one string: neighbouring lines of comment are one."""
    mark, trailing = (r"(?://[/!]?<?|\*)", r"//[/!]?<?") if path.suffix in CODE else ("#", "#")
    blocks, lines = [], []
    for line in path.read_text().split("\n") + [""]:
        if "SPDX-License" in line or line.startswith("#!"):
            continue
        if match := re.fullmatch(rf"\s*{mark}\s?(.*)", line):
            lines.append(match[1])
            continue
        if lines:
            blocks.append("\n".join(lines))
        lines = []
        if match := re.search(rf"[;,{{}})]\s+{trailing} ?([^\"]*)$", line):  # after a statement or a member
            lines = [match[1]]
    return blocks


def is_python(path):
    return path.suffix == ".py" or path.suffix == "" and path.read_bytes()[:40].split(b"\n")[0].endswith(b"python3")


def is_shell(path):
    """Returns true for scripts that a shell runs or that another script sources."""
    start = path.read_bytes()[:100] if path.suffix == "" else b""
    return re.match(rb"#!.*sh\n|# SPDX.*\n# shellcheck shell=", start) is not None


def docstrings(path):
    """Returns the docstrings of a Python source, each by paragraph."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    return [block for text in texts if text for block in re.split(r"\n\s*\n", text) if not block.startswith("    ")]


def page_blocks(path):
    """Returns the paragraphs, items, and lines of cells of a page in Markdown, without code blocks."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    blocks = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )|\n(?=\|)", text):
        blocks += re.split(r"\||<br>", block) if block.lstrip().startswith("|") else [block]
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
    if is_python(path):
        blocks += docstrings(path)
    return [sentence for block in blocks for sentence in sentences(block)]


def files_below(path):
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.is_file() and (p.suffix in CODE + HASH + (".md",) or is_python(p) or is_shell(p))
                  and not any(part.startswith((".", "build")) for part in p.relative_to(ROOT).parts))


def candidates(sentences_):
    return [s for s in sentences_ if re.match(rf"[*_(\"]*(?:{OPENINGS})\b", s) or re.search(PLACEHOLDERS, s)]


def sentences_below(paths):
    """Returns pairs of a file and a sentence."""
    files = [f for p in paths for f in files_below(p) if not str(f.relative_to(ROOT)).startswith(GENERATED)]
    return [(path, sentence) for path in files for sentence in texts_of(path)]


def is_candidate(sentence):
    return re.match(rf"[*_(\"]*(?:{OPENINGS})\b", sentence) or re.search(PLACEHOLDERS, sentence)


def named(pairs):
    return [f"  {path.relative_to(ROOT)}: {sentence[:160]}" for path, sentence in pairs]


def mean_words(pairs):
    return sum(len(sentence.split()) for _, sentence in pairs) / max(len(pairs), 1)


def failures_of(name, pairs):
    """Returns a line for each exceeded limit of a folder or page, and the sentences behind it."""
    found = [(path, sentence) for path, sentence in pairs if is_candidate(sentence)]
    failures = []
    if len(found) > MAX_OPENING_SHARE * len(pairs):
        share = 100 * len(found) / len(pairs)
        failures += [f"{name}: {share:.1f} % of the sentences start with {OPENINGS}, or have 'so many'", *named(found)]
    if mean_words(pairs) > MAX_MEAN_WORDS:
        longest = sorted(pairs, key=lambda pair: -len(pair[1].split()))[:LONGEST_NAMED]
        failures += [f"{name}: {mean_words(pairs):.1f} words a sentence; the longest are", *named(longest)]
    return failures


def long_class_comments(path):
    """Returns classes and aliases of a header whose comment is too long, with the number of words."""
    found = []
    lines, comment = path.read_text().split("\n"), []
    for line in lines:
        if line.startswith("///"):
            comment.append(line[3:])
        elif line.startswith(("template", "  requires", "//")):
            continue  # between a comment and its class
        else:
            if match := re.match(r"(?:(?:class|struct) (?:\[\[\w+\]\] )?(\w+)|(?:using|concept) (\w+) =)", line):
                words = len(re.sub(r"```.*?```", "", "\n".join(comment), flags=re.S).split())
                if words > MAX_CLASS_WORDS:
                    found.append((match[1] or match[2], words))
            comment = []
    return found


def main(arguments):
    if arguments:
        pairs = sentences_below([pathlib.Path(a).resolve() for a in arguments])
        found = [pair for pair in pairs if is_candidate(pair[1])]
        print(*named(found), sep="\n")
        print(f"{len(found)} of {len(pairs)} sentences ({100 * len(found) / max(len(pairs), 1):.1f} %), "
              f"{mean_words(pairs):.1f} words in the mean")
        return 0
    failures = []
    folders = sorted(p for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "build")))
    root_files = [p for p in ROOT.iterdir() if p.suffix in HASH + (".md",) or p.is_file() and is_shell(p)]
    parts = [(p.name, [p]) for p in folders] + [("root", root_files)]
    for name, paths in parts + [(f"docs/reference/{p.name}", [p]) for p in sorted(REFERENCE.glob("*.md"))]:
        if pairs := sentences_below(paths):
            print(f"{name:34} {len(pairs):6} sentences {mean_words(pairs):5.1f} words")
            failures += failures_of(name, pairs)
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
