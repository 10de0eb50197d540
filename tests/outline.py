"""The elements and the text of HTML, for tests."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Outline(HTMLParser):
    """Checks that elements nest, and gathers what the tests look at."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.found, self.text, self.faults = [], [], [], []
        self.feed(text)
        self.close()
        if self.open:
            self.faults.append(f"never closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        if len({name for name, _ in attributes}) != len(attributes):
            self.faults.append(f"an attribute of {tag} is given twice")
        if tag in ("p", "div", "ul", "table", "figure", "section") and "p" in self.open:
            self.faults.append(f"{tag} within p")
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes something else")

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]
