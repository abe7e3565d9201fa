#!/usr/bin/env python3
"""Decodes and encodes golden cases of int8, int4 and e2m1, of rANS and tANS, with the reference.

usage: reference_scaled.py CASE.txt...
       reference_scaled.py --self-test

Both directions as in reference_decoder and reference_encoder, whose blocks, modes and rANS these
are; here is what tANS does with states and words.
"""

import random
import sys
from fractions import Fraction

import reference_decoder as decoder
import reference_encoder as encoder
import reference_model as rm
import reference_scaled_model as sm
from reference_encoder import expect
from reference_model import require


class TansLanes(decoder.Lanes):
    """A cell per lane beside the state, which gives raw bits only."""

    def __init__(self, states, words, case):
        self.states = [stored & 0xFFFF for stored in states]
        self.cells = [stored >> 16 for stored in states]
        cells = 1 << case.model.bank.table_bits
        require(all(self.states), "an empty reservoir")
        require(all(cell < cells for cell in self.cells), "a cell that no row has")
        self.words = words
        self.cursor = 0
        self.renormalize(len(states))

    def decode_step(self, predictions):
        active = len(predictions)
        groups = []
        for lane, prediction in enumerate(predictions):
            symbol, first, bits = prediction.row.cells[self.cells[lane]]
            groups.append(prediction.code_of(symbol))
            self.cells[lane] = first + self.pop_raw(lane, bits)
        self.renormalize(active)
        codes = []
        for lane, (prediction, group) in enumerate(zip(predictions, groups)):
            if group is None:
                codes.append(self.pop_raw(lane, prediction.model.type.width))
            else:
                codes.append(group | self.pop_raw(lane, prediction.bits_of(group)))
        self.renormalize(active)
        return codes

    def finish(self):
        require(not any(self.cells), "an end cell is not 0")
        super().finish()


class ReversedTansLanes(encoder.ReversedLanes):
    def __init__(self, case):
        super().__init__(case)
        self.cells = [0] * case.lanes

    def encode_step(self, predictions, codes):
        descending = range(len(codes) - 1, -1, -1)
        for lane in descending:
            prediction, code = predictions[lane], codes[lane]
            escaped = prediction.escapes(code)
            bits = prediction.model.type.width if escaped else prediction.bits_of(code)
            self.push_raw(lane, code & ((1 << bits) - 1), bits)
        for lane in descending:
            symbol = predictions[lane].symbol_of(codes[lane])
            cell, given, bits = predictions[lane].row.enter(symbol, self.cells[lane])
            self.push_raw(lane, given, bits)
            self.cells[lane] = cell

    def finish(self):
        for lane in range(len(self.states) - 1, -1, -1):
            self.emit_if(lane, self.states[lane] >= 1 << 16)
        stored = [state | cell << 16 for state, cell in zip(self.states, self.cells)]
        return stored, self.emitted[::-1]


rans_lanes = (encoder.ReversedLanes, decoder.Lanes)
tans_lanes = (ReversedTansLanes, TansLanes)


def lanes_of(case):
    return tans_lanes if case.coder == rm.coder_tans else rans_lanes


def check_case(case):
    encoding, decoding = lanes_of(case)
    decoder.check_case(case, decoding)
    return encoder.check_case(case, encoding)


# --- self-test: the model ---------------------------------------------------------------------

# The middles between 2^(i / 8) and 2^((i + 1) / 8) as fp32 mantissas, as the format writes them.
middles = [0x05AAC4, 0x11C3D4, 0x1EF533, 0x2D583F, 0x3D08A4, 0x4E248D, 0x60CCDF, 0x75257E]
no_scales = [0, 0x80000000, 0x7FC00000, 0x7F800000, 0xBF800000, 0x33000000, 0x337FFFFF, 0x4B800000]


