# SPDX-License-Identifier: Apache-2.0
"""Checks pages of a site in Chromium, 1280 and 390 pixels wide, light and dark: browser.py SITE [all].

With `all` checks all pages. Otherwise checks all handwritten pages, and the longest page and the page with the
longest word of each kind of similar pages (headers, decisions, sources).

Fails if a page is wider than the screen, if a chart of benchmarks is too small for its letters, or if a page
reports an error: an exception, console.error, a missing file, or a file of another server. The browser can
reach only this server. Each page is shown in a frame of that width. This server adds a script to
the pages that collects their errors. The test is skipped without Chromium, with the reason.
"""
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

TIMEOUT_SECONDS = 400
WIDTHS = [1280, 390]
SCHEMES = ["default", "slate"]  # Material's names of light and dark

COLLECTOR = """<script>
window.faults = [];
addEventListener("error", e => faults.push(e.message || `${e.target.src || e.target.href} does not load`), true);
addEventListener("unhandledrejection", e => faults.push(String(e.reason)));
console.error = (...words) => faults.push(words.join(" "));
</script><style>*, *::before, *::after { animation: none !important; transition: none !important; }</style>"""

HARNESS = """<!doctype html><title>tidemark</title><body><script>
const [pages, widths, schemes] = INPUT;
const found = [];
function wide(document) {
  const screen = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= screen) return null;
  const widest = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > screen + 1)
    .filter(e => !e.closest("pre, .md-typeset__scrollwrap, .md-typeset__table, .md-sidebar--primary, .tabbed-labels")).pop();
  return `${document.documentElement.scrollWidth} pixels wide` + (widest ? `: ${widest.outerHTML.slice(0, 120)}` : "");
}
let checked = 0;
async function check(page, frame) {
  const order = checked % 2 ? widths : widths.toReversed();  // as wide as it is loaded, and as it is made then
  frame.style.width = order[0] + "px";
  await new Promise(done => { frame.onload = done; frame.src = "/" + page; });
  const inner = frame.contentWindow;
  for (const width of order) {
    frame.style.width = width + "px";
    for (const scheme of schemes) {
      inner.document.body.setAttribute("data-md-color-scheme", scheme);
      const fault = wide(inner.document);
      if (fault) found.push(`${page}, ${width} pixels, ${scheme}: ${fault}`);
      for (const chart of inner.document.querySelectorAll('img[src*="benchmarks/"]'))
        if (chart.clientWidth < 500)
          found.push(`${page}, ${width} pixels, ${scheme}: ${chart.src} is ${chart.clientWidth} pixels wide`);
      ++checked;
    }
    await new Promise(done => setTimeout(done, 0));
  }
  if (inner.faults === undefined) found.push(`${page}: no page was shown`);
  for (const fault of inner.faults ?? []) found.push(`${page}: ${fault}`);
}
(async () => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.style.height = "900px";
  frame.style.visibility = "hidden";  // laid out, and not painted
  for (const page of pages) await check(page, frame);
  await fetch("/found", {method: "POST", body: JSON.stringify({checked, found})});
})();
</script>"""


def browser_program():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if program := shutil.which(name):
            return program
    print(f"{__file__}: Skipped\nthere is no chromium here")
    sys.exit(77)


class quiet_server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Ignores closed connections: a browser that loads another page, or is killed, closes its
        connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class one_site(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        path = pathlib.Path(self.translate_path(self.path))
        if self.path == "/harness.html":
            self.answer(HARNESS.replace("INPUT", json.dumps([self.server.pages, WIDTHS, SCHEMES])))
        elif path.name == "search_index.json" and not self.server.first_index.acquire(blocking=False):
            self.answer('{"config": {}, "docs": []}')  # a megabyte that each page would read and index again
        elif path.suffix == ".html" and path.is_file():
            self.answer(path.read_text().replace("<head>", "<head>" + COLLECTOR, 1))
        else:
            super().do_GET()

    def do_POST(self):
        self.server.result = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer("")
        self.server.done.set()

    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def inspect(site, pages):
    """Returns (number of checked pages, faults) of Chromium on these pages."""
    program = browser_program()

    def handler(*arguments):
        return one_site(*arguments, directory=str(site))

    with quiet_server(("127.0.0.1", 0), handler) as server, \
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server.pages, server.done, server.result = pages, threading.Event(), None
        server.first_index = threading.Semaphore(1)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # A separate process group, because chromium's children outlive it when it is killed.
        browser = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={folder}/chromium",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-port=0", "--window-size=1400,1000",
             f"http://127.0.0.1:{server.server_port}/harness.html"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": folder})
        try:
            ended = server.done.wait(TIMEOUT_SECONDS)
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
        server.shutdown()
        if not ended:
            sys.exit(f"{program} did not look at all pages within {TIMEOUT_SECONDS} s")
        return server.result["checked"], server.result["found"]


def representative(site, files):
    alike = {}
    for file in files:
        if kind := {"decisions", "source", "headers"}.intersection(file.relative_to(site).parts[:2]):
            alike.setdefault(*kind, []).append(file)
    chosen = set(files).difference(*alike.values())
    for group in alike.values():
        chosen.add(max(group, key=lambda file: file.stat().st_size))
        chosen.add(max(group, key=lambda file: max(map(len, re.findall(r"[^\s<>]+", file.read_text().split("<article")[1])))))
    return sorted(chosen)


def main():
    site = pathlib.Path(sys.argv[1])
    files = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    if "all" not in sys.argv:
        files = representative(site, files)
    pages = [str(page.relative_to(site)) for page in files]
    if not pages:
        sys.exit(f"there are no pages in {site}")
    checked, faults = inspect(site, pages)
    print(f"{len(pages)} pages, checked at {checked} times, {len(faults)} faults", *faults, sep="\n")
    sys.exit(1 if faults or checked != len(pages) * len(WIDTHS) * len(SCHEMES) else 0)


if __name__ == "__main__":
    main()
