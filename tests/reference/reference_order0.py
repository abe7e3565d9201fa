#!/usr/bin/env python3
"""Golden blocks of order 0 by an independent implementation: whole numbers and one lane at a time.
Decodes each block and checks all of it, then encodes the codes again: shares of slots are given out
one by one, and the bytes must be those of the case.

usage: reference_order0.py CASE.txt...
"""

import heapq
import struct
import sys
from fractions import Fraction

import reference_model as rm
from reference_model import require

coder_order0 = 2
bits_of = {"int4": 4, "e2m1": 4, "bf16": 16, "fp16": 16}
type_ids = {name: i for i, name in enumerate(
    ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "bf16", "fp16", "raw8", "int8", "int4", "e2m1"))}


class Case:
    def __init__(self, fields):
        self.name = fields["name"]
        self.type = type_ids[fields["dtype"]]
        self.bits = bits_of.get(fields["dtype"], 8)
        self.planes = 2 if self.bits == 16 else 1
        self.heads, self.tokens, self.dim = map(int, fields["box"].split())
        self.count = self.heads * self.tokens * self.dim
        self.lanes = int(fields["lanes"])
        self.flags = int(fields["flags"], 16)
        self.fingerprint = int(fields["fingerprint"], 16) if "fingerprint" in fields else None
        self.group = int(fields["order0"])
        digits = self.planes * 2
        text = fields["codes"]
        self.codes = [int(text[i : i + digits], 16) for i in range(0, len(text), digits)]
        require(len(self.codes) == self.count, "codes do not fill the box")
        text = fields.get("tables", "")
        freqs = [int(text[i : i + 4], 16) for i in range(0, len(text), 4)]
        self.tables = [freqs[i : i + 256] for i in range(0, len(freqs), 256)]
        self.block = bytes.fromhex(fields["block"])

    def table(self, i, plane, own):
        if own:
            return own[plane]
        channel = i // self.dim // self.tokens * self.dim + i % self.dim
        group = channel // self.group if self.group else 0
        return self.tables[group * self.planes + plane]

    def symbols(self, code):
        return (code >> 8, code & 255) if self.planes == 2 else (code,)

    def pack(self, codes):
        if self.bits == 16:
            return struct.pack(f"<{len(codes)}H", *codes)
        if self.bits == 8:
            return bytes(codes)
        even = codes + [0] * (len(codes) % 2)
        return bytes(low | high << 4 for low, high in zip(even[::2], even[1::2]))

    def content_check(self):
        return rm.two_sum_check(self.codes, self.lanes)


def shares(counts, most_bits):
    """Slots go one by one to the symbol with the most per odd number of slots, the first if equal."""
    for bits in range(most_bits, 11, -1):
        freq = [min(c, 1) for c in counts]
        heap = [(-Fraction(c, 3), s) for s, c in enumerate(counts) if c]
        heapq.heapify(heap)
        for _ in range(2**bits - sum(freq)):
            _, s = heap[0]
            freq[s] += 1
            heapq.heapreplace(heap, (-Fraction(counts[s], 2 * freq[s] + 1), s))
        if max(freq) <= 4095:
            return freq
    raise rm.FormatError("no table")


def write_table(freq):
    bits, last = "", 0
    for f in freq:
        step = f.bit_length() - last
        last = f.bit_length()
        bits += "0" * (2 * step if step >= 0 else -2 * step - 1) + "1"
        if f:
            bits += bin(f)[3:][::-1]
    bits += "0" * (-len(bits) % 16)
    return bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))


def read_table(data, symbols):
    bits = "".join(f"{byte:08b}"[::-1] for byte in data)
    at, last, freq = 0, 0, []
    for _ in range(symbols):
        zeros = bits.index("1", at) - at
        at += zeros + 1
        last += -(zeros + 1) // 2 if zeros % 2 else zeros // 2
        require(0 <= last <= 12, "no such length")
        low = bits[at : at + max(last - 1, 0)]
        at += len(low)
        freq.append((1 << (last - 1) | int(low[::-1] or "0", 2)) if last else 0)
    used = (at + 15) // 16 * 16
    require("1" not in bits[at:used] and used <= len(bits), "a table's padding")
    require(sum(freq) in (4096, 8192) and max(freq) <= 4095, "no table")
    return freq + [0] * (256 - symbols), used // 8


