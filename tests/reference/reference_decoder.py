#!/usr/bin/env python3
"""Decodes the blocks of golden case files with the reference model and checks all of it.

usage: reference_decoder.py CASE.txt...
"""

import struct
import sys

import reference_model as rm
from reference_model import FormatError, require


class Header:
    """The 16 bytes that every block starts with, each field checked against the case."""

    def __init__(self, case):
        require(len(case.block) >= rm.header_bytes, "the block is shorter than its header")
        version, kind, how, rows, count, words, check = struct.unpack_from(
            "<BBBBIII", case.block
        )
        require(version == rm.format_version, "unknown version")
        require(kind & 15 == case.type.id, "the block has another dtype")
        require(kind >> 4 == case.coder, "the block has another coder")
        require(count == case.count, "the block has another count")
        self.mode, lanes, self.flags = rm.unpack_how(how)
        require(lanes == case.lanes, "the block has another lane count")
        require(words <= (case.raw_bytes() + 1) // 2, "more words than raw codes have")
        self.payload_words, self.content_check = words, check
        if not self.flags & rm.flag_content:
            require(check == 0, "a content check without its flag")
        self.row_window = None
        if self.flags & rm.flag_rows:
            require(self.mode == rm.mode_coded, "row steps outside a coded block")
            self.row_window = rm.stored_window(rows)
        else:
            require(rows == 0, "a window of row steps without its flag")
        if self.flags & rm.flag_parameters:
            require(
                self.mode in (rm.mode_coded, rm.mode_predicted),
                "a parameter hash in a mode without predictions",
            )
        if count == 0:
            require(self.mode == rm.mode_raw, "an empty block is raw")
        has_fingerprint = bool(self.flags & rm.flag_fingerprint)
        require(has_fingerprint == (case.fingerprint is not None), "fingerprint flag differs")


class Reader:
    """A cursor over the block's bytes that never passes their end."""

    def __init__(self, data):
        self.data = data
        self.cursor = 0

    def take(self, size):
        require(self.cursor + size <= len(self.data), "the block is too short")
        self.cursor += size
        return self.data[self.cursor - size : self.cursor]

    def take_number(self, size):
        return int.from_bytes(self.take(size), "little")

    def take_padding(self):
        """Zeros up to a multiple of 4 bytes."""
        require(not any(self.take(-self.cursor % 4)), "a padding byte is not zero")


class Lanes:
    """The rANS states of a block and the words that refill them."""

    def __init__(self, states, words, _case):
        require(
            all(rm.lower_bound <= state < 1 << 31 for state in states), "a state out of range"
        )
        self.states = states
        self.words = words
        self.cursor = 0

    def renormalize(self, active):
        """Every state below the lower bound takes one word, in ascending lane order."""
        for lane in range(active):
            if self.states[lane] < rm.lower_bound:
                require(self.cursor < len(self.words), "the words ran out")
                self.states[lane] = self.states[lane] << 16 | self.words[self.cursor]
                self.cursor += 1
                require(self.states[lane] >= rm.lower_bound, "a state stayed below its bound")

    def slot(self, lane):
        return self.states[lane] & (rm.total - 1)

    def pop_interval(self, lane, start, freq):
        state = self.states[lane]
        self.states[lane] = freq * (state >> rm.precision_bits) + self.slot(lane) - start

    def pop_raw(self, lane, bits):
        raw = self.states[lane] & ((1 << bits) - 1)
        self.states[lane] >>= bits
        return raw

    def pop_escape(self, lane, model):
        """At most 8 bits after an escape: raw, or a symbol of the marginal where there is one."""
        if model.escape_starts is None:
            return self.pop_raw(lane, min(model.type.width, 8))
        slot = self.slot(lane)
        byte = 0
        while model.escape_starts[byte + 1] <= slot:
            byte += 1
        self.pop_interval(lane, model.escape_starts[byte], model.escape_freqs[byte])
        return byte

    def decode_step(self, predictions):
        """One code per active lane."""
        active = len(predictions)
        found = [prediction.find(self.slot(lane)) for lane, prediction in enumerate(predictions)]
        for lane, hit in enumerate(found):
            escape = (None, 0, predictions[lane].model.shape.escape_slots)
            _, start, freq = hit or escape
            self.pop_interval(lane, start, freq)
        self.renormalize(active)
        codes = []
        for lane, hit in enumerate(found):
            if hit:
                codes.append(hit[0] | self.pop_raw(lane, predictions[lane].group_bits))
            else:
                codes.append(self.pop_escape(lane, predictions[lane].model))
        self.renormalize(active)
        if predictions[0].model.type.width == 16:
            for lane, hit in enumerate(found):
                if not hit:
                    codes[lane] = codes[lane] << 8 | self.pop_raw(lane, 8)
            self.renormalize(active)
        return codes

    def finish(self):
        require(all(s == rm.lower_bound for s in self.states), "an end state is not 2^15")
        require(self.cursor == len(self.words), "words are left over")


def decode_codes(case, header, reader, row_nibbles, lanes_type):
    """The codes of a block whose header and row nibbles have been read."""
    words = header.payload_words
    if header.mode == rm.mode_coded:
        states = [reader.take_number(4) for _ in range(case.lanes)]
        lanes = lanes_type(states, [reader.take_number(2) for _ in range(words)], case)
        nibbles = case.scalar_nibbles(row_nibbles)
        codes = []
        for first in range(0, case.count, case.lanes):
            step = range(first, min(first + case.lanes, case.count))
            codes += lanes.decode_step([case.predict(i, nibbles[i]) for i in step])
        lanes.finish()
        return codes
    if header.mode == rm.mode_raw:
        require(words == (case.raw_bytes() + 1) // 2, "a raw block with a wrong payload")
        return case.unpack(reader.take(case.raw_bytes()))
    if header.mode == rm.mode_constant:
        require(words == 1, "a constant block with a wrong payload")
        code = reader.take_number(2)
        require(code >> case.type.width == 0, "a constant wider than its type")
        return [code] * case.count
    require(words == 0, "a predicted block with a payload")
    return case.predicted_codes()


def decode_block(case, lanes_type=Lanes):
    """(header, codes) of the case's block; raises FormatError on any violation."""
    header = Header(case)
    if header.mode in (rm.mode_coded, rm.mode_predicted):
        require(case.model is not None, "this scalar type has no model")
    reader = Reader(case.block)
    reader.take(rm.header_bytes)
    if header.flags & rm.flag_fingerprint:
        require(reader.take_number(8) == case.fingerprint, "the fingerprint differs")
    stored_hash = reader.take_number(4) if header.flags & rm.flag_parameters else None
    row_nibbles = None
    if header.flags & rm.flag_rows:
        packed = reader.take(rm.row_bytes(case.tokens, header.row_window))
        row_nibbles = rm.unpack_rows(packed, case.tokens, header.row_window)
        reader.take_padding()
    codes = decode_codes(case, header, reader, row_nibbles, lanes_type)
    reader.take_padding()
    require(reader.cursor == len(case.block), "bytes after the end of the block")
    if header.flags & rm.flag_content:
        check = rm.two_sum_check(codes, case.lanes)
        require(check == header.content_check, "the content check fails")
    if stored_hash is not None:
        require(case.parameter_hash(row_nibbles) == stored_hash, "the parameter hash fails")
    return header, codes


def check_case(case, lanes_type=Lanes):
    header, codes = decode_block(case, lanes_type)
    wrong = [i for i in range(case.count) if codes[i] != case.codes[i]]
    if wrong:
        i = wrong[0]
        raise FormatError(
            f"{len(wrong)} codes differ, first at {i}: {codes[i]:#x} for {case.codes[i]:#x}"
        )
    return f"{rm.mode_names[header.mode]}, {case.count} scalars, {len(case.block)} bytes"


def main(arguments):
    if not arguments:
        print(__doc__.strip())
        return 2
    return 1 if rm.run_cases(arguments, check_case) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
