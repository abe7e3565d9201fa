"""The model of int8, int4 and e2m1, whose codes stand for code * scale, and the rows of tANS.

Like reference_model, whose arithmetic it uses: from the text of the format, exact, no code shared
with the library. Nothing is laid out or looked up as there: a row of tANS cells is sorted by the
rule, and the way into a symbol is the cell whose range holds the present one.
"""

import heapq
from bisect import bisect_right
from collections import namedtuple
from fractions import Fraction
from functools import lru_cache

import reference_model as rm
from reference_model import require

# Of integers bias and mantissa_bits say nothing; their codes are two's complement.
scalar_types = {
    "int8": rm.ScalarType(7, 8, 0, 0, 127, 0, None, True),
    "int4": rm.ScalarType(8, 4, 0, 0, 7, 0, None, True),
    "e2m1": rm.ScalarType(9, 4, 1, 1, 7, 0, None, True),
}
integers = (scalar_types["int8"], scalar_types["int4"])


def lowest_of(t):
    return -1 - t.largest


# --- scales -----------------------------------------------------------------------------------

Unit = namedtuple("Unit", "bits inverse eighths")


@lru_cache(maxsize=None)
def unit_of(scale):
    """What follows from a scale (fp32 bits): 1 / scale and 8 log2(scale); None if it counts not."""
    if not 127 - 24 <= scale >> 23 < 127 + 24:
        return None
    m, e = rm.f32_value(scale)
    inverse = rm.f32_bits(round(Fraction(1 << 47, m)), -47 - e)
    # round(8 log2 s) is the largest i with 2^(2 i - 1) <= s^16.
    floor_log2 = (m**16).bit_length() - 1 + 16 * e
    return Unit(scale, inverse, (floor_log2 + 1) // 2)


def mean_in_codes(mu, unit):
    return rm.clean_mu(mu, unit.inverse) if unit else 0


def integer_code(t, mean):
    """The code of the integer nearest to a mean in code units, ties to even."""
    if rm.f32_is_nan(mean):
        return 0
    sign = -1 if mean & rm.f32_sign else 1
    if rm.f32_field(mean) == 255:
        nearest = sign << t.width
    else:
        m, e = rm.f32_value(mean)
        nearest = sign * rm.round_shift(abs(m), -e)
    return min(max(nearest, lowest_of(t)), t.largest) % (1 << t.width)


def expected_code(t, mean):
    return integer_code(t, mean) if t in integers else rm.code_of_mu(t, mean)


# --- rANS -------------------------------------------------------------------------------------


class IntegerPrediction(rm.Prediction):
    """The distribution of an integer; boundary i is the lower edge of i."""

    def __init__(self, model, mean, k, nibble, scale):
        self.model = model
        self.group_bits = 0
        self.far = k == rm.sigma_zero
        if not self.far:
            slope, es, _ = model.scale(k, nibble, scale)
            self.far = rm.f32_field(mean) >= es + 16
        if self.far:
            self.code = integer_code(model.type, mean)
            return
        self.slope = slope
        m, e = rm.multiply(rm.f32_value(mean), slope)
        self.minus_center = (-m, e)
        self.boundaries = {}

    def boundary_z(self, i):
        if i <= lowest_of(self.model.type):
            return -32768
        if i > self.model.type.largest:
            return 32767
        return rm.round_to_z(*rm.multiply_add((2 * i - 1, -1), self.slope, self.minus_center))

    def interval(self, code):
        if self.far:
            escape_slots = self.model.shape.escape_slots
            return (escape_slots, rm.total - escape_slots) if code == self.code else None
        t = self.model.type
        i = code - (1 << t.width) if code > t.largest else code
        start = self.boundary_cdf(i)
        freq = self.boundary_cdf(i + 1) - start
        require(freq >= 0, "the CDF decreases")
        return (start, freq) if freq else None

    def find(self, slot):
        if slot < self.model.shape.escape_slots:
            return None
        if self.far:
            return (self.code, *self.interval(self.code))
        t = self.model.type
        low, high = lowest_of(t), t.largest + 1
        require(slot < self.boundary_cdf(high), "a slot that no code owns")
        while high - low > 1:
            middle = (low + high) // 2
            if self.boundary_cdf(middle) <= slot:
                low = middle
            else:
                high = middle
        code = low % (1 << t.width)
        return (code, *self.interval(code))


class ScaledModel(rm.Model):
    """rANS: predictions in code units, each with the scale of its own."""

    def predict(self, mu, k, nibble, scale):
        key = (mu, k, nibble, scale)
        if key not in self.predictions:
            unit = unit_of(scale)
            mean = mean_in_codes(mu, unit)
            if unit is None or rm.f32_field(mean) == 255:
                k = rm.sigma_zero
            kind = IntegerPrediction if self.type in integers else rm.Prediction
            self.predictions[key] = kind(self, mean, k, nibble, scale)
        return self.predictions[key]


# --- tANS rows --------------------------------------------------------------------------------


def normalize(weights, table_bits):
    """Frequencies that sum to 2^table_bits: shares rounded down, then one cell at a time."""
    cells, used = 1 << table_bits, [s for s, w in enumerate(weights) if w]
    require(0 < len(used) <= cells, "no weight, or more symbols than cells")
    whole = sum(weights)
    freqs = [max(1, w * cells // whole) if w else 0 for w in weights]
    missing = cells - sum(freqs)
    # Keys are weight / (freq + 1/2) falling and weight / (freq - 1/2) rising, up to a factor 2.
    if missing > 0:
        queue = [(Fraction(-weights[s], 2 * freqs[s] + 1), s) for s in used]
        heapq.heapify(queue)
        for _ in range(missing):
            s = queue[0][1]
            freqs[s] += 1
            heapq.heapreplace(queue, (Fraction(-weights[s], 2 * freqs[s] + 1), s))
    else:
        queue = [(Fraction(weights[s], 2 * freqs[s] - 1), s) for s in used if freqs[s] > 1]
        heapq.heapify(queue)
        for _ in range(-missing):
            s = heapq.heappop(queue)[1]
            freqs[s] -= 1
            if freqs[s] > 1:
                heapq.heappush(queue, (Fraction(weights[s], 2 * freqs[s] - 1), s))
    return freqs


class Row:
    """2^table_bits cells: for each its symbol and the range of cells that it goes on to."""

    def __init__(self, freqs, table_bits):
        self.freqs = freqs
        size = sum(freqs)
        require(size == 1 << table_bits, "frequencies do not fill the row")
        symbols = [(s, k) for s, freq in enumerate(freqs) for k in range(freq)]
        places = [((2 * k + 1) * size // (2 * freqs[s]), s) for s, k in symbols]
        self.cells = []
        ranges = [[] for _ in freqs]
        for cell, (_, s) in enumerate(sorted(places)):
            counter = freqs[s] + len(ranges[s])
            bits = table_bits + 1 - counter.bit_length()
            first = (counter << bits) - size
            self.cells.append((s, first, bits))
            ranges[s].append((first, 1 << bits, cell))
        # Of each symbol: where its ranges begin, rising, and which cell each belongs to.
        self.firsts, self.owners = [], []
        for one in ranges:
            one.sort()
            firsts = [first for first, _, _ in one]
            ends = [first + width for first, width, _ in one]
            require(not one or [0] + ends == firsts + [size], "ranges do not tile the row")
            self.firsts.append(firsts)
            self.owners.append([cell for _, _, cell in one])

    def enter(self, symbol, cell):
        """(the symbol's cell that goes on to `cell`, the bits that say so, how many)."""
        index = bisect_right(self.firsts[symbol], cell) - 1
        owner = self.owners[symbol][index]
        _, first, bits = self.cells[owner]
        return owner, cell - first, bits


lowest_octave, highest_octave = -3, 2
bank_symbols = 100
largest_reach = (bank_symbols - 2) // 2
half_eighth = rm.f32_value(rm.root_as_f32(Fraction(1, 2), 16))


class Bank:
    """The rows of a plan, made when they are asked for."""

    def __init__(self, plan, shape):
        self.table_bits = plan & 15
        self.log_steps = plan >> 4 & 3
        self.log_positions = plan >> 6 & 7
        require(plan >> 9 == 0 and 6 <= self.table_bits <= 12, "no plan of a bank")
        require(self.log_positions <= 4 and shape.id <= 1, "no plan of a bank")
        self.shape = shape
        self.rows = {}

    def log_parts(self, octave):
        return min(max(self.log_positions - octave, 0), self.log_positions + 1)

    def weights(self, octave, step, half):
        """Of the groups -largest_reach .. largest_reach away, in slots of the Gaussian."""
        eighths = 8 >> self.log_steps
        middle = 8 * octave + step * eighths + (eighths - 1) // 2
        slope = rm.f32_value(self.shape.slopes[middle % 8] - (middle // 8 << 23))
        if eighths > 1:
            slope = rm.multiply(slope, half_eighth)
        log_parts = self.log_parts(octave)
        center = 2 * half + 1 if log_parts else 0
        edges = [
            (((2 * away + 1) << log_parts) - center, -(log_parts + 1))
            for away in range(-largest_reach, largest_reach)
        ]
        below = [rm.shape_cdf(self.shape, rm.round_to_z(*rm.multiply(e, slope))) for e in edges]
        return [b - a for a, b in zip([0] + below, below + [self.shape.base[32]])]

    def row(self, octave, step, half):
        """(row, reach)"""
        key = (octave, step, half)
        if key not in self.rows:
            least = Fraction(rm.total, 4 << self.table_bits)
            kept = [w if w >= least else 0 for w in self.weights(octave, step, half)]
            away = [abs(i - largest_reach) for i, w in enumerate(kept) if w]
            reach = max(away, default=0)
            kept = kept[largest_reach - reach : largest_reach + reach + 1]
            freqs = normalize([rm.total - sum(kept)] + kept, self.table_bits)
            self.rows[key] = (Row(freqs, self.table_bits), reach)
        return self.rows[key]


class BankPrediction:
    """The row of one scalar and where its groups lie."""

    far = False

    def __init__(self, model, mu, k, nibble, scale):
        self.model = model
        t, bank, unit = model.type, model.bank, unit_of(scale)
        highest = 8 * highest_octave + 7
        eighths = 8 * lowest_octave
        if unit and k != rm.sigma_zero:
            eighths = max(eighths, 8 * model.offset + k + 2 * (nibble - 6) - unit.eighths)
        self.group_bits = max(-((highest - eighths) // 8), 0)
        eighths -= 8 * self.group_bits
        if self.group_bits > t.width - 2:
            self.group_bits, eighths = t.width - 2, highest
        octave, step = eighths // 8, eighths % 8 >> (3 - bank.log_steps)
        # From the lower edge of the lowest code's cell, in 1/256 code, then 1/256 group.
        place = self.fixed_mean(t, mu, unit) - 256 * lowest_of(t) + 128 >> self.group_bits
        self.group, inside = divmod(place, 256)
        log_parts = bank.log_parts(octave)
        part, parts = inside << log_parts >> 8, 1 << log_parts
        self.direction = -1 if 2 * part + 1 < parts else 1
        half = max(part, parts - 1 - part) - parts // 2
        self.row, self.reach = bank.row(octave, step, half)

    @staticmethod
    def fixed_mean(t, mu, unit):
        """The mean in codes, in 1/256: mu times the inverse scale, rounded once, halves up."""
        if unit is None or rm.f32_is_nan(mu):
            return 0
        low, high = 256 * lowest_of(t), 256 * t.largest
        if rm.f32_field(mu) == 255:
            return low if mu & rm.f32_sign else high
        (m, e), (n, f) = rm.f32_value(mu), rm.f32_value(unit.inverse)
        magnitude = int(256 * abs(m) * n * Fraction(2) ** (e + f) + Fraction(1, 2))
        return min(max(-magnitude if m < 0 else magnitude, low), high)

    def code_of(self, symbol):
        """The lowest code of the symbol's group; None for the escape."""
        if symbol == 0:
            return None
        t = self.model.type
        group = self.group + self.direction * (symbol - 1 - self.reach)
        require(0 <= group < 1 << t.width - self.group_bits, "a symbol that stands for no code")
        return ((group << self.group_bits) + lowest_of(t)) % (1 << t.width)

    def symbol_of(self, code):
        t = self.model.type
        group = ((code - lowest_of(t)) % (1 << t.width)) >> self.group_bits
        symbol = self.direction * (group - self.group) + self.reach + 1
        in_row = 0 < symbol < len(self.row.freqs) and self.row.freqs[symbol] > 0
        return symbol if in_row else 0

    def escapes(self, code):
        return self.symbol_of(code) == 0

    def bits_of(self, _code):
        return self.group_bits


class BankModel:
    def __init__(self, scalar_type, bank, offset):
        require(scalar_type in integers, "a bank for a type that has none")
        self.type, self.bank, self.offset = scalar_type, bank, offset
        self.predictions = {}

    def predict(self, mu, k, nibble, scale):
        key = (mu, k, nibble, scale)
        if key not in self.predictions:
            self.predictions[key] = BankPrediction(self, mu, k, nibble, scale)
        return self.predictions[key]


# --- golden cases -----------------------------------------------------------------------------


class ScaledCase(rm.Case):
    """A case with scales; with a bank's plan it is one of tANS."""

    types = scalar_types

    def read_model(self, fields):
        require(self.shape.id <= 1 and self.marginal is None, "types with a scale have no marginal")
        (group,) = (int(word) for word in fields["group"].split())
        require(group > 0, "a group of no channels")
        groups = -(-self.dim // group)
        scales = rm.split_hex(fields["scales"], 8)
        require(len(scales) == self.heads * self.tokens * groups, "scales do not fill the box")
        self.scales = [
            scales[i // self.dim * groups + i % self.dim // group] for i in range(self.count)
        ]
        if "bank" not in fields:
            self.model = ScaledModel(self.type, self.shape, self.offset)
            return
        self.coder = rm.coder_tans
        bank = Bank(int(fields["bank"], 16), self.shape)
        self.model = BankModel(self.type, bank, self.offset)

    def predict(self, i, nibble):
        return self.model.predict(self.mus[i], self.sigmas[i], nibble, self.scales[i])

    def predicted_codes(self):
        means = (mean_in_codes(mu, unit_of(s)) for mu, s in zip(self.mus, self.scales))
        return [expected_code(self.type, mean) for mean in means]

    def parameter_hash(self, row_nibbles):
        words = [mu ^ scale for mu, scale in zip(self.mus, self.scales)]
        return rm.parameter_hash(
            words, self.sigmas, self.scalar_nibbles(row_nibbles), self.lanes
        )

    def raw_bytes(self):
        return (self.count * self.type.width + 7) // 8

    def pack(self, codes):
        if self.type.width == 8:
            return bytes(codes)
        high = codes[1::2] + [0] * (len(codes) % 2)
        return bytes(a | b << 4 for a, b in zip(codes[::2], high))

    def unpack(self, data):
        if self.type.width == 8:
            return list(data)
        codes = [nibble for byte in data for nibble in (byte & 15, byte >> 4)]
        require(not any(codes[self.count :]), "half a byte without a code is not zero")
        return codes[: self.count]