def decode(case, states, words, own):
    codes, at = [], 0
    starts = {}
    for first in range(0, case.count, case.lanes):
        here = range(first, min(first + case.lanes, case.count))
        values = [0] * len(here)
        for plane in range(case.planes):
            for lane, i in enumerate(here):
                freq = case.table(i, plane, own)
                if id(freq) not in starts:
                    starts[id(freq)] = [sum(freq[:s]) for s in range(257)]
                start, total = starts[id(freq)], sum(freq)
                slot = states[lane] % total
                s = next(s for s in range(256) if start[s] <= slot < start[s + 1])
                states[lane] = freq[s] * (states[lane] // total) + slot - start[s]
                values[lane] = values[lane] << 8 | s
            for lane in range(len(here)):
                if states[lane] < 2**15:
                    require(at < len(words), "words ran out")
                    states[lane] = states[lane] << 16 | words[at]
                    at += 1
        codes += values
    require(at == len(words), "words are left")
    require(all(state == 2**15 for state in states), "a lane's end")
    return codes


def encode(case, own):
    states, words = [2**15] * case.lanes, []
    for first in reversed(range(0, case.count, case.lanes)):
        here = range(first, min(first + case.lanes, case.count))
        for plane in reversed(range(case.planes)):
            for lane, i in reversed(list(enumerate(here))):
                freq = case.table(i, plane, own)
                s, total = case.symbols(case.codes[i])[plane], sum(freq)
                if freq[s] == 0:
                    return None
                if states[lane] >= freq[s] * (2**31 // total):
                    words.append(states[lane] & 0xFFFF)
                    states[lane] >>= 16
                q, r = divmod(states[lane], freq[s])
                states[lane] = q * total + r + sum(freq[:s])
    return states, words[::-1]


def own_tables(case):
    tables = []
    for plane in range(case.planes):
        counts = [0] * 256
        for code in case.codes:
            counts[case.symbols(code)[plane]] += 1
        if max(counts) == case.count:  # alone, but a table has two symbols
            counts = [4095 * (c != 0) for c in counts]
            counts[0 if counts[0] == 0 else 1] = 1
        tables.append(shares(counts, 13 if case.count >= 32768 else 12))
    return tables


def head(case, mode, payload_words):
    flags = case.flags & 2 | (8 if case.fingerprint is not None else 0)
    check = case.content_check() if case.flags & 2 else 0
    how = rm.pack_how(mode, case.lanes, flags)
    data = struct.pack("<BBBBIII", 0, case.type | coder_order0 << 4, how, 0, case.count,
                       payload_words, check)
    return data + (struct.pack("<Q", case.fingerprint) if flags & 8 else b"")


def padded(data):
    return data + b"\0" * (-len(data) % 4)


def encode_block(case):
    raw = case.pack(case.codes)
    raw_block = padded(head(case, 1, (len(raw) + 1) // 2) + raw)
    if case.count == 0:
        return raw_block
    if len(set(case.codes)) == 1:
        return padded(head(case, 2, 1) + struct.pack("<H", case.codes[0]))
    for own in ([None] if case.tables else []) + [own_tables(case)]:
        stored = b"".join(write_table(f[: 16 if case.bits == 4 else 256]) for f in own or [])
        coded = encode(case, own)
        if coded is None:
            continue
        states, words = coded
        words = struct.pack("<H", len(stored) // 2) + stored + struct.pack(f"<{len(words)}H", *words)
        block = padded(head(case, 0, len(words) // 2) + struct.pack(f"<{case.lanes}I", *states) +
                       words)
        if len(block) <= len(raw_block) - len(raw) // 64:
            return block
    return raw_block


def check_case(case):
    version, kind, how, rows, count, payload, check = struct.unpack_from("<BBBBIII", case.block)
    mode, lanes, flags = rm.unpack_how(how)
    require((version, kind, rows, lanes, count) ==
            (0, case.type | coder_order0 << 4, 0, case.lanes, case.count), "the header is another")
    require(check == (case.content_check() if flags & rm.flag_content else 0), "content check")
    if mode == rm.mode_coded:
        at = 16 + (8 if flags & rm.flag_fingerprint else 0)
        states = list(struct.unpack_from(f"<{lanes}I", case.block, at))
        at += 4 * lanes
        (table_words,) = struct.unpack_from("<H", case.block, at)
        stored = case.block[at + 2 : at + 2 + 2 * table_words]
        own = []
        while stored:
            freq, used = read_table(stored, 16 if case.bits == 4 else 256)
            own.append(freq)
            stored = stored[used:]
        require(len(own) in (0, case.planes), "tables of some planes")
        left = payload - 1 - table_words
        words = struct.unpack_from(f"<{left}H", case.block, at + 2 + 2 * table_words)
        require(decode(case, states, words, own) == case.codes, "other codes")
    require(encode_block(case) == case.block, "encodes to other bytes")
    return rm.mode_names[mode]


def main(arguments):
    if not arguments:
        print(__doc__.strip())
        return 2
    return 1 if rm.run_cases(arguments, check_case, Case) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
