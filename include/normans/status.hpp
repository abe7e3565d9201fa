#pragma once
// Every outcome of the library. Input is never checked by assert and nothing throws.

#include "config.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

enum class status : uint8_t {
    ok,
    bad_argument,         // a null pointer, an impossible spec, codes of another width than dtype
    output_too_small,     // the result says how many bytes are always enough
    truncated,            // the input ends before its header says so
    bad_header,           // a field holds a value that no writer writes
    unsupported_version,  // written by another format_version
    wrong_dtype,          // the block holds another scalar type than asked for
    wrong_count,          // the block holds another number of scalars than asked for
    wrong_lanes,          // the block has another lane count than asked for
    wrong_model,          // another shape, precision or sigma offset than the caller's
    wrong_fingerprint,    // written under another predictor or profile
    wrong_prediction,     // the parameter hash: mu, sigma or row step differ from the encoder's
    corrupt_stream,       // slots nobody owns, end states, cursor or padding are off
    content_mismatch,     // decoded, but the content check differs: damage or a drifted predictor
};

/// The status as a word, for messages. Never null.
NORMANS_HD constexpr const char* status_name(status s) noexcept
{
    switch (s) {
    case status::ok: return "ok";
    case status::bad_argument: return "bad_argument";
    case status::output_too_small: return "output_too_small";
    case status::truncated: return "truncated";
    case status::bad_header: return "bad_header";
    case status::unsupported_version: return "unsupported_version";
    case status::wrong_dtype: return "wrong_dtype";
    case status::wrong_count: return "wrong_count";
    case status::wrong_lanes: return "wrong_lanes";
    case status::wrong_model: return "wrong_model";
    case status::wrong_fingerprint: return "wrong_fingerprint";
    case status::wrong_prediction: return "wrong_prediction";
    case status::corrupt_stream: return "corrupt_stream";
    case status::content_mismatch: return "content_mismatch";
    }
    return "unknown status";
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
