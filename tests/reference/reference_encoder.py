#!/usr/bin/env python3
"""Encodes golden cases again, with the reference model, and compares the bytes.

usage: reference_encoder.py CASE.txt...
       reference_encoder.py --self-test

A stream is unique once row nibbles and flags are chosen, so those come from the case's block and
everything else, the mode included, has to come out the same. A raw block does not say whether
rows or a parameter hash were wanted for the coded block that it was weighed against. The optional
keys `flags` (one hex digit, the flags wanted) and `rows` (one hex digit per token, the nibbles
tried) of a case say so; without them a raw block is weighed against a coded one without either.

The self-test encodes seeded random cases and decodes them with the reference decoder, and checks
the model against slower or more direct forms of its rules.
"""

import copy
import random
import struct
import sys
from fractions import Fraction

import reference_decoder as decoder
import reference_model as rm
from reference_model import FormatError, require


class ReversedLanes:
    """rANS states that take symbols in the reverse of the order in which they are decoded."""

    def __init__(self, case):
        self.states = [rm.lower_bound] * case.lanes
        self.emitted = []

    def emit_if(self, lane, full):
        if full:
            self.emitted.append(self.states[lane] & 0xFFFF)
            self.states[lane] >>= 16

    def push_interval(self, lane, start, freq):
        self.emit_if(lane, self.states[lane] >= freq << 16)
        quotient, offset = divmod(self.states[lane], freq)
        self.states[lane] = (quotient << rm.precision_bits) + offset + start

    def push_raw(self, lane, raw, bits):
        self.emit_if(lane, self.states[lane] >= 1 << (31 - bits))
        self.states[lane] = self.states[lane] << bits | raw

    def push_escape(self, lane, model, byte):
        if model.escape_starts is None:
            self.push_raw(lane, byte, min(model.type.width, 8))
        else:
            self.push_interval(lane, model.escape_starts[byte], model.escape_freqs[byte])

    def encode_step(self, predictions, codes):
        """A decode step backwards: its parts last to first, in each the lanes from the highest."""
        intervals = [prediction.interval(code) for prediction, code in zip(predictions, codes)]
        descending = range(len(codes) - 1, -1, -1)
        model = predictions[0].model
        if model.type.width == 16:
            for lane in descending:
                if intervals[lane] is None:
                    self.push_raw(lane, codes[lane] & 255, 8)
        for lane in descending:
            code = codes[lane]
            if intervals[lane] is None:
                self.push_escape(lane, model, code >> max(model.type.width - 8, 0))
            else:
                bits = predictions[lane].group_bits
                self.push_raw(lane, code & ((1 << bits) - 1), bits)
        for lane in descending:
            self.push_interval(lane, *(intervals[lane] or (0, model.shape.escape_slots)))

    def finish(self):
        """The states and all words in decode order."""
        return self.states, self.emitted[::-1]


def encode_coded(case, row_nibbles, lanes_type=ReversedLanes):
    """(states, words) of the coded form."""
    nibbles = case.scalar_nibbles(row_nibbles)
    lanes = lanes_type(case)
    for first in reversed(range(0, case.count, case.lanes)):
        step = range(first, min(first + case.lanes, case.count))
        predictions = [case.predict(i, nibbles[i]) for i in step]
        lanes.encode_step(predictions, [case.codes[i] for i in step])
    return lanes.finish()


def padded(data):
    return data + bytes(-len(data) % 4)


