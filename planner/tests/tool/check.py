# SPDX-License-Identifier: Apache-2.0
"""Runs tidemark-plan and checks its output, files and pictures: check.py PROGRAM SOURCES CASE.

Each case is one fact. A sweep over time, which knows nothing of the planner, checks the offsets.
"""
import bisect
import os
import pathlib
import pty
import random
import re
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.dont_write_bytecode = True  # beside the sources
import proof_checker  # noqa: E402

PROGRAM, SOURCES, CASE = sys.argv[1:]
DATA = pathlib.Path(SOURCES) / "examples/data"
GPT = DATA / "traces/torch_gpt.csv"
GPT_LIFETIMES = DATA / "traces/torch_gpt_lifetimes.csv"
HEADER = "id,lower,upper,size\n"
ALL_COLUMNS = "id,lower,upper,size,alignment,offset\n"
# The bound of these blocks rises to 353 at once. Their lowest plan, of 353 or 354, is not found in minutes.
HARDLY_LOWEST = """
0,27,52,2,16 1,25,26,34,32 2,24,47,15,32 3,2,17,29,64 4,8,17,32,64
5,3,27,36,16 6,15,41,15,64 7,24,32,23,16 8,14,33,15,64 9,15,19,15,64
10,20,49,30,16 11,12,23,19,32 12,25,26,2,32 13,6,7,27,16 14,3,4,36,64
15,15,36,7,16 16,0,18,12,16 17,28,29,19,64 18,26,55,8,32 19,12,25,22,64
20,13,35,33,16 21,19,26,28,64 22,24,38,33,16
"""
SMALL = HEADER + "0,0,2,10\n1,1,3,20\n2,2,4,30\n"  # 30, then 50 bytes live: the bound, which is easily met
SVG = "{http://www.w3.org/2000/svg}"
TIMEOUT_SECONDS = 120


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def run(*arguments, **more):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=TIMEOUT_SECONDS, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def write(text, name="blocks.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def plan(text, *options):
    """Plans a valid file. Returns its output as a dictionary by first word, and the written rows."""
    status, output, errors = run(write(text), "--out", folder / "out.csv", *options)
    expect("status and errors", (status, errors), (0, ""))
    return printed(output), rows_of((folder / "out.csv").read_text())


def printed(output):
    """Returns the numbers by name. Numbers before a unit are counts."""
    found = {"stages": []}
    for line in output.splitlines():
        word, rest = line[:8].strip(), line[8:]
        if word in ("blocks", "bound", "height"):
            found[word] = int(re.match(r"[\d,]+", rest)[0].replace(",", ""))
        elif word == "ratio":
            found[word], found["optimal"] = float(rest.split(",")[0]), rest.endswith(", and no plan is lower")
        elif word == "" and rest.endswith(" blocks placed"):
            name, height, nodes = re.fullmatch(r"(\S.*?) +[\d.]+ m?s +([\d,]+) B +([\d,]+) blocks placed", rest).groups()
            found["stages"].append((name, int(height.replace(",", "")), int(nodes.replace(",", ""))))
        else:
            found[word] = rest
    return found


class row:
    """Returns a block of a file, with defaults for missing columns."""

    def __init__(self, names, fields):
        named = dict(zip(names, fields, strict=True))
        self.id = named["id"]
        self.lower, self.upper, self.size = (int(named[name]) for name in ("lower", "upper", "size"))
        self.alignment = int(named.get("alignment") or 1)
        self.offset = int(named["offset"]) if named.get("offset") else None


def rows_of(text):
    names, *rows = (line.split(",") for line in text.replace("\r\n", "\n").removesuffix("\n").split("\n"))
    return [row(names, fields) for fields in rows]


def expect_sound(blocks, alignment=1):
    """@return the highest end, and the largest sum of sizes live at once."""
    for b in blocks:
        expect(f"offset of block {b.id}, over its alignment", b.offset % max(alignment, b.alignment), 0)
    live, bytes_live, bytes_max = [], 0, 0  # (offset, end, id), in order: none overlap
    lived = [b for b in blocks if b.lower < b.upper and b.size > 0]
    for _, begins, b in sorted([(b.upper, 0, b) for b in lived] + [(b.lower, 1, b) for b in lived], key=lambda e: e[:2]):
        entry = (b.offset, b.offset + b.size, b.id)
        place = bisect.bisect_left(live, entry)
        if not begins:
            live.pop(place)
            bytes_live -= b.size
            continue
        for other in live[max(0, place - 1):place + 1]:
            if other[0] < entry[1] and entry[0] < other[1]:
                sys.exit(f"blocks {other[2]} and {b.id} share bytes: {other} and {entry}")
        live.insert(place, entry)
        bytes_live += b.size
        bytes_max = max(bytes_max, bytes_live)
    return max((b.offset + b.size for b in blocks), default=0), bytes_max


def random_blocks(chance, n, alignments=(1,), sizes=1000, moments=100):
    lines = ["id,lower,upper,size,alignment"]
    for i in range(n):
        lower = chance.randrange(moments)
        lines.append(f"b{i},{lower},{lower + chance.randrange(moments // 4)},{chance.randrange(sizes)},"
                     f"{chance.choice(alignments)}")
    return "\n".join(lines) + "\n"


def _hard_to_prove():
    """17 blocks whose lowest plan is above their bound. An exact search needs some time for the proof."""
    chance = random.Random(18)
    lines = ["id,lower,upper,size,alignment"]
    for i in range(chance.randint(12, 40)):
        lower = chance.randrange(12)
        lines.append(f"{i},{lower},{lower + chance.randint(1, 8)},{chance.randint(1, 40)},{chance.choice((1, 1, 1, 8, 16))}")
    return "\n".join(lines) + "\n"


def expect_refusal(content, line, reason, *options):
    blocks = write(content)
    expect(f"message for {content[:80]!r}", run(blocks, "--out", folder / "out.csv", "--picture", folder / "out.svg",
                                                    *options), (2, "", f"tidemark-plan: {blocks}:{line}: {reason}\n"))
    expect("the files there", sorted(os.listdir(folder)), ["blocks.csv"])


# ---- wrong files ---------------------------------------------------------------------------------------------------


def rejects_a_wrong_header():
    known = "the columns are id, lower, upper, size, alignment and offset"
    expect_refusal("", 1, "the file is empty")
    expect_refusal("\n", 1, f"unknown column ''; {known}")
    expect_refusal("0,1,2,3\n", 1, f"unknown column '0'; {known}")
    expect_refusal("\ufeff\ufeff" + HEADER, 1, f"unknown column '???id'; {known}")
    expect_refusal("\ufeff", 1, f"unknown column ''; {known}")
    expect_refusal(b"\xff\xfei\0d\0", 1, f"unknown column '??i?d?'; {known}")
    expect_refusal("id,lower,upper,size,\n", 1, f"unknown column ''; {known}")
    expect_refusal("id,lower,upper, size\n", 1, f"unknown column ' size'; {known}")
    expect_refusal("ID,lower,upper,size\n", 1, f"unknown column 'ID'; {known}")
    for name in ("id", "lower", "upper", "size"):
        without = ",".join(column for column in ("id", "lower", "upper", "size", "offset") if column != name)
        expect_refusal(without + "\n", 1, f"the column '{name}' is missing")
    for name in ("id", "size", "offset"):
        expect_refusal(f"{ALL_COLUMNS.strip()},{name}\n", 1, f"the column '{name}' appears twice")


def rejects_a_row_with_too_few_or_too_many_fields():
    expect_refusal(HEADER + "0,0,2,10\n1,1,3\n", 3, "the row has 3 fields, not 4")
    expect_refusal(HEADER + "0,0,2,10,\n", 2, "the row has 5 fields, not 4")
    expect_refusal(ALL_COLUMNS + "0,0,2,10\n", 2, "the row has 4 fields, not 6")
    expect_refusal(HEADER + "0,0,2,10\n\n1,1,3,5\n", 3, "the row is empty")
    expect_refusal(SMALL + "\n", 5, "the row is empty")
    expect_refusal(HEADER + "0,0,2,10\r1,1,3,5\n", 2, "the row has 7 fields, not 4")


def rejects_a_line_that_is_too_long():
    reason = "the line has more than 2^20 bytes"
    for text, line in ((b"\0" * (2**20 + 1), 1), ((HEADER + "0,0,2,10\n").encode() + b"1" * 2**22, 3)):
        expect("message", run("/dev/stdin", "--out", folder / "out.csv", input=text),
               (2, "", f"tidemark-plan: /dev/stdin:{line}: {reason}\n"))
        expect("the files there", os.listdir(folder), [])
    longest = "x" * (2**20 - len(",0,2,10")) + ",0,2,10"
    for end in ("", "\n", "\n1,0,2,10\n"):
        _, rows = plan(HEADER + longest + end)
        expect("the length of the first id", len(rows[0].id), 2**20 - len(",0,2,10"))
        for name in ("blocks.csv", "out.csv"):
            (folder / name).unlink()
        expect_refusal(HEADER + "x" + longest + end, 2, reason)


def rejects_a_field_that_is_not_a_number():
    for name, text in (("lower", "0,{},2,10,1,0"), ("upper", "0,0,{},10,1,0"), ("size", "0,0,2,{},1,0"),
                       ("alignment", "0,0,2,10,{},0"), ("offset", "0,0,2,10,1,{}")):
        for field in ("x", "-1", "+1", " 1", "1 ", "1.5", "1e3", "0x10", "1_000", '"1"', "inf"):
            expect_refusal(ALL_COLUMNS + "0,0,2,10,1,\n" + text.format(field) + "\n", 3,
                           f"{name} is '{field}', not a whole number")
        for field in (2**64, 10**20, "0" * 20 + "1"):
            expect_refusal(ALL_COLUMNS + text.format(field) + "\n", 2, f"{name} is '{field}', more than 2^64 - 1")
        expect_refusal(ALL_COLUMNS + text.format("9" * 90000), 2, f"{name} is '{'9' * 40}...', more than 2^64 - 1")
    for name, text in (("lower", "0,,2,10"), ("upper", "0,0,,10"), ("size", "0,0,2,")):
        expect_refusal(HEADER + text + "\n", 2, f"{name} is '', not a whole number")
    expect_refusal(HEADER + "0,0,2,10\r", 2, "size is '10?', not a whole number")


def rejects_invalid_utf8():
    expect_refusal(b"\x7fELF\x02\x01\x01\x00\xff\xfe", 1,
                   "unknown column '?ELF??????'; the columns are id, lower, upper, size, alignment and offset")
    expect_refusal(HEADER.encode() + b"0,0,2,10\n1,1,\xff\xfe,0\n", 3, "upper is '??', not a whole number")
    # Latin-1, a truncated character, an overlong form, a surrogate, beyond Unicode, and controls.
    for id in (b"\xe4", b"a\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"a\0b",
               b"\x1b[31m", b"\x7f", b"\xc2\x85", b"\xef\xbf\xbf", b"\x80", b"\r"):
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7f else "?" for byte in id)
        expect_refusal(HEADER.encode() + id + b",0,2,10\n", 2,
                       f"id is '{shown}', which has a quote or invalid UTF-8 in it")
    expect_refusal(HEADER + '"0",0,2,10\n', 2, "id is '\"0\"', which has a quote or invalid UTF-8 in it")
    expect_refusal(HEADER + ",0,2,10\n", 2, "id is empty")


