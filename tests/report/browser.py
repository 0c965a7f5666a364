#!/usr/bin/env python3
"""Looks at reports in a real browser: browser.py CHROMIUM PAGE.html...

Each page is opened by file:// in headless Chromium, driven through the DevTools protocol on a pipe:
wide, on a phone of 360 x 740, in dark mode, for print, and without its script. The pointer and the
keys that are sent are real events. With SCREENSHOTS=DIR in the environment each view is kept as a
picture there. Standard library only; exit status 1 and one line for each failure."""
import base64
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

LIMIT = 60  # seconds for any answer


class Browser:
    """Chromium with its DevTools on file descriptors 3 (to it) and 4 (from it)."""

    def __init__(self, program, profile):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def wire():
            ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, from_write)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        os.set_blocking(self.from_read, False)
        self.buffer, self.last, self.events = b"", 0, []

    def read(self, until):
        """The next message, None after `until`."""
        while b"\0" not in self.buffer:
            try:
                part = os.read(self.from_read, 1 << 20)
                if not part:
                    sys.exit("the browser went away")
                self.buffer += part
            except BlockingIOError:
                if time.monotonic() > until:
                    return None
                time.sleep(0.005)
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to_write, data):]
        until = time.monotonic() + LIMIT
        while answer := self.read(until):
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)
        raise RuntimeError(f"{method}: no answer in {LIMIT} s")

    def wait(self, method):
        until = time.monotonic() + LIMIT
        while not any(event.get("method") == method for event in self.events):
            event = self.read(until)
            if event is None:
                raise RuntimeError(f"no {method} in {LIMIT} s")
            self.events.append(event)

    def close(self):
        self.call("Browser.close")
        self.process.wait(LIMIT)


# What is asked in the page. Colours and places are what the browser computed.
HELPERS = r"""
(() => {
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const part = (x) => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0.99) return c;
    }
    return [255, 255, 255];
  };
  window.look = {
    box: (e) => { const b = e?.getBoundingClientRect(); return b ? [b.left, b.top, b.width, b.height] : null; },
    dim: () => [...document.querySelectorAll("body *")].filter((e) =>
      e.offsetWidth && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
      .map((e) => [ratio(rgb(getComputedStyle(e).color), ground(e)), e.tagName + "." + e.className])
      .filter(([r]) => r < 4.5),
    faint: () => [...document.querySelectorAll(".line, .dots")].filter((e) => e.getBoundingClientRect().width)
      .map((e) => [ratio(rgb(getComputedStyle(e).stroke), ground(e.closest("figure"))), e.getAttribute("class")])
      .filter(([r]) => r < 3),
    ground: () => light(ground(document.body)),
  };
})()
"""


