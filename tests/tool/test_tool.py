#!/usr/bin/env python3
"""Tests of normans_kv from outside: files in, files and exit statuses out. Standard library only.

    NORMANS_KV=build/dev/examples/normans_kv python3 tests/tool/test_tool.py

NORMANS_TEST_EVERY=N: of the places to damage in a file one in N, where a start of the tool is slow.
"""

import bisect
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("NORMANS_KV", str(ROOT / "build/dev/examples/normans_kv"))
DATA = ROOT / "examples/data"
EVERY = int(os.environ.get("NORMANS_TEST_EVERY", "1"))


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + length :][begin:end])
    return tensors, metadata


def write_safetensors(path, tensors, metadata=None):
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            out.write(data)


def bf16(value):
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def bf16_value(code):
    return struct.unpack("<f", struct.pack("<I", code << 16))[0]


def e4m3_value(code):
    exponent, fraction = code >> 3 & 15, code & 7
    return (fraction / 512) if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)


E4M3 = [e4m3_value(code) for code in range(127)]


def e4m3(value):
    size = abs(value)
    above = min(bisect.bisect_left(E4M3, size), 126)
    if above and size - E4M3[above - 1] < E4M3[above] - size:
        above -= 1
    return above | (128 if value < 0 else 0)


def pack16(codes):
    return struct.pack(f"<{len(codes)}H", *codes)


def make_cache(shapes, tokens, seed=1):
    """shapes: {(layer, kind): (heads, dim)}. A mean plus noise that grows with the channel."""
    source = random.Random(seed)
    tensors = {}
    for (layer, kind), (heads, dim) in shapes.items():
        means, values = [], []
        for _ in range(tokens):
            for channel in range(heads * dim):
                mean = bf16_value(bf16(source.gauss(channel % 5 - 2, 1 + channel % 3)))
                means.append(mean)
                values.append(bf16_value(bf16(source.gauss(mean, 0.01 * (1 + channel)))))
        scale = struct.unpack("<f", struct.pack("<f", max(map(abs, values), default=1) / 448))[0]
        shape, prefix = [tokens, heads, dim], f"layers.{layer}.{kind}."
        tensors[prefix + "fp8"] = ("F8_E4M3", shape, bytes(e4m3(v / scale) for v in values))
        tensors[prefix + "bf16"] = ("BF16", shape, pack16([bf16(v) for v in values]))
        tensors[prefix + "mu"] = ("BF16", shape, pack16([bf16(m) for m in means]))
        tensors[prefix + "scale"] = ("F32", [1], struct.pack("<f", scale))
    return tensors


def make_lowrank_cache(ranks, tokens, heads, dim, seed=2):
    """ranks: {(layer, kind): rank}. That many outer products of size 30 on noise of size 1."""
    source = random.Random(seed)
    tensors, width = {}, heads * dim
    for (layer, kind), rank in ranks.items():
        rows = [[source.gauss(0, 30) for _ in range(rank)] for _ in range(tokens)]
        columns = [[source.gauss(0, 1) for _ in range(rank)] for _ in range(width)]
        values = [sum(u * v for u, v in zip(row, column)) + source.gauss(0, 1)
                  for row in rows for column in columns]
        shape, prefix = [tokens, heads, dim], f"layers.{layer}.{kind}."
        scale = struct.unpack("<f", struct.pack("<f", max(map(abs, values)) / 448))[0]
        tensors[prefix + "bf16"] = ("BF16", shape, pack16([bf16(v) for v in values]))
        tensors[prefix + "fp8"] = ("F8_E4M3", shape, bytes(e4m3(v / scale) for v in values))
        tensors[prefix + "scale"] = ("F32", [1], struct.pack("<f", scale))
    return tensors


