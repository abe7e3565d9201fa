"""The model of the block format in exact integer arithmetic: from (mu, sigma index) to freq.

Written from the text of the format alone and shares no code with the library, so that an error
has to be made twice to pass. Values of floats are pairs (m, e) meaning m * 2^e; every operation
that the format rounds once is done exactly here and then rounded once to fp32, nearest even.
No Python float is used.
"""

from collections import namedtuple
from fractions import Fraction

precision_bits = 15
total = 1 << precision_bits
lower_bound = 1 << 15
far_sign_slots = 512
sigma_zero = 255

mode_coded, mode_raw, mode_constant, mode_predicted = range(4)
mode_names = ("coded", "raw", "constant", "predicted")
flag_rows, flag_content, flag_parameters, flag_fingerprint = 1, 2, 4, 8
header_bytes = 16
format_version = 0
coder_rans, coder_tans = 0, 1
lane_counts = (1, 8, 16, 32)
row_counts = (0, 1, 2, 3, 4)  # bits a row step may take

mask32 = 0xFFFFFFFF
golden_ratio = 0x9E3779B1
f32_sign = 0x80000000
f32_quiet_nan = 0x7FC00000
f32_one = 0x3F800000


class FormatError(Exception):
    """A case, a block or a constant that the format does not allow."""


def require(condition, message):
    if not condition:
        raise FormatError(message)


# --- fp32 as integers --------------------------------------------------------------------------


def round_shift(magnitude, shift):
    """magnitude / 2^shift to the nearest integer, ties to even; magnitude >= 0."""
    if shift <= 0:
        return magnitude << -shift
    quotient = magnitude >> shift
    rest = magnitude - (quotient << shift)
    half = 1 << (shift - 1)
    return quotient + (rest > half or (rest == half and quotient & 1))


def round_to_f32(value, exponent):
    """value * 2^exponent rounded once to 24 bits, subnormals kept, range not limited above."""
    magnitude = abs(value)
    e = max(magnitude.bit_length() + exponent - 24, -149)
    m = round_shift(magnitude, e - exponent)
    return (-m if value < 0 else m), e


def f32_field(bits):
    return (bits >> 23) & 0xFF


def f32_is_nan(bits):
    return (bits & 0x7FFFFFFF) > 0x7F800000


def f32_value(bits):
    """The finite float `bits` as (m, e)."""
    field, fraction = f32_field(bits), bits & 0x7FFFFF
    m = fraction | (0x800000 if field else 0)
    return (-m if bits & f32_sign else m), max(field, 1) - 150


def f32_bits(m, e, sign_of_zero=0):
    """Bits of m * 2^e as round_to_f32 returns it; overflow becomes an infinity."""
    magnitude = abs(m)
    sign = f32_sign if m < 0 or (m == 0 and sign_of_zero) else 0
    if magnitude == 1 << 24:
        magnitude, e = 1 << 23, e + 1
    if magnitude < 1 << 23:
        return sign | magnitude
    field = e + 150
    return sign | (0x7F800000 if field >= 255 else (field << 23) + magnitude - (1 << 23))


def multiply(x, y):
    """The fp32 product of two fp32 values (m, e), rounded once."""
    return round_to_f32(x[0] * y[0], x[1] + y[1])


def exact_multiply_add(x, y, z):
    """x * y + z of fp32 values (m, e), not rounded."""
    product, exponent = x[0] * y[0], x[1] + y[1]
    common = min(exponent, z[1])
    return (product << (exponent - common)) + (z[0] << (z[1] - common)), common


def multiply_add(x, y, z):
    """x * y + z of fp32 values (m, e), rounded once."""
    return round_to_f32(*exact_multiply_add(x, y, z))


def multiply_add_bits(x, y, z):
    """fma(x, y, z) on fp32 bits with the rules of IEEE 754 for infinities, NaN and zeros."""
    magnitude_x, magnitude_y, magnitude_z = (v & 0x7FFFFFFF for v in (x, y, z))
    infinity = 0x7F800000
    product_sign = (x ^ y) & f32_sign
    if max(magnitude_x, magnitude_y, magnitude_z) > infinity:
        return f32_quiet_nan
    if infinity in (magnitude_x, magnitude_y):
        if 0 in (magnitude_x, magnitude_y):
            return f32_quiet_nan
        if magnitude_z == infinity and (z & f32_sign) != product_sign:
            return f32_quiet_nan
        return product_sign | infinity
    if magnitude_z == infinity:
        return z
    value, exponent = exact_multiply_add(f32_value(x), f32_value(y), f32_value(z))
    # An exact zero is negative only as a sum of negative zeros; a sum that rounds to zero keeps
    # its sign.
    negative = value < 0 if value else product_sign & z & f32_sign
    return f32_bits(*round_to_f32(value, exponent), negative)


