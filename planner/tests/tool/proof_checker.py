# SPDX-License-Identifier: Apache-2.0
"""Checks a proof of tidemark-plan that no plan is lower.

Usage: proof_checker.py BLOCKS.csv PROOF.txt HEIGHT [ALIGNMENT].
It shares no code with tidemark-plan. HEIGHT is the height of the plan, ALIGNMENT the value of --alignment,
both in bytes.

planner/docs/planner.md has the format in "Proofs" and the rules in "By pairs". All rules are for blocks live
at one moment. Such blocks share no byte, so they lie on each other in some order.
"""
import csv
import itertools
import math
import re
import sys


class block:
    def __init__(self, row, alignment):
        self.lower, self.upper = int(row["lower"]), int(row["upper"])
        self.alignment = max(alignment, int(row.get("alignment") or 1))
        self.size = up(int(row["size"]), alignment)
        self.offset = int(row["offset"]) if row.get("offset") else None


def up(offset, alignment):
    return -(-offset // alignment) * alignment


class case:
    """The facts of a case: least offsets (heads), least bytes above ends (tails), pairs (lower, upper)."""

    def __init__(self, blocks, limit, below=()):
        self.blocks, self.limit, self.below = blocks, limit, set(below)
        self.alignments = {1, *(b.alignment for b in blocks)}
        self.heads = [b.offset or 0 for b in blocks]
        self.tails = [0 if b.offset is None else max(0, limit - b.offset - b.size) for b in blocks]

    def with_pair(self, lower, upper):
        other = case(self.blocks, self.limit, self.below | {(lower, upper)})
        other.heads, other.tails = self.heads[:], self.tails[:]
        return other

    def is_contradiction(self, sections):
        """Applies the rules until nothing changes. Returns true if no layout is left."""
        before = None
        while before != (self.heads, self.tails, len(self.below)):
            before = self.heads[:], self.tails[:], len(self.below)
            if any(h + b.size + t > self.limit for h, b, t in zip(self.heads, self.blocks, self.tails)):
                return True
            for live in sections:
                if self.exceeds(live):
                    return True
                for i in live:
                    self.raise_ends(i, live)
                for a, b in itertools.permutations(live, 2):
                    least = up(self.heads[a] + self.blocks[a].size, self.blocks[b].alignment)
                    if least + self.blocks[b].size + self.tails[b] > self.limit:
                        self.below.add((b, a))
                for middle, lower, upper in itertools.product(live, repeat=3):
                    if (lower, middle) in self.below and (middle, upper) in self.below:
                        self.below.add((lower, upper))
                if any((b, a) in self.below for a, b in self.below):
                    return True
        return False

    def pile(self, some, alignment):
        """Returns the bytes of a pile at multiples of an alignment: to the next multiple, and to its end."""
        to_next = sum(up(self.blocks[i].size, alignment) for i in some)
        return to_next, to_next - max(up(self.blocks[i].size, alignment) - self.blocks[i].size for i in some)

    def piles(self, some, keys):
        """Yields each alignment, each least key, and the blocks that have at least both."""
        for alignment in self.alignments:
            aligned = [i for i in some if self.blocks[i].alignment >= alignment]
            for key in {keys[i] for i in aligned}:
                yield alignment, key, [i for i in aligned if keys[i] >= key]

    def exceeds(self, live):
        """Returns true if some blocks do not fit between their least head and their least tail."""
        return any(up(head, alignment) + self.pile(between, alignment)[1] + tail > self.limit
                   for alignment, head, above in self.piles(live, self.heads)
                   for tail in {self.tails[i] for i in above}
                   for between in [[i for i in above if self.tails[i] >= tail]])

    def raise_ends(self, i, live):
        """Raises head and tail: a block lies above all blocks below it, at a multiple of its alignment."""
        lower = [j for j in live if (j, i) in self.below]
        upper = [j for j in live if (i, j) in self.below]
        align, size = self.blocks[i].alignment, self.blocks[i].size
        for alignment, head, pile in self.piles(lower, self.heads):
            to_next, to_end = self.pile(pile, alignment)
            self.heads[i] = max(self.heads[i], up(up(head, alignment) + (to_next if align >= alignment else to_end), align))
        least = self.tails[i]
        for alignment, tail, pile in self.piles(upper, self.tails):
            own = up(size, alignment) if align >= alignment else size
            least = max(least, own - size + self.pile(pile, alignment)[1] + tail)
        self.tails[i] = self.limit - size - (self.limit - size - least) // align * align


def fault(rows, text, height, alignment=1):
    """@return a sentence with the fault of the proof that no plan is lower than height; "" if it is valid.
    @param rows: dictionaries of strings"""
    lines = text.split("\n")
    if lines.pop() != "" or len(lines) < 3 or lines[0] != "tidemark-plan proof 1":
        return "it does not begin or end as a proof does"
    if lines[1:3] != [f"alignment {alignment}", f"lowest {height}"]:
        return "it is of another plan"
    blocks = [block(row, alignment) for row in rows]
    limit = height - 1
    with_conflicts = [i for i, b in enumerate(blocks) if b.size > 0 and b.lower < b.upper]
    sections = {tuple(j for j in with_conflicts if blocks[j].lower <= blocks[i].lower < blocks[j].upper) for i in with_conflicts}
    # Each plan can be pushed down to multiples of the divisor of all sizes and fixed offsets. No block rises.
    unit = math.gcd(*(blocks[i].size for i in with_conflicts), *(blocks[i].offset or 0 for i in with_conflicts))
    for i in with_conflicts:
        blocks[i].alignment = max(blocks[i].alignment, unit & -unit)
    pairs = {pair for live in sections for pair in itertools.permutations(live, 2)}
    sections = [live for live in sections if not any(set(live) < set(other) for other in sections)]
    lifespans = [{live for live in sections if i in live} for i in range(len(blocks))]
    alike = [(i, j) for i, j in pairs if i < j and lifespans[i] == lifespans[j] and blocks[i].offset is None is blocks[j].offset
             and (blocks[i].size, blocks[i].alignment) == (blocks[j].size, blocks[j].alignment)]
    cases = [case(blocks, limit, alike)]
    for line in lines[3:]:
        if not cases:
            return "it goes on after its end"
        now = cases.pop()
        if line == "contradiction":
            if limit >= 0 and not now.is_contradiction(sections):
                return "what it calls a contradiction is none"
        elif match := re.fullmatch(r"cases (\d+) (\d+)", line):
            a, b = map(int, match.groups())
            if (a, b) not in pairs:
                return f"blocks {a} and {b} may share bytes"
            cases += [now.with_pair(b, a), now.with_pair(a, b)]
        else:
            return f"'{line}' is no step"
    return "cases are left open" if cases else ""


if __name__ == "__main__":
    with open(sys.argv[1], newline="", encoding="utf-8") as blocks_file, open(sys.argv[2], encoding="utf-8") as proof_file:
        sys.exit(fault(list(csv.DictReader(blocks_file)), proof_file.read(), *map(int, sys.argv[3:])) or None)