def rejects_impossible_blocks():
    expect_refusal(HEADER + "0,0,2,10\n1,3,2,10\n", 3, "upper is 2, below lower, 3")
    for alignment in (0, 3, 2**64 - 1):
        expect_refusal(ALL_COLUMNS + f"0,0,2,10,{alignment},\n", 2, f"alignment is {alignment}, not a power of two")
    expect_refusal(ALL_COLUMNS + "0,0,2,10,8,12\n", 2, "offset is 12, not a multiple of the alignment, 8")


def names_fixed_blocks_that_overlap_by_id_and_line():
    together = "block b and block c are in conflict, and their fixed offsets make them share bytes"
    expect_refusal(ALL_COLUMNS + "a,0,9,10,1,20\nb,0,9,10,1,0\nc,8,12,10,1,9\n", 4, together)
    expect_refusal(ALL_COLUMNS + "a,0,9,10,,\nb,0,9,10,,64\nc,8,12,0,,64\nc,8,12,1,,64\n", 5, together)
    _, rows = plan(ALL_COLUMNS + "a,0,9,10,1,20\nb,0,9,10,1,0\nc,12,13,10,1,9\nd,0,12,10,1,10\n")
    expect("offsets", [b.offset for b in rows], [20, 0, 9, 10])


def rejects_a_fixed_block_with_a_wrong_alignment():
    expect_refusal(ALL_COLUMNS + "0,0,2,10,,\nx y,0,2,10,8,8\n", 3,
                   "block x y is fixed at offset 8, which is not a multiple of its alignment 64", "--alignment", 64)


def rejects_more_bytes_than_a_plan_may_have():
    most, reason = 2**62, "makes more than 2^62 bytes of the blocks together, each rounded up to its alignment"
    expect_refusal(HEADER + f"0,0,2,{most - 1}\nb,5,6,2\n", 3, f"block b of 2 bytes {reason}")
    expect_refusal(HEADER + f"0,0,2,{2**64 - 1}\n", 2, f"block 0 of {2**64 - 1} bytes {reason}")
    expect_refusal(ALL_COLUMNS + f"0,0,2,1,{2**62},\n1,0,2,1,{2**62},\n", 3, f"block 1 of 1 bytes {reason}")
    expect_refusal(ALL_COLUMNS + f"0,0,2,1,{2**63},\n", 2, f"block 0 of 1 bytes {reason}")
    expect_refusal(ALL_COLUMNS + f"0,0,2,1,,{2**64 - 1}\n", 2,
                   f"block 0 is fixed at offset {2**64 - 1} and has 1 bytes, which end above 2^62")
    expect("the most there can be", plan(HEADER + f"0,0,{2**64 - 1},{most}\n")[0]["height"], most)


def names_a_file_that_cannot_be_read():
    out = folder / "out.csv"
    expect("a missing file", run(folder / "none.csv", "--out", out),
           (2, "", f"tidemark-plan: {folder}/none.csv: No such file or directory\n"))
    expect("a folder", run(folder, "--out", out), (2, "", f"tidemark-plan: {folder}: Is a directory\n"))
    expect("the files there", os.listdir(folder), [])
    if os.geteuid() != 0:  # root may read everything
        write(SMALL).chmod(0)
        expect("an unreadable file", run(folder / "blocks.csv"),
               (2, "", f"tidemark-plan: {folder}/blocks.csv: Permission denied\n"))


def rejects_wrong_traces():
    trace = write("op,id,bytes,thread\na,0,8,0\na,0,8,0\n", "trace.csv")
    expect("a wrong trace", run("--from-trace", trace, "--step", 0),
           (2, "", f"tidemark-plan: {trace}:3: block 0 is allocated twice; first by event 0\n"))
    # The blocks of a trace have no line.
    write(f"op,id,bytes,thread\na,7,{2**63},0\nf,7,0,0\n", "trace.csv")
    expect("too large a trace", run("--from-trace", trace),
           (2, "", f"tidemark-plan: {trace}: block 7 of {2**63} bytes makes more than 2^62 bytes of the blocks together, each "
            "rounded up to its alignment\n"))


def answers_a_wrong_option_with_one_sentence():
    blocks = write(SMALL)
    for arguments, sentence in (
            ((), "FILE.csv or --from-trace is required"),
            ((blocks, "--from-trace", "t", "--step", 0), "FILE.csv and --from-trace exclude each other"),
            ((blocks, "--step", 0), "--step needs --from-trace"),
            ((blocks, "--lifetimes", "l"), "--lifetimes needs --from or --from-trace"),
            ((blocks, "--from", "tvm"), "--from is 'tvm', neither ggml nor xla"),
            (("--from", "xla"), "FILE.csv or --from-trace is required"),
            (("--from", "xla", "--from-trace", "t", "--step", 0), "--from and --from-trace exclude each other"),
            ((blocks, "--from", "ggml", "--allocation", 0), "--allocation needs --from xla"),
            ((blocks, "--from", "xla", "--allocation", "a"), "--allocation is 'a', not a whole number"),
            ((blocks, "--alignment", 24), "--alignment is 24, not a power of two"),
            ((blocks, "--alignment", 0), "--alignment is 0, not a power of two"),
            ((blocks, "--alignment", "-8"), "--alignment is '-8', not a whole number"),
            ((blocks, "--capacity", "1MB"), "--capacity is '1MB', not a whole number"),
            ((blocks, "--capacity", 0), "--capacity is 0, expected at least 1"),
            (("",), "FILE: names no file"),
            ((blocks, "--out", ""), "--out: names no file"),
            ((blocks, "--seed", 2**64), f"--seed is '{2**64}', more than 2^64 - 1"),
            ((blocks, "--node-limit", "1.5"), "--node-limit is '1.5', not a whole number"),
            *(((blocks, "--time-limit", text), f"--time-limit is '{text}', not a number of seconds")
              for text in ("x", "-1", "nan", "inf", "1s", "0x1", " 1", "1,5")),
            ((blocks, "--colour"), "The following argument was not expected: --colour"),
            ((blocks, "another.csv"), "The following argument was not expected: another.csv")):
        expect(f"message for {arguments}", run(*arguments), (2, "", f"tidemark-plan: {sentence}; see --help\n"))