def make_layered_cache(tokens, layers, heads, dim, seed=5):
    """Residuals of v are those of k turned around, those of a layer the layer's below and noise."""
    source = random.Random(seed)
    tensors, width = {}, heads * dim
    below = [[source.gauss(0, 1) for _ in range(width)] for _ in range(tokens)]
    for layer in range(layers):
        now = [[0.9 * row[-c] + source.gauss(0, 0.3) for c in range(width)] for row in below]
        for kind, order in (("k", 1), ("v", -1)):
            means, values = [], []
            for row in now:
                for residual in row[::order]:
                    means.append(bf16_value(bf16(source.gauss(0, 20))))
                    values.append(means[-1] + residual + source.gauss(0, 0.1))
            shape, prefix = [tokens, heads, dim], f"layers.{layer}.{kind}."
            scale = f32(max(map(abs, values)) / 448)
            tensors[prefix + "bf16"] = ("BF16", shape, pack16([bf16(v) for v in values]))
            tensors[prefix + "fp8"] = ("F8_E4M3", shape, bytes(e4m3(v / scale) for v in values))
            tensors[prefix + "mu"] = ("BF16", shape, pack16([bf16(m) for m in means]))
            tensors[prefix + "scale"] = ("F32", [1], struct.pack("<f", scale))
        below = now
    return tensors


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def quantised(tensors, what):
    """llama.cpp's Q8_0 and Q4_0, from the text in the README: fp32 steps in doubles, each rounded
    once (a double holds enough of a quotient, product or sum of two fp32 for that)."""
    made = {}
    for name, (_, shape, data) in tensors.items():
        if not name.endswith(".bf16"):
            continue
        tokens, heads, dim = shape
        values = [bf16_value(c) for c in struct.unpack(f"<{len(data) // 2}H", data)]
        codes, scales = [], []
        for row in range(0, len(values), dim):
            for first in range(0, dim, 32):
                x = values[row + first : row + min(first + 32, dim)]
                largest = max(x, key=abs)
                if largest == 0:
                    largest = 0.0
                d = f32(abs(largest) / 127) if what == "int8" else f32(largest / -8)
                inverse = f32(1 / d) if d else 0.0
                scales.append(struct.pack("<e", d))
                for value in x:
                    y = f32(value * inverse)
                    if what == "int8":
                        code = int(abs(y) + 0.5) * (1 if y > 0 else -1)
                    else:
                        code = min(15, int(f32(y + 8.5))) - 8
                    codes.append(code & (255 if what == "int8" else 15))
            if what == "int4" and dim % 2:
                codes.append(0)
        stem = name[: -len("bf16")] + what
        if what == "int8":
            made[stem] = ("I8", shape, bytes(codes))
        else:
            packed = bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2]))
            made[stem] = ("U8", [tokens, heads, (dim + 1) // 2], packed)
        made[stem + "_scale"] = ("F16", [tokens, heads, (dim + 31) // 32], b"".join(scales))
    return made


def fingerprint(data):
    """fingerprint_of of wire/header.hpp."""
    hashed = 0x9E3779B97F4A7C15 ^ len(data)
    for byte in data:
        hashed = (hashed ^ byte) * 0xD6E8FEB86659FD93 % 2**64
        hashed ^= hashed >> 32
    return hashed


def compact_size(data, at, tokens, raw_bytes):
    """Bytes of a rANS block at `at` (block/compact_block.hpp), and its mode."""
    start, tag = at, data[at]
    mode, lanes, flags = tag & 3, (1, 8, 16, 32)[tag >> 2 & 3], tag >> 4
    at += 1
    steps = 0
    if flags & 1:
        steps = (tokens * (data[at] >> 4) + 7) // 8
        at += 1
    rest = (0, raw_bytes, 2, 0)[mode]
    if mode == 0:
        shift = 0
        while True:
            rest += 2 * (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                break
    at += (4 if flags & 2 else 0) + (4 if flags & 4 else 0) + (8 if flags & 8 else 0) + steps
    if mode == 0:
        bits, place = int.from_bytes(data[at : at + 34 * lanes // 8 + 1], "little"), 0
        for _ in range(lanes):
            place += 4 + 15 + (bits >> place & 15)
        at += (place + 7) // 8
    return at + rest - start, mode


def targets_of(tensors):
    return {name: t for name, t in tensors.items() if name.endswith((".fp8", ".bf16"))}


class ToolTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def path(self, name):
        return self.dir / name

    def good(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def bad(self, *arguments, says="", output=None):
        """Exit status 2, one line on stderr, and no output file nor a part of one."""
        before = sorted(os.listdir(self.dir))
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, (arguments, result.stdout, result.stderr))
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("normans_kv: "), result.stderr)
        self.assertIn(says, result.stderr)
        if output is not None:
            self.assertFalse(pathlib.Path(output).exists())
        self.assertEqual(sorted(os.listdir(self.dir)), before)
        return result.stderr

    def small_job(self, shapes=None, tokens=9, **metadata):
        """A cache, its profile and its .nkv in self.dir."""
        tensors = make_cache(shapes or {(0, "k"): (2, 8), (0, "v"): (2, 8)}, tokens)
        write_safetensors(self.path("in.safetensors"), tensors, metadata)
        self.good("calibrate", self.path("in.safetensors"), "--profile", self.path("p"))
        self.good("compress", self.path("in.safetensors"), self.path("out.nkv"),
                  "--profile", self.path("p"), "--page-tokens", 4)
        return tensors


class RoundTripping(ToolTest):
    def round_trip(self, tensors, *compress_options, calibrate=(), metadata=None, mu=None):
        cache, coded, back = (self.path(n) for n in ("in.safetensors", "out.nkv", "back"))
        write_safetensors(cache, tensors, metadata)
        means = ()
        if mu is not None:
            write_safetensors(self.path("mu.safetensors"), mu)
            means = ("--mu", self.path("mu.safetensors"))
        common = ("--profile", self.path("p"), *means)
        self.good("calibrate", cache, *common, *calibrate)
        self.good("compress", cache, coded, *common, *compress_options)
        self.good("verify", cache, coded, *common)
        self.good("decompress", coded, back, "--profile", self.path("p"), "--mu",
                  self.path("mu.safetensors") if mu is not None else cache)
        self.good("info", coded)
        returned, _ = read_safetensors(back)
        return returned


class RoundTrip(RoundTripping):
    def test_slice(self):
        cache, coded, back = DATA / "test-slice.safetensors", self.path("o"), self.path("b")
        profile = ("--profile", DATA / "smollm2-135m.profile")
        report = self.path("r.json")
        out = self.good("compress", cache, coded, *profile, "--json", report)
        self.assertIn("29.v", out)
        self.good("verify", cache, coded, *profile)
        self.good("decompress", coded, back, *profile, "--mu", cache)
        original, metadata = read_safetensors(cache)
        returned, back_metadata = read_safetensors(back)
        self.assertEqual(returned, targets_of(original))
        self.assertEqual(back_metadata["model"], metadata["model"])
        rates = json.loads(report.read_text())["targets"]
        self.assertLess(rates["fp8"]["bits_per_scalar"], 2.45)
        self.assertLess(rates["bf16"]["bits_per_scalar"], 6.23)

        # The blocks as the tool's README says that they lie in the file.
        data, modes = coded.read_bytes(), {0: 0, 1: 0, 2: 0, 3: 0}
        at = (struct.unpack_from("<I", data, 12)[0] + 3) // 4 * 4
        for _ in range(len(returned) // 2):
            for width in (1, 2):
                for _ in range(2):  # pages of 64 tokens
                    size, mode = compact_size(data, at, 64, 64 * 192 * width)
                    at, modes[mode] = at + size, modes[mode] + 1
        self.assertEqual(at, len(data))
        self.assertEqual([*map(str, modes.values())],
                         self.good("info", coded).splitlines()[-1].split()[-5:-1])

    def test_slice_calibrated_on_the_slice(self):
        cache = DATA / "test-slice.safetensors"
        self.good("calibrate", DATA / "calib-slice.safetensors", "--profile", self.path("p"))
        self.good("compress", cache, self.path("o"), "--profile", self.path("p"))
        self.good("verify", cache, self.path("o"), "--profile", self.path("p"))

    def test_widths_layers_and_odd_sizes(self):
        shapes = {(0, "k"): (2, 5), (0, "v"): (3, 7), (1, "k"): (2, 5), (1, "v"): (3, 7),
                  (7, "k"): (1, 33), (7, "v"): (1, 1), (12, "v"): (4, 16)}
        for tokens in (1, 2, 65):
            tensors = make_cache(shapes, tokens)
            self.assertEqual(self.round_trip(tensors), targets_of(tensors))

    def test_options(self):
        tensors = make_cache({(0, "k"): (2, 8), (0, "v"): (1, 24)}, 21)
        expected = targets_of(tensors)
        for options in (("--no-affine",), ("--no-row-scale",), ("--no-affine", "--no-row-scale"),
                        ("--page-tokens", 1), ("--page-tokens", 5), ("--page-tokens", 100000)):
            self.assertEqual(self.round_trip(tensors, *options), expected)
        for lanes in (0, 1, 8, 16, 32):
            self.assertEqual(self.round_trip(tensors, "--lanes", lanes), expected)
        for shape in ("gaussian", "mixture", "mixture-marginal"):
            self.assertEqual(self.round_trip(tensors, calibrate=("--shape", shape)), expected)

    def test_one_target(self):
        tensors = make_cache({(0, "k"): (2, 8), (3, "k"): (2, 8)}, 11)
        for what in ("fp8", "bf16"):
            expected = {n: t for n, t in tensors.items() if n.endswith("." + what)}
            self.assertEqual(self.round_trip(tensors, "--target", what), expected)
            only = {n: t for n, t in tensors.items() if n.endswith(("." + what, ".mu", ".scale"))}
            self.assertEqual(self.round_trip(only), expected)

    def test_other_types(self):
        tensors = make_cache({(0, "k"): (2, 8)}, 11)
        for dtype in ("F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"):
            tensors["layers.0.k.fp8"] = (dtype, *tensors["layers.0.k.fp8"][1:])
            self.assertEqual(self.round_trip(tensors), targets_of(tensors))
        means = struct.unpack("<176H", tensors["layers.0.k.mu"][2])
        wide = struct.pack("<176f", *(bf16_value(m) + 1e-5 for m in means))
        tensors["layers.0.k.mu"] = ("F32", [11, 2, 8], wide)
        self.assertEqual(self.round_trip(tensors), targets_of(tensors))

    def test_means_in_a_file_of_their_own(self):
        tensors = make_cache({(0, "k"): (2, 8)}, 11)
        mu = {"layers.0.k.mu": tensors.pop("layers.0.k.mu")}
        self.assertEqual(self.round_trip(tensors, mu=mu), targets_of(tensors))

    def test_any_bits(self):
        # Every code, NaNs and infinities among means and codes, dead and constant channels.
        source = random.Random(3)
        tensors = make_cache({(0, "k"): (1, 16), (0, "v"): (1, 16)}, 64)
        tensors["layers.0.k.fp8"] = ("F8_E4M3", [64, 1, 16], bytes(range(256)) * 4)
        wild = [source.randrange(65536) for _ in range(1024)]
        tensors["layers.0.k.bf16"] = ("BF16", [64, 1, 16], pack16(wild))
        tensors["layers.0.k.mu"] = ("BF16", [64, 1, 16], pack16(wild[::-1]))
        zeros = pack16([source.choice((0, 0x8000)) for _ in range(1024)])
        tensors["layers.0.v.bf16"] = ("BF16", [64, 1, 16], zeros)
        tensors["layers.0.v.fp8"] = ("F8_E4M3", [64, 1, 16], bytes(1024))
        self.assertEqual(self.round_trip(tensors), targets_of(tensors))
        self.assertEqual(self.round_trip(tensors, "--no-affine"), targets_of(tensors))

    def test_empty(self):
        for shape in ([0, 2, 8], [3, 0, 8], [3, 2, 0]):
            tensors = {"layers.0.k.fp8": ("F8_E4M3", shape, b""),
                       "layers.0.k.mu": ("BF16", shape, b""),
                       "layers.0.k.scale": ("F32", [1], struct.pack("<f", 1))}
            self.assertEqual(self.round_trip(tensors), targets_of(tensors))

    def test_same_bytes_twice(self):
        self.small_job()
        for name in ("p", "out.nkv"):
            os.rename(self.path(name), self.path(name + ".first"))
        self.small_job()
        for name in ("p", "out.nkv"):
            self.assertEqual(self.path(name).read_bytes(), self.path(name + ".first").read_bytes())

    def test_same_bytes_on_any_number_of_threads(self):
        # More pages than one call takes, and more threads than pages.
        tensors = make_cache({(0, "k"): (1, 3), (0, "v"): (2, 2), (1, "v"): (1, 1)}, 1100)
        few = make_cache({(0, "k"): (1, 3), (0, "v"): (2, 2), (1, "v"): (1, 1)}, 5)
        for cache in (tensors, few):
            expected = None
            for threads in ((), ("--threads", 1), ("--threads", 2), ("--threads", 7)):
                self.assertEqual(self.round_trip(cache, "--page-tokens", 1, *threads),
                                 targets_of(cache))
                coded = self.path("out.nkv").read_bytes()
                self.assertEqual(coded, expected or coded)
                expected = coded
                common = ("--profile", self.path("p"), *threads)
                source = self.path("in.safetensors")
                self.good("verify", source, self.path("out.nkv"), *common)
                self.good("decompress", self.path("out.nkv"), self.path("back"), "--mu", source,
                          *common)
                self.assertEqual(read_safetensors(self.path("back"))[0], targets_of(cache))

    def test_report(self):
        self.small_job()
        self.good("compress", self.path("in.safetensors"), self.path("o"), "--profile",
                  self.path("p"), "--json", self.path("r"), "--baselines", "--static")
        report = json.loads(self.path("r").read_text())
        for target, scalars in (("fp8", 288), ("bf16", 288)):
            static = report["targets"][target]["static_order0"]
            self.assertEqual(report["targets"][target]["scalars"], scalars)
            # Too small for tables to pay: raw blocks, and the tables that were tried.
            self.assertGreater(static["coded_bytes"], report["targets"][target]["raw_bytes"])
            self.assertLess(static["coded_bytes"],
                            report["targets"][target]["raw_bytes"] + 4 * (2 * 600 + 16 + 3))
        for part in (report["targets"]["fp8"], report["targets"]["bf16"], report["total"]):
            for key in ("scalars", "raw_bytes", "coded_bytes", "bits_per_scalar",
                        "model_bits_per_scalar", "encode_mb_s", "decode_mb_s"):
                self.assertIn(key, part)
            self.assertTrue(part["exact"])
        size = os.path.getsize(self.path("o"))
        parts = [t["coded_bytes"] for t in report["targets"].values()]
        self.assertEqual((sum(parts), report["total"]["coded_bytes"]), (size, size))
        self.assertEqual(report["total"]["raw_bytes"], 2 * 9 * 16 * 3)
        self.assertEqual(len(report["tensors"]), 4)

    def test_head_is_small(self):
        shapes = {(layer, kind): (1, 8) for layer in range(30) for kind in "kv"}
        write_safetensors(self.path("in.safetensors"), make_cache(shapes, 1))
        self.good("calibrate", self.path("in.safetensors"), "--profile", self.path("p"))
        self.good("compress", self.path("in.safetensors"), self.path("o"), "--profile",
                  self.path("p"), "--json", self.path("r"))
        self.assertLess(json.loads(self.path("r").read_text())["head_bytes"], 400)


class Fp8ByTables(RoundTripping):
    SHAPES = {(0, "k"): (2, 64), (0, "v"): (1, 33), (2, "k"): (1, 5), (2, "v"): (3, 40)}

    def test_round_trip(self):
        for shape in ("gaussian", "mixture", "mixture-marginal"):
            tensors = make_cache(self.SHAPES, 65)
            for more in (("--coder", "tans"), ("--coder", "auto", "--bank-kib", 64),
                         ("--coder", "tans", "--no-row-scale", "--lanes", 1, "--page-tokens", 7)):
                back = self.round_trip(tensors, *more, calibrate=("--shape", shape))
                self.assertEqual(back, targets_of(tensors), (shape, more))
        self.bad("compress", self.path("in.safetensors"), self.path("o"), "--profile",
                 self.path("p"), "--coder", "tans", "--bank-kib", 16, says="no bank for fp8",
                 output=self.path("o"))

    def test_slice(self):
        cache, report = DATA / "test-slice.safetensors", self.path("r")
        profile = ("--profile", DATA / "smollm2-135m.profile", "--target", "fp8")
        loss = {}
        for kib in (64, 1024):
            self.good("compress", cache, self.path("o"), *profile, "--json", report, "--coder",
                      "tans", "--bank-kib", kib)
            one = json.loads(report.read_text())["targets"]["fp8"]
            loss[kib] = one["excess"]
        self.assertLess(loss[1024], loss[64])
        self.assertLess(loss[1024], 0.04)


class Quantised(RoundTripping):
    SHAPES = {(0, "k"): (2, 64), (0, "v"): (1, 33), (2, "k"): (1, 5), (2, "v"): (3, 40)}
    OPTIONS = ("--target", "int8,int4")

    def expected(self, tensors):
        return {**quantised(tensors, "int8"), **quantised(tensors, "int4")}

    def test_round_trip(self):
        for tokens in (1, 2, 65):
            tensors = make_cache(self.SHAPES, tokens, seed=tokens)
            for more in ((), ("--coder", "tans"), ("--coder", "auto", "--bank-kib", 16),
                         ("--no-affine", "--page-tokens", 7), ("--no-row-scale", "--lanes", 32)):
                back = self.round_trip(tensors, *self.OPTIONS, *more, calibrate=self.OPTIONS)
                self.assertEqual(back, self.expected(tensors), (tokens, more))

    def test_targets_together_and_alone(self):
        tensors = make_cache(self.SHAPES, 9)
        every = ("--target", "all,int8,int4")
        self.assertEqual(self.round_trip(tensors, *every, calibrate=every),
                         {**targets_of(tensors), **self.expected(tensors)})
        for what in ("int8", "int4"):
            one = ("--target", what)
            self.assertEqual(self.round_trip(tensors, *one, calibrate=one),
                             quantised(tensors, what))
        # A profile for more than is coded, and shapes other than the Gaussian.
        for shape in ("mixture", "mixture-marginal"):
            self.assertEqual(self.round_trip(tensors, "--target", "int4", "--coder", "tans",
                                             calibrate=(*every, "--shape", shape)),
                             quantised(tensors, "int4"))

    def test_stored_tensors_are_taken_as_they_are(self):
        # Any codes and any scales: negative, NaN, infinite, zero, subnormal.
        source = random.Random(8)
        tensors = make_cache({(0, "k"): (2, 33)}, 40)
        write_safetensors(self.path("in.safetensors"), tensors)
        self.good("calibrate", self.path("in.safetensors"), "--profile", self.path("p"),
                  *self.OPTIONS)
        stored = self.expected(tensors)
        for name, (dtype, shape, data) in stored.items():
            wild = bytearray(data)
            for _ in range(len(wild) // 4):
                at = source.randrange(len(wild))
                if not name.endswith(".int4") or at % 17 != 16:  # the odd nibble is 0
                    wild[at] = source.randrange(256)
            stored[name] = (dtype, shape, bytes(wild))
        cache = {"layers.0.k.mu": tensors["layers.0.k.mu"], **stored}
        write_safetensors(self.path("in.safetensors"), cache)
        for coder in ("rans", "tans"):
            common = ("--profile", self.path("p"))
            self.good("compress", self.path("in.safetensors"), self.path("o"), *common,
                      *self.OPTIONS, "--coder", coder)
            self.good("verify", self.path("in.safetensors"), self.path("o"), *common)
            self.good("decompress", self.path("o"), self.path("b"), *common, "--mu",
                      self.path("in.safetensors"))
            self.assertEqual(read_safetensors(self.path("b"))[0], stored)

    def test_any_values(self):
        # Zeros of both signs, dead groups, subnormals, the ends of bf16 that fp16 scales hold.
        source = random.Random(9)
        tensors = make_cache({(0, "k"): (1, 64)}, 32)
        values = [source.choice((0, 0x8000, 1, 0x8001, 0x0080, 0x1F80, 0x3F80, 0xBF81, 0x4700,
                                 0xC711)) for _ in range(32 * 64)]
        values[:96] = [0x8000] * 96
        # Subnormals only: 1 / d overflows, codes are 0 and d as fp16 too, with the sign of zeros'.
        values[96:128] = [1] * 32
        tensors["layers.0.k.bf16"] = ("BF16", [32, 1, 64], pack16(values))
        like = [0 if 96 <= i < 128 else v for i, v in enumerate(values)]
        expected = self.expected({"layers.0.k.bf16": ("BF16", [32, 1, 64], pack16(like))})
        self.assertEqual(self.round_trip(tensors, *self.OPTIONS, calibrate=self.OPTIONS), expected)

    def test_same_bytes_on_any_number_of_threads(self):
        tensors = make_cache(self.SHAPES, 70)
        coded = set()
        for threads in (1, 3):
            self.round_trip(tensors, *self.OPTIONS, "--threads", threads, "--page-tokens", 3,
                            calibrate=self.OPTIONS)
            coded.add(self.path("out.nkv").read_bytes())
        self.assertEqual(len(coded), 1)

    def test_slice(self):
        self.good("calibrate", DATA / "calib-slice.safetensors", "--profile", self.path("p"),
                  *self.OPTIONS)
        cache, report = DATA / "test-slice.safetensors", self.path("r")
        out = self.good("compress", cache, self.path("o"), "--profile", self.path("p"),
                        *self.OPTIONS, "--page-tokens", 128, "--lanes", 1, "--coder", "auto",
                        "--json", report, "--baselines")
        self.assertIn("of it", out)
        self.assertIn("tANS", out)
        self.good("verify", cache, self.path("o"), "--profile", self.path("p"))
        for what, raw, most in (("int8", 8.5, 3.5), ("int4", 4.5, 0.85)):
            one = json.loads(report.read_text())["targets"][what]
            self.assertEqual(8 * one["raw_bytes"] / one["scalars"], raw)
            self.assertLess(one["bits_per_scalar"], most)
            self.assertGreater(one["zstd19_bits_per_scalar"], 1.5 * one["bits_per_scalar"])
            self.assertLess(one["scales"]["coded_bytes"], one["scales"]["raw_bytes"])
            # The model's bits, row steps, and at most 60 bytes of headers a tensor.
            model = one["model_bits_per_scalar"] + one["row_step_bits_per_scalar"]
            headers = 8 * 60 / (128 * 192)
            rans = one["bits_per_scalar"] - one["scales"]["bits_per_scalar"]
            self.assertLess(one["coders"]["rans"]["bits_per_scalar"], 1.03 * rans)
            self.assertGreater(one["coders"]["tans"]["bits_per_scalar"], 0.97 * rans)
            self.assertLess(one["bits_per_scalar"], 1.006 * model + headers)
            self.assertGreater(one["bits_per_scalar"], model)
        size = os.path.getsize(self.path("o"))
        parts = [t["coded_bytes"] for t in json.loads(report.read_text())["targets"].values()]
        self.assertEqual(sum(parts), size)

    def test_first_difference(self):
        tensors = make_cache({(0, "k"): (2, 64)}, 9)
        self.round_trip(tensors, *self.OPTIONS, calibrate=self.OPTIONS)
        dtype, shape, data = tensors["layers.0.k.bf16"]
        changed = bytearray(data)
        at = 2 * ((4 * 2 + 1) * 64 + 40)
        changed[at : at + 2] = pack16([0x4780])  # 65536: by far the largest of its group
        other = {**tensors, "layers.0.k.bf16": (dtype, shape, bytes(changed))}
        write_safetensors(self.path("other"), other)
        result = run("verify", self.path("other"), self.path("out.nkv"), "--profile",
                     self.path("p"), "--mu", self.path("in.safetensors"))
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("int8_scale differs first at token 4, head 1, group 1", result.stdout)
        stored = {**self.expected(tensors), "layers.0.k.mu": tensors["layers.0.k.mu"]}
        dtype, shape, data = stored["layers.0.k.int4"]
        changed = bytearray(data)
        changed[(4 * 2 + 1) * 32 + 20] ^= 0x30
        stored["layers.0.k.int4"] = (dtype, shape, bytes(changed))
        write_safetensors(self.path("other"), stored)
        result = run("verify", self.path("other"), self.path("out.nkv"), "--profile",
                     self.path("p"))
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("int4 differs first at token 4, head 1, channel 41", result.stdout)

    def test_errors(self):
        tensors = make_cache({(0, "k"): (1, 33)}, 4)
        cache, p, out = self.path("in.safetensors"), self.path("p"), self.path("o")
        write_safetensors(cache, tensors)
        self.good("calibrate", cache, "--profile", p)
        bad = ("compress", cache, out, "--profile", p, *self.OPTIONS)
        self.bad(*bad, says="calibrate with --target int8", output=out)
        self.good("calibrate", cache, "--profile", p, *self.OPTIONS)
        self.bad(*bad, "--coder", "huffman", output=out)
        self.bad(*bad, "--bank-kib", 1, output=out)
        self.bad("compress", cache, out, "--profile", p, "--target", "int8,int5", output=out)
        dtype, shape, data = tensors["layers.0.k.bf16"]
        for special in (0x7F80, 0xFFC0):
            other = {**tensors, "layers.0.k.bf16": (dtype, shape, pack16([special]) + data[2:])}
            write_safetensors(cache, other)
            self.bad(*bad, says="NaN or an infinity", output=out)
            self.bad("calibrate", cache, "--profile", out, *self.OPTIONS, says="NaN", output=out)
        stored = self.expected(tensors)
        changes = {
            "layers.0.k.int8": [("U8", [4, 1, 33]), ("I8", [4, 33, 1])],
            "layers.0.k.int4": [("I8", [4, 1, 17]), ("U8", [4, 17, 1])],
            "layers.0.k.int8_scale": [("BF16", [4, 1, 2]), ("F16", [4, 2, 1]), None],
            "layers.0.k.int4_scale": [("F16", [8, 1, 1]), None],
        }
        for name, forms in changes.items():
            for form in forms:
                other = {**tensors, **stored}
                if form is None:
                    del other[name]
                else:
                    other[name] = (*form, stored[name][2])
                write_safetensors(cache, other)
                self.bad(*bad, says=name, output=out)
        dtype, shape, data = stored["layers.0.k.int4"]
        write_safetensors(cache, {**tensors, **stored,
                                  "layers.0.k.int4": (dtype, shape, data[:-1] + b"\x10")})
        self.bad(*bad, says="odd nibble", output=out)


class Predictors(ToolTest):
    """Drafts, and caches that nobody predicts: without mu on both sides."""

    def coded_size(self, *options):
        self.good("compress", self.path("in"), self.path("o"), "--profile", self.path("p"),
                  *options)
        return os.path.getsize(self.path("o"))

    def check_back(self, expected, *means):
        common = ("--profile", self.path("p"), *means)
        self.good("verify", self.path("in"), self.path("o"), *common)
        self.good("decompress", self.path("o"), self.path("b"), *common)
        self.good("info", self.path("o"))
        self.assertEqual(read_safetensors(self.path("b"))[0], expected)

    def test_ranks_are_those_of_exhaustive_search(self):
        ranks, tries = {(0, "k"): 3, (0, "v"): 0, (1, "v"): 5}, (0, 1, 2, 3, 4, 5, 6)
        tensors = make_lowrank_cache(ranks, 96, 2, 16)
        for (layer, kind), rank in ranks.items():
            one = {n: t for n, t in tensors.items() if n.startswith(f"layers.{layer}.{kind}.")}
            write_safetensors(self.path("in"), one)
            found = {}
            for what in ("bf16", "fp8"):
                common = ("--profile", self.path("p"), "--target", what, "--page-tokens", 48)
                sizes = {}
                for r in tries:
                    self.good("profile-rank", self.path("in"), *common, "--ranks", r)
                    sizes[r] = self.coded_size("--predictor", "lowrank", "--target", what,
                                               "--page-tokens", 48, "--lanes", 1)
                out = self.good("profile-rank", self.path("in"), *common, "--ranks",
                                ",".join(map(str, tries)), "--json", self.path("r"))
                found[what] = json.loads(self.path("r").read_text())["tensors"][0]["rank"]
                self.assertEqual(sizes[found[what]], min(sizes.values()), (what, sizes))
                self.assertIn("does not pay" if found[what] == 0 else "low rank pays", out)
            self.assertEqual(found["bf16"], rank)

    def test_round_trips(self):
        ranks = {(0, "k"): 2, (0, "v"): 0, (3, "v"): 1}
        tensors = make_lowrank_cache(ranks, 70, 2, 20)
        expected = targets_of(tensors)
        write_safetensors(self.path("in"), tensors)
        self.good("profile-rank", self.path("in"), "--profile", self.path("p"), "--page-tokens",
                  "32,64", "--ranks", "1,2,4")
        for options in ((), ("--page-tokens", 1), ("--page-tokens", 69), ("--page-tokens", 1000),
                        ("--target", "fp8", "--no-row-scale")):
            for predictor in ("none", "lowrank"):
                self.coded_size("--predictor", predictor, *options)
                self.check_back({n: t for n, t in expected.items()
                                 if "--target" not in options or n.endswith("fp8")})
        coded = set()
        for threads in (1, 3):
            self.coded_size("--predictor", "lowrank", "--page-tokens", 16, "--threads", threads)
            coded.add(self.path("o").read_bytes())
        self.assertEqual(len(coded), 1)
        # A length that is not asked for is the profile's.
        self.coded_size("--predictor", "lowrank", "--json", self.path("r"))
        report = json.loads(self.path("r").read_text())
        self.assertEqual((report["means"], report["page_tokens"] in (32, 64)), ("lowrank", True))

    def test_low_rank_on_top_of_a_model(self):
        # The model knows the noise's mean, not the outer products.
        tensors = make_lowrank_cache({(0, "k"): 2}, 64, 2, 16)
        source, values = random.Random(4), []
        for i in range(64 * 32):
            values.append(bf16(source.gauss(i % 32 % 7, 0.1)))
        tensors["layers.0.k.mu"] = ("BF16", [64, 2, 16], pack16(values))
        write_safetensors(self.path("in"), tensors)
        sizes = {}
        self.good("calibrate", self.path("in"), "--profile", self.path("p"))
        sizes["model"] = self.coded_size("--page-tokens", 64)
        self.good("profile-rank", self.path("in"), "--profile", self.path("p"), "--predictor",
                  "both", "--page-tokens", 64)
        for predictor in ("model", "both"):
            sizes[predictor] = self.coded_size("--predictor", predictor, "--page-tokens", 64)
            self.check_back(targets_of(tensors), "--mu", self.path("in"))
        self.assertLess(sizes["both"], 0.9 * sizes["model"])
        self.bad("decompress", self.path("o"), self.path("c"), "--profile", self.path("p"),
                 says="--mu")

    def test_quantised_without_a_model(self):
        tensors = make_cache({(0, "k"): (1, 33)}, 9)
        del tensors["layers.0.k.mu"]
        write_safetensors(self.path("in"), tensors)
        every = ("--target", "all,int8,int4")
        self.good("calibrate", self.path("in"), "--profile", self.path("p"), *every, "--predictor",
                  "none")
        self.coded_size("--predictor", "none", *every)
        self.check_back({**targets_of(tensors), **quantised(tensors, "int8"),
                         **quantised(tensors, "int4")})

    def test_any_bits(self):
        # NaNs, infinities, dead and constant channels, on both sides of the search.
        source = random.Random(3)
        tensors = make_lowrank_cache({(0, "k"): 2, (0, "v"): 1}, 64, 1, 16)
        wild = [source.randrange(65536) for _ in range(1024)]
        tensors["layers.0.k.bf16"] = ("BF16", [64, 1, 16], pack16(wild))
        tensors["layers.0.k.fp8"] = ("F8_E4M3", [64, 1, 16], bytes(range(256)) * 4)
        dead = bytearray(tensors["layers.0.v.bf16"][2])
        for token in range(64):
            dead[32 * token : 32 * token + 4] = b"\x00\x80\x80\x3f"
        tensors["layers.0.v.bf16"] = ("BF16", [64, 1, 16], bytes(dead))
        write_safetensors(self.path("in"), tensors)
        self.good("profile-rank", self.path("in"), "--profile", self.path("p"), "--page-tokens",
                  32, "--ranks", "1,2")
        for predictor in ("none", "lowrank"):
            self.coded_size("--predictor", predictor)
            self.check_back(targets_of(tensors))

    def test_empty(self):
        for shape in ([0, 2, 8], [3, 0, 8], [3, 2, 0]):
            write_safetensors(self.path("in"), {
                "layers.0.k.fp8": ("F8_E4M3", shape, b""),
                "layers.0.k.scale": ("F32", [1], struct.pack("<f", 1))})
            self.good("profile-rank", self.path("in"), "--profile", self.path("p"))
            self.coded_size("--predictor", "lowrank")
            self.check_back({"layers.0.k.fp8": ("F8_E4M3", shape, b"")})

    def test_report(self):
        tensors = make_lowrank_cache({(0, "k"): 2, (0, "v"): 0}, 128, 2, 32)
        write_safetensors(self.path("in"), tensors)
        self.good("profile-rank", self.path("in"), "--profile", self.path("p"), "--page-tokens", 64,
                  "--ranks", 2)
        out = self.good("compress", self.path("in"), self.path("o"), "--profile", self.path("p"),
                        "--predictor", "lowrank", "--json", self.path("r"), "--lanes", 1)
        self.assertIn("side information, bf16", out)
        self.assertIn("ideal, total", out)
        report = json.loads(self.path("r").read_text())
        one = report["targets"]["bf16"]
        side = one["side_information"]
        # Two pages of k with a draft of rank 2, 64 tokens by 64 channels.
        self.assertEqual((side["draft_bytes"], side["drafted_pages"]), (2 * (8 + 260), 2))
        self.assertAlmostEqual(one["ideal_bits_per_scalar"],
                               one["model_bits_per_scalar"] + side["bits_per_scalar"])
        # About 12 bytes of header and state a block, four blocks.
        over = 8 * (one["coded_bytes"] - 4 * 12) / one["scalars"] / one["ideal_bits_per_scalar"]
        self.assertLess(over, 1.005)
        self.assertGreater(one["excess"], 0)
        self.assertEqual(sum(t["coded_bytes"] for t in report["targets"].values()),
                         os.path.getsize(self.path("o")))

    def test_errors(self):
        tensors = make_cache({(0, "k"): (1, 16)}, 8)
        write_safetensors(self.path("in"), tensors)
        cache, p, q, o = (self.path(n) for n in ("in", "p", "q", "o"))
        self.good("calibrate", cache, "--profile", p)
        self.good("profile-rank", cache, "--profile", q)
        for predictor in ("none", "lowrank"):
            self.bad("compress", cache, o, "--profile", p, "--predictor", predictor,
                     says="needs one without", output=o)
        for predictor in ("model", "both"):
            self.bad("compress", cache, o, "--profile", q, "--predictor", predictor,
                     says="needs one with", output=o)
        self.bad("compress", cache, o, "--profile", q, "--predictor", "lowrank", "--no-affine",
                 says="no-affine", output=o)
        self.bad("compress", cache, o, "--profile", q, "--predictor", "lowrank", "--target",
                 "fp8,int8", says="int8", output=o)
        self.bad("compress", cache, o, "--profile", q, "--predictor", "some", output=o)
        self.bad("profile-rank", cache, "--profile", o, "--target", "int8", says="fp8", output=o)
        self.bad("profile-rank", cache, "--profile", o, "--mu", cache, says="both", output=o)
        self.bad("profile-rank", cache, "--profile", o, "--ranks", 1025, output=o)
        self.bad("profile-rank", self.path("gone"), "--profile", o, says="gone", output=o)
        del tensors["layers.0.k.mu"]
        write_safetensors(cache, tensors)
        self.bad("profile-rank", cache, "--profile", o, "--predictor", "both", says="mu", output=o)
        self.good("compress", cache, o, "--profile", q, "--predictor", "none")
        self.bad("decompress", o, self.path("b"), "--profile", q, "--max-tokens", 7,
                 says="--max-tokens", output=self.path("b"))
        self.bad("decompress", o, self.path("b"), "--profile", p, says="another profile",
                 output=self.path("b"))


class Corrections(ToolTest):
    """Means corrected by what was coded before, and means of K that turn with the position."""

    def size(self, *options, calibrate=(), calib="calib", means=()):
        """Of the coded file, which both sides have coded and decoded."""
        common = ("--profile", self.path("p"), *means)
        self.good("calibrate", self.path(calib), "--profile", self.path("p"), *calibrate)
        cache, coded, back = self.path("in"), self.path("o"), self.path("b")
        self.good("compress", cache, coded, *common, *options)
        self.good("verify", cache, coded, *common)
        self.good("decompress", coded, back, *common,
                  *(() if "--predictor" in options else ("--mu", cache)))
        self.assertEqual(read_safetensors(back)[0], self.expected)
        return os.path.getsize(coded)

    def write(self, calib, tensors):
        self.expected = targets_of(tensors)
        write_safetensors(self.path("calib"), calib)
        write_safetensors(self.path("in"), tensors)

    def test_by_tensors_before(self):
        self.write(make_layered_cache(256, 3, 2, 7, seed=5),
                   make_layered_cache(96, 3, 2, 7, seed=6))
        plain = self.size()
        below = self.size(calibrate=("--correct-by", "below"))
        k = self.size(calibrate=("--correct-by", "k"))
        both = self.size(calibrate=("--correct-by", "all", "--threads", 1))
        self.assertLess(below, 0.93 * plain)
        self.assertLess(k, 0.93 * plain)
        self.assertLess(both, min(below, k))
        out = self.good("calibrate", self.path("calib"), "--profile", self.path("q"),
                        "--correct-by", "below,k,own", "--threads", 3)
        self.assertIn("below", out)
        self.assertEqual(self.path("p").read_bytes(), self.path("q").read_bytes())
        coded = set()
        for threads in (1, 3):
            self.good("compress", self.path("in"), self.path("o"), "--profile", self.path("p"),
                      "--page-tokens", 7, "--threads", threads)
            coded.add(self.path("o").read_bytes())
        self.assertEqual(len(coded), 1)
        # Not about mapped means: no correction, and none is needed.
        self.size("--no-affine", calibrate=("--correct-by", "all"))

    def test_by_own_means(self):
        # Each channel's error follows its neighbour's mean.
        caches = []
        for seed in (1, 2):
            source = random.Random(seed)
            means, values = [], []
            for _ in range(200):
                row = [bf16_value(bf16(source.gauss(0, 4))) for _ in range(16)]
                means += row
                values += [m + 0.2 * row[c - 1] + source.gauss(0, 0.2) for c, m in enumerate(row)]
            shape = [200, 1, 16]
            caches.append({"layers.3.v.bf16": ("BF16", shape, pack16([bf16(v) for v in values])),
                           "layers.3.v.mu": ("BF16", shape, pack16([bf16(m) for m in means]))})
        self.write(*caches)
        self.assertLess(self.size(calibrate=("--correct-by", "own")), 0.8 * self.size())

    def test_nothing_to_find(self):
        shapes = {(0, "k"): (1, 12), (0, "v"): (1, 12), (1, "k"): (1, 12), (1, "v"): (1, 12)}
        self.write(make_cache(shapes, 160, seed=7), make_cache(shapes, 64, seed=8))
        corrected = self.size(calibrate=("--correct-by", "all"))
        self.assertLess(corrected, 1.002 * self.size())

    def test_any_bits(self):
        source = random.Random(3)
        tensors = make_layered_cache(64, 2, 1, 16)
        wild = [source.randrange(65536) for _ in range(1024)]
        for kind in "kv":
            tensors[f"layers.0.{kind}.fp8"] = ("F8_E4M3", [64, 1, 16], bytes(range(256)) * 4)
            tensors[f"layers.0.{kind}.bf16"] = ("BF16", [64, 1, 16], pack16(wild))
        tensors["layers.1.k.mu"] = ("BF16", [64, 1, 16], pack16(wild[::-1]))
        dead = pack16([source.choice((0, 0x8000)) for _ in range(1024)])
        tensors["layers.1.v.bf16"] = ("BF16", [64, 1, 16], dead)
        sane = make_layered_cache(256, 2, 1, 16)
        self.write(tensors, tensors)
        self.size(calibrate=("--correct-by", "all"))
        self.write(sane, tensors)
        self.size(calibrate=("--correct-by", "all"))

    def test_rotary(self):
        caches = []
        for seed in (1, 2):
            source = random.Random(seed)
            values = []
            for token in range(300):
                for head in (1.0, -2.0):
                    turns = [token * 100 ** (-i / 4) for i in range(4)]
                    values += [head * 3 * math.cos(a) + source.gauss(0, 0.1) for a in turns]
                    values += [head * 3 * math.sin(a) + source.gauss(0, 0.1) for a in turns]
                    values += [head * 5 + source.gauss(0, 0.1) for _ in range(2)]  # do not turn
            shape, cache = [300, 2, 10], {}
            for kind in "kv":
                cache[f"layers.0.{kind}.bf16"] = ("BF16", shape, pack16([bf16(v) for v in values]))
            caches.append(cache)
        self.write(*caches)
        none = ("--predictor", "none")
        plain = self.size(*none, calibrate=none)
        turn = (*none, "--rotary-theta", 100, "--rotary-dim", 8)
        turned = self.size(*none, calibrate=turn)
        self.assertLess(turned, 0.85 * plain)
        other = self.size(*none, calibrate=(*turn, "--rotary-pairing", "interleaved"))
        self.assertLess(turned, 0.9 * other)
        # V turns as K does here: where K's mean does not, its residuals tell V's.
        by_k = self.size(*none, calibrate=(*none, "--correct-by", "k"))
        self.assertLess(by_k, 0.85 * plain)

    def test_errors(self):
        tensors = make_layered_cache(96, 2, 1, 8)
        self.write(tensors, tensors)
        cache, p, o = self.path("in"), self.path("p"), self.path("o")
        self.good("calibrate", self.path("calib"), "--profile", p, "--correct-by", "below,k")
        for gone in ("layers.0.v.bf16", "layers.1.k.bf16"):
            some = {n: t for n, t in tensors.items() if n != gone and "fp8" not in n}
            write_safetensors(cache, some)
            self.bad("compress", cache, o, "--profile", p, says="is missing", output=o)
        some = {n: t for n, t in tensors.items()}
        for what, size in (("bf16", 2), ("mu", 2), ("fp8", 1)):
            dtype, shape, data = some[f"layers.0.k.{what}"]
            some[f"layers.0.k.{what}"] = (dtype, [95, 1, 8], data[: 95 * 8 * size])
        write_safetensors(cache, some)
        self.bad("compress", cache, o, "--profile", p, says="another number of tokens", output=o)
        write_safetensors(cache, tensors)
        self.bad("calibrate", cache, "--profile", o, "--correct-by", "above", output=o)
        self.bad("calibrate", cache, "--profile", o, "--rotary-theta", 100, says="none", output=o)
        self.bad("calibrate", cache, "--profile", o, "--predictor", "none", "--rotary-theta", "nan",
                 says="number", output=o)
        none = ("--predictor", "none", "--rotary-theta", 100)
        self.bad("calibrate", cache, "--profile", o, *none, "--rotary-dim", 10, says="pairs",
                 output=o)
        self.bad("calibrate", cache, "--profile", o, *none, "--rotary-dim", 3, says="pairs",
                 output=o)
        self.bad("calibrate", cache, "--profile", o, *none, "--target", "int8", says="fp8",
                 output=o)


class Plan(ToolTest):
    MODEL = ("--layers", 32, "--kv-heads", 8, "--head-dim", 128)

    def plan(self, *options):
        made = self.good("plan", *options, "--json", self.path("plan.json"))
        return json.loads(self.path("plan.json").read_text()), made

    def test_numbers(self):
        got, _ = self.plan(*self.MODEL, "--bits", 6.4, "--memory-gb", 10, "--link-gb-s", 20,
                           "--encode-gb-s", 5, "--decode-gb-s", 50, "--context", 1000,
                           "--page-tokens", 16)
        token = 2 * 32 * 8 * 128 * 2
        page = token * 16
        self.assertEqual(got["bytes_per_token"]["raw"], token)
        self.assertAlmostEqual(got["bytes_per_token"]["coded"], token * 0.4)
        pages = [int(10e9 // page), int(10e9 // (page * 0.4))]
        self.assertEqual(list(got["tokens"].values()), [16 * n for n in pages])
        sequences = [n // 63 for n in pages]
        self.assertEqual(list(got["sequences"].values()), sequences)
        self.assertAlmostEqual(got["batch_factor"], sequences[1] / sequences[0])
        size = 63 * page
        self.assertAlmostEqual(got["store_seconds"]["raw"], size / 20e9)
        self.assertAlmostEqual(got["store_seconds"]["coded"], size / 5e9)  # the encoder binds
        self.assertAlmostEqual(got["restore_seconds"]["coded"], 0.4 * size / 20e9)  # the link
        self.assertAlmostEqual(got["restore_break_even_gb_s"], 50)
        self.assertAlmostEqual(got["store_break_even_serial_gb_s"], 5 * 0.6)

    def test_what_is_unknown(self):
        got, text = self.plan("--bytes-per-token", 1000, "--bits", 2, "--target", "fp8",
                              "--link-gb-s", 1)
        self.assertIn("rate is unknown", text)
        self.assertNotIn("restore_break_even_gb_s", got)
        self.assertNotIn("tokens", got)
        self.assertAlmostEqual(got["store_seconds"]["coded"], 0.25 * 4096e3 / 1e9)

    def test_measured(self):
        self.small_job()
        self.good("compress", self.path("in.safetensors"), self.path("o"), "--profile",
                  self.path("p"), "--json", self.path("r"))
        target = json.loads(self.path("r").read_text())["targets"]["fp8"]
        got, text = self.plan(*self.MODEL, "--target", "fp8", "--report", self.path("r"),
                              "--link-gb-s", 1)
        self.assertIn("measured", text)
        share = target["bits_per_scalar"] / 8
        self.assertAlmostEqual(got["bytes_per_token"]["coded"] / got["bytes_per_token"]["raw"],
                               share)
        self.assertAlmostEqual(got["restore_break_even_gb_s"], target["decode_mb_s"] / 1000)

    def test_errors(self):
        self.bad("plan", "--bits", 3, says="--bytes-per-token")
        self.bad("plan", *self.MODEL, says="--bits")
        self.bad("plan", *self.MODEL, "--bits", 0)
        self.bad("plan", *self.MODEL, "--bits", "nan")
        self.bad("plan", *self.MODEL, "--bits", 3, "--page-tokens", 0)
        for text in ("", "[]", "{", '{"targets": 3}', '{"targets": {"bf16": 3}}',
                     '{"targets": {"bf16": {"bits_per_scalar": "6"}}}', "\xff\xfe"):
            self.path("r").write_text(text)
            self.bad("plan", *self.MODEL, "--report", self.path("r"), says="r: ")


class Verify(ToolTest):
    def test_first_difference(self):
        tensors = self.small_job()
        dtype, shape, data = tensors["layers.0.v.bf16"]
        changed = bytearray(data)
        changed[2 * ((7 * 2 + 1) * 8 + 3)] ^= 1
        changed[-1] ^= 128
        tensors["layers.0.v.bf16"] = (dtype, shape, bytes(changed))
        write_safetensors(self.path("other.safetensors"), tensors)
        result = run("verify", self.path("other.safetensors"), self.path("out.nkv"),
                     "--profile", self.path("p"))
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("layers.0.v.bf16", result.stdout)
        self.assertIn("token 7, head 1, channel 3", result.stdout)

    def test_other_shape_or_type_is_an_error(self):
        tensors = self.small_job()
        dtype, shape, data = tensors["layers.0.v.fp8"]
        for changed in ((dtype, [9, 1, 16], data), ("F8_E5M2", shape, data), None):
            other = dict(tensors)
            if changed is None:
                del other["layers.0.v.fp8"]
            else:
                other["layers.0.v.fp8"] = changed
            write_safetensors(self.path("other.safetensors"), other)
            self.bad("verify", self.path("other.safetensors"), self.path("out.nkv"), "--profile",
                     self.path("p"), says="layers.0.v.fp8")


class Errors(ToolTest):
    def compress_bad(self, says, cache="in.safetensors", *options):
        self.bad("compress", self.path(cache), self.path("bad.nkv"), "--profile", self.path("p"),
                 "--json", self.path("bad.json"), *options, says=says, output=self.path("bad.nkv"))

    def test_command_line(self):
        self.bad()
        self.bad("nothing")
        self.bad("compress", "a")
        self.bad("info", "a", "--nothing")
        self.bad("compress", "a", "b", "--profile", "c", "--lanes", 7)
        self.bad("compress", "a", "b", "--profile", "c", "--page-tokens", 0)
        self.bad("compress", "a", "b", "--profile", "c", "--target", "fp4")
        self.bad("compress", "a", "b", "--profile", "c", "--threads", 0)
        self.assertEqual(run("--help").returncode, 0)

    def test_missing_files(self):
        self.small_job()
        gone, cache, coded, p = (self.path(n) for n in ("gone", "in.safetensors", "out.nkv", "p"))
        out = self.path("result")
        self.bad("calibrate", gone, "--profile", out, says="gone", output=out)
        self.bad("calibrate", cache, "--mu", gone, "--profile", out, says="gone", output=out)
        self.bad("compress", gone, out, "--profile", p, says="gone", output=out)
        self.bad("compress", cache, out, "--profile", gone, says="gone", output=out)
        self.bad("compress", cache, out, "--profile", p, "--mu", gone, says="gone", output=out)
        self.bad("decompress", gone, out, "--profile", p, "--mu", cache, says="gone", output=out)
        self.bad("decompress", coded, out, "--profile", p, "--mu", gone, says="gone", output=out)
        self.bad("decompress", coded, out, "--profile", gone, "--mu", cache, says="gone",
                 output=out)
        self.bad("decompress", coded, out, "--profile", p, says="--mu", output=out)
        self.bad("verify", gone, coded, "--profile", p, says="gone")
        self.bad("verify", cache, gone, "--profile", p, says="gone")
        self.bad("info", gone, says="gone")
        self.bad("info", self.dir, says="directory")

    def test_output_cannot_be_written(self):
        self.small_job()
        where = self.path("no_folder") / "x"
        cache, p = self.path("in.safetensors"), self.path("p")
        self.bad("compress", cache, where, "--profile", p)
        self.bad("compress", cache, self.dir, "--profile", p)
        self.bad("calibrate", cache, "--profile", where)
        self.bad("compress", cache, self.path("o"), "--profile", p, "--json", where,
                 output=self.path("o"))

    def test_old_output_survives_an_error(self):
        self.small_job()
        before = self.path("out.nkv").read_bytes()
        self.bad("compress", self.path("in.safetensors"), self.path("out.nkv"), "--profile",
                 self.path("in.safetensors"))
        self.assertEqual(self.path("out.nkv").read_bytes(), before)

    def test_wrong_dtype_or_shape(self):
        tensors = self.small_job()
        changes = {
            "layers.0.k.bf16": [("F16", [9, 2, 8]), ("BF16", [9, 4, 4]), ("BF16", [144])],
            "layers.0.k.fp8": [("U8", [9, 2, 8]), ("F8_E5M2", [9, 2, 8])],
            "layers.0.v.mu": [("F16", [9, 2, 8]), ("BF16", [9, 16, 1]), ("BF16", [3, 6, 8])],
        }
        for name, forms in changes.items():
            for dtype, shape in forms:
                other = dict(tensors)
                other[name] = (dtype, shape, tensors[name][2])
                write_safetensors(self.path("other.safetensors"), other)
                self.compress_bad(name.rsplit(".", 1)[0], "other.safetensors")
        other = {n: t for n, t in tensors.items() if n != "layers.0.v.mu"}
        write_safetensors(self.path("other.safetensors"), other)
        self.compress_bad("layers.0.v.mu is missing", "other.safetensors")
        write_safetensors(self.path("other.safetensors"), {})
        self.compress_bad("no tensors", "other.safetensors")
        other = {n: t for n, t in tensors.items() if not n.endswith("fp8")}
        write_safetensors(self.path("other.safetensors"), other)
        self.compress_bad("no tensors", "other.safetensors", "--target", "fp8")

    def test_scale(self):
        tensors = make_cache({(0, "k"): (2, 8)}, 3)
        for form in (("F32", [1], struct.pack("<f", 0)), ("F32", [1], struct.pack("<f", -1)),
                     ("F32", [1], struct.pack("<f", float("nan"))),
                     ("F32", [2], struct.pack("<ff", 1, 1)), ("F16", [1], b"\0\x3c"), None):
            tensors.pop("layers.0.k.scale", None)
            if form is not None:
                tensors["layers.0.k.scale"] = form
            write_safetensors(self.path("in.safetensors"), tensors)
            self.bad("calibrate", self.path("in.safetensors"), "--profile", self.path("p"),
                     says="layers.0.k.scale")

    def test_another_profile(self):
        tensors = self.small_job(model="one", predictor="p8")
        for metadata in ({"model": "two", "predictor": "p8"}, {"model": "one", "predictor": "p4"}):
            write_safetensors(self.path("other.safetensors"), tensors, metadata)
            self.compress_bad("profile's is", "other.safetensors")
        write_safetensors(self.path("other.safetensors"), tensors)
        self.good("compress", self.path("other.safetensors"), self.path("fine.nkv"), "--profile",
                  self.path("p"))
        # A profile of other layers, of other widths, of one target, and one of another predictor.
        for shapes in ({(0, "k"): (2, 8)}, {(0, "k"): (2, 8), (0, "v"): (1, 16)}):
            write_safetensors(self.path("other.safetensors"), make_cache(shapes, 9))
            self.good("calibrate", self.path("other.safetensors"), "--profile", self.path("q"))
            self.bad("compress", self.path("in.safetensors"), self.path("bad.nkv"), "--profile",
                     self.path("q"), says="layers.0.v")
        self.good("calibrate", self.path("in.safetensors"), "--profile", self.path("q"),
                  "--target", "fp8")
        self.bad("compress", self.path("in.safetensors"), self.path("bad.nkv"), "--profile",
                 self.path("q"), says="bf16")
        for command in (("decompress", self.path("out.nkv"), self.path("back")),
                        ("verify", self.path("in.safetensors"), self.path("out.nkv"))):
            self.bad(*command, "--profile", self.path("q"), "--mu", self.path("in.safetensors"),
                     says="another profile", output=self.path("back"))

    def test_another_mu(self):
        tensors = self.small_job(predictor="p8")
        dtype, shape, data = tensors["layers.0.v.mu"]
        mu = {n: t for n, t in tensors.items() if n.endswith("mu")}
        for changed, metadata in (((dtype, shape, data[:-1] + b"\x01"), None),
                                  ((dtype, [9, 1, 16], data), None),
                                  ((dtype, [8, 2, 8], data[:-32]), None),
                                  (tensors["layers.0.v.mu"], {"predictor": "p4"}), (None, None)):
            other = {n: t for n, t in mu.items() if n != "layers.0.v.mu"}
            if changed is not None:
                other["layers.0.v.mu"] = changed
            write_safetensors(self.path("mu.safetensors"), other, metadata)
            for command in (("decompress", self.path("out.nkv"), self.path("back")),
                            ("verify", self.path("in.safetensors"), self.path("out.nkv"))):
                self.bad(*command, "--profile", self.path("p"), "--mu",
                         self.path("mu.safetensors"), says="mu", output=self.path("back"))


class Damage(ToolTest):
    def decode_damaged(self, data, original, means=None):
        """Status 2, or the right bits: never wrong ones."""
        self.path("damaged.nkv").write_bytes(data)
        back = self.path("back")
        if means is None:
            means = ("--mu", self.path("in.safetensors"))
        arguments = ("decompress", self.path("damaged.nkv"), back, "--profile", self.path("p"),
                     *means)
        result = run(*arguments)
        if result.returncode == 0:
            self.assertEqual(read_safetensors(back)[0], original)
            back.unlink()
            return True
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertFalse(back.exists())
        return False

    def test_flips(self):
        original = targets_of(self.small_job({(0, "k"): (2, 8), (0, "v"): (1, 12)}))
        data = self.path("out.nkv").read_bytes()
        self.assertTrue(self.decode_damaged(data, original))
        source = random.Random(5)
        for at in range(0, len(data), EVERY):
            flipped = bytearray(data)
            flipped[at] ^= 1 << source.randrange(8)
            self.assertFalse(self.decode_damaged(bytes(flipped), original), at)

    def test_quantised(self):
        # Small, so that every byte can be hit: scales, signs and codes by either coder.
        tensors = make_cache({(0, "k"): (1, 8), (0, "v"): (1, 40)}, 6)
        cache, common = self.path("in.safetensors"), ("--profile", self.path("p"))
        write_safetensors(cache, tensors)
        targets = ("--target", "int8,int4")
        self.good("calibrate", cache, *common, *targets)
        original = {**quantised(tensors, "int8"), **quantised(tensors, "int4")}
        source = random.Random(7)
        for coder in ("rans", "tans"):
            self.good("compress", cache, self.path("out.nkv"), *common, *targets, "--coder", coder,
                      "--bank-kib", 16)
            data = self.path("out.nkv").read_bytes()
            self.assertTrue(self.decode_damaged(data, original))
            for at in range(0, len(data) - 1, 2 * EVERY):
                flipped = bytearray(data)
                flipped[at + source.randrange(2)] ^= 1 << source.randrange(8)
                self.assertFalse(self.decode_damaged(bytes(flipped), original), at)
            for length in range(0, len(data), 13 * EVERY):
                self.assertFalse(self.decode_damaged(data[:length], original), length)

    def test_drafts(self):
        # All bytes but the blocks', which other tests hit, and every length.
        tensors = make_lowrank_cache({(0, "k"): 1, (0, "v"): 0}, 40, 1, 12)
        write_safetensors(self.path("in"), tensors)
        self.good("profile-rank", self.path("in"), "--profile", self.path("p"), "--ranks", 1,
                  "--page-tokens", 20)
        self.good("compress", self.path("in"), self.path("out.nkv"), "--profile", self.path("p"),
                  "--predictor", "lowrank", "--lanes", 1)
        data, original = self.path("out.nkv").read_bytes(), targets_of(tensors)
        info = self.good("info", self.path("out.nkv"))
        self.assertIn("layers.0.k.fp8_drafts", info)
        self.assertTrue(self.decode_damaged(data, original, ()))
        (length,) = struct.unpack_from("<I", data, 12)
        drafts = (length + 3) // 4 * 4 + 2 * (8 + 36)  # two pages of rank 1
        source = random.Random(9)
        for at in range(0, drafts + 20, EVERY):
            flipped = bytearray(data)
            flipped[at] ^= 1 << source.randrange(8)
            self.assertFalse(self.decode_damaged(bytes(flipped), original, ()), at)
        for length in range(0, len(data), 7 * EVERY):
            self.assertFalse(self.decode_damaged(data[:length], original, ()), length)
        damaged = bytearray(data)
        damaged[drafts - 10] ^= 1
        self.path("damaged.nkv").write_bytes(damaged)
        self.bad("verify", self.path("in"), self.path("damaged.nkv"), "--profile", self.path("p"),
                 says="the draft of layers.0.k.fp8, page 1 (content_mismatch)")

        # A head that says more tokens, with a right hash: refused before memory is taken.
        self.assertEqual(data[28] & 64, 64)  # the first record says its shape, at 30
        for tokens in (b"\xff\xff\xff\xff\x07", b"\x80\x80\x40"):
            head = bytearray(data[:12] + bytes(4) + data[16:24] + bytes(4) + data[28:30] + tokens +
                             data[31 : struct.unpack_from("<I", data, 12)[0]])
            head[12:16] = struct.pack("<I", len(head))
            head += bytes(-len(head) % 4)
            head[24:28] = struct.pack("<I", fingerprint(head) % 2**32)
            self.path("damaged.nkv").write_bytes(
                head + data[(struct.unpack_from("<I", data, 12)[0] + 3) // 4 * 4 :])
            says = "--max-tokens" if len(tokens) == 5 else "damaged"
            self.bad("decompress", self.path("damaged.nkv"), self.path("back"), "--profile",
                     self.path("p"), says=says, output=self.path("back"))

    def test_heads_that_no_writer_writes(self):
        # Their hash is right: only what they say is wrong.
        tensors = make_cache({(0, "k"): (1, 8)}, 6)
        cache, common = self.path("in.safetensors"), ("--profile", self.path("p"))
        write_safetensors(cache, tensors)
        self.good("calibrate", cache, *common, "--target", "int8,int4")
        self.good("compress", cache, self.path("out.nkv"), *common, "--target", "int8,int4",
                  "--coder", "tans", "--bank-kib", 16)
        original = {**quantised(tensors, "int8"), **quantised(tensors, "int4")}
        data = self.path("out.nkv").read_bytes()
        (length,) = struct.unpack_from("<I", data, 12)
        end = (length + 3) // 4 * 4
        self.assertEqual((data[5], data[32], data[33]), (3, 0x80 | 64, 15))

        def head(changes):
            damaged = bytearray(data)
            for at, value in changes.items():
                damaged[at] = value
            damaged[24:28] = bytes(4)
            hashed = fingerprint(damaged[:end]) % 2**32
            damaged[24:28] = struct.pack("<I", hashed)
            return bytes(damaged)

        self.assertTrue(self.decode_damaged(head({}), original))
        plans = ({28: 0, 29: 0}, {30: 0, 31: 0}, {28: 5}, {28: 13}, {29: 0x80}, {31: 2},
                 {29: data[29] | 1, 28: data[28] | 0x40})
        for changes in (*plans, {5: 1}, {5: 7}, {33: 0}, {33: 14}, {33: 31}, {33: 3}, {33: 7},
                        {33: 12}):
            self.assertFalse(self.decode_damaged(head(changes), original), changes)

    def test_fp8_by_tables(self):
        tensors = make_cache({(0, "k"): (1, 8)}, 30)
        cache, common = self.path("in.safetensors"), ("--profile", self.path("p"))
        write_safetensors(cache, tensors)
        self.good("calibrate", cache, *common)
        self.good("compress", cache, self.path("out.nkv"), *common, "--target", "fp8", "--lanes", 1,
                  "--coder", "tans", "--bank-kib", 64)
        original = {k: v for k, v in targets_of(tensors).items() if k.endswith(".fp8")}
        data = self.path("out.nkv").read_bytes()
        self.assertTrue(self.decode_damaged(data, original))
        (length,) = struct.unpack_from("<I", data, 12)
        end = (length + 3) // 4 * 4
        self.assertEqual((data[5], data[28], data[29], data[31]), (17, 6, 0, 16))
        self.assertIn("e4m3fn", self.good("info", self.path("out.nkv")))
        for at in range(0, len(data), 7 * EVERY):
            flipped = bytearray(data)
            flipped[at] ^= 1 << at % 8
            self.assertFalse(self.decode_damaged(bytes(flipped), original), at)
        # Right hashes: no plan, none that is one, one that asks for too much memory, no coder.
        for changes in ({28: 0}, {28: 5}, {28: 0x3C, 29: 1}, {29: 2}, {5: 1}, {31: 0}, {31: 20}):
            damaged = bytearray(data)
            for at, value in changes.items():
                damaged[at] = value
            damaged[24:28] = bytes(4)
            damaged[24:28] = struct.pack("<I", fingerprint(damaged[:end]) % 2**32)
            self.assertFalse(self.decode_damaged(bytes(damaged), original), changes)

    def test_first_damaged_page_on_any_number_of_threads(self):
        self.small_job({(0, "k"): (2, 8)}, 40)
        data = self.path("out.nkv").read_bytes()
        for at in range(100, len(data), 41 * EVERY):
            flipped = bytearray(data)
            flipped[at] ^= 1
            flipped[-9] ^= 1
            self.path("damaged.nkv").write_bytes(flipped)
            said = {self.bad("verify", self.path("in.safetensors"), self.path("damaged.nkv"),
                             "--profile", self.path("p"), "--threads", threads)
                    for threads in (1, 3)}
            self.assertEqual(len(said), 1, said)

    def test_lengths(self):
        original = targets_of(self.small_job())
        data = self.path("out.nkv").read_bytes()
        for length in [*range(0, 120, EVERY), *range(120, len(data), 7 * EVERY), len(data) - 1]:
            self.assertFalse(self.decode_damaged(data[:length], original), length)
        for tail in (b"\0", bytes(4), data):
            self.assertFalse(self.decode_damaged(data + tail, original))

    def test_info_on_damage(self):
        self.small_job()
        data = self.path("out.nkv").read_bytes()
        for at in range(40):
            damaged = bytearray(data)
            damaged[at] ^= 0x55
            self.path("damaged.nkv").write_bytes(damaged)
            self.bad("info", self.path("damaged.nkv"))
        self.path("damaged.nkv").write_bytes(data[:-4])
        self.bad("info", self.path("damaged.nkv"))

    def test_profile(self):
        self.small_job()
        data = self.path("p").read_bytes()
        source = random.Random(6)
        for at in [*range(0, 40, EVERY), *range(40, len(data), 11 * EVERY), len(data) - 1]:
            damaged = bytearray(data)
            damaged[at] ^= 1 << source.randrange(8)
            self.path("q").write_bytes(damaged)
            self.bad("compress", self.path("in.safetensors"), self.path("o"), "--profile",
                     self.path("q"), says="profile", output=self.path("o"))
        for length in (0, 7, 8, 23, 31, 32, 100, len(data) - 1):
            self.path("q").write_bytes(data[:length])
            self.bad("compress", self.path("in.safetensors"), self.path("o"), "--profile",
                     self.path("q"), says="profile", output=self.path("o"))

    def test_safetensors(self):
        self.small_job()
        data = self.path("in.safetensors").read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        text = data[8 : 8 + length]
        other, p = self.path("other.safetensors"), self.path("p")

        def refused(content):
            other.write_bytes(content)
            self.bad("compress", other, self.path("o"), "--profile", p, output=self.path("o"))

        for size in (0, 4, 8, 9, 8 + length - 1, 8 + length, len(data) - 1):
            refused(data[:size])
        refused(data + b"\0")
        refused(b"\xff" * 8 + data[8:])
        for before, after in ((b'"BF16"', b'"BF17"'), (b'"shape"', b'"sheep"'),
                              (b"[9, 2, 8]", b"[9, 2, 9]"), (b"[9, 2, 8]", b"[9, 2,-8]"),
                              (b'"data_offsets"', b'"data_offsetz"'), (b"[0, 144]", b"[1, 145]"),
                              (b"layers.0.v.fp8", b"layers.0.k.fp8"), (b"{", b"["),
                              (b"[9, 2, 8]", b"[9, 8589934592, 2147483648]")):
            self.assertIn(before, text)
            changed = text.replace(before, after, 1)
            refused(struct.pack("<Q", len(changed)) + changed + data[8 + length :])
        deep = b"[" * 100000
        refused(struct.pack("<Q", len(deep)) + deep)


if __name__ == "__main__":
    unittest.main()
