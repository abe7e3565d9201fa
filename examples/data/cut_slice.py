#!/usr/bin/env python3
"""Cuts the slice in this folder from the full files: a few layers, the first tokens.

    python3 cut_slice.py FOLDER_WITH_THE_FULL_FILES [DESTINATION]

reads calib.safetensors and test.safetensors, writes calib-slice.safetensors and
test-slice.safetensors. Names keep the original layer numbers. Standard library only.
"""

import json
import pathlib
import struct
import sys

LAYERS = (0, 1, 5, 10, 15, 20, 25, 29)
TOKENS = 128


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    return header.pop("__metadata__", {}), header, memoryview(data)[8 + length :]


def write_safetensors(path, metadata, tensors):
    header, offset = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            out.write(data)


def cut(source, destination):
    metadata, header, data = read_safetensors(source)
    wanted = [(layer, kind, what) for layer in LAYERS for kind in "kv"
              for what in ("scale", "bf16", "mu", "fp8")]
    # Wide elements first, so that every tensor is aligned.
    wanted.sort(key=lambda w: ("scale", "bf16", "mu", "fp8").index(w[2]))
    tensors = {}
    for layer, kind, what in wanted:
        name = f"layers.{layer}.{kind}.{what}"
        begin, end = header[name]["data_offsets"]
        shape = list(header[name]["shape"])
        part = data[begin:end]
        if what != "scale":
            part = part[: len(part) // shape[0] * TOKENS]
            shape[0] = TOKENS
        tensors[name] = (header[name]["dtype"], shape, part)
    metadata = dict(sorted(metadata.items()))
    metadata["tokens"] = str(TOKENS)
    metadata["slice"] = (f"first {TOKENS} tokens of layers {', '.join(map(str, LAYERS))} "
                         f"of {metadata['layers']}")
    write_safetensors(destination, metadata, tensors)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[1])
    destination = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else __file__)
    if destination.is_file():
        destination = destination.parent
    for part in ("calib", "test"):
        cut(source / f"{part}.safetensors", destination / f"{part}-slice.safetensors")


if __name__ == "__main__":
    main()