def help_names_every_option():
    status, output, errors = run("--help")
    expect("status and errors", (status, errors), (0, ""))
    for option in ("FILE", "--out OUT.csv", "--picture OUT.svg", "--time-limit SECONDS", "--node-limit N",
                   "--alignment BYTES", "--capacity BYTES", "--seed N", "--no-exact", "--from-trace TRACE",
                   "--step K", "--lifetimes OUT.csv", "--progress", "--replan", "--from ggml|xla", "--allocation N"):
        expect(f"{option} is in the help", option in output, True)


# ---- plans ---------------------------------------------------------------------------------------------------------


def writes_rows_with_sound_offsets():
    chance = random.Random(9)
    texts = [(DATA / "plans" / name).read_text() for name in ("minimalloc_A.csv", "minimalloc_C.csv", "resnet50.csv")]
    texts.append(GPT_LIFETIMES.read_text())
    texts += [random_blocks(chance, chance.randrange(60), (1, 1, 4, 64), moments=chance.choice((8, 100))) for _ in range(40)]
    for text in texts:
        said, rows = plan(text, "--no-exact", "--time-limit", "0.01")
        expect("the rows without their offsets",
               [line.rpartition(",")[0] for line in (folder / "out.csv").read_text().splitlines()], text.splitlines())
        expect("the last column", (folder / "out.csv").read_text().splitlines()[0].rpartition(",")[2], "offset")
        end, live = expect_sound(rows)
        expect("blocks and height printed", (said["blocks"], said["height"]), (len(rows), end))
        if not live <= said["bound"] <= end:
            sys.exit(f"the bound is {said['bound']}, {live} bytes are live at once, and the height is {end}")
        expect("ratio printed", said["ratio"], round(end / said["bound"], 4) if said["bound"] else 1.0)
        if end == live:
            expect("no plan is lower", said["optimal"], True)


def places_easy_steps_in_their_live_bytes():
    for path, bound in ((DATA / "plans/resnet50.csv", 1515472556), (GPT_LIFETIMES, 38784684)):
        said, rows = plan(path.read_text())
        expect(f"height and bound of {path.name}", (said["height"], said["bound"], said["optimal"]), (bound, bound, True))
        expect("end and live bytes", expect_sound(rows), (bound, bound))


def prints_results_known_by_hand():
    status, output, errors = run(write(SMALL))
    expect("status and errors", (status, errors), (0, ""))
    output = re.sub(r"[\d.]+ ms", "T", output)
    expect("the lines", output.splitlines()[:5],
           ["blocks  3", "bound   50 B", "height  50 B", "ratio   1.0000, and no plan is lower", "time    T"])
    expect("stages", len(printed(output.replace("T", "1 ms"))["stages"]) >= 1, True)
    said, _ = plan(HEADER + "0,0,2,1536\n")
    expect("height", said["height"], 1536)
    expect("with a unit", "height  1,536 B (1.5 KiB)\n" in run(write(HEADER + "0,0,2,1536\n"))[1], True)


def stages_end_with_the_height_and_get_no_worse():
    said, _ = plan((DATA / "plans/minimalloc_A.csv").read_text(), "--no-exact", "--time-limit", "0.1")
    # Promotion, ejection and the search take turns, so any of them may end last.
    turns = [height for name, height, _ in said["stages"] if name in ("promotion", "ejection", "search")]
    heights = [height for name, height, _ in said["stages"] if name not in ("promotion", "ejection", "search")]
    if turns:
        heights += [max(turns), min(turns)]
    expect("heights of the stages", heights, sorted(heights, reverse=True))
    expect("the lowest", heights[-1], said["height"])
    expect("the first", said["stages"][0][0], "start")


def accepts_any_line_ends_and_order_of_columns():
    _, rows = plan(SMALL)
    for text in (SMALL.replace("\n", "\r\n"), SMALL[:-1], SMALL.replace("\n", "\r\n")[:-2]):
        expect("offsets", [b.offset for b in plan(text)[1]], [b.offset for b in rows])
        expect("file", (folder / "out.csv").read_text().startswith("id,lower,upper,size,offset\n0,0,2,10,"), True)
    _, turned = plan("size,upper,lower,id\n10,2,0,0\n20,3,1,1\n30,4,2,2\n")
    expect("offsets", [b.offset for b in turned], [b.offset for b in rows])


def skips_a_byte_order_mark():
    for header in (SMALL.splitlines()[0], "size,id,upper,lower"):
        text = header + "\r\n10,0,2,0\r\n"
        _, rows = plan("\ufeff" + text)
        expect("the header", (folder / "out.csv").read_bytes().splitlines()[0].decode(), header + ",offset")
        expect("rows", len(rows), 1)
    # In other places the mark is a character.
    plan(SMALL + "\ufeff3,0,1,1\n")
    expect("the id", (folder / "out.csv").read_text().splitlines()[-1].startswith("\ufeff3,"), True)


def accepts_any_text_as_id():
    ids = ["conv 1/weights", "<&>'", "größe", "\u4e2d\U0001f600", "0", "0", "-1", "x" * 5000]
    _, rows = plan(HEADER + "".join(f"{id},0,2,10\n" for id in ids), "--picture", folder / "out.svg")
    expect("ids", [b.id for b in rows], ids)
    titles = [title.split(": 10 B")[0] for title, *_ in rectangles(folder / "out.svg")]
    expect("ids in the picture", sorted(titles), sorted(ids))


def plans_a_file_without_blocks_or_bytes():
    for text in (HEADER, HEADER.strip(), HEADER + "0,0,2,0\n", HEADER + "0,2,2,0\n"):
        said, rows = plan(text, "--picture", folder / "out.svg")
        expect("the numbers", (said["bound"], said["height"], said["ratio"], said["optimal"]), (0, 0, 1.0, True))
        expect("rectangles", len(rectangles(folder / "out.svg")), len(rows))


def keeps_fixed_blocks():
    said, rows = plan("id,offset,lower,upper,size\na,,0,9,10\nb,100,0,9,10\nc,,0,9,80\nd,0007,0,9,3\n")
    expect("offsets of the fixed", (rows[1].offset, rows[3].offset), (100, 7))
    expect("bound and height", (said["bound"], said["height"], expect_sound(rows)[0]), (110, 110, 110))


def replanning_keeps_a_plan():
    _, first = plan(random_blocks(random.Random(3), 200, (1, 8)), "--time-limit", "0")
    again = (folder / "out.csv").read_text()
    plan(again)
    expect("the same rows", (folder / "out.csv").read_text(), again)
    # A plan far above the bound does not change if every block is fixed.
    raised = [again.splitlines()[0]] + [line.rpartition(",")[0] + f",{8 * (i * 1000)}"
                                        for i, line in enumerate(again.splitlines()[1:])]
    plan("\n".join(raised) + "\n")
    expect("the same rows", (folder / "out.csv").read_text().splitlines(), raised)
    expect("blocks", len(first), 200)


