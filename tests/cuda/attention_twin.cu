// The uncompressed side of the attention test: a unit that never sees the codec (attention_gate.py
// looks), compiled with --use_fast_math, which must change nothing.

#include "attention_shapes.cuh"

NORMANS_TEST_TWINS(template)