def test_units(rng):
    """The inverse is the nearest float, the logarithm changes at the middles."""
    beside = [middle + side for middle in middles for side in (-1, 0)]
    for field in range(127 - 24, 127 + 24):
        for mantissa in [0, 1, 0x7FFFFF] + beside + [rng.getrandbits(23) for _ in range(4)]:
            scale = field << 23 | mantissa
            unit = sm.unit_of(scale)
            eighths = 8 * (field - 127) + sum(mantissa >= middle for middle in middles)
            expect(unit.eighths == eighths, "the logarithm of a scale")
            value = 1 / encoder.exact(scale)
            error = abs(encoder.exact(unit.inverse) - value)
            for neighbour in (unit.inverse - 1, unit.inverse + 1):
                expect(error < abs(encoder.exact(neighbour) - value), "an inverse is not nearest")
    expect(all(sm.unit_of(scale) is None for scale in no_scales), "a scale that must not count")


def value_of(t, code):
    return code - (1 << t.width) if code > t.largest else code


def test_integer_codes(rng):
    """The nearest integer of all that there are; of two the even one."""
    for t in sm.integers:
        codes = range(1 << t.width)
        for _ in range(200):
            mean = encoder.random_f32(rng, 120, 127 + t.width)
            if rng.random() < 0.5:  # a half, where it has a bit for that
                mean &= ~((1 << max(149 - rm.f32_field(mean), 0)) - 1)
            exact = encoder.exact(mean)
            best = min(codes, key=lambda c: (abs(value_of(t, c) - exact), c & 1))
            expect(sm.integer_code(t, mean) == best, "an integer code is not nearest")
        for mean, value in [
            (0x7FC00000, 0), (0x7F800000, t.largest), (0xFF800000, -1 - t.largest),
            (0x7F7FFFFF, t.largest), (0x80000000, 0), (0x3F000000, 0), (0x3FC00000, 2),
        ]:
            expect(value_of(t, sm.integer_code(t, mean)) == value, "a special integer code")


def random_scale(rng):
    if rng.random() < 0.05:
        return rng.choice(no_scales)
    if rng.random() < 0.1:
        return rng.randrange(127 - 24, 127 + 24) << 23 | rng.getrandbits(23)
    return rng.randint(118, 130) << 23 | rng.getrandbits(10) << 13


def random_prediction(rng, model, unit, wild):
    """(mu, k) of a mean and a deviation in code units that the type is made for, or any."""
    reach = 127 + model.type.width
    mean = encoder.random_f32(rng, reach - 7, reach - 3)
    if rng.random() < 0.2:
        mean &= 0xFFF00000
    mu = rm.multiply_add_bits(mean, unit.bits if unit else rm.f32_one, rm.f32_sign)
    eighths = rng.randint(-60, 90) if wild else rng.randint(-24, 2 * model.type.width)
    k = eighths + (unit.eighths if unit else 0) - 8 * model.offset
    return mu, min(max(k, 0), 254)


def test_tiling(rng):
    """The codes' intervals tile the slots and find() is their inverse."""
    for t in sm.scalar_types.values():
        for n in range(12):
            shape = rm.shapes["mixture" if n % 2 else "gaussian"]
            model = sm.ScaledModel(t, shape, rng.randint(-30, 10))
            scale = random_scale(rng)
            mu, k = random_prediction(rng, model, sm.unit_of(scale), n >= 8)
            prediction = model.predict(mu, k, rng.randrange(16), scale)
            intervals = {}
            for code in range(1 << t.width):
                if prediction.interval(code):
                    intervals[prediction.interval(code)] = code
            position = shape.escape_slots
            for start, freq in sorted(intervals):
                expect(start == position and freq > 0, "intervals leave a gap or overlap")
                code = intervals[start, freq]
                for slot in (start, start + freq - 1):
                    expect(prediction.find(slot) == (code, start, freq), "find")
                position += freq
            expect(rm.total - 2 <= position <= rm.total, "the intervals end elsewhere")
            expect(prediction.find(position - 1) is not None, "the last slot of all")