def encode_block(case, flags, row_nibbles, lanes_type=ReversedLanes, window=None):
    """The block's bytes; `flags` are those wanted, a mode drops what it does not carry. `window`
    of the row steps: the smallest where none is given."""
    check = rm.two_sum_check(case.codes, case.lanes) if flags & rm.flag_content else 0

    def finish(mode, payload_words, body, nibbles=None):
        carried = flags & (rm.flag_content | rm.flag_fingerprint)
        extras = b""
        rows = 0
        if flags & rm.flag_fingerprint:
            extras += struct.pack("<Q", case.fingerprint)
        if flags & rm.flag_parameters and mode in (rm.mode_coded, rm.mode_predicted):
            carried |= rm.flag_parameters
            extras += struct.pack("<I", case.parameter_hash(nibbles))
        if nibbles is not None:
            carried |= rm.flag_rows
            lowest, bits = window or rm.fewest_row_bits(nibbles)
            extras += padded(rm.pack_rows(nibbles, (lowest, bits)))
            rows = lowest | bits << 4
        header = struct.pack(
            "<BBBBIII",
            rm.format_version,
            case.type.id | case.coder << 4,
            rm.pack_how(mode, case.lanes, carried),
            rows,
            case.count,
            payload_words,
            check,
        )
        return header + extras + padded(body)

    raw_body = case.pack(case.codes)
    raw = finish(rm.mode_raw, (len(raw_body) + 1) // 2, raw_body)
    if case.count == 0:
        return raw
    if case.model is not None and case.codes == case.predicted_codes():
        return finish(rm.mode_predicted, 0, b"")
    if len(set(case.codes)) == 1:
        return finish(rm.mode_constant, 1, struct.pack("<H", case.codes[0]))
    if case.model is None:
        return raw
    states, words = encode_coded(case, row_nibbles, lanes_type)
    body = struct.pack(f"<{len(states)}I", *states) + struct.pack(f"<{len(words)}H", *words)
    coded = finish(rm.mode_coded, len(words), body, row_nibbles)
    return raw if len(coded) + len(raw_body) // 64 > len(raw) else coded


def stored_choices(case):
    """(flags, row nibbles, their window) that the case's own block was written with."""
    require(len(case.block) >= rm.header_bytes, "the block is shorter than its header")
    flags = stored = rm.unpack_how(case.block[2])[2]
    if case.wanted_flags is not None:
        flags = case.wanted_flags
    if case.row_nibbles is not None or not stored & rm.flag_rows:
        return flags, case.row_nibbles, None
    first = rm.header_bytes
    first += 8 if stored & rm.flag_fingerprint else 0
    first += 4 if stored & rm.flag_parameters else 0
    window = rm.stored_window(case.block[3])
    size = rm.row_bytes(case.tokens, window)
    require(len(case.block) >= first + size, "the block is too short")
    packed = case.block[first : first + size]
    return flags, rm.unpack_rows(packed, case.tokens, window), window


def check_case(case, lanes_type=ReversedLanes):
    flags, row_nibbles, window = stored_choices(case)
    has_fingerprint = bool(flags & rm.flag_fingerprint)
    require(has_fingerprint == (case.fingerprint is not None), "fingerprint flag differs")
    block = encode_block(case, flags, row_nibbles, lanes_type, window)
    mode = rm.mode_names[rm.unpack_how(block[2])[0]]
    if block != case.block:
        sizes = f"{len(block)} bytes for {len(case.block)}"
        pairs = list(zip(block, case.block))
        first = next((i for i, (x, y) in enumerate(pairs) if x != y), len(pairs))
        raise FormatError(f"the block differs from byte {first} on ({mode}, {sizes})")
    return f"{mode}, {case.count} scalars, {len(block)} bytes"


# --- self-test: the model ---------------------------------------------------------------------


def expect(condition, what):
    """A failed self-test is no FormatError, which a case may raise for good reason."""
    if not condition:
        raise AssertionError(what)


def exact(bits):
    m, e = rm.f32_value(bits)
    return m * Fraction(2) ** e


def random_f32(rng, low, high):
    """A float of either sign with its exponent field in low..high."""
    field = rng.randint(max(low, 0), min(high, 254))
    return rng.getrandbits(1) << 31 | field << 23 | rng.getrandbits(23)


def test_multiply_add(rng):
    """The rounded result is at least as near as both its neighbours, and even when it ties."""
    for _ in range(4000):
        x, y = random_f32(rng, 40, 150), random_f32(rng, 60, 150)
        near = rm.multiply_add_bits(x, y, rm.f32_sign)
        z = rng.choice([random_f32(rng, 0, 180), near ^ rm.f32_sign, near ^ rng.getrandbits(3)])
        result = rm.multiply_add_bits(x, y, z)
        value = exact(x) * exact(y) + exact(z)
        expect((value < 0) == (result >> 31 == 1) or value == 0, "fma has the wrong sign")
        magnitude, error = result & 0x7FFFFFFF, abs(exact(result) - value)
        for neighbour in {max(magnitude - 1, 0), magnitude + 1} - {magnitude}:
            other = abs(exact(neighbour | result & rm.f32_sign) - value)
            expect(error < other or (error == other and result & 1 == 0), "fma is not nearest")
    one, inf, nan = rm.f32_one, 0x7F800000, rm.f32_quiet_nan
    minus = rm.f32_sign
    for x, y, z, result in [
        (0, one, minus, 0),
        (minus, one, minus, minus),
        (minus, one, 0, 0),
        (one, one, one | minus, 0),
        (inf, 0, one, nan),
        (inf, one, inf | minus, nan),
        (inf, one | minus, minus, inf | minus),
        (one, one, inf | minus, inf | minus),
        (0x7F000000, 0x40000000, 0, inf),
        (0x7FFFFFFF, one, one, nan),
        (0x00800000 | minus, 0x00800000, minus, minus),
        (0x00800000 | minus, 0x00800000, 0, minus),
    ]:
        expect(rm.multiply_add_bits(x, y, z) == result, "a special case of fma")


def code_value(t, mag):
    p = t.mantissa_bits
    field, fraction = mag >> p, mag & ((1 << p) - 1)
    m = fraction | (1 << p if field else 0)
    return m * Fraction(2) ** (max(field, 1) - t.bias - p)


def test_codes(rng):
    """Edges are midpoints that fp32 holds; code_of_mu gives the nearest code, ties to even."""
    for name, t in rm.scalar_types.items():
        if t.mantissa_bits is None:
            continue
        model = rm.Model(t, rm.shapes["gaussian"], -8)
        mags = range(1, t.largest + 1)
        for mag in mags if t.width == 8 else rng.sample(mags, 2000):
            m, e = model.edge(mag)
            edge = m * Fraction(2) ** e
            low, high = code_value(t, mag - 1), code_value(t, mag)
            expect(2 * edge == low + high, f"{name}: an edge is no midpoint")
            bits = rm.f32_bits(*rm.round_to_f32(m, e))
            expect(exact(bits) == edge, f"{name}: an edge is no float")
            if name == "bf16":
                expect(bits == (mag - 1) << 16 | 0x8000, "a bf16 edge has other bits")
            if rm.f32_field(bits) <= 1:
                continue
            # The edge itself is a tie; one step of fp32 to either side it is none.
            even = mag if mag % 2 == 0 else mag - 1
            for mu, code in [(bits - 1, mag - 1), (bits, even), (bits + 1, mag)]:
                if rm.f32_field(mu) > 1:
                    expect(rm.code_of_mu(t, mu) == code, f"{name}: mu rounds to another code")
    for name, mu, code in [
        ("e4m3fn", 0x43E80000, 0x7E),
        ("e4m3fn", 0xFF800000, 0xFE),
        ("e4m3fn", 0x7FC00000, 0x7F),
        ("e4m3fn", 0x80000000, 0x80),
        ("e5m2", 0x476FFFFF, 0x7B),
        ("e5m2", 0x47700000, 0x7C),
        ("e5m2", 0x7FC00000, 0x7E),
        ("e4m3fnuz", 0xC3800000, 0xFF),
        ("e4m3fnuz", 0xB0000000, 0x00),
        ("e4m3fnuz", 0x7FC00000, 0x80),
        ("e5m2fnuz", 0x7F800000, 0x7F),
        ("bf16", 0x7F7F8000, 0x7F80),
        ("bf16", 0x3F808000, 0x3F80),
        ("bf16", 0x3F818000, 0x3F82),
        ("fp16", 0x477FF000, 0x7C00),
        ("fp16", 0xC77FEFFF, 0xFBFF),
    ]:
        expect(rm.code_of_mu(rm.scalar_types[name], mu) == code, f"{name}: code of {mu:#x}")


def test_cdf():
    """C rises over all z, and freq follows the area under the curve; sigma's exponent is right."""
    for name, shape in rm.shapes.items():
        model = rm.Model(rm.scalar_types["bf16"], shape, -8, test_marginal(name))
        values = [model.cdf(z) for z in range(-32768, 32768)]
        expect(values == sorted(values), f"{name}: C decreases")
        expect(values[0] == shape.escape_slots, f"{name}: C starts elsewhere")
        expect(rm.total - 2 <= values[-1] <= rm.total, f"{name}: C ends elsewhere")
    for name, shape in rm.shapes.items():
        model = rm.Model(rm.scalar_types["bf16"], shape, -8, test_marginal(name))
        warned = 0
        for k in range(8):
            for nibble in range(16):
                scale = model.scale(k, nibble)
                field = rm.f32_field(rm.f32_bits(*scale.slope))
                warned += scale.exponent_field != 267 - field
                eighths = 8 * model.offset + k + 2 * (nibble - 6)
                off = scale.exponent_field - (127 + eighths // 8)
                # A row scale that lands on a power of two may round to just below it.
                expect(off == 0 or (off == -1 and eighths % 8 == 0), "sigma's exponent is off")
        # The format says of how many pairs the formula that it warns of is wrong.
        expect(warned == 116 or name != "gaussian", "the warned formula is wrong elsewhere")
    # mu 1.25, sigma 2^-2 (k = 8 * (8 - 2)): code 1.25 of e4m3fn is 1.1875..1.3125, +-1/4 sigma,
    # of area 0.1974.
    model = rm.Model(rm.scalar_types["e4m3fn"], rm.shapes["gaussian"], -8)
    start, freq = model.predict(0x3FA00000, 48, 6).interval(0x3A)
    expect(abs(freq - 0.1974 * 32736) < 30, "a frequency far from its area")
    expect(abs(2 * start + freq - 32 - rm.total) <= 2, "the code at mu is not in the middle")
    # sigma 2^8 at mu 0: the outermost finite codes own all beyond 432, 27/16 of sigma,
    # which lies a quarter of the way from base[9] = 1310 to base[10] = 2186.
    prediction = model.predict(0, 128, 6)
    for code, end in ((0x7E, rm.total - 1), (0xFE, 32)):
        start, freq = prediction.interval(code)
        expect(end in (start, start + freq), "an outermost code does not reach the end")
        expect(abs(freq - 1529) <= 1, "an outermost code has another frequency")
    expect(prediction.interval(0x7F) is None, "a NaN has slots")


def test_checks():
    """The two sums worked out by hand: one value, two values in a lane, two lanes."""
    m0, m1 = 0x9E3779B1, 3 * 0x9E3779B1
    for values, lanes, check in [
        ([], 8, 0),
        ([0x12345678], 1, 0x68AC68AC * m0),
        ([1, 2], 1, 0x00040003 * m0),
        ([1, 2, 0xFFFFFFFF], 8, 0x00010001 * m0 + 0x00020002 * m1 + 0xFFFFFFFE * 5 * m0),
    ]:
        expect(rm.two_sum_check(values, lanes) == check & rm.mask32, "a content check")
    word = 0x3F800000 ^ (0x9E3779B1 * (1 + 7 + 256 * 6)) & rm.mask32
    hashed = rm.parameter_hash([0x3F800000], [7], [6], 1)
    expect(hashed == rm.two_sum_check([word], 1), "a parameter hash")


def test_groups():
    """A group spans an eighth of sigma's power of two, where the type allows it; far is exact."""
    for name in ("bf16", "fp16"):
        t = rm.scalar_types[name]
        p = t.mantissa_bits
        model = rm.Model(t, rm.shapes["mixture"], -20)
        for k in range(0, 255, 5):
            es = model.scale(k, 6).exponent_field
            for field in range(es - 2, es + 18):
                prediction = model.predict(field << 23, k, 6)
                expect(prediction.far == (field >= es + 16), f"{name}: far begins elsewhere")
                g = prediction.group_bits
                if 0 < g < p - 3:
                    mag = max(field, es, 128 - t.bias) - 127 + t.bias << p
                    width = code_value(t, mag + (1 << g)) - code_value(t, mag)
                    expect(8 * width == Fraction(2) ** (es - 127), f"{name}: a group's width")
        limits = {model.predict(rm.f32_one, k, 6).group_bits for k in range(20, 255)}
        expect(limits == set(range(p - 2)), f"{name}: group bits do not take all values")


def test_tiling(rng):
    """The groups' intervals tile the slots and find() is their inverse, type by type."""
    for name, t in rm.scalar_types.items():
        if t.mantissa_bits is None:
            continue
        for shape_name, shape in rm.shapes.items():
            for _ in range(6 if t.width == 8 else 1):
                model = rm.Model(t, shape, random_offset(rng, t), test_marginal(shape_name))
                k, nibble = rng.randrange(255), rng.randrange(16)
                field = 127 + model.offset + k // 8 + rng.randint(-2, 6)
                prediction = model.predict(rm.clean_mu(random_f32(rng, field, field)), k, nibble)
                starts = {}
                size = 1 << prediction.group_bits
                for code in range(0, 1 << t.width, size):
                    interval = prediction.interval(code)
                    if interval:
                        starts[interval[0]] = (code, interval[1])
                position = shape.escape_slots
                for start in sorted(starts):
                    code, freq = starts[start]
                    expect(start == position, f"{name}: intervals leave a gap or overlap")
                    for slot in (start, start + freq - 1):
                        expect(prediction.find(slot) == (code, start, freq), f"{name}: find")
                    position = start + freq
                for slot in {position, rm.total - 1} - {rm.total}:
                    if slot >= position:
                        expect(raises(lambda s=slot: prediction.find(s)), f"{name}: no owner")


def raises(call):
    try:
        call()
    except FormatError:
        return True
    return False


# --- self-test: cases -------------------------------------------------------------------------


def test_marginal(shape_name):
    """A skewed table for the shape that has one: byte 0 and the low bytes are common."""
    if shape_name != "mixture_marginal":
        return None
    freqs = [1 + 20000 // (3 + byte) // 8 for byte in range(256)]
    freqs[0] += rm.total - sum(freqs)
    return freqs


def random_offset(rng, t):
    """A sigma offset whose grid overlaps the type's range; bf16 has all of them."""
    if t.mantissa_bits == 7:
        return rng.randint(-80, 68)
    return rng.randint(-20, -6)


def random_k(rng, model):
    """A sigma index; for small types mostly one whose sigma lies within the type's range."""
    return rng.randrange(255) if model.type.width == 16 else rng.randrange(20, 170)


def model_mu(rng, model, k, affine):
    """mu within some deviations of sizes that occur; coarse steps so that codes and edges tie."""
    if affine:
        return random_f32(rng, 120, 130)
    field = 127 + model.offset + k // 8 + rng.randint(-3, 6)
    mu = random_f32(rng, field, field)
    return mu & 0xFFFF0000 if rng.random() < 0.2 else mu


def special_mu(rng):
    nan = rng.getrandbits(1) << 31 | 0x7F800001 + rng.getrandbits(20)
    small = [0, 0x80000000, 0x00400000, 0x80000001, 0x00C00000]
    large = [nan, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7FFFFF, random_f32(rng, 254, 254)]
    return rng.choice(small + large + [random_f32(rng, 0, 254)])


def drawn_code(rng, prediction):
    """A code drawn from the prediction itself: the owner of a random slot."""
    width = prediction.model.type.width
    try:
        hit = prediction.find(rng.randrange(rm.total))
    except FormatError:
        hit = None
    if hit is None:
        return rng.getrandbits(width)
    return hit[0] | rng.getrandbits(prediction.group_bits)


def beside_code(rng, model, mu, k):
    """A code about 4 deviations from mu, where frequencies run out."""
    field = 127 + model.offset + k // 8 + 2
    away = rng.getrandbits(1) << 31 | field << 23 | rng.getrandbits(21)
    edge = rm.multiply_add_bits(away, rm.f32_one, mu)
    return rm.code_of_mu(model.type, edge)


def hex_list(values, digits):
    return "".join(f"{value:0{digits}x}" for value in values)


def case_text(fields, block=b""):
    return "".join(f"{key} {value}\n" for key, value in {**fields, "block": block.hex()}.items())


def parse_case(text):
    (fields,) = rm.parse_cases(text)
    return rm.Case(fields)


def random_rows(rng, steps, tokens):
    """Row nibbles in a window of any number of bits, some of them from `steps`."""
    size = 1 << rng.choice(rm.row_counts)
    lowest = rng.randrange(17 - size)
    return [min(max(rng.choice(steps), lowest), lowest + size - 1) for _ in range(tokens)]


def random_case(rng, name, dtype, shape_name, lanes, style):
    """(fields without block, flags, row nibbles) of one case in one of the styles below."""
    t = rm.scalar_types[dtype]
    width = t.width
    marginal = test_marginal(shape_name) if t.mantissa_bits is not None else None
    heads, tokens, dim = rng.randint(1, 3), rng.randint(1, 7), rng.choice([1, 5, 8, 13, 16])
    if style == "empty":
        tokens = 0
    if style == "coded":
        # Enough scalars that the states do not make raw the better mode.
        tokens = max(tokens, 320 * lanes // (width * heads * dim) + 1)
    count = heads * tokens * dim
    fields = {
        "name": name,
        "dtype": dtype,
        "shape": shape_name,
        "offset": random_offset(rng, t) if t.mantissa_bits is not None else -8,
        "box": f"{heads} {tokens} {dim}",
        "lanes": lanes,
    }
    flags = rng.getrandbits(1) * rm.flag_parameters
    flags |= rng.getrandbits(1) * rm.flag_content | rng.getrandbits(1) * rm.flag_fingerprint
    if flags & rm.flag_fingerprint:
        fields["fingerprint"] = f"{rng.getrandbits(64):016x}"
    if t.mantissa_bits is None:
        flags &= ~rm.flag_parameters
        codes = [rng.getrandbits(8) for _ in range(count)]
        fields["codes"] = hex_list(codes[:1] * count if style == "constant" else codes, 2)
        return fields, flags, None
    if marginal:
        fields["marginal"] = hex_list(marginal, 4)
    row_nibbles = random_rows(rng, range(16), tokens) if rng.getrandbits(1) else None
    model = rm.Model(t, rm.shapes[shape_name], fields["offset"], marginal)
    affine = rng.random() < 0.4
    channels = heads * dim
    a, b = [rm.f32_one] * channels, [rm.f32_sign] * channels
    if affine:
        size = 127 + model.offset + 12
        a = [rng.choice([0, 0x80000000, random_f32(rng, size, size + 3)]) for _ in a]
        b = [rng.choice([0, 0x80000000, random_f32(rng, size, size + 3)]) for _ in b]
        fields["affine_a"], fields["affine_b"] = hex_list(a, 8), hex_list(b, 8)
    mus, sigmas, codes = [], [], []
    odd = {"coded": 0.06, "wild": 0.9}.get(style, 0.3)
    for i in range(count):
        k = random_k(rng, model) if rng.random() < 0.9 else rng.choice([0, 254])
        mu = model_mu(rng, model, k, affine)
        if rng.random() < odd:
            mu = special_mu(rng)
        if rng.random() < odd:
            k = rm.sigma_zero
        channel = i // (tokens * dim) * dim + i % dim
        clean = rm.clean_mu(mu, a[channel], b[channel])
        nibble = row_nibbles[i // dim % tokens] if row_nibbles else 6
        prediction = model.predict(clean, k, nibble)
        choice = rng.random()
        if style == "predicted":
            code = rm.code_of_mu(t, clean)
        elif choice < odd / 3:
            code = rng.getrandbits(width)
        elif choice < odd / 2 and k != rm.sigma_zero:
            code = beside_code(rng, model, clean, k)
        else:
            code = drawn_code(rng, prediction)
        mus.append(mu)
        sigmas.append(k)
        codes.append(code)
    if style == "constant":
        codes = [codes[0]] * count
    fields["mu"], fields["sigma"] = hex_list(mus, 8), hex_list(sigmas, 2)
    fields["codes"] = hex_list(codes, width // 4)
    return fields, flags, row_nibbles


def all_codes_case(dtype, shape_name, far):
    """Every code of a type once, under one wide prediction or under a far one."""
    t = rm.scalar_types[dtype]
    count = 1 << t.width
    fields = {
        "name": f"{dtype}_{shape_name}_all_codes_{'far' if far else 'wide'}",
        "dtype": dtype,
        "shape": shape_name,
        "offset": -8,
        "box": f"1 {count // 64} 64",
        "lanes": 32,
        "mu": hex_list([0x3E99999A], 8) * count,
        "sigma": ("ff" if far else "64") * count,
        "codes": hex_list(range(count), t.width // 4),
    }
    if test_marginal(shape_name):
        fields["marginal"] = hex_list(test_marginal(shape_name), 4)
    return fields, rm.flag_content, None


def coded_round_trip(case, row_nibbles, lanes_types=(ReversedLanes, decoder.Lanes)):
    """The coded form decodes to the codes whether or not it would be chosen.

    Returns how many scalars escape and how many steps have escaped and coded lanes.
    """
    encoding, decoding = lanes_types
    lanes = decoding(*encode_coded(case, row_nibbles, encoding), case)
    nibbles = case.scalar_nibbles(row_nibbles)
    escapes = mixed_steps = far = 0
    for first in range(0, case.count, case.lanes):
        step = range(first, min(first + case.lanes, case.count))
        predictions = [case.predict(i, nibbles[i]) for i in step]
        codes = [case.codes[i] for i in step]
        expect(
            lanes.decode_step(predictions) == codes,
            f"{case.name}: the coded form decodes to other codes",
        )
        escaped = sum(p.escapes(code) for p, code in zip(predictions, codes))
        escapes += escaped
        mixed_steps += 0 < escaped < len(codes)
        far += sum(p.far and not p.escapes(c) for p, c in zip(predictions, codes))
    lanes.finish()
    return {"escapes": escapes, "steps with some lanes escaped": mixed_steps, "far": far}


def decodes(case, block, lanes_type):
    """The codes of another block under the case's predictions; None where it is refused."""
    damaged = copy.copy(case)
    damaged.block = bytes(block)
    try:
        return decoder.decode_block(damaged, lanes_type)[1]
    except FormatError:
        return None


def test_damage(rng, case, header, lanes_type=decoder.Lanes):
    """A flipped bit is an error, or it changes nothing that the codes depend on."""
    block = case.block

    def decoded(damaged):
        return decodes(case, damaged, lanes_type)

    if header.flags & rm.flag_content:
        for _ in range(2):
            position = rng.randrange(8 * len(block))
            damaged = bytearray(block)
            damaged[position // 8] ^= 1 << position % 8
            expect(decoded(damaged) in (None, case.codes), f"{case.name}: damage passed")
    expect(decoded(block[:-4]) is None, f"{case.name}: a short block passed")
    expect(decoded(block + bytes(4)) is None, f"{case.name}: a long block passed")
    padding = [len(block) - 1] if header.payload_words % 2 else []
    if header.flags & rm.flag_rows and rm.row_bytes(case.tokens, header.row_window) % 4:
        flags = header.flags
        first = 16 + 8 * bool(flags & rm.flag_fingerprint) + 4 * bool(flags & rm.flag_parameters)
        padding.append(first + rm.row_bytes(case.tokens, header.row_window))
    for position in padding:
        damaged = bytearray(block)
        damaged[position] = 1
        expect(decoded(damaged) is None, f"{case.name}: a padding byte passed")


def test_mode_limit(rng):
    """256 bytes are raw from a coded size of 272 on: 16 + 256 less a 64th of 256."""
    fields, _, _ = all_codes_case("e4m3fn", "gaussian", True)
    sizes = set()
    for escaped in range(80, 130):
        codes = [0x2A] * (256 - escaped) + [rng.getrandbits(8) for _ in range(escaped)]
        fields["codes"], fields["lanes"] = hex_list(codes, 2), 8
        case = parse_case(case_text(fields))
        size = 16 + 4 * 8 + (2 * len(encode_coded(case, None)[1]) + 3) // 4 * 4
        mode = rm.unpack_how(encode_block(case, 0, None)[2])[0]
        expect(mode == (rm.mode_raw if size >= 272 else rm.mode_coded), "the limit of raw")
        sizes.add(size)
    expect({268, 272} <= sizes, "no case at the limit of raw")


def self_test():
    rng = random.Random(20260)
    test_multiply_add(rng)
    test_codes(rng)
    test_cdf()
    test_checks()
    test_groups()
    test_tiling(rng)
    test_mode_limit(rng)
    print("model: passed")

    made = []
    styles = ["coded", "coded", "mixed", "wild", "predicted", "constant", "empty"]
    for dtype in rm.scalar_types:
        for shape_name in rm.shapes:
            for lanes in rm.lane_counts:
                for n, style in enumerate(styles):
                    name = f"{dtype}_{shape_name}_{lanes}_{style}_{n}"
                    made.append(random_case(rng, name, dtype, shape_name, lanes, style))
    for far in (False, True):
        made += [all_codes_case(dtype, "mixture", far) for dtype in ("e4m3fn", "e5m2fnuz")]
        made.append(all_codes_case("e4m3fnuz", "mixture_marginal", far))
    # The 16-bit ones are raw as blocks, so only their coded form is of interest.
    for arguments in [("bf16", "gaussian", False), ("fp16", "mixture_marginal", False)]:
        coded_round_trip(parse_case(case_text(all_codes_case(*arguments)[0])), None)

    counts = {}
    for fields, flags, row_nibbles in made:
        case = parse_case(case_text(fields))
        if case.model is not None:
            for key, n in coded_round_trip(case, row_nibbles).items():
                counts[key] = counts.get(key, 0) + n
        block = encode_block(case, flags, row_nibbles)
        if rm.unpack_how(block[2])[0] == rm.mode_raw:
            fields["flags"] = f"{flags:x}"
            if row_nibbles is not None:
                fields["rows"] = hex_list(row_nibbles, 1)
        case = parse_case(case_text(fields, block))
        decoder.check_case(case)
        check_case(case)
        header = decoder.Header(case)
        kinds = [rm.mode_names[header.mode] + " blocks", f"flags {header.flags:04b}"]
        if header.row_window is not None:
            kinds.append(f"row steps of {header.row_window[1]} bits")
        for key in kinds:
            counts[key] = counts.get(key, 0) + 1
        test_damage(rng, case, header)
    for key in sorted(counts):
        print(f"{counts[key]:7} {key}")
    # A generator that drifts must not let a part of the format go untested.
    expect(all(f"{name} blocks" in counts for name in rm.mode_names), "a mode never occurred")
    expect(all(f"row steps of {bits} bits" in counts for bits in rm.row_counts), "row steps")
    expect(all(f"flags {flags:04b}" in counts for flags in range(16)), "flags never occurred")
    expect(min(counts.values()) > 0, "a kind of scalar never occurred")
    print(f"{len(made)} cases: passed")


def main(arguments):
    if not arguments:
        print(__doc__.strip())
        return 2
    if arguments == ["--self-test"]:
        self_test()
        return 0
    return 1 if rm.run_cases(arguments, check_case) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
