#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the site: site.py REPOSITORY SITE. `./run docs` calls it.

The pages are copied to a folder beside SITE: all of docs/, a page for each public header from Doxygen's XML, and a page
for each file outside docs/ that a page links to. MkDocs then builds the site. A warning of Doxygen or MkDocs and a broken
link are errors.
"""
import logging
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import mkdocs.commands.build
import mkdocs.config
import mkdocs.exceptions
import yaml

import links
import reference

INCLUDE_FOLDERS = ["pmr/include", "thrust_adapters/include", "adapters/mpi/include", "planner/search/include"]
C_HEADER = "planner/c/include/tidemark_plan.h"  # shown as it stands: its comments are for readers of C
C_PAGE = "reference/headers/tidemark_plan_h.md"
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "project/contributing.md", "CHANGELOG.md": "project/changelog.md",
              "SECURITY.md": "project/security.md"}
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".cu": "cpp", ".cppm": "cpp", ".c": "c", ".py": "python", ".txt": "cmake",
             ".cmake": "cmake", ".sh": "bash", ".json": "json"}
SHOWN_CHARACTERS = 40000  # of a source that a page links to


def stop(sentence):
    sys.exit(f"tidemark: docs: {sentence}")


def outside_code(text, change):
    """Returns `text` with `change` applied to the parts outside of fenced blocks."""
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def marked(block):
    """Marks C++ blocks that are not complete programs."""
    title = "" if "int main(" in block[1] else f' title="{reference.EXCERPT}"'
    return f"```cpp{title}\n{block[1]}```"


class staging:
    """A folder with copies of all pages."""

    def __init__(self, repository, folder):
        self.repository, self.folder = repository, folder
        self.sources = {}  # path in the repository: page
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(repository / "docs", folder)
        shutil.copytree(repository / "planner/docs", folder / "planner", ignore=shutil.ignore_patterns("*.py"))
        shutil.copytree(repository / "scripts/docs/assets", folder / "assets")
        for name, page in ROOT_PAGES.items():
            if name != "README.md":
                self.write(page, (repository / name).read_text())

    def write(self, page, text):
        path = self.folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def origin(self, page):
        """Returns the file of the repository from which a page was made."""
        for name, root_page in ROOT_PAGES.items():
            if page == root_page and name != "README.md":
                return name
        return f"planner/docs/{page.removeprefix('planner/')}" if page.startswith("planner/") else f"docs/{page}"

    def adapt(self):
        """Converts each page to MkDocs' dialect. The page reads the same on GitHub and on the site."""
        for path in sorted(self.folder.rglob("*.md")):
            page = str(path.relative_to(self.folder))
            text = outside_code(path.read_text(), lambda text: self.adapted(text, page))
            if not page.startswith("reference/headers"):
                text = re.sub(r"^```cpp\n(.*?)^```$", marked, text, flags=re.M | re.S)
            path.write_text(text)

    def adapted(self, text, page):
        text = re.sub(r"^(?![-*] |\d+\. |\s|$)(.*)\n(?=([-*]|1\.) )", r"\1\n\n", text, flags=re.M)  # lists
        text = re.sub(r"!\[([^\]]*)\]\(((?:start/)?pictures/\w+\.svg)\)", lambda m: self.inlined(page, m[2], m[1]), text)
        return re.sub(r"(\]\()([^)\s#]*)(#[^)]*)?\)", lambda m: f"{m[1]}{self.target(page, m[2])}{m[3] or ''})", text)

    def inlined(self, page, picture, caption):
        """Embeds one of our pictures in the page. The picture then follows the reader's choice of light or dark."""
        svg = (self.folder / page).parent.joinpath(picture).read_text()
        svg = re.sub(r"<\?xml.*?\?>\s*|<!--.*?-->\s*", "", svg, flags=re.S)
        return f'<figure class="picture">{" ".join(svg.split())}<figcaption>{caption}</figcaption></figure>'

    def target(self, page, link):
        """Returns the target on the site of a link that leads out of docs/."""
        if not link or re.match(r"[a-z]+:", link):
            return link
        path = os.path.normpath(os.path.join(os.path.dirname(self.origin(page)), link))
        if path.startswith(("docs/", "planner/docs/")):
            inside = path.removeprefix("docs/").replace("planner/docs/", "planner/")
            inside += "/index.md" if (self.folder / inside).is_dir() else ""
            return os.path.relpath(inside, os.path.dirname(page) or ".")
        if not (self.repository / path).exists():
            stop(f"{self.origin(page)} links to {link}, which is not there")
        return os.path.relpath(self.outside(path), os.path.dirname(page) or ".")

    def outside(self, path):
        """Returns the page of a file or folder outside docs/."""
        if path in ROOT_PAGES:
            return ROOT_PAGES[path]
        if path == ".":
            return "index.md"
        if path == C_HEADER:
            return C_PAGE
        for include in INCLUDE_FOLDERS:
            if path.startswith(include + "/tidemark/") and "/detail" not in path:
                header = path.removeprefix(include + "/")
                return f"reference/headers/{reference.page_of(header)}" if path.endswith(".hpp") else "reference/headers.md"
        self.sources.setdefault(path, f"source/{path}.md")
        return self.sources[path]

    def write_sources(self):
        for path, page in sorted(self.sources.items()):
            place = self.repository / path
            files = sorted(f for f in place.iterdir() if f.is_file()) if place.is_dir() else [place]
            text = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n"
            for file in files:
                language = LANGUAGES.get(file.suffix)
                if language is None and file.name not in ("run",):
                    continue
                code = file.read_text()[:SHOWN_CHARACTERS].rstrip("\n")
                name = file.relative_to(self.repository)
                fence = "`" * (3 + max((len(m) for m in re.findall(r"`{3,}", code)), default=0))
                text += f'{fence}{language or "bash"} title="{name}"\n{code}\n{fence}\n\n'
            self.write(page, text)

    def write_headers(self, xml):
        """Writes a page for each public header, and a page that lists them. Returns the navigation."""
        parts = {}
        known = reference.headers(xml, [self.repository / folder for folder in INCLUDE_FOLDERS])
        for page, path, text in known.pages():
            self.write(f"reference/headers/{page}", text)
            part = path.split("/")[1].removesuffix(".hpp")
            parts.setdefault(part, []).append((path, f"reference/headers/{page}", known.brief(path)))
        parts["plan"].append(("tidemark_plan.h", C_PAGE, self.write_c_header()))
        overview = ["# Headers\n\nEach public header has a page, made from its comments. The search finds names in them.\n"]
        for part, pages in sorted(parts.items()):
            overview += [f"## {part}\n", "| header | |", "|---|---|"]
            overview += [f"| [`<{path}>`]({os.path.relpath(page, 'reference')}) | {brief} |" for path, page, brief in pages]
            overview += [""]
        self.write("reference/headers.md", "\n".join(overview))
        return ["reference/headers.md"] + [
            {part: [{path.removeprefix("tidemark/"): page} for path, page, _ in pages]} for part, pages in sorted(parts.items())]

    def write_c_header(self):
        """Writes the page of the planner's C interface. Returns the first sentence of its header."""
        text = (self.repository / C_HEADER).read_text()
        comment, code = re.fullmatch(r".*?/\*\*\n \* @file\n(.*?) \*/\n(.*)", text, re.S).groups()
        comment = re.sub(r"^ \* ?", "", comment, flags=re.M)
        example = textwrap.dedent("".join(re.findall(r"^    .*\n", comment, re.M)))
        before, behind = re.split(r"(?:^    .*\n)+", comment, maxsplit=1, flags=re.M)
        self.write(C_PAGE, f'# `<tidemark_plan.h>`\n\n{before}\n```c title="{reference.EXCERPT}"\n{example}```\n{behind}\n'
                           f'Link `tidemark::plan_c`, or `pkg-config tidemark-plan`.\n\n```c title="tidemark_plan.h"\n{code}```\n')
        return " ".join(before.split()).partition(". ")[0].rstrip(".") + "."

    def decisions(self):
        """Returns the navigation: docs/decisions/index.md, which must name all records, and each record."""
        index = (self.folder / "decisions/index.md").read_text()
        entries = ["decisions/index.md"]
        for page in sorted((self.folder / "decisions").glob("[0-9]*.md")):
            title = page.read_text().split("\n", 1)[0].removeprefix("# ")
            entries.append({title: f"decisions/{page.name}"})
            if f"[{re.sub(r'^[0-9]+[.:] ', '', title)}]({page.name})" not in index:
                stop(f"docs/decisions/index.md does not name {page.name} by its title")
        return entries