def replaces_a_saved_plan_by_a_lower_one():
    saved, top = [ALL_COLUMNS.strip()], 0  # as `save` of a step plan writes it, but one block above the other
    for i, b in enumerate(rows_of(GPT_LIFETIMES.read_text())):
        saved.append(f"{i},{b.lower},{b.upper},{b.size},256,{top}")
        top += -(-b.size // 256) * 256
    text = "\n".join(saved) + "\n"
    said, _ = plan(text)
    expect("without the option it stays", (said["height"] > 3 * 38784684, said["ratio"], (folder / "out.csv").read_text()),
           (True, 1.0, text))
    said, rows = plan(text, "--replan", "--alignment", 256, "--picture", folder / "out.svg")
    end, live = expect_sound(rows, 256)
    expect("height, bound and ratio", (said["height"], said["bound"], said["ratio"]), (said["bound"], said["bound"], 1.0))
    expect("the bound is what is live, rounded up to the alignment", live <= said["bound"] < live + 256 * len(rows), True)
    expect("the end is at most the height", end <= said["height"], True)
    expect("all but the offsets", [line.rpartition(",")[0] for line in (folder / "out.csv").read_text().splitlines()],
           [line.rpartition(",")[0] for line in saved])
    expect("rectangles", len(rectangles(folder / "out.svg")), len(rows))
    again = (folder / "out.csv").read_text()
    expect("the height of what was written", plan(again, "--alignment", 256)[0]["height"], said["height"])
    # Invalid offsets do not matter with --replan. Without offsets the option changes nothing.
    said, rows = plan(ALL_COLUMNS + "a,0,9,10,1,0\nb,0,9,10,1,4\n", "--replan", "--alignment", 16)
    expect("height", (said["height"], sorted(b.offset for b in rows)), (32, [0, 16]))
    expect("height", plan(SMALL, "--replan")[0]["height"], 50)


def keeps_alignments():
    text = random_blocks(random.Random(5), 150, (1, 2, 64, 4096))
    for alignment in (1, 16, 256):
        said, rows = plan(text, "--alignment", alignment, "--no-exact", "--time-limit", "0.05")
        end, live = expect_sound(rows, alignment)
        expect("height", said["height"], -(-end // alignment) * alignment)
        expect("bound over alignment", (said["bound"] % alignment, said["bound"] >= live), (0, True))


def returns_the_plan_of_the_quick_orders_with_a_time_limit_of_0():
    text = (DATA / "plans/minimalloc_A.csv").read_text()
    said, rows = plan(text, "--time-limit", "0")
    expect("stages", len(said["stages"]), 1)
    expect_sound(rows)
    for limit in ("0.2", ".2", "2e-1", "00.20"):
        expect("more than one stage", len(plan(text, "--time-limit", limit)[0]["stages"]) > 1, True)


def returns_the_same_plan_for_the_same_node_limit():
    text = (DATA / "plans/minimalloc_C.csv").read_text()
    expect("stages", len(plan(text, "--node-limit", 0)[0]["stages"]), 1)
    for seed in (0, 7):
        first, _ = plan(text, "--node-limit", 20000, "--seed", seed)
        written = (folder / "out.csv").read_text()
        again, _ = plan(text, "--node-limit", 20000, "--seed", seed)
        expect("output", (again["height"], again["stages"]), (first["height"], first["stages"]))
        expect("file", (folder / "out.csv").read_text() == written, True)
        expect("more nodes are no worse", plan(text, "--node-limit", 40000, "--seed", seed)[0]["height"] <= first["height"],
               True)


def makes_other_choices_with_another_seed():
    text = random_blocks(random.Random(5), 300, (1, 64))  # not at its bound after so few nodes
    found = set()
    for seed in range(4):
        said, rows = plan(text, "--node-limit", 20000, "--seed", seed)
        expect("height", expect_sound(rows)[0], said["height"])
        found.add(((folder / "out.csv").read_text(), str(said["stages"])))
    expect("not all are alike", len(found) > 1, True)


def proves_the_lowest_plan_above_the_bound():
    text = _hard_to_prove()
    said, rows = plan(text, "--node-limit", 3000000)
    expect("no plan is lower, and it is above the bound", (said["optimal"], said["height"] > said["bound"]), (True, True))
    expect("height", expect_sound(rows)[0], said["height"])
    without, rows = plan(text, "--node-limit", 1500000, "--no-exact")
    expect("height", expect_sound(rows)[0], without["height"])
    expect("the search is another without", without["stages"] != said["stages"], True)


def succeeds_if_the_capacity_is_met():
    said, rows = plan((DATA / "plans/minimalloc_A.csv").read_text(), "--capacity", 1400000)
    expect("fits", (said["height"] <= 1400000, expect_sound(rows)[0]), (True, said["height"]))
    hard = (DATA / "plans/minimalloc_C.csv").read_text()
    expect("fits within the time", plan(hard, "--capacity", 1048576)[0]["height"] <= 1048576, True)
    for options in ((), ("--no-exact",), ("--node-limit", 0), ("--time-limit", 0)):
        expect("exactly", plan(SMALL, "--capacity", 50, *options)[0]["height"], 50)


def writes_the_lowest_plan_if_the_capacity_is_not_met():
    hard = write((DATA / "plans/minimalloc_A.csv").read_text())
    status, output, errors = run(hard, "--capacity", 1048576, "--time-limit", 0, "--out", folder / "out.csv")
    expect("status", status, 1)
    expect("message", errors, "tidemark-plan: the blocks were not fitted into 1,048,576 bytes: the lowest plan that "
           f"was found has {printed(output)['height']:,}\n")
    expect("file", expect_sound(rows_of((folder / "out.csv").read_text()))[0], printed(output)["height"])
    # The search ends soon if the capacity is below the bound.
    status, output, errors = run(hard, "--capacity", 1048575, "--no-exact")
    expect("message", (status, errors),
           (1, "tidemark-plan: the blocks were not fitted into 1,048,575 bytes: no plan is lower than 1,048,576\n"))
    status, _, errors = run(write(SMALL), "--capacity", 49)
    expect("message", (status, errors),
           (1, "tidemark-plan: the blocks were not fitted into 49 bytes: no plan is lower than 50\n"))
    # It also ends after an exact search has refuted the capacity.
    blocks = write(_hard_to_prove())
    bound = printed(run(blocks, "--time-limit", 0)[1])["bound"]
    status, output, errors = run(blocks, "--capacity", bound)
    lowest = printed(output)["height"]
    expect("message", (status, errors, lowest > bound),
           (1, f"tidemark-plan: the blocks were not fitted into {bound} bytes: no plan is lower than {lowest}\n", True))
    # It also ends if the capacity is refuted while the lowest plan is unknown.
    rows = "id,lower,upper,size,alignment\n" + "\n".join(HARDLY_LOWEST.split())
    status, _, errors = run(write(rows), "--capacity", 352)
    expect("message", (status, errors),
           (1, "tidemark-plan: the blocks were not fitted into 352 bytes: no plan is lower than 353\n"))
    # With a node limit the clock does not end the search, so the plan is always the same.
    first, second = (printed(run(write(rows), "--capacity", 352, "--node-limit", 5_000_000)[1]) for _ in range(2))
    expect("stages", first["stages"], second["stages"])


# ---- proofs --------------------------------------------------------------------------------------------------------


def above_the_bound(seed):
    """Blocks with different alignments. Their lowest plan is above their bound for some seeds."""
    chance = random.Random(seed)
    lines = [ALL_COLUMNS.strip()]
    for i in range(chance.randint(8, 12)):
        lower = chance.randrange(8)
        lines.append(f"{i},{lower},{lower + chance.randint(0, 8)},{chance.randint(0, 40)},{chance.choice((1, 1, 1, 8, 16))},"
                     f"{128 if i == 0 and seed % 4 == 0 else ''}")
    return "\n".join(lines) + "\n"


def prove(text, *options):
    """Returns the printed output, the rows, and the proof."""
    said, rows = plan(text, "--prove", folder / "proof.txt", *options)
    return said, rows, (folder / "proof.txt").read_text()


def dictionaries_of(text):
    names, *rows = (line.split(",") for line in text.splitlines())
    return [dict(zip(names, row)) for row in rows]


def independent_checker_accepts_each_proof():
    above = 0
    for seed in range(24):
        text = above_the_bound(seed)
        alignment = 4 if seed % 3 == 0 else 1
        said, rows, log = prove(text, "--node-limit", 20000, "--alignment", alignment)
        expect(f"fault of the proof of seed {seed}", proof_checker.fault(dictionaries_of(text), log, said["height"], alignment), "")
        expect("no plan is lower", said["optimal"], True)
        expect_sound(rows, alignment)
        above += said["height"] > said["bound"]
    expect(f"{above} of 24 are above their bound: more than a few", above > 2, True)
    for text in (SMALL, HEADER, HEADER + "0,0,0,7\n", GPT_LIFETIMES.read_text()):
        said, _, log = prove(text)
        expect("fault of the proof", proof_checker.fault(dictionaries_of(text), log, said["height"]), "")


def independent_checker_accepts_proofs_with_mixed_alignments():
    text = ALL_COLUMNS + "0,2,4,20,8,\n1,2,3,16,2,\n2,1,3,12,32,\n3,2,3,16,4,\n"
    said, _, log = prove(text, "--node-limit", 20000)
    expect("height", said["height"], 68)
    expect("fault of the proof", proof_checker.fault(dictionaries_of(text), log, 68), "")
    for seed in range(24):
        rows = [dict(row, size=str(4 * int(row["size"]))) for row in dictionaries_of(above_the_bound(seed))]
        text = ALL_COLUMNS + "".join(",".join(row.values()) + "\n" for row in rows)
        said, _, log = prove(text, "--node-limit", 20000)
        expect(f"fault of the proof of seed {seed}", proof_checker.fault(rows, log, said["height"]), "")


def leaves_a_sound_plan_when_time_ends_a_proof():
    """A limit interrupts the deductions of a case. An interrupted case must not become a plan."""
    sizes = ((12, 19, 29, 1), (1, 4, 14, 16), (2, 11, 38, 1), (3, 8, 35, 1), (12, 17, 4, 1), (0, 8, 37, 1), (15, 24, 24, 2),
             (6, 8, 25, 1), (6, 14, 2, 8), (1, 11, 15, 1), (10, 11, 34, 1), (7, 13, 24, 1), (15, 16, 9, 1), (18, 22, 35, 1))
    text = "id,lower,upper,size,alignment\n" + "".join(f"{i},{','.join(map(str, row))}\n" for i, row in enumerate(sizes))
    for limit in ("0", "0.0001", "0.0005", "0.001"):
        status, output, _ = run(write(text), "--no-exact", "--time-limit", limit, "--prove", folder / "proof.txt", "--out",
                                folder / "out.csv")
        said = printed(output)
        expect("height", expect_sound(rows_of((folder / "out.csv").read_text()))[0], said["height"])
        expect("the height is not below the bound", said["height"] >= said["bound"], True)


def ends_a_proof_with_a_capacity_below_the_bound():
    text = random_blocks(random.Random(5), 45, (1, 2, 64))
    status, output, _ = run(write(text), "--capacity", 1, "--prove", folder / "proof.txt")
    expect("status", status, 1)
    expect("has a plan", "height" in printed(output), True)


def independent_checker_rejects_a_changed_proof():
    text = next(text for text in map(above_the_bound, range(60)) if prove(text)[2].count("\n") > 20)
    said, _, log = prove(text)
    rows, height = dictionaries_of(text), said["height"]
    expect("fault", proof_checker.fault(rows, log, height), "")
    expect("rejects a higher claim", proof_checker.fault(rows, log.replace(f"lowest {height}", f"lowest {height + 1}"), height + 1) != "",
           True)
    for what, changed in (
            ("a lower height", log.replace(f"lowest {height}", f"lowest {height - 1}")),
            ("another alignment", log.replace("alignment 1", "alignment 64")),
            ("a case is left out", log.removesuffix("contradiction\n")),
            ("a contradiction too early", re.sub(r"cases.*\n", "contradiction\n", log, count=1)),
            ("a case too many", log + "contradiction\n"),
            ("a block and itself", re.sub(r"cases (\d+) \d+", r"cases \1 \1", log, count=1)),
            ("another step", log.replace("contradiction", "it is obvious", 1)),
            ("another file", log.replace("proof 1", "proof 2")),
            ("a line cut off", log[:-1])):
        expect(f"finds a fault: {what}", proof_checker.fault(rows, changed, height) != "", True)
    smaller = [dict(row, size="1") for row in rows]
    expect("finds a fault for other blocks", proof_checker.fault(smaller, log, height) != "", True)


def proof_search_finds_a_lower_plan_if_one_exists():
    lower = 0
    for seed in range(60):
        text = above_the_bound(seed)
        blocks = write(text)
        before = printed(run(blocks, "--no-exact", "--node-limit", 200, "--out", folder / "out.csv")[1])["height"]
        status, output, _ = run(blocks, "--no-exact", "--node-limit", 200, "--prove", folder / "proof.txt",
                                "--out", folder / "out.csv")
        height = printed(output)["height"]
        rows = rows_of((folder / "out.csv").read_text())
        expect_sound(rows)
        expect("the height is that of the rows", max((r.offset + r.size for r in rows), default=0), height)
        expect("the plan is no higher", height <= before, True)
        lower += height < before
    expect(f"{lower} of 60 are lower: more than a few", lower > 2, True)


def ends_a_proof_for_three_blocks_in_a_cycle():
    """Heads would rise around the cycle one block at a time, through more free bytes than time allows."""
    step = 2**40
    aligned = "".join(f"{name},20,30,256,{step},\n" for name in "pqrst")
    text = ALL_COLUMNS + f"f,0,10,{11 * step // 4},1,{5 * step // 4}\n" + "".join(f"{name},0,10,512,1,\n" for name in "abc") + aligned
    said, _, log = prove(text, "--alignment", 256)
    expect("height", said["height"], 4 * step + 256)
    expect("fault of the proof", proof_checker.fault(dictionaries_of(text), log, said["height"], 256), "")


def writes_no_proof_when_a_limit_ends_it():
    blocks, proof = write(_hard_to_prove()), folder / "proof.txt"
    status, output, errors = run(blocks, "--prove", proof, "--node-limit", 20)
    expect("status and errors", (status, errors),
           (1, f"tidemark-plan: {proof} was not written: there is no proof within the limits\n"))
    expect("message", "proof   none, 20 cases" in output.splitlines(), True)
    expect("the files there", os.listdir(folder), ["blocks.csv"])


def proves_more_than_256_blocks_only_at_the_bound():
    """Aligned blocks live at once have a proof with their padding. Other blocks get a message in time."""
    text = ALL_COLUMNS + "".join(f"{i},0,9,{1 + i % 7},64,\n" for i in range(300))
    said, _, log = prove(text)
    expect("height", said["height"], 299 * 64 + 1)
    expect("fault of the proof", proof_checker.fault(dictionaries_of(text), log, said["height"]), "")
    status, output, errors = run(write(text), "--capacity", 299 * 64)
    expect("status", status, 1)
    expect("message without a fit", "no plan is lower than 19,137" in errors, True)
    blocks, proof = write(random_blocks(random.Random(8), 300, (1, 64))), folder / "proof.txt"
    status, output, errors = run(blocks, "--prove", proof, "--time-limit", 0)
    expect("status and errors", (status, errors),
           (1, f"tidemark-plan: {proof} was not written: more than 256 blocks have a proof only if the plan is at the bound\n"))
    expect("message", "proof   none, 0 cases" in output.splitlines(), True)


# ---- traces --------------------------------------------------------------------------------------------------------


def returns_the_shared_lifetimes_of_a_recorded_step():
    status, output, errors = run("--from-trace", GPT, "--step", 3, "--lifetimes",
                                 folder / "lifetimes.csv", "--out", folder / "out.csv", "--picture", folder / "out.svg")
    expect("status and errors", (status, errors), (0, ""))
    shared = GPT_LIFETIMES.read_text()
    expect("the lifetimes", (folder / "lifetimes.csv").read_text() == shared, True)
    out = (folder / "out.csv").read_text()
    expect("the rows", [line.rpartition(",")[0] for line in out.splitlines()] == shared.splitlines(), True)
    expect("end and live bytes", expect_sound(rows_of(out)), (38784684, 38784684))
    expect("message", output.splitlines()[:2],
           ["blocks  937", "        left out: 4 that outlive the step, and 4 from before that are freed in it"])
    expect("the picture's title", svg(folder / "out.svg").find(f"{SVG}title").text, "torch_gpt.csv, step 3")


def keeps_the_ids_of_a_trace():
    trace = write("op,id,bytes,thread\ns,0,,0\na,90,5,0\ns,1,,0\ne,0,0,0\na,70,6,1\na,80,7,0\nf,70,0,0\nf,90,0,0\na,60,0,0\nf,60,0,0\n"
                  "e,1,0,0\nf,80,0,0\n", "t.csv")
    status, output, errors = run("--from-trace", trace, "--step", 1, "--lifetimes", folder / "l.csv")
    expect("status and errors", (status, errors), (0, ""))
    expect("the lifetimes", (folder / "l.csv").read_text(), HEADER + "70,1,3,6\n60,5,6,0\n")
    expect("message", output.splitlines()[1],
           "        left out: 1 that outlive the step, and 1 from before that are freed in it")
    expect("a step without any", run("--from-trace", trace, "--step", 0)[1].splitlines()[:2],
           ["blocks  0", "        left out: 1 that outlive the step, and 0 from before that are freed in it"])


def plans_the_whole_trace_or_a_step_that_it_has():
    trace = write("op,id,bytes,thread\nr,0,step,0\na,9,100,0\ns,0,first,0\na,1,20,0\np,1,f() at x,0\na,2,30,1\nf,1,0,0\nf,9,0,0\n"
                  "e,0,0,0\nf,2,0,0\na,3,8,0\ns,4,,0\n", "t.csv")
    lifetimes = folder / "l.csv"
    expect("the whole trace", run("--from-trace", trace, "--lifetimes", lifetimes)[0], 0)
    expect("its lifetimes", lifetimes.read_text(), HEADER + "9,0,4,100\n1,1,3,20\n2,2,5,30\n")
    expect("a step", run("--from-trace", trace, "--step", 0, "--lifetimes", lifetimes)[0], 0)
    expect("its lifetimes", lifetimes.read_text(), HEADER + "1,1,3,20\n")
    for step in (1, 4):
        expect("a step without events", run("--from-trace", trace, "--step", step),
               (2, "", f"tidemark-plan: {trace}: no step {step} has events\n"))
    empty = write("op,id,bytes,thread\n", "empty.csv")
    expect("a trace without events", run("--from-trace", empty)[1].splitlines()[0], "blocks  0")


# ---- pictures ------------------------------------------------------------------------------------------------------


def svg(path):
    return xml.etree.ElementTree.parse(path).getroot()


def rectangles(path):
    """Returns (tooltip, left, bottom, right, top) of each rectangle, in picture units and file order."""
    blocks = svg(path).find(f".//{SVG}g[@id='blocks']")
    a, b, c, d, e, f = map(float, re.fullmatch(r"matrix\((.*)\)", blocks.get("transform"))[1].split())
    expect("no rotation", (b, c), (0, 0))
    found = []
    for rect in blocks.iter(f"{SVG}rect"):
        x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        found.append((rect.find(f"{SVG}title").text, a * x + e, d * y + f, a * (x + width) + e, d * (y + height) + f))
    expect("rectangles that are no block", len(list(svg(path).iter(f"{SVG}rect"))), len(found))
    return found


def ticks(path, anchor):
    """Returns an axis's labels and positions. Address labels end at it; moment labels are centered on it."""
    found = {}
    for text in svg(path).iter(f"{SVG}text"):
        if text.get("text-anchor") == anchor and re.fullmatch(r"[\d,.]+", text.text):
            found[float(text.text.replace(",", ""))] = (float(text.get("x")), float(text.get("y")))
    return found


def expect_near(what, got, wanted, tolerance):
    if abs(got - wanted) > tolerance:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}, within {tolerance}")


def draws_each_block_at_its_place():
    for text in ((DATA / "plans/minimalloc_A.csv").read_text(), GPT_LIFETIMES.read_text(),
                 random_blocks(random.Random(8), 300), HEADER + "a,5,10,3\nb,10,1000000,7\n"):
        said, rows = plan(text, "--no-exact", "--time-limit", "0.01", "--picture", folder / "out.svg")
        drawn = {}
        for title, *box in rectangles(folder / "out.svg"):
            expect(f"rectangles of {title}", title in drawn, False)
            drawn[title] = box
        expect("rectangles", len(drawn), len(rows))
        moments = sorted({b.lower for b in rows} | {b.upper for b in rows})
        line = svg(folder / "out.svg").find(f".//{SVG}line[@id='bound']")
        begin, end, bound = (float(line.get(name)) for name in ("x1", "x2", "y1"))
        labels = ticks(folder / "out.svg", "end")
        bottom = labels[0][1] - 4  # a label is lower than its tick, because letters stand on their line
        top = bottom - (bottom - bound) * said["height"] / said["bound"]
        expect_near("the highest rectangle", min(box[3] for box in drawn.values()), top, 0.01)
        expect("the line is level", line.get("y1"), line.get("y2"))

        def across(moment):
            return begin + moments.index(moment) * (end - begin) / (len(moments) - 1)

        for b in rows:
            left, low, right, high = drawn[f"{b.id}: {b.size} B, {b.lower} to {b.upper}, at {b.offset}"]
            for what, got, wanted in (("left", left, across(b.lower)), ("right", right, across(b.upper)),
                                      ("bottom", low, bottom - b.offset / said["height"] * (bottom - top)),
                                      ("top", high, bottom - (b.offset + b.size) / said["height"] * (bottom - top))):
                expect_near(f"{what} of block {b.id}", got, wanted, 0.02)
        for moment, (x, _) in ticks(folder / "out.svg", "middle").items():
            expect_near(f"the label {moment}", x, across(int(moment)), 0.02)
        address = next(t.text for t in svg(folder / "out.svg").iter(f"{SVG}text") if (t.text or "").startswith("address ("))
        unit = 1024**["B", "KiB", "MiB", "GiB"].index(address[9:-1])
        expect("labels of the address axis", 3 <= len(labels) <= 8, True)
        for label, (_, y) in labels.items():
            expect_near(f"the label {label}", y - 4, bottom - label * unit / said["height"] * (bottom - top), 0.02)


def describes_a_picture_in_words():
    plan((DATA / "plans/minimalloc_A.csv").read_text(), "--no-exact", "--time-limit", 0, "--picture", folder / "out.svg")
    picture = svg(folder / "out.svg")
    expect("role", picture.get("role"), "img")
    named = {element.get("id"): element for element in picture.iter() if element.get("id")}
    expect("ids of its labels", [id in named for id in picture.get("aria-labelledby").split()], [True, True])
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    for wanted in ("blocks.csv", "bound", "1.0 MiB", "address (MiB)",
                   "time: one step for each moment at which a block begins or ends, labelled with the moment"):
        expect(f"'{wanted}' is in the picture", wanted in texts, True)
    expect("numbers", any(re.fullmatch(r"154 blocks in [\d,]+ B \(1\.\d MiB\), bound 1,048,576 B \(1\.0 MiB\), ratio 1\.\d{4}",
                                       text or "") for text in texts), True)


def draws_pictures_that_load_nothing_in_light_and_dark():
    plan(SMALL, "--picture", folder / "out.svg")
    text = (folder / "out.svg").read_text()
    expect("references of the picture", re.findall(r"(?:href|src|url|@import|<script|<image|<foreignObject)", text), [])
    expect("addresses", re.findall(r"https?://[^\"' ]*", text), ["http://www.w3.org/2000/svg"])
    expect("dark colours", "prefers-color-scheme: dark" in text, True)


def draws_many_blocks_in_a_small_picture():
    text = random_blocks(random.Random(1), 20000, moments=10000)
    plan(text, "--no-exact", "--time-limit", 0, "--picture", folder / "out.svg")
    expect("rectangles", len(rectangles(folder / "out.svg")), 20000)
    expect("bytes a block", os.path.getsize(folder / "out.svg") / 20000 < 130, True)


# ---- plans of other programs ---------------------------------------------------------------------------------------

# Written by hand in the form of ggml's log. "y" writes "x" in place and frees it by its own name; "out" is
# never freed.
GGML = """\
load_backend: something of no interest
ggml_dyn_tallocr_alloc: allocating x (1024 bytes) - block 0, offset 0, chunk 0
ggml_dyn_tallocr_alloc: allocating w,1 (view) (512 bytes) - block 0, offset 1024, chunk 0
exec: MUL_MAT (h) <= w, x
parent w: 0 children, 0 views, allocated: 1
ggml_gallocr_free_node: freeing w,1 (view) at {chunk=0, offset=1024} (500 bytes) - n_free_blocks = 1

reusing parent x for y
exec: ADD (y) <= x
ggml_dyn_tallocr_alloc: allocating out (256 bytes) - block 0, offset 1024, chunk 0
ggml_gallocr_free_node: freeing y at {chunk=0, offset=0} (1024 bytes) - n_free_blocks = 1
not freeing output out
"""


def imported(text, form, *options):
    """Imports another program's text. Returns the output, and lifetimes as (id, lower, upper, size)."""
    status, output, errors = run("--from", form, write(text, "text"), "--lifetimes", folder / "lifetimes.csv", *options)
    expect("status and errors", (status, errors), (0, ""))
    return output, [(b.id, b.lower, b.upper, b.size) for b in rows_of((folder / "lifetimes.csv").read_text())]


def expect_import_refusal(text, form, line, reason, *options):
    path = write(text, "text")
    expect("message", run("--from", form, path, "--out", folder / "out.csv", *options),
           (2, "", f"tidemark-plan: {path}:{line}: {reason}\n"))


def reads_a_ggml_log():
    output, blocks = imported(GGML, "ggml", "--out", folder / "out.csv")
    expect("blocks", blocks, [("x", 2, 11, 1024), ("w;1 (view)", 3, 6, 512), ("out", 10, 13, 256)])
    expect("output", output.splitlines()[:4],
           ["blocks  3", "before  1,536 B (1.5 KiB)", "bound   1,536 B (1.5 KiB)", "height  1,536 B (1.5 KiB)"])
    rows = rows_of((folder / "out.csv").read_text())
    expect("end and live bytes", expect_sound(rows), (1536, 1536))
    # The same log in the form that ggml wrote before it had chunks.
    older = GGML.replace(", chunk 0", "").replace("{chunk=0, offset=0}", "0").replace("{chunk=0, offset=1024}", "1024")
    expect("blocks", imported(older.replace("ggml_gallocr_free_node", "ggml_dyn_tallocr_free_tensor"), "ggml")[1], blocks)


def reports_facts_missing_from_a_ggml_log():
    text = GGML.replace("reusing parent x for y\n", "reusing parent x for y\nfreeing extra 768 bytes from parent x for y\n")
    text = text.replace("offset 1024, chunk 0\nggml_gallocr_free_node: freeing y",
                        "offset 256, chunk 1\nggml_gallocr_free_node: freeing y")
    output, blocks = imported(text, "ggml")
    expect("the size stays", blocks[0][3], 1024)
    expect("output", output.splitlines()[1:3], [
        "        left out: the limits of ggml's 2 chunks, and 1 tails that ggml frees before their blocks",
        "before  2,048 B (2.0 KiB)"])


def rejects_inconsistent_ggml_logs():
    allocating = "f: allocating x (8 bytes) - block 0, offset 0\n"
    one = "keep the lines of one graph and one buffer"
    for text, line, reason in (
            ("\n", 2, "no line says 'allocating': is it a log of ggml with AT_PRINTF?"),
            ("f: allocating x (8 bytes)\n", 1, "' bytes) - block ' is missing before 'x (8 bytes)'"),
            ("f: allocating x (8 bytes) - block 0\n", 1, "', offset ' is missing before '0'"),
            ("f: allocating x (8x bytes) - block 0, offset 0\n", 1, "size is '8x', not a whole number"),
            (f"f: allocating x ({2**64} bytes) - block 0, offset 0\n", 1, f"size is '{2**64}', more than 2^64 - 1"),
            (f"f: allocating x (8 bytes) - block 0, offset {2**63}\n", 1, "the block ends above 2^62"),
            ("f: allocating x (8 bytes) - block 0, offset 0x10\n" + "f: freeing x at 16 (8 bytes)\n", 2,
             f"no block is live at offset 16: {one}"),
            (allocating + "f: freeing x at 8 (8 bytes)\n", 2, f"no block is live at offset 8: {one}"),
            (allocating + "f: freeing x at {chunk=1, offset=0} (8 bytes)\n", 2,
             f"no block is live at offset 0 of chunk 1: {one}"),
            (allocating + allocating, 2, f"the block shares bytes with x of line 1, which is live: {one}"),
            (allocating + allocating.replace("offset 0", "offset 7"), 2,
             f"the block shares bytes with x of line 1, which is live: {one}"),
            (allocating.replace("offset 0", "offset 7") + allocating, 2,
             f"the block shares bytes with x of line 1, which is live: {one}")):
        expect_import_refusal(text, "ggml", line, reason)


# Written by hand in the form of XLA's dumps. fusion.2{0} becomes loop.3{0} in place; add.4 uses the place
# later.
XLA_ASSIGNMENT = """\
BufferAssignment:
allocation 0: size 400, parameter 0, shape |f32[100]| at ShapeIndex {}:
 value: <0 param.1 @0> (size=400,offset=0): f32[100]{0}
allocation 1: size 900, preallocated-temp:
 value: <1 fusion.2{0} @0> (size=600,offset=0): f32[150]{0}
 value: <2 fusion.2{1} @0> (size=200,offset=600): f32[50]{0}
 value: <3 loop.3{0} (phi) @0> (size=600,offset=0): f32[150]{0}
 value: <4 add.4> (size=600,offset=0): f32[150]{0}
 value: <5 copy.5 @0> (size=100,offset=800): f32[25]{0}
allocation 2: size 100, preallocated-temp:
 value: <6 other.6 @0> (size=100,offset=0): f32[25]{0}

Total bytes used: 1400 (1.4KiB)

"""
XLA_USES = """\
Used values:
<1 fusion.2{0} @0>
 positions:
  fusion.2 {0}
 uses:
  loop.3, operand 0 {0}
 from instruction: (f32[150]{0}, f32[50]{0}) fusion(param.1), kind=kLoop
<2 fusion.2{1} @0>
 positions:
  fusion.2 {1}
 uses:
  copy.5, operand 0
 from instruction: (f32[150]{0}, f32[50]{0}) fusion(param.1), kind=kLoop
<4 add.4>
 positions:
  add.4
 uses:
  (none)
 from instruction: f32[150]{0} add(copy.5, copy.5)
<5 copy.5 @0>
 positions:
  copy.5
 uses:
  add.4, operand 0
  add.4, operand 1
 from instruction: f32[25]{0} copy(fusion.2)

"""
XLA_RANGES = """\
HloLiveRange (max 9):
  InstructionSequence:
    0:param.1
  BufferLiveRange:
    param.1{}:0-9
    fusion.2{0}:1-2
    fusion.2{1}:1-4
    loop.3{0}:3-5
    add.4{}:7-8
    copy.5{}:4-7
  Live ranges at 4 (peak):
    loop.3{0}: 600 bytes (cumulative: 600 bytes)
"""


def reads_an_xla_dump():
    wanted = [("fusion.2{0}", 1, 6, 600), ("add.4{}", 7, 9, 600), ("fusion.2{1}", 1, 5, 200), ("copy.5{}", 4, 8, 100)]
    output, blocks = imported(XLA_ASSIGNMENT + XLA_RANGES, "xla")
    expect("blocks: what a loop carries is one", blocks, wanted)
    expect("output", output.splitlines()[:5], [
        "blocks  4", "        left out: 2 allocations other than 1", "before  900 B", "bound   900 B", "height  900 B"])
    expect("of another allocation", imported(XLA_ASSIGNMENT + XLA_RANGES.replace("  Live", "    other.6{}:0-0\n  Live"), "xla",
                                             "--allocation", 2)[1], [("other.6{}", 0, 1, 100)])


def bounds_an_xla_dump_in_any_order_of_its_instructions():
    # add.4 reads copy.5 twice and is larger: 700 B. copy.5 may reuse its operand's memory: 200 B.
    output, _ = imported(XLA_ASSIGNMENT + XLA_USES + XLA_RANGES, "xla")
    expect("output", output.splitlines()[3:6],
           ["bound   900 B", "        700 B in any order of the operations", "height  900 B"])


def rejects_inconsistent_xla_dumps():
    whole = XLA_ASSIGNMENT + XLA_RANGES
    end = len(whole.splitlines()) + 1
    for old, new, line, reason in (
            ("allocation ", "Allocation ", end, "no line begins with 'allocation': is it an XLA buffer assignment?"),
            ("BufferLiveRange:", "", end, "there is no 'BufferLiveRange:': newer releases of XLA write it to a file of its own, "
             "*-live-range.txt, which is to follow in the same text"),
            (", preallocated-temp", "", end, "no allocation is preallocated-temp: --allocation names one"),
            ("allocation 2", "allocation 1", 10, "allocation 1 appears twice, first in line 4: keep one module"),
            ("1: size 900,", "1: size ?,", 4, "size is '', not a whole number"),
            ("1: size 900,", "1: size 899,", 9, "the value ends above its allocation, which has 899 bytes"),
            ("(size=200,offset=600)", "(size=200)", 6, "',offset=' is missing before '): f32[50]{0}'"),
            ("    copy.5{}:4-7\n", "", 9, "copy.5{} has no live range"),
            ("copy.5{}:4-7", "copy.5{}:4", 24, "'-' is missing before ''"),
            ("copy.5{}:4-7", "copy.5{}:4-3", 24, "the range ends at 3, before 4"),
            ("copy.5{}:4-7", f"copy.5{{}}:4-{2**64 - 1}", 24, "the last moment is 2^64 - 1; the maximum is 2^64 - 2"),
            ("copy.5{}:4-7", "add.4{}:4-7", 24, "add.4{} has a range already: keep one module")):
        expect_import_refusal(whole.replace(old, new), "xla", line, reason)
    expect_import_refusal(whole, "xla", end, "allocation 7 does not exist", "--allocation", 7)


def names_the_line_of_an_inconsistent_imported_block():
    big = f"f: allocating x ({2**62} bytes) - block 0, offset 0\n\nf: allocating y (8 bytes) - block 0, offset {2**62}\n"
    expect_import_refusal(big, "ggml", 3, "block y of 8 bytes makes more than 2^62 bytes of the blocks together, each rounded "
                          "up to its alignment")


# ---- files that are written ----------------------------------------------------------------------------------------


def names_a_file_that_cannot_be_written_and_leaves_nothing():
    blocks = write(SMALL)
    for option in ("--out", "--picture"):
        for path, reason in ((folder / "none/out", "No such file or directory"), (folder, "Is a directory"),
                             ("/dev/full", "No space left on device"), (blocks, "the output would overwrite an input"),
                             (f"{folder}/./blocks.csv", "the output would overwrite an input")):
            expect(f"message for {path}", run(blocks, option, path), (2, "", f"tidemark-plan: {path}: {reason}\n"))
    expect("/dev/full is what it was", stat.S_ISCHR(os.stat("/dev/full").st_mode), True)
    expect("two of one name", run(blocks, "--out", folder / "x", "--picture", f"{folder}/./x"),
           (2, "", f"tidemark-plan: {folder}/./x: two outputs have this name\n"))
    expect("the files there", os.listdir(folder), ["blocks.csv"])
    # A disk that fills up while a file is written leaves the earlier file and the other output unchanged.
    write("before", "out.csv")
    text = write(random_blocks(random.Random(1), 2000))
    limited = subprocess.run(["bash", "-c", 'ulimit -f 8; exec "$0" "$@"', PROGRAM, text, "--out", folder / "out.csv",
                              "--picture", folder / "out.svg", "--time-limit", "0"],
                             capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    expect("message for a full disk", (limited.returncode, limited.stdout, limited.stderr),
           (2, "", f"tidemark-plan: {folder}/out.csv: File too large\n"))
    expect("the files there", sorted(os.listdir(folder)), ["blocks.csv", "out.csv"])
    expect("the file of before", (folder / "out.csv").read_text(), "before")
    # A picture that cannot be written prevents the rows from appearing.
    limited = subprocess.run(["bash", "-c", 'ulimit -f 1; exec "$0" "$@"', PROGRAM, write(SMALL), "--out", folder / "out.csv",
                              "--picture", folder / "out.svg"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    expect("message for a full disk", (limited.returncode, limited.stdout, limited.stderr),
           (2, "", f"tidemark-plan: {folder}/out.svg: File too large\n"))
    expect("the files there", sorted(os.listdir(folder)), ["blocks.csv", "out.csv"])
    expect("the file of before", (folder / "out.csv").read_text(), "before")
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, blocks], stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)
    expect("a full standard output", (done.returncode, done.stderr),
           (2, "tidemark-plan: standard output: No space left on device\n"))


def leaves_no_file_after_a_late_failure():
    blocks = write(SMALL)
    write("before", "out.csv")
    for option, other in (("--out", "--picture"), ("--picture", "--out")):
        expect("message", run(blocks, option, folder / "out.csv", other, "/dev/full"),
               (2, "", "tidemark-plan: /dev/full: No space left on device\n"))
        expect("the files there", sorted(os.listdir(folder)), ["blocks.csv", "out.csv"])
        expect("the file of before", (folder / "out.csv").read_text(), "before")
    # A result that cannot be printed prevents it too, on a full device or in a pipe without a reader.
    ours, theirs = os.pipe()
    os.close(ours)
    for output, reason in ((os.open("/dev/full", os.O_WRONLY), "No space left on device"), (theirs, "Broken pipe")):
        done = subprocess.run([PROGRAM, blocks, "--out", folder / "out.csv", "--picture", folder / "out.svg"], stdout=output,
                              stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)
        os.close(output)
        expect("message", (done.returncode, done.stderr), (2, f"tidemark-plan: standard output: {reason}\n"))
        expect("the files there", sorted(os.listdir(folder)), ["blocks.csv", "out.csv"])
        expect("the file of before", (folder / "out.csv").read_text(), "before")


def keeps_permissions_and_follows_links():
    before = os.umask(0o027)
    plan(SMALL)
    os.umask(before)
    expect("permissions of a new file", oct(stat.S_IMODE(os.stat(folder / "out.csv").st_mode)), oct(0o640))
    (folder / "out.csv").chmod(0o604)
    (folder / "link.csv").symlink_to("out.csv")
    expect("status", run(write(SMALL.replace("30", "31")), "--out", folder / "link.csv")[0], 0)
    expect("permissions of a file that was there", oct(stat.S_IMODE(os.stat(folder / "out.csv").st_mode)), oct(0o604))
    expect("the link's target", "2,2,4,31," in (folder / "out.csv").read_text(), True)
    expect("the link", (folder / "link.csv").is_symlink(), True)


def reads_and_writes_pipes():
    status, output, errors = run("/dev/stdin", "--out", "/dev/stdout", input=SMALL.encode())
    expect("status and errors", (status, errors), (0, ""))
    expect("output", output.startswith("id,lower,upper,size,offset\n0,0,2,10,"), True)


# ---- progress ------------------------------------------------------------------------------------------------------


def returns_the_lowest_plan_on_an_interrupt():
    # No plan is at its bound, and a proof takes long.
    text = random_blocks(random.Random(5), 150, (1, 2, 64, 4096))
    out = folder / "out.csv"
    # The tool would inherit ignored interrupts from the tests, so they restore the default.
    with subprocess.Popen([PROGRAM, write(text), "--out", out, "--time-limit", "1000", "--progress"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as search:
        while "height" not in search.stderr.readline():
            expect("the status before there is a plan", search.poll(), None)
        search.send_signal(signal.SIGINT)
        output, _ = search.communicate(timeout=TIMEOUT_SECONDS)
    expect("status", search.returncode, 0)
    expect("reports the interruption", printed(output)["time"].endswith(", interrupted"), True)
    height, live = expect_sound(rows_of(out.read_text()))
    expect("height and bound", (printed(output)["height"] >= height, printed(output)["bound"] >= live), (True, True))


def prints_progress_if_requested():
    blocks = DATA / "plans/minimalloc_A.csv"
    options = (blocks, "--no-exact", "--time-limit", "0.01")
    expect("errors without", run(*options)[2], "")
    lines = run(*options, "--progress")[2].splitlines()
    expect("lines", len(lines) >= 1, True)
    for line in lines:
        form = r"\S.*: (no plan yet|height [1-9][\d,]* B, ratio [1-9][\d.]+), [\d,]+ blocks placed, [\d.]+ m?s"
        expect(f"'{line}' is one", re.fullmatch(form, line) is not None, True)


def erases_the_progress_line_of_a_terminal_at_the_end():
    ours, theirs = pty.openpty()
    done = subprocess.run([PROGRAM, DATA / "plans/minimalloc_A.csv", "--no-exact", "--time-limit", "0.01"],
                          stdout=subprocess.PIPE, stderr=theirs, timeout=TIMEOUT_SECONDS)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # the end of a terminal that is closed
        pass
    os.close(ours)
    expect("status", done.returncode, 0)
    expect("lines", seen.count(b"\n"), 0)
    expect("heights", b": height " in seen, True)
    expect("the end", seen.endswith(b"\r\x1b[K"), True)


# ---- everything ----------------------------------------------------------------------------------------------------


def plans_or_rejects_mutated_files():
    chance = random.Random(4)
    small = ALL_COLUMNS + "0,0,5,10,1,\n1,3,9,20,16,\n2,4,7,5,8,64\nabc,9,12,30,,\n4,0,12,1,1,300\n"
    taken, tries = 0, 250
    for _ in range(tries):
        text = list(small)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(text))
            text[place:place + chance.randint(0, 2)] = chance.choices("0123456789,,\n\r\0 -\"x\u00e9", k=chance.randint(0, 2))
        if chance.random() < 0.2:  # a number of maximum size
            text[chance.randrange(len(text))] = str(2**chance.randint(30, 64) - chance.randint(0, 1))
        blocks = write("".join(text))
        status, output, errors = run(blocks, "--out", folder / "out.csv", "--picture", folder / "out.svg", "--node-limit", 2000)
        if status == 0:
            taken += 1
            rows = rows_of((folder / "out.csv").read_text())
            expect("height", printed(output)["height"], expect_sound(rows)[0])
            expect("rectangles", len(rectangles(folder / "out.svg")), len(rows))
        else:
            expect(f"status of {''.join(text)!r}, of which is said {errors!r}", status, 2)
            expect(f"'{errors}' is a sentence", re.fullmatch(rf"tidemark-plan: {re.escape(str(blocks))}:\d+: [^\n]*\n", errors)
                   is not None, True)
    expect(f"of {tries} some are taken and some are not: {taken} are", tries // 20 < taken < tries * 19 // 20, True)


def prints_the_documented_sessions():
    """Runs the lines behind `$ ` in planner/docs/use.md and compares their output, except times."""
    sessions = re.findall(r"^```console\n(.*?)^```", (pathlib.Path(SOURCES) / "planner/docs/use.md").read_text(), re.S | re.M)
    expect("finds sessions", len(sessions) > 0, True)
    place = pathlib.Path(folder)
    for name in os.listdir(SOURCES):
        if not name.startswith("."):
            (place / name).symlink_to(pathlib.Path(SOURCES).resolve() / name)
    commands = 0
    for session in sessions:
        for command, wanted in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.M):
            program, *arguments = shlex.split(command)
            expect(f"the program of '{command}'", program, "tidemark-plan")
            commands += 1
            done = subprocess.run([PROGRAM, *arguments], cwd=place, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
            expect(f"status and errors of '{command}'", (done.returncode, done.stderr), (0, ""))
            without_times = [re.sub(r" +[\d.]+ m?s\b", " T", text) for text in (done.stdout, wanted)]
            expect(f"output of '{command}'", without_times[0], without_times[1])
    expect("commands", commands > 0, True)
    pictures = [(place / "plan.svg").read_text(), (place / "docs/plan.svg").read_text()]
    expect("the picture in docs/plan.md is the one that is drawn", pictures[0] == pictures[1], True)


with tempfile.TemporaryDirectory(prefix="tidemark-plan-test-") as name:
    folder = pathlib.Path(name)
    globals()[CASE]()