def test_normalize(rng):
    """Rows worked out by hand; the rule, step by step, on random weights."""
    for weights, bits, freqs in [
        ([1, 1, 1], 4, [6, 5, 5]),
        ([1, 1, 1, 1], 2, [1, 1, 1, 1]),
        ([0, 5, 0], 4, [0, 16, 0]),
        ([1000, 1, 1, 1], 4, [13, 1, 1, 1]),
        # Shares 0.3, 0.3, 7.7, 7.7: two cells too many with a cell for each, and 7 + 7.
        ([3, 3, 77, 77], 4, [1, 1, 7, 7]),
        # 8.4, 4.4, 3.2: 84 / 17 saves less than 44 / 9 does, 4.94 to 4.89: the first.
        ([84, 44, 32], 4, [9, 4, 3]),
    ]:
        expect(sm.normalize(weights, bits) == freqs, f"frequencies of {weights}")
    for _ in range(60):
        bits = rng.randint(4, 8)
        weights = [rng.choice([0, 1, rng.getrandbits(10)]) for _ in range(rng.randint(1, 15))]
        weights.append(rng.randint(1, 5000))
        freqs = sm.normalize(weights, bits)
        expect(sum(freqs) == 1 << bits, "frequencies do not fill the row")
        by_weight = sorted(zip(weights, freqs))
        expect(all((w > 0) == (f > 0) for w, f in by_weight), "a symbol lost or found")
        for (w, f), (v, g) in zip(by_weight, by_weight[1:]):
            expect(f <= g + (w == v), "a larger weight has fewer cells")


def test_rows(rng):
    """Every cell has one way into every symbol, decoding leads back, and no bits are lost."""
    for freqs in [[1] * 16, [16], [3, 5, 8], [1, 0, 11, 4], [200, 1, 1, 54], [37, 91, 0, 128]]:
        bits_of_row = sum(freqs).bit_length() - 1
        row = sm.Row(freqs, bits_of_row)
        expect([[c[0] for c in row.cells].count(s) for s in range(len(freqs))] == freqs, "cells")
        for s in range(len(freqs)):
            for cell in range(len(row.cells) if freqs[s] else 0):
                ways = [
                    i
                    for i, (symbol, first, bits) in enumerate(row.cells)
                    if symbol == s and first <= cell < first + (1 << bits)
                ]
                owner, given, bits = row.enter(s, cell)
                expect(ways == [owner], "not one way into a symbol")
                expect(row.cells[owner] == (s, cell - given, bits), "decoding leads elsewhere")
                expect(0 <= given < 1 << bits, "more bits than are given")
        # The k-th cell of a symbol lies less than a cell per symbol from the middle of its part.
        seen = [0] * len(freqs)
        for cell, (s, _, _) in enumerate(row.cells):
            middle = Fraction((2 * seen[s] + 1) * len(row.cells), 2 * freqs[s])
            expect(abs(cell - middle) <= len(freqs), "a cell far from its place")
            seen[s] += 1
        symbols = [s for s, freq in enumerate(freqs) for _ in range(freq)]
        cell = spent = 0
        ideal = 1  # 2^(bits of an exact coder), from the frequencies
        for _ in range(2000):
            s = rng.choice(symbols)
            cell, _, bits = row.enter(s, cell)
            spent += bits
            ideal = ideal * len(symbols) // freqs[s] if ideal < 1 << 4000 else ideal
            if ideal >= 1 << 4000:
                break
        expect(spent <= 1.02 * ideal.bit_length() + 12, "a row loses bits")