def doxygen(repository, folder, leaves_out_details=True):
    settings = (repository / "scripts/docs/Doxyfile").read_text()
    if not leaves_out_details:
        settings = re.sub(r"(?m)^EXCLUDE_.*$", "", settings)
    folders = " ".join(f'"{repository / include}"' for include in INCLUDE_FOLDERS)
    settings += f'\nINPUT = {folders}\nSTRIP_FROM_PATH = {folders}\nOUTPUT_DIRECTORY = "{folder}"\n'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    done = subprocess.run(["doxygen", "-"], input=settings, text=True, capture_output=True)
    if done.returncode != 0 or (leaves_out_details and done.stderr.strip()):
        stop("Doxygen warns:\n" + done.stderr.replace(f"{repository}/", ""))
    return folder / "xml"


def filled(entry, generated):
    if isinstance(entry, list):
        return [filled(e, generated) for e in entry]
    if isinstance(entry, dict):
        return {title: filled(e, generated) for title, e in entry.items()}
    return generated[entry] if entry.startswith("@") else entry


def main():
    repository, site = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    work = site.with_name(site.name + "_work")
    pages = staging(repository, work / "pages")
    # The page of classes lists what they inherit from classes of no page (tests/docs/members.py).
    doxygen(repository, work / "doxygen_of_all", leaves_out_details=False)
    generated = {"@headers": pages.write_headers(doxygen(repository, work / "doxygen")), "@decisions": pages.decisions()}
    pages.adapt()
    pages.write_sources()
    settings = repository / "scripts/docs/mkdocs.yml"
    navigation = filled(yaml.safe_load(settings.read_text())["nav"], generated)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    not_in_nav = "\n".join(["source/"])
    try:
        config = mkdocs.config.load_config(str(settings), docs_dir=str(work / "pages"), site_dir=str(site), nav=navigation,
                                           strict=True, not_in_nav=not_in_nav)
        mkdocs.commands.build.build(config)
    except (mkdocs.exceptions.Abort, mkdocs.exceptions.ConfigurationError) as error:
        stop(f"MkDocs warns: see above ({error})")
    faults, checked = links.check(site)
    if faults:
        stop("links lead nowhere:\n" + "\n".join(faults))
    print(f"{checked} links of {sum(1 for _ in site.rglob('*.html'))} pages lead somewhere; the site is in {site}")


if __name__ == "__main__":
    main()
