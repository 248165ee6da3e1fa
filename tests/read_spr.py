#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""read_spr.py FILE - prints the records of a trace, written from docs/format.md alone.

One line a record: kind time seq writer pid tid flags bytes-in-hex; at the end "verdict REASONS
DELIVERED". Needs the zstd command. Damage ends it with a sentence."""
import struct
import subprocess
import sys
import zlib

WIDTHS = {1: 1, 2: 2, 3: 4, 4: 8, 5: 4, 6: 8, 7: 8}  # by type; 8 and 9 are text
OPTIONAL, LIST, CUT = 1, 8, 4


class Cursor:
    """Bytes, read from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        assert self.at + n <= len(self.data), "the bytes end"
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, n):
        return int.from_bytes(self.take(n), "little")

    def varint(self):
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def left(self):
        return len(self.data) - self.at

def kinds_read(data):
    """[(name, [(name, type, flags)])], the first is kind 1."""
    c, kinds = Cursor(data), []
    assert c.number(1) == 1, "another version of kinds"
    for _ in range(c.number(2)):
        k = Cursor(c.take(c.number(4)))
        name, fields = k.take(k.number(1)), []
        for _ in range(k.number(1)):
            field = (k.take(k.number(1)), k.number(1), k.number(1))
            for _ in range(k.number(2)):
                k.take(k.number(1))
            fields.append(field)
        kinds.append((name, fields))
    return kinds


def column_read(c):
    """A column of numbers as a function: source -> next value."""
    codec, width, zero, n, n_bytes = struct.unpack("<BBHII", c.take(12))
    body = Cursor(c.take(n_bytes))
    assert zero == 0 and codec <= 4, "not a column of numbers"
    last = {}

    def value(source=0):
        if codec == 0:
            return int.from_bytes(body.data, "little")
        if codec == 1:
            return body.number(width)
        v = body.varint()
        if codec == 2:
            return v
        key = source if codec == 4 else 0
        difference = v >> 1 if v & 1 == 0 else -((v + 1) >> 1)
        last[key] = (last.get(key, 0) + difference) % (1 << 8 * width)
        return last[key]

    return value, n


def text_read(c):
    """A column of text as a function: -> next text."""
    codec, _, _, n, n_bytes = struct.unpack("<BBHII", c.take(12))
    body = Cursor(c.take(n_bytes))
    if codec == 16:
        lengths, _ = column_read(body)
        return lambda: body.take(lengths())
    assert codec == 17, "an unknown codec"
    n_entries, total = body.number(4), body.number(4)
    numbers, prefixes, suffixes = (column_read(body)[0] for _ in range(3))
    entries, seen = [b""], [0]
    for _ in range(n_entries):
        entries.append(entries[-1][:prefixes()] + body.take(suffixes()))
    assert sum(map(len, entries)) == total, "entries are longer or shorter"

    def text():
        number = numbers()
        if number == 0:
            seen[0] += 1
            number = seen[0]
        return entries[number]

    return text


def field_read(c, field):
    """The columns of a field as a function: source -> the next record's bytes of it."""
    _, kind, flags = field
    present = column_read(c)[0] if flags & OPTIONAL else None
    counts = column_read(c)[0] if flags & LIST else None
    values = column_read(c)[0] if kind in WIDTHS else text_read(c)

    def row(source):
        out = b""
        if present:
            if not present():
                return b"\0"
            out = b"\1"
        if kind in WIDTHS:
            return out + values(source).to_bytes(WIDTHS[kind], "little")
        n = 1
        if counts:
            n = counts()
            out += n.to_bytes(2, "little")
        for _ in range(n):
            text = values()
            out += len(text).to_bytes(2, "little") + text
        return out

    return row


def section_read(c, kinds):
    number, _, n_bytes = struct.unpack("<III", c.take(12))
    body = Cursor(c.take(n_bytes))
    if number == 0:
        text = text_read(body)
        return number, [lambda source: text()]
    blind = [(b"pid", 3, 0), (b"reason", 8, 0), (b"text", 8, 0)]
    return number, [field_read(body, f) for f in (blind if number == 65535 else kinds[number - 1][1])]


def frame_print(content, kinds):
    c = Cursor(content)
    n, n_writers, n_sources, n_kinds = struct.unpack("<IIII", c.take(16))
    tables = []
    for size in (n_writers, n_writers, n_sources, n_sources, n_sources, n_sources):
        value, _ = column_read(c)
        tables.append([value() for _ in range(size)])
    ids, expected, writer_of, pids, tids, known = tables
    source_of, place_of, time_of, gap_of, flags_of = (column_read(c)[0] for _ in range(5))
    sections = [section_read(c, kinds) for _ in range(n_kinds)]
    assert c.left() == 0, "bytes behind the last section"
    for _ in range(n):
        source, place = source_of(), place_of()
        time, gap, flags = time_of(), gap_of(), flags_of() & 1
        writer = writer_of[source]
        seq = (expected[writer] + gap) % (1 << 64)
        expected[writer] = seq + 1
        number, fields = sections[place]
        data = b"".join(row(source) for row in fields)
        pid, tid = (v - (1 << 32) if v >> 31 else v for v in (pids[source], tids[source]))
        print(number, time, seq, ids[writer], pid, tid, flags | known[source] << 1, data.hex())


def trace_print(data):
    c, kinds, reasons, delivered = Cursor(data), None, CUT, 0
    while c.left() >= 8:
        magic, n = struct.unpack("<II", c.data[c.at:c.at + 8])
        if c.left() < n + 8:
            break
        frame = c.take(n + 8)
        if magic == 0x184D2A5E:
            assert frame[-4:] == b"\xb1\xea\x92\x8f", "no seek table"
            reasons &= ~CUT
            break
        assert magic == 0x184D2A53, "no frame of a trace"
        assert zlib.crc32(frame[8:-4]) == int.from_bytes(frame[-4:], "little"), "a damaged frame"
        tag = frame[8:12]
        if tag == b"SPRH":
            assert frame[12:16] == b"\1\0\0\0", "another version"
            kinds = kinds_read(frame[56:-4])
        elif tag == b"SPRV":
            reasons |= struct.unpack("<I", frame[12:16])[0]
        elif tag == b"SPRF":
            n_frame, n_content, n_records = struct.unpack("<III", frame[12:24])
            if c.left() < n_frame:
                break
            zstd = subprocess.run(["zstd", "-dcq"], input=c.take(n_frame), stdout=subprocess.PIPE, check=True)
            content = zstd.stdout
            assert len(content) == n_content, "content of another size"
            frame_print(content, kinds)
            delivered += n_records
    print("verdict", reasons, delivered)


with open(sys.argv[1], "rb") as file:
    trace_print(file.read())
