# SPDX-License-Identifier: Apache-2.0
"""Runs tidemark-report and reads its pages, as text and in a browser: check.py PROGRAM TRACES CASE. Each case is one fact.

What needs matplotlib or chromium is skipped where they are missing, with exit status 77 and the reason in the form that
GoogleTest has for it, which ./run repeats.
"""
import html.parser
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

PROGRAM, TRACES, CASE = sys.argv[1:]
HEADER = "op,id,bytes,thread\n"
TIMEOUT_SECONDS = 120


def skip(reason):
    print(f"{__file__}: Skipped\n{reason}")
    sys.exit(77)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=TIMEOUT_SECONDS)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def report(text, *options):
    """The page of a trace."""
    needs_matplotlib()
    (folder / "trace.csv").write_text(text)
    expect("status and output", run(folder / "trace.csv", "-o", folder / "report.html", *options), (0, "", ""))
    return (folder / "report.html").read_text()


def needs_matplotlib():
    interpreter = pathlib.Path(PROGRAM).read_text().split("\n", 1)[0].removeprefix("#!")
    if subprocess.run([interpreter, "-c", "import matplotlib"], capture_output=True).returncode != 0:
        skip(f"{interpreter} has no matplotlib")


def expect_refusal(content, line, reason):
    trace, page = folder / "trace.csv", folder / "report.html"
    trace.write_bytes(content if isinstance(content, bytes) else content.encode())
    expect(f"what is said of {content[:80]!r}", run(trace, "-o", page),
           (2, "", f"tidemark-report: {trace}:{line}: {reason}\n"))
    expect("the files there", sorted(os.listdir(folder)), ["trace.csv"])


# ---- wrong traces --------------------------------------------------------------------------------------------------


def rejects_a_wrong_header():
    expect_refusal("", 1, "the file is empty; it should begin with op,id,bytes,thread")
    expect_refusal("a,0,1,0\n", 1, "the header is 'a,0,1,0', not op,id,bytes,thread")
    expect_refusal("op,id,bytes\n", 1, "the header is 'op,id,bytes', not op,id,bytes,thread")
    expect_refusal("\n", 1, "the header is '', not op,id,bytes,thread")
    expect_refusal("\ufeff" + HEADER, 1, "the header is '?op,id,bytes,thread', not op,id,bytes,thread")


def rejects_a_row_with_too_few_or_too_many_fields():
    expect_refusal(HEADER + "a,0,1,0\na,1,1\n", 3, "the row has 3 fields, not 4")
    expect_refusal(HEADER + "a,0,1,0,0\n", 2, "the row has 5 fields, not 4")
    expect_refusal(HEADER + "a,0,1,0\n\na,1,1,0\n", 3, "the row is empty")
    expect_refusal(HEADER + "a,0,1,0\na,1", 3, "the row has 2 fields, not 4")


def rejects_a_field_that_is_not_a_number():
    for name, row in (("id", "a,{},1,0"), ("bytes", "a,0,{},0"), ("thread", "a,0,1,{}")):
        for field in ("", "x", "-1", "+1", " 1", "1.5", "1e3", "0x10", "1_000", "\u0661", '"1"'):
            expect_refusal(HEADER + row.format(field) + "\n", 2, f"{name} is '{field}', not a whole number")
    expect_refusal(HEADER + f"a,0,{2**64},0\n", 2, f"bytes is '{2**64}', more than 2^64 - 1")
    expect_refusal(HEADER + "a,0,1,0\r\na,1," + "9" * 9000 + ",0\r\n", 3,
                   "bytes is '" + "9" * 40 + "...', more than 2^64 - 1")
    expect_refusal(HEADER + "a,0," + "9" * 200000 + ",0\n", 2, "bytes is '" + "9" * 40 + "...', more than 2^64 - 1")


