#!/usr/bin/env python3
"""Decodes and encodes golden cases of fp8 and e2m1 by tANS, with the reference.

usage: reference_float_bank.py CASE.txt...

Rows, means and groups are here, from the text of the format: values are fractions, groups a list.
Blocks, lanes and what tANS does with words are reference_scaled's.
"""

import sys
from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache

import reference_model as rm
import reference_scaled as scaled
import reference_scaled_model as sm
from reference_model import require

types = {**{k: v for k, v in rm.scalar_types.items() if v.width == 8 and v.mantissa_bits},
         "e2m1": sm.scalar_types["e2m1"]}


def value_of(t, magnitude):
    """Of a finite magnitude."""
    p = t.mantissa_bits
    binade, low = magnitude >> p, magnitude % (1 << p)
    return Fraction(low + (1 << p if binade else 0)) * Fraction(2) ** (max(binade, 1) - t.bias - p)


class FloatBank:
    """The rows of a plan for one type, made when they are asked for. Octaves count from -3."""

    def __init__(self, t, plan, shape):
        self.type, self.shape, self.p = t, shape, t.mantissa_bits
        self.table_bits, self.log_steps, self.log_positions = plan & 15, plan >> 4 & 3, plan >> 6
        require(6 <= self.table_bits <= 12 and self.log_positions <= 4, "no plan of a bank")
        require(shape.id <= 1, "no plan of a bank")
        self.absolute = t.largest >> self.p < 4
        self.rows, self.lists = {}, {}

    def depth(self, octave):
        if self.absolute:
            return self.type.largest >> self.p
        return 1 if octave < 2 else max(octave - self.p + 3, 1)

    def places_per_ulp(self, octave):
        return Fraction(2) ** min(self.log_positions + 1, self.log_positions + 3 - octave)

    def is_last(self, octave, d):
        return not self.absolute and d == self.depth(octave) + 1

    def groups(self, octave, d):
        """(first magnitude, low bits that are raw) from 0 away from zero; the anchor is d."""
        if (octave, d) in self.lists:
            return self.lists[octave, d]
        out, magnitude = [], (1 if self.is_last(octave, d) else 0) << self.p
        while magnitude >> self.p <= d + 5:
            g = min(max(octave - 6 + d - max(magnitude >> self.p, 1), 0), self.p)
            out.append((magnitude, g))
            magnitude += 1 << g
        self.lists[octave, d] = out
        return out

    def row(self, octave, d, step, place):
        """(row, group of symbol 1); the place in units of 1 / places_per_ulp."""
        key = (octave, d, step, place)
        if key not in self.rows:
            self.rows[key] = self.make_row(octave, d, step, place)
        return self.rows[key]

    def make_row(self, octave, d, step, place):
        eighths = 8 >> self.log_steps
        middle = 8 * (octave - 3) + step * eighths + (eighths - 1) // 2
        slope = rm.f32_value(self.shape.slopes[middle % 8] - (middle // 8 << 23))
        if eighths > 1:
            slope = rm.multiply(slope, sm.half_eighth)
        center = (place + Fraction(1, 2)) / self.places_per_ulp(octave) * 4096
        require(center.denominator == 1, "a mean that is no multiple of 2^-12")
        last = self.is_last(octave, d)

        def value(magnitude):  # in 2^-d ulp of anchor d; the last class has no subnormals
            binade, low = magnitude >> self.p, magnitude % (1 << self.p)
            hidden = 1 << self.p if binade or last else 0
            return (low + hidden) << (binade + (not binade and not last))

        @lru_cache(maxsize=None)
        def below(magnitude, sign):
            edge = value(magnitude) + value(magnitude - 1) << 11 - d if magnitude else 0
            z = rm.round_to_z(*rm.multiply((sign * edge - int(center), -12), slope))
            return rm.shape_cdf(self.shape, z)

        weights, largest = {}, self.type.largest
        for i, (first, g) in enumerate(self.groups(octave, d)[:64]):
            if first >> self.p > d + 4 or (not last and first > largest):
                break
            beyond = not last and first + (1 << g) > largest
            high = self.shape.base[32] if beyond else below(first + (1 << g), 1)
            low = 0 if beyond else below(first + (1 << g), -1)
            weights[i] = high - below(first, 1)
            weights[-1 - i] = below(first, -1) - low
        least = Fraction(rm.total, 4 << self.table_bits)
        kept = {i: w for i, w in weights.items() if w >= least}
        first = min(kept)
        listed = [kept.get(first + i, 0) for i in range(sm.bank_symbols - 1)]
        freqs = sm.normalize([rm.total - sum(listed)] + listed, self.table_bits)
        return sm.Row(freqs, self.table_bits), first


class FloatBankPrediction:
    far = False

    def __init__(self, model, mu, k, nibble, scale):
        self.model = model
        t, bank, p = model.type, model.bank, model.type.mantissa_bits
        known, eighths = k != rm.sigma_zero, 8 * model.offset + k + 2 * (nibble - 6)
        if t.width == 4:
            unit = sm.unit_of(scale)
            mu, known = sm.mean_in_codes(mu, unit), known and unit is not None
            eighths -= unit.eighths if unit else 0
        self.sign = -1 if mu & rm.f32_sign else 1
        most = value_of(t, t.largest)
        if rm.f32_is_nan(mu):
            size = Fraction(0)
        elif rm.f32_field(mu) == 255:
            size = most
        else:
            m, e = rm.f32_value(mu)
            size = min(abs(m) * Fraction(2) ** e, most)
        top = t.largest >> p
        anchor = min(eighths // 8 + t.bias, top) if known else 1
        while size >= Fraction(2) ** (max(anchor, 1) + 1 - t.bias):
            anchor = max(anchor, 1) + 1
        anchor = max(anchor, 1)
        ulp = Fraction(2) ** (anchor - t.bias - p)
        above = eighths - 8 * (anchor - t.bias - p) + 24 if known else 0
        octave, rest = divmod(min(max(above, 0), 8 * (p + 4) - 1), 8)
        d = min(anchor, bank.depth(octave) + (not bank.absolute))
        self.lift = anchor - d << p
        self.groups = bank.groups(octave, d)
        self.lowest = self.groups[0][0]
        units, shift = size / ulp, 0
        if not bank.absolute and octave < 2:  # units that look alike share the rows of one
            unit, first = int(units), 1 << p
            like = first + 1
            if d == 1 and unit == 0 or d != 1 and unit == first or unit == 2 * first - 1:
                like = unit
            shift = unit - like
            units -= shift
            d = 1 if like == 0 else 2
        place = int(units * bank.places_per_ulp(octave))
        self.row, self.first = bank.row(octave, d, rest >> (3 - bank.log_steps), place)
        self.first += shift

    def code_of(self, symbol):
        if symbol == 0:
            return None
        t, group = self.model.type, self.first + symbol - 1
        magnitude = self.lift + self.magnitude_of(group if group >= 0 else -1 - group)[0]
        require(magnitude <= t.largest, "a symbol that stands for no code")
        return magnitude | ((group < 0) != (self.sign < 0)) << (t.width - 1)

    def magnitude_of(self, group):
        if group < len(self.groups):
            return self.groups[group]
        return self.groups[-1][0] + group - len(self.groups) + 1, 0

    def group_of(self, code):
        """(group, its raw bits), or None."""
        t = self.model.type
        magnitude = code % (1 << (t.width - 1))
        inside = magnitude - self.lift
        if inside < self.lowest or magnitude > t.largest:
            return None
        i = bisect_right(self.groups, (inside, self.model.type.width)) - 1
        i += inside - self.groups[-1][0] if i + 1 == len(self.groups) else 0
        negative = (code >> (t.width - 1) != 0) != (self.sign < 0)
        return (-1 - i if negative else i), self.magnitude_of(i)[1]

    def symbol_of(self, code):
        found = self.group_of(code)
        symbol = found[0] - self.first + 1 if found else 0
        return symbol if 0 < symbol < sm.bank_symbols and self.row.freqs[symbol] else 0

    def escapes(self, code):
        return self.symbol_of(code) == 0

    def bits_of(self, code):
        return self.group_of(code)[1]


class FloatBankModel(sm.BankModel):
    def __init__(self, scalar_type, bank, offset):
        self.type, self.bank, self.offset = scalar_type, bank, offset
        self.predictions = {}

    def predict(self, mu, k, nibble, scale):
        key = (mu, k, nibble, scale)
        if key not in self.predictions:
            self.predictions[key] = FloatBankPrediction(self, mu, k, nibble, scale)
        return self.predictions[key]


class FloatBankCase(sm.ScaledCase):
    types = types

    def read_model(self, fields):
        if self.type.width == 4:
            super().read_model({k: v for k, v in fields.items() if k != "bank"})
        else:
            self.scales = [0] * self.count
        self.coder = rm.coder_tans
        bank = FloatBank(self.type, int(fields["bank"], 16), self.shape)
        self.model = FloatBankModel(self.type, bank, self.offset)

    def predicted_codes(self):
        return super().predicted_codes() if self.type.width == 4 else rm.Case.predicted_codes(self)


def main(arguments):
    if not arguments:
        print(__doc__.strip())
        return 2
    return 1 if rm.run_cases(arguments, scaled.check_case, FloatBankCase) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