class Page:
    def __init__(self, browser, path, name, width, height, phone=False, dark=False, media="screen"):
        self.browser, self.path, self.name, self.failures = browser, path, name, []
        self.width = width
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia", media=media, features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def open(self):
        self.browser.events.clear()
        self.call("Page.navigate", url=pathlib.Path(self.path).resolve().as_uri())
        self.browser.wait("Page.loadEventFired")

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def expect(self, true, what):
        if not true:
            self.failures.append(f"{os.path.basename(self.path)}: {self.name}: {what}")

    def point(self, box, x, y):
        """The pointer to a part of a box."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + x * box[2],
                  y=box[1] + y * box[3])

    def tap(self, box, x, y):
        point = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[point])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def keep(self):
        folder = os.environ.get("SCREENSHOTS")
        if not folder:
            return
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        stem = os.path.splitext(os.path.basename(self.path))[0]
        with open(os.path.join(folder, f"{stem}-{self.name}.png"), "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        """Errors and requests of the page, in all that was done to it."""
        url = pathlib.Path(self.path).resolve().as_uri()
        for event in self.browser.events:
            method, params = event.get("method"), event.get("params", {})
            if event.get("sessionId") != self.session:
                continue
            if method == "Network.requestWillBeSent":
                asked = params["request"]["url"]
                self.expect(asked == url or asked.startswith("data:"), f"asked for {asked}")
            if method == "Runtime.exceptionThrown":
                self.expect(False, f"exception {params['exceptionDetails']}")
            if method == "Runtime.consoleAPICalled":
                self.expect(False, f"console {params['args']}")
            if method == "Log.entryAdded":
                self.expect(False, f"log {params['entry'].get('text')}")
            if method == "Page.javascriptDialogOpening":
                self.expect(False, f"a dialog: {params.get('message')}")
        self.browser.call("Target.closeTarget", targetId=self.target)
        return self.failures


def check_chart(page, figure):
    """Hover, keys and scale of one chart; figure: its id."""
    find = f"document.getElementById('{figure}')"
    page.ask(f"{find}.scrollIntoView({{block: 'center'}})")
    drawn = page.ask(f"[...{find}.querySelectorAll('.view')].filter((v) => v.offsetWidth)"
                     ".flatMap((v) => [...v.querySelectorAll('.line')])"
                     ".map((p) => p.getTotalLength())")
    page.expect(drawn and max(drawn) > 0, f"{figure}: no curve: {drawn}")
    box = page.ask(f"look.box([...{find}.querySelectorAll('.view')].find((v) => v.offsetWidth))")
    for part in (0.01, 0.5, 0.99):
        page.point(box, part, 0.5)
        text = page.ask(f"{find}.querySelector('.tip')?.innerText") or ""
        step = text.split("\n")[0].removeprefix("step ")
        page.expect(step.isdigit(), f"{figure}: hover at {part} says {text!r}")
        row = page.ask("[...document.querySelectorAll('#steps tbody tr')]"
                       f".filter((r) => r.cells[0].textContent === '{step}')"
                       ".flatMap((r) => [...r.cells].map((c) => Number(c.textContent)))")
        said = [float(line.split()[-1]) for line in text.split("\n")[1:]]
        page.expect(row and said and all(value in row for value in said),
                    f"{figure}: hover says {text!r}, the table {row}")
        tip = page.ask(f"look.box({find}.querySelector('.tip'))")
        page.expect(tip and 0 <= tip[0] and tip[0] + tip[2] <= page.ask("innerWidth") + 0.5,
                    f"{figure}: hover text at {tip} leaves the window")
    page.point([0, 0, 1, 1], 0, 0)
    page.expect(page.ask(f"!{find}.querySelector('.tip')"), f"{figure}: hover text stays behind")
    page.ask(f"{find}.querySelector('.plot').focus()")
    page.press("ArrowLeft")
    first = page.ask(f"{find}.querySelector('.tip')?.innerText")
    page.press("ArrowLeft")
    page.expect(first and first != page.ask(f"{find}.querySelector('.tip')?.innerText"),
                f"{figure}: keys show {first!r} and then the same")
    page.press("Escape")
    page.expect(page.ask(f"!{find}.querySelector('.tip')"), f"{figure}: Escape does not end it")
    for scale in ("log", "linear"):
        label = page.ask(f"((e) => e && look.box(e))({find}.querySelector('label[for={figure}-{scale}]'))")
        if not label:
            continue
        for kind in ("mousePressed", "mouseReleased"):
            page.call("Input.dispatchMouseEvent", type=kind, x=label[0] + 3, y=label[1] + label[3] / 2,
                      button="left", clickCount=1)
        seen = page.ask(f"[...{find}.querySelectorAll('.view')].filter((v) => v.offsetWidth)"
                        ".map((v) => v.className)")
        page.expect(seen == [f"view {scale}"], f"{figure}: {scale} shows {seen}")


def check_touch(page):
    """A tap leaves a text at the chart or map that was touched last, and nowhere else."""
    for figure, part in (("loss", ".view"), ("keys", ".field"), ("loss", ".view")):
        find = f"document.getElementById('{figure}')"
        if page.ask(f"!{find}"):
            continue
        page.ask(f"{find}.scrollIntoView({{block: 'center'}})")
        page.tap(page.ask(f"look.box([...{find}.querySelectorAll('{part}')].find((v) => v.offsetWidth))"),
                 0.4, 0.5)
        last = page.ask("[...document.querySelectorAll('.tip')].map((e) => e.closest('figure').id)")
        page.expect(last == [figure], f"a tap on {figure} shows a text at {last}")


def check_heat(page, figure):
    find = f"document.getElementById('{figure}')"
    page.ask(f"{find}.scrollIntoView({{block: 'center'}})")
    box = page.ask(f"look.box({find}.querySelector('.field'))")
    page.expect(box and box[2] > 100 and box[3] > 60, f"{figure}: is only {box}")
    for x, y in ((0.01, 0.02), (0.99, 0.98)):
        page.point(box, x, y)
        text = page.ask(f"{find}.querySelector('.tip')?.innerText") or ""
        rows, cols = page.ask(f"((t) => [t.rows.length, t.rows[0].cells.length - 1])"
                              f"(document.getElementById('{figure}-numbers').tBodies[0])")
        row, col = int(y * rows), int(x * cols)
        want = page.ask(f"document.getElementById('{figure}-numbers').tBodies[0].rows[{row}]"
                        f".cells[{col + 1}].textContent")
        page.expect(text.split("\n")[0].endswith(f" {col}") and f" {row}," in text and want in text,
                    f"{figure}: hover says {text!r}, the table {want!r} at {row}, {col}")
        tip = page.ask(f"look.box({find}.querySelector('.tip'))")
        page.expect(tip and 0 <= tip[0] and tip[0] + tip[2] <= page.ask("innerWidth") + 0.5,
                    f"{figure}: hover text at {tip} leaves the window")
    page.point([0, 0, 1, 1], 0, 0)


def check_order(page):
    """What any page owes its readers."""
    twice = page.ask("((ids) => ids.filter((id, i) => ids.indexOf(id) !== i))"
                     "([...document.querySelectorAll('[id]')].map((e) => e.id))")
    page.expect(twice == [], f"ids given twice: {twice}")
    page.expect(page.ask("document.documentElement.lang") == "en", "no language")
    page.expect(page.ask("document.title.length") > 5, "no title")
    page.expect(page.ask("document.querySelectorAll('h1').length") == 1, "not one h1")
    lost = page.ask("[...document.querySelectorAll('nav a')].map((a) => a.getAttribute('href'))"
                    ".filter((h) => !document.querySelector(h))")
    page.expect(lost == [], f"links to nothing: {lost}")
    page.expect(page.ask("[...document.querySelectorAll('[role=img]')].every((e) => e.ariaLabel)"),
                "a picture without a label")
    page.expect(page.ask("document.scripts.length") == 1, "another script")
    page.expect(page.ask("[...document.querySelectorAll('*')].every((e) =>"
                         " [...e.attributes].every((a) => !a.name.startsWith('on')))"),
                "an attribute that is a script")
    page.expect(page.ask("document.querySelectorAll('img, iframe, object, embed, form, base').length") == 0,
                "an element that is none of ours")
    page.expect(page.ask("document.characterSet") == "UTF-8", "not UTF-8")


def check_fit(page):
    # a phone's innerWidth grows with what does not fit, so both are held to the window's own width
    width, inner = page.ask("[document.documentElement.scrollWidth, innerWidth]")
    page.expect(max(width, inner) <= page.width, f"{width} wide in a window of {page.width}")
    dim = page.ask("look.dim()")
    page.expect(not dim, f"text of too little contrast: {dim[:5]}")
    faint = page.ask("look.faint()")
    page.expect(not faint, f"lines of too little contrast: {faint[:5]}")


def look_at(browser, path):
    failures = []
    views = [("wide", dict(width=1280, height=900)),
             ("phone", dict(width=360, height=740, phone=True)),
             ("dark", dict(width=1280, height=900, dark=True)),
             ("dark-phone", dict(width=360, height=740, phone=True, dark=True)),
             ("print", dict(width=794, height=1123, media="print"))]
    for name, how in views:
        page = Page(browser, path, name, **how)
        page.open()
        page.ask(HELPERS)
        page.keep()
        check_order(page)
        check_fit(page)
        page.expect((page.ask("look.ground()") < 0.1) == ("dark" in name), "light and dark are mixed up")
        if name != "print":
            if page.ask("document.querySelector('.inside #tensors') !== null"):
                page.expect(not page.ask("document.querySelector('.inside').open"), "what is inside is not folded away")
                page.ask("location.hash = '#tensors'")
                time.sleep(0.2)
                page.expect(page.ask("document.querySelector('.inside').open"), "a link does not open what is inside")
            for figure in page.ask("[...document.querySelectorAll('.chart')].map((e) => e.id)"):
                check_chart(page, figure)
            for figure in page.ask("[...document.querySelectorAll('.heat')].map((e) => e.id)"):
                check_heat(page, figure)
            if "phone" in name:
                check_touch(page)
            page.ask("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
            check_fit(page)
        failures += page.close()
    return failures + without_script(browser, path)


def without_script(browser, path):
    """Curves and maps are there, and the scales can be chosen, without any script."""
    page = Page(browser, path, "no-script", width=1280, height=900)
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.open()
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    for what in (".chart .line", ".heat svg path"):
        found = page.call("DOM.querySelectorAll", nodeId=root, selector=what)["nodeIds"]
        figures = page.call("DOM.querySelectorAll", nodeId=root, selector=what.split()[0])["nodeIds"]
        page.expect(len(found) >= len(figures), f"{what}: {len(found)} in {len(figures)} figures")
        if found:
            box = page.call("DOM.getBoxModel", nodeId=found[0])["model"]
            page.expect(box["width"] > 0, f"{what}: is not drawn: {box}")
    return page.close()


def main():
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(sys.argv[1], profile)
        failures = []
        for path in sys.argv[2:]:
            failures += look_at(browser, path)
        browser.close()
    for line in failures:
        print(f"FAILED: {line}")
    sys.exit(1 if failures else 0)


main()