# --- constants of the format ------------------------------------------------------------------


def root_as_f32(value, degree):
    """fl32 of the `degree`-th root of a Fraction: an exact integer root, then one rounding."""
    s = 0
    while value * Fraction(2) ** (degree * s) < 2 ** (23 * degree):
        s += 1
    while value * Fraction(2) ** (degree * s) >= 2 ** (24 * degree):
        s -= 1
    # One more bit than fp32 has: the floor of twice the mantissa decides the rounding, because
    # the roots are irrational or powers of two and never ties.
    radicand = value * Fraction(2) ** (degree * (s + 1))
    low, high = 1 << 24, 1 << 25
    while high - low > 1:
        middle = (low + high) // 2
        if middle**degree <= radicand:
            low = middle
        else:
            high = middle
    return f32_bits(*round_to_f32((low + 1) >> 1, -s))


def gaussian_area(x, bits=400):
    """Integral of exp(-t^2 / 2) from 0 to x >= 0, times 2^bits, by its Taylor series.

    The factor 1 / sqrt(2 pi) cancels in every use, so the series is one of rationals.
    """
    square = x * x
    term = (x.numerator << bits) // x.denominator
    area, n = term, 0
    while term:
        n += 1
        term = term * square.numerator // (square.denominator * 2 * n)
        area += (-1) ** n * (term // (2 * n + 1))
    return area


def cdf_base(parts, radius, mass):
    """base[0..32] for the mixture `parts` of (weight, deviation), cut at +-radius deviations."""

    def area(z):
        magnitude = sum(w * gaussian_area(abs(z) / d) for w, d in parts)
        return -magnitude if z < 0 else magnitude

    full = area(Fraction(radius))
    base = []
    for q in range(33):
        share = mass * (full + area(Fraction(radius * (q - 16), 16))) / (2 * full)
        # round() of a Fraction is exact, ties to even; only q = 16 of an odd mass is a tie.
        base.append(round(share))
    return base


def shape_cdf(shape, z):
    """G at the integer z."""
    q, low = (z + 32768) >> 11, (z + 32768) & 2047
    return shape.base[q] + ((low * (shape.base[q + 1] - shape.base[q])) >> 11)


def round_to_z(m, e):
    """m * 2^e as an integer of 16 bits. The limits are integers, so clamping comes last."""
    z = round_shift(abs(m), -e)
    return min(max(-z if m < 0 else z, -32768), 32767)


slope_mantissas_4 = [
    0x46000000, 0x45EAC0C7, 0x45D744FD, 0x45C5672A, 0x45B504F3, 0x45A5FED7, 0x459837F0, 0x458B95C2,
]
row_multiplier_literals = [
    0x403504F3, 0x401837F0, 0x40000000, 0x3FD744FD, 0x3FB504F3, 0x3F9837F0, 0x3F800000, 0x3F5744FD,
    0x3F3504F3, 0x3F1837F0, 0x3F000000, 0x3ED744FD, 0x3EB504F3, 0x3E9837F0, 0x3E800000, 0x3E5744FD,
]
gaussian_base_literals = [
    0, 2, 7, 18, 43, 97, 202, 399, 744, 1310, 2186, 3458, 5193, 7418, 10100, 13137, 16368, 19599,
    22636, 25318, 27543, 29278, 30550, 31426, 31992, 32337, 32534, 32639, 32693, 32718, 32729,
    32734, 32736,
]
mixture_base_literals = [
    0, 2, 5, 10, 18, 30, 50, 84, 149, 288, 591, 1228, 2447, 4520, 7626, 11700, 16368,
]
mixture_base_literals += [32736 - b for b in reversed(mixture_base_literals[:16])]

Shape = namedtuple("Shape", "id radius escape_slots base slopes")


def make_shape(identity, radius, escape_slots, parts):
    slopes = [root_as_f32(Fraction(1 << 15, radius) ** 8 / 2**i, 8) for i in range(8)]
    base = cdf_base(parts, radius, total - escape_slots)
    require(base[0] == 0 and base[32] == total - escape_slots, "base does not reach the total")
    require(base == sorted(base), "base decreases")
    return Shape(identity, radius, escape_slots, base, slopes)


percent = Fraction(1, 100)
shapes = {
    "gaussian": make_shape(0, 4, 32, [(1, 1)]),
    "mixture": make_shape(1, 6, 32, [(95 * percent, 1), (5 * percent, 2)]),
    "mixture_marginal": make_shape(2, 6, 655, [(95 * percent, 1), (3 * percent, 3)]),
}
# Indexed by the row nibble, j + 6.
row_multipliers = [root_as_f32(Fraction(2) ** -j, 4) for j in range(-6, 10)]

require(shapes["gaussian"].slopes == slope_mantissas_4, "slope mantissas differ from the literals")
require(row_multipliers == row_multiplier_literals, "row multipliers differ from the literals")
require(shapes["gaussian"].base == gaussian_base_literals, "gaussian base differs")
require(shapes["mixture"].base == mixture_base_literals, "mixture base differs")


# --- scalar types -----------------------------------------------------------------------------

ScalarType = namedtuple(
    "ScalarType", "id width mantissa_bits bias largest quiet_nan infinity negative_zero"
)
scalar_types = {
    "e4m3fn": ScalarType(0, 8, 3, 7, 0x7E, 0x7F, None, True),
    "e5m2": ScalarType(1, 8, 2, 15, 0x7B, 0x7E, 0x7C, True),
    "e4m3fnuz": ScalarType(2, 8, 3, 8, 0x7F, 0x80, None, False),
    "e5m2fnuz": ScalarType(3, 8, 2, 16, 0x7F, 0x80, None, False),
    "bf16": ScalarType(4, 16, 7, 127, 0x7F7F, 0x7FC0, 0x7F80, True),
    "fp16": ScalarType(5, 16, 10, 15, 0x7BFF, 0x7E00, 0x7C00, True),
    # Bytes without a model: only raw and constant blocks exist.
    "raw8": ScalarType(6, 8, None, None, None, None, None, None),
}


def clean_mu(mu, a=f32_one, b=f32_sign):
    """mu' from fp32 bits: small values are zeros of their sign, all NaN are one NaN."""
    for name, value in (("a", a), ("b", b)):
        zero = value & 0x7FFFFFFF == 0
        require(zero or 1 <= f32_field(value) <= 254, f"affine {name} is neither zero nor normal")
    if f32_field(mu) == 0:
        mu &= f32_sign
    mu = multiply_add_bits(mu, a, b)
    if f32_is_nan(mu):
        return f32_quiet_nan
    return mu & f32_sign if f32_field(mu) <= 1 else mu


def code_of_mu(scalar_type, mu):
    """The code nearest to mu', ties to even."""
    t = scalar_type
    sign = 1 << (t.width - 1) if mu & f32_sign else 0
    if f32_is_nan(mu):
        return t.quiet_nan
    if f32_field(mu) == 255:
        mag = t.largest + 1
    else:
        m, e = f32_value(mu)
        exponent = max(f32_field(mu) - 127, 1 - t.bias)
        # Counted from 1, the exponent field plus a mantissa with its leading one is the code.
        steps = round_shift(abs(m), exponent - t.mantissa_bits - e)
        mag = ((exponent + t.bias - 1) << t.mantissa_bits) + steps
    if mag > t.largest:
        mag = t.largest if t.infinity is None else t.infinity
    return sign | mag if mag or t.negative_zero else 0


# --- the integer CDF of one scalar ------------------------------------------------------------

Scale = namedtuple("Scale", "slope exponent_field mag_limit")


class Model:
    """What is common to all scalars of a block; makes a Prediction for each."""

    def __init__(self, scalar_type, shape, offset, marginal=None):
        require(scalar_type.mantissa_bits is not None, "this scalar type has no model")
        require(-80 <= offset and 8 * offset + 254 <= 800, "sigma offset outside the domain")
        self.type = scalar_type
        self.shape = shape
        self.offset = offset
        self.escape_starts = None
        if shape.id == 2:
            require(marginal is not None, "shape mixture_marginal without a marginal")
            require(len(marginal) == 256 and sum(marginal) == total, "marginal total is wrong")
            require(min(marginal) >= 1, "marginal frequency 0")
            self.escape_freqs = marginal
            self.escape_starts = [sum(marginal[:i]) for i in range(257)]
        else:
            require(marginal is None, "a marginal for a shape that has none")
        self.scales = {}
        self.edges = {}
        self.predictions = {}

    def slope_bits(self, k):
        """A: the slope before row scale."""
        return self.shape.slopes[k % 8] - ((self.offset + k // 8) << 23)

    def scale(self, k, nibble, unit=f32_one):
        """A', the exponent field of the scaled sigma, and the first mag that always escapes.

        Codes that stand for values by a scale, `unit`, are predicted in code units.
        """
        key = (k, nibble, unit)
        if key not in self.scales:
            a = f32_value(self.slope_bits(k))
            multiplier = multiply(f32_value(row_multipliers[nibble]), f32_value(unit))
            slope = multiply(a, multiplier)
            es = (f32_one + self.shape.slopes[0] - f32_bits(*slope)) >> 23
            t = self.type
            first = min(max(es + 17 - 127 + t.bias, 1), 1 << (t.width - 1 - t.mantissa_bits))
            self.scales[key] = Scale(slope, es, first << t.mantissa_bits)
        return self.scales[key]

    def edge(self, h):
        """Midpoint of the values of codes h - 1 and h, h >= 1, as (m, e).

        It is the code 2h - 1 of the type with one more mantissa bit, whatever h - 1 and h are.
        """
        if h not in self.edges:
            p = self.type.mantissa_bits + 1
            field, fraction = (2 * h - 1) >> p, (2 * h - 1) & ((1 << p) - 1)
            m = fraction | (1 << p if field else 0)
            self.edges[h] = (m, max(field, 1) - self.type.bias - p)
        return self.edges[h]

    def cdf(self, z):
        """C at the integer z."""
        return self.shape.escape_slots + shape_cdf(self.shape, z)

    def predict(self, mu, k, nibble):
        key = (mu, k, nibble)
        if key not in self.predictions:
            self.predictions[key] = Prediction(self, mu, k, nibble)
        return self.predictions[key]


class Prediction:
    """The integer distribution of one scalar, given mu' (clean bits), sigma index, row nibble.

    Groups are numbered in numeric order: n >= 0 holds the codes whose mag >> g is n, and
    -1 - n their negatives. Group n lies between the boundaries n and n + 1.
    """

    def __init__(self, model, mu, k, nibble, unit=f32_one):
        self.model = model
        t = model.type
        self.sign_bit = 1 << (t.width - 1)
        self.far = k == sigma_zero
        self.group_bits = 0
        if not self.far:
            scale = model.scale(k, nibble, unit)
            es = scale.exponent_field
            er = max(f32_field(mu), es)
            self.far = er >= es + 16
        if self.far:
            self.code = code_of_mu(t, mu)
            return
        er = max(er, 128 - t.bias)
        p = t.mantissa_bits
        self.group_bits = min(max(es - er + p - 3, 0), max(p - 3, 0))
        self.mag_limit = scale.mag_limit
        self.slope = scale.slope
        m, e = multiply(f32_value(mu), scale.slope)
        self.minus_center = (-m, e)
        self.boundaries = {}
        self.top = t.largest >> self.group_bits

    def boundary_z(self, n):
        """z of boundary n; the outermost groups reach to the ends."""
        if n > self.top:
            return 32767
        if n < -self.top:
            return -32768
        m, e = self.model.edge(abs(n) << self.group_bits) if n else (0, 0)
        return round_to_z(*multiply_add((-m if n < 0 else m, e), self.slope, self.minus_center))

    def boundary_cdf(self, n):
        if n not in self.boundaries:
            self.boundaries[n] = self.model.cdf(self.boundary_z(n))
        return self.boundaries[n]

    def interval(self, code):
        """(start, freq) of the code's group; None where the code has to escape."""
        if self.far:
            escape_slots = self.model.shape.escape_slots
            if code == self.code:
                return escape_slots, total - far_sign_slots - escape_slots
            if code == self.code ^ self.sign_bit:
                return total - far_sign_slots, far_sign_slots
            return None
        mag = code & (self.sign_bit - 1)
        if mag > self.model.type.largest:
            return None
        n = mag >> self.group_bits
        if code & self.sign_bit:
            n = -1 - n
        start = self.boundary_cdf(n)
        freq = self.boundary_cdf(n + 1) - start
        require(freq >= 0, "the CDF decreases")
        if mag >= self.mag_limit:
            require(freq == 0, "a code beyond the limit has slots")
        return (start, freq) if freq else None

    def escapes(self, code):
        return self.interval(code) is None

    def find(self, slot):
        """(code with its low group bits 0, start, freq) of the slot's owner; None for escape."""
        escape_slots = self.model.shape.escape_slots
        if slot < escape_slots:
            return None
        if self.far:
            other = slot >= total - far_sign_slots
            code = self.code ^ self.sign_bit if other else self.code
            return (code, *self.interval(code))
        # The last boundary at or below the slot; groups without slots are passed over.
        low, high = -1 - self.top, self.top + 1
        start, end = self.boundary_cdf(low), self.boundary_cdf(high)
        while high - low > 1:
            middle = (low + high) // 2
            c = self.boundary_cdf(middle)
            if c <= slot:
                low, start = middle, c
            else:
                high, end = middle, c
        require(start <= slot < end, "a slot that no code owns")
        mag = (low if low >= 0 else -1 - low) << self.group_bits
        return mag | (self.sign_bit if low < 0 else 0), start, end - start


# --- checks -----------------------------------------------------------------------------------


def two_sum_check(values, lanes):
    """The content check's form: two running sums per lane, folded with one factor per lane."""
    check = 0
    for lane in range(lanes):
        a = b = 0
        for value in values[lane::lanes]:
            a = (a + value) & mask32
            b = (b + a) & mask32
        rotated = ((b << 16) | (b >> 16)) & mask32
        check += (a + rotated) * (2 * lane + 1) * golden_ratio
    return check & mask32


def pack_how(mode, lanes, flags):
    """Byte 2 of a block."""
    return mode | lane_counts.index(lanes) << 2 | flags << 4


def unpack_how(how):
    return how & 3, lane_counts[how >> 2 & 3], how >> 4


def fewest_row_bits(row_nibbles):
    """(lowest, bits) of the window that an encoder takes for these."""
    highest = max(row_nibbles)
    bits = next(b for b in row_counts if max(0, highest - (1 << b) + 1) <= min(row_nibbles))
    return max(0, highest - (1 << bits) + 1), bits


def pack_rows(row_nibbles, window):
    lowest, bits = window
    value = sum((nibble - lowest) << bits * t for t, nibble in enumerate(row_nibbles))
    return value.to_bytes(row_bytes(len(row_nibbles), window), "little")


def row_bytes(tokens, window):
    """Without padding."""
    return (tokens * window[1] + 7) // 8


def unpack_rows(data, tokens, window):
    lowest, bits = window
    value = int.from_bytes(data, "little")
    require(value >> bits * tokens == 0, "a row step past the last token")
    return [lowest + (value >> bits * t & (1 << bits) - 1) for t in range(tokens)]


def stored_window(byte):
    """Byte 3 of a block with row steps."""
    lowest, bits = byte & 15, byte >> 4
    require(bits in row_counts and lowest + (1 << bits) <= 16, "no window of row steps")
    return lowest, bits


def parameter_hash(mus, sigmas, nibbles, lanes):
    """Over mu' as used, the sigma index and the row step of every scalar."""
    steps = (golden_ratio * (1 + k + 256 * nibble) for k, nibble in zip(sigmas, nibbles))
    return two_sum_check([mu ^ (step & mask32) for mu, step in zip(mus, steps)], lanes)


# --- golden case files ------------------------------------------------------------------------


def split_hex(text, digits):
    require(len(text) % digits == 0, "hex text of a broken length")
    return [int(text[i : i + digits], 16) for i in range(0, len(text), digits)]


class Case:
    """One golden case: predictions, codes and the block that they must give."""

    types = scalar_types
    coder = coder_rans

    def __init__(self, fields):
        def numbers(key):
            return [int(word) for word in fields[key].split()]

        self.name = fields["name"]
        require(fields["dtype"] in self.types, "unknown dtype")
        require(fields["shape"] in shapes, "unknown shape")
        self.type = self.types[fields["dtype"]]
        self.shape = shapes[fields["shape"]]
        (self.offset,) = numbers("offset")
        self.heads, self.tokens, self.dim = numbers("box")
        (self.lanes,) = numbers("lanes")
        require(self.lanes in lane_counts, "lane count not allowed")
        self.count = self.heads * self.tokens * self.dim
        channels = self.heads * self.dim
        a, b = (split_hex(fields.get(key, ""), 8) for key in ("affine_a", "affine_b"))
        a, b = a or [f32_one] * channels, b or [f32_sign] * channels
        require(len(a) == len(b) == channels, "affine map of a wrong length")
        self.marginal = split_hex(fields["marginal"], 4) if "marginal" in fields else None
        self.sigmas = split_hex(fields.get("sigma", ""), 2)
        self.codes = split_hex(fields["codes"], 4 if self.type.width == 16 else 2)
        self.fingerprint = int(fields["fingerprint"], 16) if "fingerprint" in fields else None
        self.wanted_flags = int(fields["flags"], 16) if "flags" in fields else None
        self.row_nibbles = split_hex(fields["rows"], 1) if "rows" in fields else None
        self.block = bytes.fromhex(fields["block"])
        require(len(self.codes) == self.count, "codes do not fill the box")
        if self.row_nibbles is not None:
            require(len(self.row_nibbles) == self.tokens, "rows do not fill the tokens")
        self.mus, self.model = [], None
        if self.type.mantissa_bits is not None:
            mus = split_hex(fields.get("mu", ""), 8)
            require(len(mus) == len(self.sigmas) == self.count, "mu or sigma does not fill the box")
            self.mus = [clean_mu(mu, a[c], b[c]) for mu, c in zip(mus, self.channels())]
            self.read_model(fields)

    def read_model(self, _fields):
        self.model = Model(self.type, self.shape, self.offset, self.marginal)

    def channels(self):
        """The channel, head * dim + d, of every scalar."""
        per_head = self.tokens * self.dim
        return [i // per_head * self.dim + i % self.dim for i in range(self.count)]

    def scalar_nibbles(self, row_nibbles):
        """The row nibble of every scalar; without rows j = 0."""
        if row_nibbles is None:
            return [6] * self.count
        return [row_nibbles[i // self.dim % self.tokens] for i in range(self.count)]

    def predict(self, i, nibble):
        return self.model.predict(self.mus[i], self.sigmas[i], nibble)

    def predicted_codes(self):
        return [code_of_mu(self.type, mu) for mu in self.mus]

    def parameter_hash(self, row_nibbles):
        return parameter_hash(
            self.mus, self.sigmas, self.scalar_nibbles(row_nibbles), self.lanes
        )

    def raw_bytes(self):
        return self.count * self.type.width // 8

    def pack(self, codes):
        """Codes as they lie in a raw block."""
        size = self.type.width // 8
        return b"".join(code.to_bytes(size, "little") for code in codes)

    def unpack(self, data):
        size = self.type.width // 8
        return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def parse_cases(text):
    """The field dictionaries of all cases in a text; a line `name` starts a case."""
    cases = []
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if not key or key.startswith("#"):
            continue
        if key == "name":
            cases.append({})
        require(bool(cases), "a case file must start with its name")
        require(key not in cases[-1], f"key {key} occurs twice")
        cases[-1][key] = value.strip()
    require(bool(cases), "no case in the file")
    return cases


def run_cases(paths, check, case_type=Case):
    """Runs check(case) -> str over all cases of all files; prints the outcomes, returns failures.

    One broken case must not hide the others, so every kind of broken input is a failed case.
    """
    passed = failed = 0
    for path in paths:
        try:
            with open(path, encoding="ascii") as file:
                cases = parse_cases(file.read())
        except (FormatError, OSError, ValueError) as error:
            print(f"FAIL {path}: {error}")
            failed += 1
            continue
        for fields in cases:
            name = fields["name"] or path
            try:
                print(f"ok   {name}: {check(case_type(fields))}")
                passed += 1
            except KeyError as error:
                print(f"FAIL {name}: key {error} is missing")
                failed += 1
            except (FormatError, ValueError) as error:
                print(f"FAIL {name}: {error}")
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed
