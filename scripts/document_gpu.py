#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the results of a run of tests/gpu/go into docs/reference/gpu_measurements.md: document_gpu.py OUT PAGE.

The page has a pair of comments for each result, `<!-- measured: NAME -->` and `<!-- end of NAME -->`. The text between them is
replaced by the result of that name. Card, driver, date and commit stand above each result. A table without a new result stays.
"""
import pathlib
import re
import sys

# Names of tables, and the files that a run leaves.
RESULTS = {"rules": "rules.md", "questions": "questions.txt", "costs": "table.txt", "thrust": "thrust.txt", "training": "training.md",
           "tensors": "torch.txt", "nccl": "nccl.txt"}


def stop(sentence):
    sys.exit(f"document_gpu: {sentence}")


def text_of(path, device):
    """Returns a result for the page: the device, then the text without the program's first line, its headings one level lower."""
    lines = path.read_text().strip().splitlines()
    if lines and re.match(r"(questions|table|thrust|nccl): ", lines[0]):
        lines = lines[1:]
    text = "\n".join(f"#{line}" if line.startswith("## ") else line for line in lines)
    return f"{device}\n\n{text.strip()}"


def main(out, page):
    out, page = pathlib.Path(out), pathlib.Path(page)
    device = out / "device.txt"
    if not device.is_file():
        stop(f"{device} is missing: tests/gpu/go writes it, with card, driver and date")
    found = {name: out / file for name, file in RESULTS.items() if (out / file).is_file()}
    if not found:
        stop(f"{out} has no result: one of {', '.join(RESULTS.values())}")
    text = page.read_text()
    for name, path in found.items():
        place = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end of {name} -->)", re.S)
        if not place.search(text):
            stop(f"{page} has no place for {path.name}: <!-- measured: {name} -->")
        body = f"\n{text_of(path, device.read_text().strip() + '.')}\n\n"
        text = place.sub(lambda match: match[1] + body + match[2], text)
    page.write_text(text)
    print(f"document_gpu: wrote {', '.join(found)} into {page}")
    missing = [f"{name} ({RESULTS[name]})" for name in RESULTS if name not in found]
    if missing:
        print(f"document_gpu: left as they were, because {out} has no result: {', '.join(missing)}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        stop("usage: document_gpu.py OUT PAGE")
    main(*sys.argv[1:])
