"""Reads a page of `ddptrain report` of one run as XML and compares its tables with metrics.jsonl.

Usage: python3 report_page.py PAGE FOLDER. Each cell with data-field must be the value of metrics.jsonl at its step, to the
digits shown, where no values share a point (runs of up to 512 steps). Nothing may come from elsewhere, and each drawing
has words.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree

XHTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"


def read_events(path):
    """@return {(event, step): event}, of what can be read"""
    events = {}
    for line in path.read_bytes().split(b"\n"):
        try:
            event = json.loads(line.decode())
            events[(event["event"], event.get("step"))] = event
        except (ValueError, KeyError, TypeError):
            pass
    return events


def check_table(table, kind, events):
    failures = []
    cells = 0
    for row in table.iter(XHTML + "tr"):
        if "data-step" not in row.attrib:
            continue
        event = events.get((kind, int(row.attrib["data-step"])), {})
        for cell in row.iter(XHTML + "td"):
            field, text = cell.attrib["data-field"], "".join(cell.itertext())
            value = event.get(field)
            cells += 1
            if (text == "-") != (value is None) or (value is not None and text != "%.6g" % value):
                failures.append("%s %s: the page says '%s', metrics.jsonl %s" % (row.attrib["data-step"], field, text, value))
    return failures + ([] if cells else ["a table without cells: " + kind])


def main():
    root = xml.etree.ElementTree.fromstring(pathlib.Path(sys.argv[1]).read_text().partition("\n")[2])
    events = read_events(pathlib.Path(sys.argv[2]) / "metrics.jsonl")
    failures = []
    tables = {table.attrib["id"]: table for table in root.iter(XHTML + "table")}
    for name, kind in (("values", "step"), ("evaluations", "eval")):
        if name in tables:
            failures += check_table(tables[name], kind, events)
        elif any(event == kind for event, _ in events):
            failures.append("no table of " + name)
    for element in root.iter():
        for name in ("href", "src", "style"):
            if not element.attrib.get(name, "data:").startswith("data:"):
                failures.append("%s has %s" % (element.tag, name))
        if element.tag == XHTML + "script":
            failures.append("a script")
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    if len(ids) != len(set(ids)):
        failures.append("an id twice")
    drawings = list(root.iter(SVG + "svg"))
    if not drawings or any(d.find(SVG + "title") is None or d.find(SVG + "desc") is None for d in drawings):
        failures.append("no drawing, or one without words")
    if any("nan" in element.attrib.get(name, "") for element in root.iter() for name in ("points", "x", "y", "cx", "cy")):
        failures.append("a place that is no number")
    print("\n".join(failures) if failures else "page and metrics.jsonl say the same")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
