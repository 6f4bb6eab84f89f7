#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the results of a run of tests/gpu/go into docs/reference/gpu_measurements.md: document_gpu.py OUT PAGE.

The page has a pair of comments for each result, `<!-- measured: NAME -->` and `<!-- end of NAME -->`. The text between them is
replaced by the result of that name. Card, driver, date and commit stand above a result, unless the result above is of the same run.
A table without a new result stays. `short_table` shortens tables.
"""
import itertools
import pathlib
import re
import sys

# Names of tables, and the files that a run leaves.
RESULTS = {"rules": "rules.md", "costs": "table.txt", "thrust": "thrust.txt", "training": "training.md",
           "tensors": "torch.txt", "nccl": "nccl.txt"}


def stop(sentence):
    sys.exit(f"document_gpu: {sentence}")


BLOCK = re.compile(r"(<!-- measured: (\w+) -->\n)(.*?)(<!-- end of \2 -->)", re.S)
RUN = re.compile(r"\n(.+, driver .+, commit .+\.)\n\n")
# As the page explains it.
REFUSED = re.compile(r"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,(?: and)? ends the capture")


def row(cells):
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def short_table(lines):
    """Returns a table with one row for calls with equal answers, or with a row for each name and a column for each size."""
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if head[0] == "call":
        answers = {}
        for call, *cells in rows:
            answers.setdefault(tuple(cells), []).append(call)
        rows = [[", ".join(calls), *cells] for cells, calls in answers.items()]
    elif head[0] in ("bytes", "keys") and len(head) > 3 and not head[1].startswith("p50"):
        sizes, names = ([*dict.fromkeys(cells[column] for cells in rows)] for column in (0, 1))
        found = {(cells[0], cells[1]): ", ".join(filter(None, cells[2:])) for cells in rows}
        rows = [[name, *(found.get((size, name), "") for size in sizes)] for name in names]
        head = [f"{head[1]}: {', '.join(head[2:])}", *(f"{size} {head[0]}" for size in sizes)]
    else:
        return lines
    return [row(head), "|---" * len(head) + "|", *map(row, rows)]


def with_run(text, of_each):
    """Returns the page with the run above each result. Without `of_each` a result of the same run as the result above has none."""
    last = None

    def block(match):
        nonlocal last
        start, _, body, end = match.groups()
        own = RUN.match(body)
        above, last = last, own[1] if own else last
        if of_each and not own and above:
            body = f"\n{above}\n{body}"
        if not of_each and own and own[1] == above:
            body = "\n" + body[own.end():]
        return start + body + end
    return BLOCK.sub(block, text)


def text_of(path, device):
    """Returns a result for the page: the device, then the text without the program's first line, its headings one level lower."""
    lines = path.read_text().strip().splitlines()
    if lines and re.match(r"(table|thrust|nccl): ", lines[0]):
        lines = lines[1:]
    lines = [f"#{line}" if line.startswith("## ") else REFUSED.sub("refused", line) for line in lines]
    # A cell with one answer in each of several modes.
    lines = [re.sub(r"(?<= )(refused)(?:; \1)+(?= )", r"\1", line) for line in lines]
    groups = [(is_table, list(group)) for is_table, group in itertools.groupby(lines, lambda line: line.startswith("|"))]
    text = "\n".join(line for is_table, group in groups for line in (short_table(group) if is_table else group))
    return f"{device}\n\n{text.strip()}"


def main(out, page):
    out, page = pathlib.Path(out), pathlib.Path(page)
    device = out / "device.txt"
    if not device.is_file():
        stop(f"{device} is missing: tests/gpu/go writes it, with card, driver and date")
    found = {name: out / file for name, file in RESULTS.items() if (out / file).is_file()}
    if not found:
        stop(f"{out} has no result: one of {', '.join(RESULTS.values())}")
    text = with_run(page.read_text(), of_each=True)
    for name, path in found.items():
        place = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end of {name} -->)", re.S)
        if not place.search(text):
            stop(f"{page} has no place for {path.name}: <!-- measured: {name} -->")
        body = f"\n{text_of(path, device.read_text().strip() + '.')}\n\n"
        text = place.sub(lambda match: match[1] + body + match[2], text)
    page.write_text(with_run(text, of_each=False))
    print(f"document_gpu: wrote {', '.join(found)} into {page}")
    missing = [f"{name} ({RESULTS[name]})" for name in RESULTS if name not in found]
    if missing:
        print(f"document_gpu: unchanged, because {out} has no result: {', '.join(missing)}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        stop("usage: document_gpu.py OUT PAGE")
    main(*sys.argv[1:])
