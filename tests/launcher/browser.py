"""Opens a page in headless Chromium; one of `ddptrain compare` is compared with compare.json.

Usage: python3 browser.py FOLDER|PAGE.html [SCREENSHOTS]. At 360 and 1280 pixels, light and dark: no message on the
console, no request to anywhere else, nothing wider than the window, nothing cut off; and in a FOLDER of `compare` what the
page shows is what compare.json says. Exit status 77: there is no Chromium. Talks over --remote-debugging-pipe, so it
needs nothing but Python.
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

import page

SECONDS = 60


class Browser:
    def __init__(self, program, profile):
        to_read, self.to_write = os.pipe()
        self.to_read, to_write = os.pipe()
        # the browser reads 3 and writes 4; the shell moves the pipes there
        command = 'exec 3<&%d 4>&%d; exec "$@"' % (to_read, to_write)
        arguments = ["sh", "-c", command, "sh", program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                     "--hide-scrollbars", "--disable-dev-shm-usage", "--user-data-dir=" + profile, "--remote-debugging-pipe"]
        self.process = subprocess.Popen(arguments, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.number = 0
        self.events = []
        self.session = None
        self.end = time.monotonic() + SECONDS

    def message(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.to_read], [], [], max(0.0, self.end - time.monotonic()))
            more = os.read(self.to_read, 1 << 16) if ready else b""
            if not more:
                raise SystemExit("the browser does not answer")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        what = {"id": self.number, "method": method, "params": params}
        if self.session:
            what["sessionId"] = self.session
        os.write(self.to_write, json.dumps(what).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, text):
        return self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)["result"].get("value")

    def close(self):
        self.process.kill()
        self.process.wait()


def open_page(browser, path, width, scheme):
    browser.events.clear()
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Page.navigate", url=path.as_uri())
    while not browser.evaluate("document.readyState === 'complete' && location.protocol === 'file:'"):
        time.sleep(0.05)
    browser.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")


WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') &&
    e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.tagName + '.' + e.className)"""
SMALL = """[...document.querySelectorAll('svg text')].filter(e => e.getBoundingClientRect().width > 0 &&
    parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getBoundingClientRect().width /
    e.ownerSVGElement.viewBox.baseVal.width < 7).map(e => e.textContent)"""
CUT = """[...document.querySelectorAll('svg text')].filter(e => { const a = e.getBoundingClientRect(),
    b = e.ownerSVGElement.getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1 ||
    a.top < b.top - 1 || a.bottom > b.bottom + 1; }).map(e => e.textContent)"""
CELLS = """[...document.querySelectorAll('td[data-field]')].map(e => [e.parentElement.dataset.way,
    e.parentElement.dataset.devices, e.dataset.field, e.innerText.trim()])"""


def check_layout(browser, path, width, scheme, failures):
    where = "%d pixels, %s" % (width, scheme)
    open_page(browser, path, width, scheme)
    for event in browser.events:
        if event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            failures.append("%s: console: %s" % (where, event["params"]))
        if event["method"] == "Network.requestWillBeSent":
            url = event["params"]["request"]["url"]
            if not url.startswith(("file:", "data:")):
                failures.append("%s: the page asks for %s" % (where, url))
    if browser.evaluate("document.documentElement.scrollWidth") > width:
        failures.append("%s: the page is wider than the window: %s" % (where, browser.evaluate(WIDE)))
    for what, text in (("beyond the right border", WIDE), ("too small", SMALL), ("cut off", CUT)):
        found = browser.evaluate(text)
        if found:
            failures.append("%s: %s: %s" % (where, what, found))
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    if (paper == "rgb(255, 255, 255)") != (scheme == "light"):
        failures.append("%s: paper is %s" % (where, paper))


def check_compare(browser, folder, width, scheme, failures):
    where = "%d pixels, %s" % (width, scheme)
    shown = browser.evaluate("document.querySelector('.headline').innerText")
    data = json.loads((folder / "compare.json").read_text())
    if shown != data["verdict"]:
        failures.append("%s: headline '%s' instead of '%s'" % (where, shown, data["verdict"]))
    cells = [((way, int(devices)), field, text) for way, devices, field, text in browser.evaluate(CELLS)]
    failures.extend("%s: %s" % (where, line) for line in page.compare_cells(cells, data))


def main():
    where = pathlib.Path(sys.argv[1]).resolve()
    path = where if where.is_file() else where / "compare.html"
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        print("no Chromium here: apt-get install chromium")
        return 77
    failures = []
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        try:
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(domain + ".enable")
            for width in (360, 1280):
                for scheme in ("light", "dark"):
                    check_layout(browser, path, width, scheme, failures)
                    if where.is_dir():
                        check_compare(browser, where, width, scheme, failures)
                    if len(sys.argv) > 2:
                        shot = browser.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
                        name = "page-%d-%s.png" % (width, scheme)
                        (pathlib.Path(sys.argv[2]) / name).write_bytes(base64.b64decode(shot))
        finally:
            browser.close()
    print("\n".join(failures) if failures else "the page is as it should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