def rejects_an_unknown_op():
    expect_refusal(HEADER + "r,0,1,0\n", 2, "op is 'r', neither a nor f")
    expect_refusal(HEADER + "A,0,1,0\n", 2, "op is 'A', neither a nor f")
    expect_refusal(HEADER + "\x1b[31m,0,1,0\n", 2, "op is '?[31m', neither a nor f")


def rejects_impossible_events():
    expect_refusal(HEADER + "a,0,1,0\na,0,1,0\n", 3, "block 0 is allocated twice; first by event 0")
    expect_refusal(HEADER + "a,0,1,0\nf,0,0,0\na,0,1,0\n", 4, "block 0 is allocated twice; first by event 0")
    expect_refusal(HEADER + "f,7,0,0\n", 2, "block 7 is freed and was never allocated")
    expect_refusal(HEADER + "a,0,1,0\nf,0,0,0\nf,0,0,0\n", 4, "block 0 is freed twice; first by event 1")
    expect_refusal(HEADER + "a,0,1,0\nf,0,1,0\n", 3, "bytes is 1, and a row that frees has 0")


def rejects_invalid_utf8():
    expect_refusal(b"\x7fELF\x02\x01\x01\x00\xff\xfe", 1, "the header is '?ELF??????', not op,id,bytes,thread")
    expect_refusal(HEADER.encode() + b"a,0,1,0\na,1,\xff\xfe,0\n", 3, "bytes is '??', not a whole number")
    expect_refusal(HEADER.encode() + b"a,0,1,0\na,1,1\x00,0\n", 3, "bytes is '1?', not a whole number")


def names_a_trace_that_cannot_be_read():
    page = folder / "report.html"
    expect("a missing file", run(folder / "none.csv", "-o", page),
           (2, "", f"tidemark-report: {folder}/none.csv: No such file or directory\n"))
    expect("a folder", run(folder, "-o", page), (2, "", f"tidemark-report: {folder}: Is a directory\n"))
    expect("the files there", os.listdir(folder), [])


def answers_a_wrong_option_with_one_sentence():
    for arguments, sentence in (
            ((), "the following arguments are required: TRACE.csv, -o/--output"),
            (("trace.csv",), "the following arguments are required: -o/--output"),
            (("trace.csv", "-o", "x", "--colour"), "unrecognized arguments: --colour"),
            (("trace.csv", "-o"), "argument -o/--output: expected one argument")):
        expect(f"what is said of {arguments}", run(*arguments), (2, "", f"tidemark-report: {sentence}; see --help\n"))


def help_names_every_option():
    status, output, errors = run("--help")
    expect("status and errors", (status, errors), (0, ""))
    for option in ("TRACE.csv", "--output REPORT.html", "--title TITLE"):
        expect(f"{option} is in the help", option in output, True)


# ---- the output file -----------------------------------------------------------------------------------------------


