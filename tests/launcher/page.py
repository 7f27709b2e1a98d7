"""Reads a page of `ddptrain compare` as XML and compares what it shows with compare.json.

Usage: python3 page.py FOLDER. Each cell of its tables names a field of compare.json; their numbers may differ by no more
than what rounding to the digits shown allows.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree

XHTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def find(result, field):
    value = result
    for name in field.split("."):
        value = value[int(name)] if isinstance(value, list) else value.get(name)
        if value is None:
            return None
    return value


def is_same(text, value):
    if value is None:
        return text == "-"
    if isinstance(value, bool):
        return text == ("equal" if value else "differ")
    number, _, unit = text.partition(" ")
    digits = len(number.partition(".")[2])
    scale = UNITS[unit] if unit else 1
    return abs(float(number) - value / scale) <= 0.5001 * 10**-digits


def compare_cells(cells, data):
    """cells: [((way, devices), field, text)]. @return what is wrong"""
    failures = []
    results = {(result["way"], result["devices"]): result for result in data["results"]}
    measured = [result for result in data["results"] if "step_ms" in result]
    for key, field, text in cells:
        value = find(results[key], field)
        if not is_same(text, value):
            failures.append("%s %d %s: the page says '%s', compare.json %s" % (*key, field, text, value))
    for field, wanted in (("step_ms.median", len(measured)), ("speedup", len(measured)),
                          ("device.0.memory_bytes.total", len(measured)), ("phases_ms.forward", len(measured))):
        found = sum(1 for _, name, _ in cells if name == field)
        if found != wanted:
            failures.append("%s is shown %d times instead of %d" % (field, found, wanted))
    return failures


def main():
    folder = pathlib.Path(sys.argv[1])
    data = json.loads((folder / "compare.json").read_text())
    root = xml.etree.ElementTree.fromstring((folder / "compare.html").read_text().partition("\n")[2])
    failures = []
    cells = []
    for row in root.iter(XHTML + "tr"):
        for cell in row.iter(XHTML + "td"):
            if "data-field" in cell.attrib:
                key = (row.attrib["data-way"], int(row.attrib["data-devices"]))
                cells.append((key, cell.attrib["data-field"], "".join(cell.itertext())))
    failures += compare_cells(cells, data)
    reasons = ["".join(item.itertext()) for item in root.iter(XHTML + "li")][: len(data["reasons"])]
    if reasons != data["reasons"]:
        failures.append("reasons: %s instead of %s" % (reasons, data["reasons"]))
    for element in root.iter():
        for name in ("href", "src", "style"):
            if not element.attrib.get(name, "data:").startswith("data:"):
                failures.append("%s has %s" % (element.tag, name))
        if element.tag == XHTML + "script":
            failures.append("a script")
    for drawing in root.iter(SVG + "svg"):
        if drawing.find(SVG + "title") is None or drawing.find(SVG + "desc") is None:
            failures.append("a drawing without words")
    if xml.etree.ElementTree.parse(folder / "compare.svg").getroot().tag != SVG + "svg":
        failures.append("compare.svg is none")
    print("\n".join(failures) if failures else "page and compare.json say the same")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
