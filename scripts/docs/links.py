# SPDX-License-Identifier: Apache-2.0
"""Checks each link, picture, script and style sheet of a built site: its target and its anchor exist, and no page loads a
file from another server."""
import html.parser
import os
import urllib.parse

LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class page_reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.anchors, self.references, self.twice = set(), [], []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        for anchor in {named.get("id"), named.get("name") if tag == "a" else None} - {None}:
            if anchor in self.anchors and not anchor.startswith("__"):
                self.twice.append(anchor)
            self.anchors.add(anchor)
        for attribute in ("href", "src"):
            if named.get(attribute) and tag != "base":
                self.references.append((tag, attribute, named[attribute]))

    handle_startendtag = handle_starttag


def read(path):
    reader = page_reader()
    reader.feed(path.read_text())
    return reader


def check(site):
    """Returns the faults, a sentence each, and the number of checked references."""
    pages = {path.resolve(): read(path) for path in site.rglob("*.html")}
    faults, checked = [], 0
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        faults += [f"{name}: the anchor '{anchor}' is there twice" for anchor in page.twice]
        for tag, attribute, reference in page.references:
            checked += 1
            parts = urllib.parse.urlsplit(reference)
            if parts.scheme or parts.netloc:
                if (tag, attribute) in LOADED and parts.scheme != "data":
                    faults.append(f"{name}: <{tag}> loads {reference} from another server")
                elif parts.scheme not in ("http", "https", "mailto", "data", "javascript"):
                    faults.append(f"{name}: {reference} is no address")
                continue
            if path.name == "404.html" and reference.startswith("/"):
                continue  # the server's root, wherever that will be
            target = path if not parts.path else path.parent / urllib.parse.unquote(parts.path)
            target = type(path)(os.path.normpath(target))
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                faults.append(f"{name}: {reference} is not there")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                faults.append(f"{name}: {reference} has no such anchor")
    return faults, checked
