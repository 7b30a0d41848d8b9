"""What a page of the book must hold to: no link leads nowhere, nothing is fetched, and everybody
can read and use it.

The rules are those of WCAG 2 that axe-core counts as serious or critical and that a static book can
break: names of pictures, frames and controls, contrast of text, landmarks, order of headings,
labels, and work with the keyboard alone.
"""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The names that a page offers as targets, and the links it holds."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.names.add(value)
            elif name in ("href", "src", "action", "data") and value:
                self.links.append(value)


def book_pages(folder):
    """The pages of a book, but for those that are netron's: these stand in frames."""
    return [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*.html"))
        if path.parent.name != "graphs"
    ]


def broken_links(folder):
    """[(page, link)] of every link inside `folder` whose file or anchor is not there, or which
    leaves the folder.
    """
    pages = {
        path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")
    }
    return [
        (path.relative_to(folder.resolve()).as_posix(), link)
        for path, page in pages.items()
        for link in page.links
        if not _leads_somewhere(path, link, pages, folder.resolve())
    ]


def _leads_somewhere(path, link, pages, folder):
    parts = urlsplit(link)
    if parts.scheme in ("http", "https", "mailto", "data", "javascript", "blob"):
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if parts.scheme or parts.netloc or not target.is_file() or not target.is_relative_to(folder):
        return False
    return (
        not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].names
    )


def is_outbound(url):
    """Whether a request goes to another host; a page that lies on disk asks none at all."""
    return not url.startswith(("file:", "data:", "blob:", "about:"))


FINDINGS = Path(__file__).with_name("book_findings.js").read_text(encoding="utf-8")


def survey(folder, names, *, chromium, options):
    """Look at pages in Chromium as readers do: {what: [page and what is wrong]}.

    names     pages inside `folder`
    chromium  path of the browser; `options`: those of its command line
    """
    from playwright.sync_api import sync_playwright

    found = {
        what: []
        for what in ("outbound", "errors", "findings", "too wide", "not read without scripts")
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        tab = _watched(browser.new_page(), found)
        plain = browser.new_context(java_script_enabled=False).new_page()
        for name in names:
            address = (folder / name).resolve().as_uri()
            _look(tab, name, address, found)
            plain.goto(address)
            missing = _words(tab) - _words(plain)
            found["not read without scripts"] += [f"{name}: {word}" for word in sorted(missing)]
        found["keyboard"] = keyboard(tab, (folder / "index.html").resolve().as_uri())
        browser.close()
    return found


# Colours and places are judged as they are in the end, not while they change.
_AT_ONCE = """addEventListener('DOMContentLoaded', () => {
    document.head.append(document.createElement('style'));
    document.head.lastChild.textContent = '* { transition: none !important; animation: none !important; }';
})"""


def _watched(tab, found):
    tab.add_init_script(_AT_ONCE)
    tab.on(
        "request",
        lambda request: is_outbound(request.url) and found["outbound"].append(request.url),
    )
    tab.on(
        "console",
        lambda said: said.type == "error" and found["errors"].append(f"{tab.url}: {said.text}"),
    )
    tab.on("pageerror", lambda error: found["errors"].append(f"{tab.url}: {error}"))
    return tab


def _look(tab, name, address, found):
    """One page in both themes on a desktop, then on a phone 400 pixels wide."""
    tab.set_viewport_size({"width": 1280, "height": 900})
    for theme in ("light", "dark"):
        tab.emulate_media(color_scheme=theme)
        tab.goto(address)
        found["findings"] += [f"{name}, {theme}: {finding}" for finding in tab.evaluate(FINDINGS)]
    tab.set_viewport_size({"width": 400, "height": 800})
    tab.wait_for_timeout(500)  # the theme waits until the window has its size
    width = tab.evaluate("document.documentElement.scrollWidth")
    if width > 400:
        found["too wide"].append(f"{name}: {width} pixels")
    found["findings"] += [f"{name}, narrow: {finding}" for finding in tab.evaluate(FINDINGS)]


def _words(tab):
    """The words of a page, without the forms that only scripts bring."""
    tab.evaluate("document.querySelectorAll('form.guess').forEach((form) => form.remove())")
    return set(tab.locator("main, [role=main]").first.inner_text().split())


_FOCUS = """() => {
    const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
    const seen = box.width > 1 && box.height > 1 && box.right > 0 && box.bottom > 0;
    const marked = style.outlineStyle !== 'none' || style.boxShadow !== 'none';
    return { what: at.outerHTML.slice(0, 80), body: at === document.body, seen, marked };
}"""


def keyboard(tab, address):
    """What cannot be done with the keyboard alone, starting from the page at `address`: a list,
    empty when all can.
    """
    wrong = []
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.goto(address)
    stops = _stops(tab)
    wrong += [
        f"invisible when reached: {stop['what']}"
        for stop in stops
        if not (stop["seen"] and stop["marked"])
    ]
    links = tab.locator("main a[href]:visible").count()
    if len(stops) < links:
        wrong.append(f"{len(stops)} stops for {links} links in the text")
    wrong += _skips_to_the_text(tab, address) + _changes_the_theme(tab, address)
    return wrong + _searches(tab, address) + _opens_the_menu(tab, address)


def _stops(tab, most=400):
    """What the key Tab reaches, one after the other, until it leaves the page."""
    stops = []
    for _ in range(most):
        tab.keyboard.press("Tab")
        stop = tab.evaluate(_FOCUS)
        if stop["body"] or (len(stops) > 1 and stop["what"] == stops[0]["what"]):
            return stops
        stops.append(stop)
    return [*stops, {"what": f"no end after {most} stops", "seen": False, "marked": False}]


def _skips_to_the_text(tab, address):
    from playwright.sync_api import TimeoutError as TooLate

    tab.goto(address)
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    try:  # on a busy machine the address changes a moment after the key
        tab.wait_for_url("**#main-content", timeout=5000)
    except TooLate:
        return ["the first stop does not lead to the text"]
    return []


def _changes_the_theme(tab, address):
    tab.goto(address)
    before = tab.evaluate("document.documentElement.dataset.theme")
    for other in ("ArrowDown", "ArrowUp"):  # the menu's second entry is light, its last is dark
        tab.locator("button.theme-switch-button:visible").first.focus()
        for key in ("Enter", "ArrowDown", other, "Enter"):
            tab.keyboard.press(key)
            tab.wait_for_timeout(100)
        if tab.evaluate("document.documentElement.dataset.theme") != before:
            return []
    return ["the theme does not change"]


def _searches(tab, address):
    tab.goto(address)
    tab.keyboard.press("Control+K")
    tab.keyboard.type("quantization")
    tab.keyboard.press("Enter")
    try:
        tab.locator("#search-results ul.search li a").first.wait_for()
        return []
    except Exception as error:
        return [f"the search finds nothing: {str(error).splitlines()[0]}"]


def _opens_the_menu(tab, address):
    """On a phone the list of lessons is folded away."""
    tab.set_viewport_size({"width": 400, "height": 800})
    tab.goto(address)
    lesson = tab.locator("nav.bd-links a[href*='lessons/']:visible")
    tab.locator("button.primary-toggle:visible").first.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_timeout(500)
    opened = lesson.count()
    tab.keyboard.press("Escape")
    tab.wait_for_timeout(500)
    return (
        []
        if opened and not lesson.count()
        else ["the list of lessons does not open and close on a phone"]
    )
