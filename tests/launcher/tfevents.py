"""Reads TensorBoard's event files, sums included, with nothing but Python: step, tag and value of each scalar, a line each.

Usage: python3 tfevents.py FILE. Written after TensorFlow's record_writer.h, event.proto and summary.proto.
"""

import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        if struct.unpack_from("<I", data, at + 8)[0] != masked(data[at:at + 8]):
            raise SystemExit("byte %d: the sum of a length is wrong" % at)
        record = data[at + 12:at + 12 + length]
        if struct.unpack_from("<I", data, at + 12 + length)[0] != masked(record):
            raise SystemExit("byte %d: the sum of a record is wrong" % at)
        yield record
        at += 16 + length


def fields(message):
    """Number, value of each field."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind == 1:
            value, = struct.unpack_from("<d", message, at)
            at += 8
        elif kind == 2:
            length = varint()
            value = message[at:at + length]
            at += length
        else:
            value, = struct.unpack_from("<f", message, at)
            at += 4
        yield key >> 3, value


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    for i, record in enumerate(records(data)):
        event = dict(fields(record))
        if i == 0:
            if event[3] != b"brain.Event:2":
                raise SystemExit("the first event is no version")
            continue
        for _, value in fields(event[5]):
            scalar = dict(fields(value))
            print("%d %s %.9g %.3f" % (event[2], scalar[1].decode(), scalar[2], event[1]))


if __name__ == "__main__":
    main()