def names_a_page_that_cannot_be_written_and_leaves_nothing():
    needs_matplotlib()
    trace = folder / "trace.csv"
    trace.write_text(HEADER + "a,0,1,0\n")
    for page, reason in (
            (folder / "none/report.html", "No such file or directory"), (folder, "Is a directory"),
            ("/dev/full", "No space left on device"), (trace, "the page would replace the trace")):
        expect(f"what is said of {page}", run(trace, "-o", page), (2, "", f"tidemark-report: {page}: {reason}\n"))
    expect("/dev/full is what it was", stat.S_ISCHR(os.stat("/dev/full").st_mode), True)
    # A disk that fills up while the page is written: the page of before stays.
    (folder / "report.html").write_text("before")
    limited = subprocess.run(["bash", "-c", 'ulimit -f 8; exec "$0" "$@"', PROGRAM, trace, "-o", folder / "report.html"],
                             capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    expect("what is said of a full disk", (limited.returncode, limited.stderr),
           (2, f"tidemark-report: {folder}/report.html: File too large\n"))
    expect("the files there", sorted(os.listdir(folder)), ["report.html", "trace.csv"])
    expect("the page of before", (folder / "report.html").read_text(), "before")


def keeps_permissions_of_a_page():
    before = os.umask(0o027)
    report(HEADER)
    expect("permissions of a new page", oct(stat.S_IMODE(os.stat(folder / "report.html").st_mode)), oct(0o640))
    os.umask(before)
    (folder / "report.html").chmod(0o604)
    report(HEADER)
    expect("permissions of a page that was there", oct(stat.S_IMODE(os.stat(folder / "report.html").st_mode)), oct(0o604))


# ---- the numbers ---------------------------------------------------------------------------------------------------


class tables_of(html.parser.HTMLParser):
    """The tables of a page: their captions, and their rows as lists of texts."""

    def __init__(self, page):
        super().__init__()
        self.captions, self.rows, self.text = [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.rows.append([])
        elif tag == "tr":
            self.rows[-1].append([])
        elif tag in ("th", "td", "caption"):
            self.text = ""

    def handle_data(self, data):
        if self.text is not None:
            self.text += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self.captions.append(self.text)
        elif tag in ("th", "td"):
            self.rows[-1][-1].append(self.text)
        if tag in ("th", "td", "caption"):
            self.text = None


# Live after each event: 100, 100, 2148, 2149, 2049, 1, 1 (of 0 bytes), 1; peak 2149 after event 3.
SMALL = HEADER + "a,0,100,0\na,5,0,0\na,1,2048,1\na,2,1,0\nf,0,0,2\nf,1,0,1\na,3,0,0\nf,5,0,0\n"


def writes_a_page_into_a_pipe():
    needs_matplotlib()
    (folder / "trace.csv").write_text("op,id,bytes,thread\na,0,64,0\n")
    status, output, errors = run(folder / "trace.csv", "-o", "/dev/stdout")
    expect("status and errors", (status, errors), (0, ""))
    expect("what comes out", (output.startswith("<!DOCTYPE html>"), output.rstrip().endswith("</html>")), (True, True))


def shows_the_numbers_of_a_small_trace():
    summary, peak, longest = tables_of(report(SMALL)).rows
    expect("summary", summary, [
        ["Events", "8"], ["Blocks", "5"], ["Threads", "3"], ["Allocated in all", "2,149 B (2.1 KiB)"],
        ["Peak", "2,149 B (2.1 KiB)"], ["Peak reached by", "event 3"], ["Live at the end", "1 B in 2 blocks"],
        ["Freed by another thread than allocated", "1 blocks"]])
    expect("peak", peak, [
        ["Size", "Blocks", "Bytes", "Share of the peak"], ["0 B", "1", "0 B", "0.0 %"], ["1 B", "1", "1 B", "0.0 %"],
        ["65 to 128 B", "1", "100 B", "4.7 %"], ["up to 2 KiB", "1", "2,048 B (2.0 KiB)", "95.3 %"]])
    expect("longest", longest, [
        ["Block", "Bytes", "Events lived", "Allocated by", "Freed by"],
        ["5", "0 B", "6", "event 1", "event 7"], ["2", "1 B", "5", "event 3", "never"],
        ["0", "100 B", "4", "event 0", "event 4"], ["1", "2,048 B (2.0 KiB)", "3", "event 2", "event 5"],
        ["3", "0 B", "2", "event 6", "never"]])


def size_classes_go_up_to_powers_of_two():
    sizes = [1, 2, 3, 4, 5, 8, 9, 1023, 1024, 1025, 2**20, 2**20 + 1]
    peak = tables_of(report(HEADER + "".join(f"a,{i},{size},0\n" for i, size in enumerate(sizes)))).rows[1]
    expect("classes", [row[:2] for row in peak[1:]], [
        ["1 B", "1"], ["2 B", "1"], ["3 to 4 B", "2"], ["5 to 8 B", "2"], ["9 to 16 B", "1"], ["up to 1 KiB", "2"],
        ["up to 2 KiB", "1"], ["up to 1 MiB", "1"], ["up to 2 MiB", "1"]])


def lists_only_the_longest_lived_blocks():
    rows = tables_of(report(HEADER + "".join(f"a,{i},1,0\n" for i in range(1000)))).rows[2]
    expect("blocks", [row[0] for row in rows[1:]], [str(i) for i in range(20)])


def writes_a_page_of_a_trace_without_events_or_bytes():
    for text, events in ((HEADER, "0"), (HEADER.strip(), "0"), (HEADER + "a,0,0,0\nf,0,0,0\n", "2")):
        page = report(text)
        summary, peak, _ = tables_of(page).rows
        expect("events", summary[0], ["Events", events])
        expect("peak", summary[4:6], [["Peak", "0 B"], ["Peak reached by", "no event"]])
        expect("rows of the peak", len(peak), 1)
        expect("a curve is there", 'id="curve"' in page, True)


def accepts_any_line_ends_and_the_largest_numbers():
    expect("with CRLF", tables_of(report(SMALL.replace("\n", "\r\n"))).rows, tables_of(report(SMALL)).rows)
    summary = tables_of(report(HEADER + f"a,{2**64 - 1},{2**64 - 1},{2**64 - 1}\n")).rows[0]
    expect("peak", summary[4][1], "18,446,744,073,709,551,615 B (16.0 EiB)")


def shows_the_numbers_of_the_recorded_traces():
    # As shared with the traces: events, threads, peak, frees by another thread.
    needs_matplotlib()
    known = {"clang_syntax": ("199,400", "1", None, "0 blocks"), "lld_link": ("20,480", "5", None, "622 blocks"),
             "torch_gpt": ("9,834", "1", "79,152,324 B (75.5 MiB)", "0 blocks"), "torch_mlp": ("2,562", "1", None, "0 blocks")}
    for name, (events, threads, peak, foreign) in known.items():
        expect("status and output", run(f"{TRACES}/{name}.csv", "-o", folder / "report.html"), (0, "", ""))
        summary = dict(tables_of((folder / "report.html").read_text()).rows[0])
        expect(name, (summary["Events"], summary["Threads"], summary["Freed by another thread than allocated"]),
               (events, threads, foreign))
        expect(f"peak of {name}", peak in (None, summary["Peak"]), True)
        expect(f"size of the page of {name}", os.path.getsize(folder / "report.html") < 500_000, True)


def draws_the_curve_in_steps():
    path = re.search(r'<g id="curve">\s*<path d="([^"]*)"', report(SMALL))[1]
    points = re.findall(r"[ML] (\S+) (\S+)", path)
    expect("the points of 8 events: a corner between each two", len(points), 15)
    for before, after in zip(points, points[1:]):
        expect(f"{before} to {after} is level or upright", before[0] == after[0] or before[1] == after[1], True)


def writes_an_accessible_page_and_escapes_text():
    page = report(SMALL, "--title", "<script>alert(1)</script> & \"größe\"")
    expect("the title", page.count("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;größe&quot;"), 2)
    expect("scripts", page.count("<script"), 0)
    expect("language", '<html lang="en">' in page, True)
    expect("captions", len(tables_of(page).captions), 3)
    expect("what the curve shows", re.search(r'<desc id="curve-desc">(.*?)</desc>', page)[1],
           "Bytes live after each of 8 events. The peak, 2,149 B (2.1 KiB), is after event 3. At the end 1 B are live.")
    expect("row heads without scope", re.findall(r"<th(?! scope=)[ >]", page), [])


def writes_a_page_that_loads_nothing():
    page = report(SMALL)
    expect("policy", "default-src 'none'; style-src 'unsafe-inline'" in page, True)
    expect("addresses", [found for found in re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')\s>]+)', page)
                         if not found.startswith("#")], [])


# ---- in a browser --------------------------------------------------------------------------------------------------

PROBE = """<script>
addEventListener("load", () => {
  const box = document.querySelector("#curve path").getBoundingClientRect();
  const frame = document.querySelector("svg").getBoundingClientRect();
  const peak = document.querySelector("#peak").getBoundingClientRect();
  const seen = what => [...document.querySelectorAll(what)].filter(element => element.getClientRects().length > 0);
  const found = {box: [box.x, box.y, box.width, box.height], frame: [frame.x, frame.y, frame.width, frame.height],
    peak: [peak.x + peak.width / 2, peak.y + peak.height / 2],
    stroke: getComputedStyle(document.querySelector("#curve path")).stroke,
    paper: getComputedStyle(document.body).backgroundColor, scroll: document.documentElement.scrollWidth,
    // Of what is seen: the charts, how high their letters are on the screen, where texts end, and row heads in two lines.
    charts: seen("svg").map(svg => svg.getBoundingClientRect().width),
    letters: seen("svg text").map(text => parseFloat(getComputedStyle(text).fontSize) *
      Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)),
    right: Math.max(...seen("svg text, caption, figcaption, h1, h2").map(text => text.getBoundingClientRect().right)),
    broken: seen("table:not(.pairs) tbody th").filter(head => {
      const text = document.createRange();
      text.selectNodeContents(head);
      return text.getClientRects().length > 1;
    }).length,
    width: innerWidth, loaded: performance.getEntriesByType("resource").length};
  top.postMessage(JSON.stringify(found), "*");
});
</script>"""
LISTENER = """<script>
addEventListener("message", said => document.documentElement.setAttribute("data-found", said.data));
</script>"""


def browser(*arguments):
    """What chromium prints; it runs without network, and its own folders are gone with the test's."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if program := shutil.which(name):
            break
    else:
        skip("there is no chromium here")
    # A group of its own, because chromium's children outlive it when it is killed.
    done = subprocess.Popen(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
         "--hide-scrollbars", f"--user-data-dir={folder}/chromium", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "HOME": str(folder)})
    try:
        output, errors = done.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        sys.exit(f"{program} did not end within {TIMEOUT_SECONDS} s")
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}: {errors}")
    return output


def seen_by_the_browser(page, *arguments, width=None):
    """What the probe finds in a window, or in a frame of that many pixels, because no window is narrower than 500."""
    probed, outer = folder / "probed.html", folder / "outer.html"
    # Ahead of the page's policy, which would not let it run.
    probed.write_text(page.replace("<head>", "<head>" + LISTENER + PROBE, 1))
    outer.write_text(LISTENER +
                     f'<iframe src="probed.html" style="border: 0; width: {width}px; height: 900px"></iframe>')
    dumped = browser("--window-size=1000,900", *arguments, "--dump-dom", f"file://{outer if width else probed}")
    found = re.search(r'data-found="([^"]*)"', dumped)
    if not found:
        sys.exit(f"the browser said nothing of the page: {dumped[:300]}")
    return json.loads(html.unescape(found[1]))


def recorded_page(name):
    return report(pathlib.Path(TRACES, name).read_text())


def fills_the_frame_with_the_curve_in_a_browser():
    seen = seen_by_the_browser(recorded_page("torch_gpt.csv"))
    x, y, width, height = seen["box"]
    left, top, frame_width, frame_height = seen["frame"]
    expect(f"the curve is drawn wide, {seen}", 0.8 * frame_width < width < frame_width and left < x, True)
    expect(f"the curve is drawn high, {seen}", 0.5 * frame_height < height < frame_height and top < y, True)
    peak_x, peak_y = seen["peak"]
    # The peak is after event 6,035 of 9,834 and the highest that the curve gets; its line has a width.
    expect(f"the peak's place, {seen}", abs((peak_x - x) / width - 6035 / 9833) < 0.01 and abs(peak_y - y) < 3, True)
    expect("what the page loads", seen["loaded"], 0)
    expect("the page is as wide as the window", seen["scroll"], seen["width"])


def shows_the_curve_in_a_picture_of_the_page():
    needs_matplotlib()  # it reads the picture, so this case runs on the program's own interpreter
    page = recorded_page("clang_syntax.csv")
    picture = folder / "picture.png"
    browser("--window-size=1000,900", f"--screenshot={picture}", f"file://{folder}/report.html")
    pixels = json.loads(subprocess.run(["/usr/bin/python3", "-c", """
import json, sys, matplotlib.image
pixels = (matplotlib.image.imread(sys.argv[1])[:, :, :3] * 255).round().astype(int)
near = (abs(pixels - [0x0b, 0x62, 0xc4]).sum(axis=2) < 90)
peak = (abs(pixels - [0xb4, 0x23, 0x18]).sum(axis=2) < 60)
columns, rows = near.any(axis=0).nonzero()[0], near.any(axis=1).nonzero()[0]
print(json.dumps([len(columns), len(rows), int(near.sum()), int(peak.sum()), pixels.shape[1]]))
""", picture], capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS).stdout)
    columns, rows, curve, peak, width = pixels
    expect(f"the curve goes from side to side, {pixels}", columns > 0.7 * width, True)
    expect(f"and from bottom to top, {pixels}", rows > 200, True)
    expect(f"it is a line and no area, {pixels}", curve < 20 * columns, True)
    expect(f"its peak is marked, {pixels}", peak > 20, True)


def shows_a_dark_page_on_a_dark_screen():
    page = report(SMALL)
    light = seen_by_the_browser(page)
    dark = seen_by_the_browser(page, "--blink-settings=preferredColorScheme=0")
    expect("light", (light["paper"], light["stroke"]), ("rgb(255, 255, 255)", "rgb(11, 98, 196)"))
    expect("dark", (dark["paper"], dark["stroke"]), ("rgb(20, 23, 26)", "rgb(108, 178, 255)"))


def fits_a_narrow_screen_without_scrolling_sideways():
    for width in (320, 375, 500, 679, 681):
        seen = seen_by_the_browser(recorded_page("lld_link.csv"), width=width)
        expect("the page is as wide as the screen", (seen["width"], seen["scroll"]), (width, width))


def shows_a_readable_chart_on_every_screen():
    page = recorded_page("torch_gpt.csv")
    for width in (320, 375, 679, 681, 992):
        seen = seen_by_the_browser(page, width=width)
        expect(f"one chart is seen, {seen}", len(seen["charts"]), 1)
        expect(f"it is wide, {seen}", min(width - 33, 475) < seen["charts"][0] < width, True)
        expect(f"it has its letters, {seen}", len(seen["letters"]) > 10, True)
        expect(f"and all are legible, {seen}", 9 <= min(seen["letters"]) <= max(seen["letters"]) < 18, True)


def shows_whole_texts_on_a_telephone():
    for name in ("lld_link.csv", "torch_gpt.csv"):
        seen = seen_by_the_browser(recorded_page(name), width=375)
        expect(f"where the last text ends, {seen}", seen["right"] <= 375, True)
        expect(f"row heads in two lines, {seen}", seen["broken"], 0)


def gives_each_chart_ids_of_its_own():
    page = report(SMALL)
    ids = re.findall(r' id="([^"]*)"', page)
    expect("ids that are there twice", sorted({i for i in ids if ids.count(i) > 1}), [])
    named = re.findall(r'(?:href="|url\()#([^")]*)', page) + sum(
        (names.split() for names in re.findall(r'aria-labelledby="([^"]*)"', page)), [])
    expect("names of ids that are not there", sorted(set(named) - set(ids)), [])


with tempfile.TemporaryDirectory(prefix="tidemark-report-test-") as name:
    folder = pathlib.Path(name)
    globals()[CASE]()
