// The uncompressed side of the attention test: a unit that never sees the codec (attention_gate.py
// looks).

#include "attention_shapes.cuh"

NORMANS_TEST_TWINS(template)