def test_bank(rng):
    """Rows of single eighths against the intervals of rANS at the same sigma and mean."""
    int8 = sm.scalar_types["int8"]
    for name in ("gaussian", "mixture"):
        shape = rm.shapes[name]
        bank = sm.Bank(12 | 3 << 4 | 3 << 6, shape)
        model = sm.ScaledModel(int8, shape, -16)
        for octave in range(sm.lowest_octave, sm.highest_octave + 1):
            parts = 1 << bank.log_parts(octave)
            expect(parts == min(max(8 >> octave if octave >= 0 else 16, 1), 16), "parts of a cell")
            for _ in range(4):
                step, half = rng.randrange(8), rng.randrange(max(parts // 2, 1))
                center = Fraction(2 * half + 1, 2 * parts) if parts > 1 else Fraction(0)
                mean = rm.f32_bits(*rm.round_to_f32(center.numerator, 1 - parts.bit_length() - 1))
                expect(parts == 1 or encoder.exact(mean) == center, "a center is no float")
                k = 8 * octave + step + 128
                prediction = model.predict(mean if parts > 1 else 0, k, 6, rm.f32_one)
                weights = bank.weights(octave, step, half)
                expect(sum(weights) == shape.base[32], "weights do not fill the Gaussian")
                for i in range(1, len(weights) - 1):
                    interval = prediction.interval((i - sm.largest_reach) % 256)
                    expect(abs((interval or (0, 0))[1] - weights[i]) <= 6, "a weight")
        # Coarser steps: the middle sigma lies between those of the eighths around it.
        for log_steps in range(3):
            coarse = sm.Bank(12 | log_steps << 4 | 3 << 6, shape)
            width = 8 >> log_steps
            for step in range(1 << log_steps):
                first = step * width + width // 2 - 1
                peaks = [b.weights(2, s, 0)[sm.largest_reach] for b, s in
                         ((bank, first), (coarse, step), (bank, first + 1))]
                expect(peaks[0] > peaks[1] > peaks[2], "the sigma of a coarse step")


# What tests/core/bank_test.cpp says of the library's rows of the same plans.
bank_plans = [("gaussian", 6), ("gaussian", 9 | 2 << 4 | 2 << 6), ("mixture", 11 | 1 << 4 | 3 << 6)]
bank_hash = 9596082252354019796


def test_bank_hash():
    """All rows of some plans, cell by cell, against a hash of the library's."""
    value = 0x9E3779B97F4A7C15

    def add(number):
        nonlocal value
        value = (value ^ number) * 0xD6E8FEB86659FD93 & (1 << 64) - 1
        value ^= value >> 32

    for shape_name, plan in bank_plans:
        bank = sm.Bank(plan, rm.shapes[shape_name])
        rows = [
            bank.row(octave, step, half)
            for octave in range(sm.lowest_octave, sm.highest_octave + 1)
            for step in range(1 << bank.log_steps)
            for half in range(max((1 << bank.log_parts(octave)) // 2, 1))
        ]
        for row, _ in rows:
            for symbol, first, bits in row.cells:
                add(first | bits << 16 | symbol << 32)
        for _, reach in rows:
            add(reach)
        for row, _ in rows:
            cells = range(len(row.cells))
            for cell in sorted(cells, key=lambda i: row.cells[i][0]):  # stable: then by counter
                add(cell)
    expect(value == bank_hash, "a row differs from the library's")


def test_fixed_mean():
    one = sm.unit_of(rm.f32_one)
    for t in sm.integers:
        top, bottom = 256 * t.largest, -256 * (t.largest + 1)
        for mu, mean in [
            (0, 0), (0x3F800000, 256), (0xBF800000, -256), (0x3B000000, 1), (0xBB000000, -1),
            (0x3AFFFFFF, 0), (0x3BC00000, 2), (0x7FC00000, 0), (0x7F800000, top),
            (0xFF800000, bottom), (0x7F7FFFFF, top), (0xC3800000, bottom), (0x01000000, 0),
        ]:
            expect(sm.BankPrediction.fixed_mean(t, mu, one) == mean, f"the mean of {mu:#x}")
    expect(sm.BankPrediction.fixed_mean(t, 0x3F800000, None) == 0, "a mean without a scale")


# --- self-test: cases -------------------------------------------------------------------------

plans = ["0006", "00a9", "005a", "0137", "0098", "0018"]
kinds = [("int8", True), ("int4", True), ("int8", False), ("int4", False), ("e2m1", False)]


def drawn_code(rng, prediction):
    """A code as the prediction expects it."""
    t = prediction.model.type
    try:
        if isinstance(prediction, sm.BankPrediction):
            code = prediction.code_of(rng.choice(prediction.row.cells)[0])
            hit = None if code is None else (code,)
        else:
            hit = prediction.find(rng.randrange(rm.total))
    except rm.FormatError:
        hit = None
    return hit[0] | rng.getrandbits(prediction.group_bits) if hit else rng.getrandbits(t.width)


def random_case(rng, name, dtype, plan, shape_name, lanes, style, flags):
    """(fields without block, row nibbles) of one case in one of the styles below."""
    t = sm.scalar_types[dtype]
    heads, tokens = rng.randint(1, 2), rng.randint(1, 5)
    dim, group = rng.choice([1, 5, 8, 13, 16]), rng.choice([1, 4, 32])
    if style == "empty":
        tokens = 0
    if style == "coded":
        tokens = max(tokens, (24 if t.width == 8 else 40) * lanes // (heads * dim) + 6)
    count, groups = heads * tokens * dim, -(-dim // group)
    offset = rng.randint(-24, -12)
    scales = [random_scale(rng) for _ in range(heads * tokens * groups)]
    fields = {
        "name": name, "dtype": dtype, "shape": shape_name, "offset": offset,
        "box": f"{heads} {tokens} {dim}", "lanes": lanes, "group": group,
        "scales": encoder.hex_list(scales, 8),
    }
    shape = rm.shapes[shape_name]
    if plan:
        fields["bank"] = plan
        model = sm.BankModel(t, bank_of(plan, shape), offset)
    else:
        model = sm.ScaledModel(t, shape, offset)
    if flags & rm.flag_fingerprint:
        fields["fingerprint"] = f"{rng.getrandbits(64):016x}"
    steps = range(16) if style == "wild" else range(2, 8)
    row_nibbles = encoder.random_rows(rng, steps, tokens) if flags & rm.flag_rows else None
    odd = {"coded": 0.02, "wild": 0.9}.get(style, 0.2)
    mus, sigmas, codes = [], [], []
    for i in range(count):
        scale = scales[i // dim * groups + i % dim // group]
        mu, k = random_prediction(rng, model, sm.unit_of(scale), style == "wild")
        if rng.random() < odd:
            mu = encoder.special_mu(rng)
        if rng.random() < odd:
            k = rm.sigma_zero
        clean = rm.clean_mu(mu)
        prediction = model.predict(clean, k, row_nibbles[i // dim % tokens] if row_nibbles else 6,
                                   scale)
        if style == "predicted":
            code = sm.expected_code(t, sm.mean_in_codes(clean, sm.unit_of(scale)))
        elif rng.random() < odd / 3:
            code = rng.getrandbits(t.width)
        else:
            code = drawn_code(rng, prediction)
        mus.append(mu)
        sigmas.append(k)
        codes.append(code)
    if style == "constant":
        codes = [codes[0]] * count
    fields["mu"], fields["sigma"] = encoder.hex_list(mus, 8), encoder.hex_list(sigmas, 2)
    fields["codes"] = encoder.hex_list(codes, 2)
    return fields, row_nibbles


banks = {}


def bank_of(plan, shape):
    if (plan, shape.id) not in banks:
        banks[plan, shape.id] = sm.Bank(int(plan, 16), shape)
    return banks[plan, shape.id]


def case_of(fields, block=b""):
    (parsed,) = rm.parse_cases(encoder.case_text(fields, block))
    case = sm.ScaledCase(parsed)
    if case.coder == rm.coder_tans:
        case.model.bank = bank_of(fields["bank"], case.shape)
    return case


def test_tans_damage(case, header):
    """Stored lanes that no encoder writes: an empty reservoir, a cell that no row has."""
    flags = header.flags
    first = 16 + 8 * bool(flags & rm.flag_fingerprint) + 4 * bool(flags & rm.flag_parameters)
    if flags & rm.flag_rows:
        first += -(-rm.row_bytes(case.tokens, header.row_window) // 4) * 4
    for at, stored in [(0, b"\0\0"), (2, (1 << case.model.bank.table_bits).to_bytes(2, "little"))]:
        damaged = bytearray(case.block)
        damaged[first + at : first + at + 2] = stored
        expect(encoder.decodes(case, damaged, TansLanes) is None, f"{case.name}: a stored lane")


def test_packing():
    for count in (4, 5):
        fields = {
            "name": "half", "dtype": "int4", "shape": "gaussian", "offset": -8, "lanes": 8,
            "box": f"1 1 {count}", "group": 8, "scales": "3f800000", "sigma": "40" * count,
            "mu": "00000000" * count, "codes": encoder.hex_list([1, 2, 3, 15, 5][:count], 2),
        }
        block = encoder.encode_block(case_of(fields), 0, None)
        expect(block[16:] == b"\x21\xf3\x05\0"[: 2 + 2 * (count == 5)] + bytes(2 * (count == 4)),
               "the packing of 4-bit codes")
        case = case_of(fields, block)
        expect(encoder.decodes(case, block, decoder.Lanes) == case.codes, "a raw block")
        damaged = bytearray(block)
        damaged[18] |= 0x50
        expect(encoder.decodes(case, damaged, decoder.Lanes) is None, "half a byte without a code")


def self_test():
    rng = random.Random(20261)
    test_units(rng)
    test_integer_codes(rng)
    test_tiling(rng)
    test_normalize(rng)
    test_rows(rng)
    test_bank(rng)
    test_bank_hash()
    test_fixed_mean()
    test_packing()
    print("model: passed")

    counts = {}

    def count(key, n=1):
        counts[key] = counts.get(key, 0) + n

    styles = ["coded", "mixed", "wild", "predicted", "constant", "empty"]
    made = 0
    for dtype, banked in kinds:
        for shape_name in ("gaussian", "mixture"):
            for lanes in rm.lane_counts:
                for style in styles:
                    name = f"{dtype}_{'tans' if banked else 'rans'}_{shape_name}_{lanes}_{style}"
                    number = made // len(styles)
                    plan, flags = plans[number % len(plans)] if banked else None, number % 16
                    fields, rows = random_case(
                        rng, name, dtype, plan, shape_name, lanes, style, flags
                    )
                    made += 1
                    case = case_of(fields)
                    both = lanes_of(case)
                    coder = "tANS" if banked else "rANS"
                    for key, n in encoder.coded_round_trip(case, rows, both).items():
                        count(f"{coder} {key}", n)
                    block = encoder.encode_block(case, flags, rows, both[0])
                    fields["flags"] = f"{flags:x}"
                    if rm.unpack_how(block[2])[0] == rm.mode_raw and rows:
                        fields["rows"] = encoder.hex_list(rows, 1)
                    case = case_of(fields, block)
                    check_case(case)
                    header = decoder.Header(case)
                    count(f"{coder} {rm.mode_names[header.mode]} blocks")
                    count(f"flags {header.flags:04b}")
                    encoder.test_damage(rng, case, header, both[1])
                    if banked and header.mode == rm.mode_coded:
                        test_tans_damage(case, header)
    for key in sorted(counts):
        print(f"{counts[key]:7} {key}")
    # A generator that drifts must not let a part of the format go untested.
    for coder in ("rANS", "tANS"):
        expect(all(f"{coder} {mode} blocks" in counts for mode in rm.mode_names), "no such mode")
    expect(all(f"flags {flags:04b}" in counts for flags in range(16)), "flags never occurred")
    expect(all(n > 0 for key, n in counts.items() if key != "tANS far"), "a kind never occurred")
    print(f"{made} cases: passed")


def main(arguments):
    if not arguments:
        print(__doc__.strip())
        return 2
    if arguments == ["--self-test"]:
        self_test()
        return 0
    return 1 if rm.run_cases(arguments, check_case, sm.ScaledCase) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
