#pragma once
// Normans: lossless storage of fp8 and bf16 tensors at the rate that a prediction allows.
// Everything for the host. Device headers live under cuda/ and are included on their own.

#include "host/codec.hpp"
#include "version.hpp"
