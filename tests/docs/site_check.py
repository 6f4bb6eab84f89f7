# SPDX-License-Identifier: Apache-2.0
"""Tests that the checks of the site find faults: site_check.py REPOSITORY CASE. Each case is one fact, on a
site of a few lines."""
import pathlib
import sys
import tempfile

REPOSITORY, CASE = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path[:0] = [str(REPOSITORY / "scripts/docs"), str(pathlib.Path(__file__).parent)]
import browser  # noqa: E402
import links  # noqa: E402


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def page(text, name="index.html"):
    (site / name).write_text(f"<!doctype html><html><head><title>t</title></head><body>{text}</body></html>")


def finds_broken_links():
    page('<a href="other.html#there">1</a><a href="other.html#gone">2</a><a href="gone.html">3</a><img src="gone.svg">')
    page('<p id="there"></p><a href="#here">4</a><a href="index.html">5</a>', "other.html")
    expect("faults and number of links", links.check(site), ([
        "index.html: other.html#gone has no such anchor", "index.html: gone.html is not there",
        "index.html: gone.svg is not there", "other.html: #here has no such anchor"], 6))


def finds_content_loaded_from_another_server():
    page('<script src="https://example.org/a.js"></script><a href="https://example.org">fine</a>')
    expect("faults", links.check(site)[0], ["index.html: <script> loads https://example.org/a.js from another server"])


def finds_an_anchor_that_is_there_twice():
    page('<p id="a"></p><p id="a"></p><p id="b"></p>')
    expect("faults", links.check(site)[0], ["index.html: the anchor 'a' is there twice"])


def finds_a_page_that_is_too_wide():
    page('<p style="width: 600px" id="x">wide</p>')
    expect("pages and faults", browser.inspect(site, ["index.html"]), (4, [
        f"index.html, 390 pixels, {scheme}: 608 pixels wide: <p style=\"width: 600px\" id=\"x\">wide</p>"
        for scheme in ("default", "slate")]))


def finds_a_chart_that_is_too_small():
    (site / "benchmarks").mkdir()
    (site / "benchmarks/a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="600" height="10"/>')
    page('<img src="benchmarks/a.svg" style="max-width: 100%">')
    looked, faults = browser.inspect(site, ["index.html"])
    expect("faults", [fault.partition(":")[0] for fault in faults],
           [f"index.html, 390 pixels, {scheme}" for scheme in ("default", "slate")])


def finds_errors_of_scripts():
    page('<script>console.error("one"); throw new Error("two");</script><img src="/gone.png">')
    looked, faults = browser.inspect(site, ["index.html"])
    told = "\n".join(faults)
    expect("messages", [word in told for word in ("one", "two", "gone.png does not load")], [True] * 3)


def passes_a_page_that_is_right():
    page('<p>text</p><pre style="overflow: auto">' + "long " * 200 + "</pre>")
    expect("pages and faults", browser.inspect(site, ["index.html"]), (4, []))


with tempfile.TemporaryDirectory() as folder:
    site = pathlib.Path(folder)
    globals()[CASE]()
