#pragma once
// Blocks for tests: codes and predictions in vectors, encoded and decoded by the library between
// canaries; and the bytes that the same block must have, put together from tests/support alone.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <normans/host/codec.hpp>

#include "random_scalars.hpp"
#include "reference_rans.hpp"

namespace normans_test {

/// Reads the vectors of a test_scalars; floats pass as bits.
struct array_predictor {
    const std::uint32_t* mean;
    const std::uint8_t* sigma;

    normans::prediction operator()(const normans::scalar_position& at) const
    {
        return {normans::bits_to_float(mean[at.index]), sigma[at.index]};
    }
};

inline array_predictor predictor_of(const test_scalars& data)
{
    return {data.mean.data(), data.sigma.data()};
}

struct coded_block {
    normans::encode_result result;
    std::vector<std::uint8_t> bytes;  // empty unless ok
    bool canaries_intact = false;
};

constexpr std::size_t canary_bytes = 64;

template <class Code>
coded_block encode_codes(const normans::block_spec& spec, const test_scalars& data,
                         std::size_t capacity, std::uint8_t fill)
{
    const std::vector<Code> codes(data.code.begin(), data.code.end());
    std::vector<std::uint8_t> room(capacity + 2 * canary_bytes, fill);
    for (std::size_t i = 0; i < canary_bytes; ++i)
        room[i] = room[canary_bytes + capacity + i] = std::uint8_t(0xa5 + i);
    coded_block out;
    out.result = normans::encode(spec, normans::dense(spec, codes.data()), predictor_of(data),
                                 room.data() + canary_bytes, capacity);
    out.canaries_intact = true;
    for (std::size_t i = 0; i < canary_bytes; ++i)
        out.canaries_intact &= room[i] == std::uint8_t(0xa5 + i) &&
                               room[canary_bytes + capacity + i] == std::uint8_t(0xa5 + i);
    if (out.result && out.result.bytes <= capacity)
        out.bytes.assign(room.begin() + canary_bytes,
                         room.begin() + std::ptrdiff_t(canary_bytes + out.result.bytes));
    return out;
}

inline coded_block encode_block(const normans::block_spec& spec, const test_scalars& data,
                                std::size_t capacity, std::uint8_t fill = 0xcc)
{
    return normans::code_bytes(spec.dtype) == 1
               ? encode_codes<std::uint8_t>(spec, data, capacity, fill)
               : encode_codes<std::uint16_t>(spec, data, capacity, fill);
}

inline coded_block encode_block(const normans::block_spec& spec, const test_scalars& data)
{
    return encode_block(spec, data, normans::max_encoded_bytes(spec));
}

struct decoded_block {
    normans::decode_result result;
    std::vector<std::uint16_t> codes;
};

template <class Code>
decoded_block decode_codes(const normans::block_spec& spec, const std::vector<std::uint8_t>& bytes,
                           const test_scalars& data, std::size_t room)
{
    std::vector<Code> codes(room, Code(0x5a5a));
    decoded_block out;
    out.result = normans::decode(spec, bytes.data(), bytes.size(), predictor_of(data),
                                 normans::dense(spec, codes.data()));
    out.codes.assign(codes.begin(), codes.end());
    return out;
}

inline decoded_block decode_block(const normans::block_spec& spec,
                                  const std::vector<std::uint8_t>& bytes, const test_scalars& data)
{
    return normans::code_bytes(spec.dtype) == 1
               ? decode_codes<std::uint8_t>(spec, bytes, data, data.code.size())
               : decode_codes<std::uint16_t>(spec, bytes, data, data.code.size());
}

// --- the expected bytes ---------------------------------------------------------------------

inline void append(std::vector<std::uint8_t>& to, std::uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; ++i) to.push_back(std::uint8_t(value >> 8 * i));
}

inline void pad(std::vector<std::uint8_t>& to)
{
    while (to.size() % 4 != 0) to.push_back(0);
}

/// The two-sum check over all scalars, straight from its definition.
template <class ValueAt>
std::uint32_t plain_check(std::size_t count, std::uint32_t lanes, ValueAt value_at)
{
    std::uint32_t check = 0;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        std::uint32_t a = 0, b = 0;
        for (std::size_t i = lane; i < count; i += lanes) {
            a += value_at(i);
            b += a;
        }
        check += (a + (b << 16 | b >> 16)) * ((2 * lane + 1) * 0x9E3779B1u);
    }
    return check;
}

struct expected_block {
    std::vector<std::uint8_t> bytes;
    double model_bits = 0;  // what the model says the codes cost, coded
    std::uint32_t escapes = 0;
};

/// A scalar's interval as the model says, told in the reference coder's events.
template <class Model>
rans_scalar events_of(const Model& model, const normans::scalar_model& m, std::uint32_t code)
{
    const normans::interval found = model.find(m, code);
    const auto part = [](std::uint32_t start, std::uint32_t freq) {
        rans_event event;
        event.kind = rans_event::interval;
        event.start = start;
        event.freq = freq;
        return event;
    };
    const auto raw = [](std::uint32_t value, unsigned bits) {
        rans_event event;
        if (bits != 0) event.kind = rans_event::raw;
        event.bits = bits;
        event.value = value & ((1u << bits) - 1);
        return event;
    };
    rans_scalar out;
    out.phase[0] = part(found.start, found.freq);
    if (!found.escaped) {
        out.phase[1] = raw(code, found.raw_bits);
        return out;
    }
    const std::uint32_t byte = code >> (Model::format.code_bits - 8);
    const normans::marginal_table* table = model.marginal;
    out.phase[1] =
        table == nullptr
            ? raw(byte, 8)
            : part(table->start[byte], std::uint32_t(table->start[byte + 1]) - table->start[byte]);
    if (Model::format.code_bits == 16) out.phase[2] = raw(code, 8);
    return out;
}

/// The coded form of a block, whether or not the encoder would choose it. `row_steps`: -6..9 per
/// token, or empty for a block without.
template <normans::scalar_type Type>
expected_block expect_coded(const normans::block_spec& spec, const test_scalars& data,
                            const std::vector<int>& row_steps)
{
    const normans::normal_model<Type> model{normans::shape_of(spec.shape), spec.sigma_offset,
                                            spec.marginal};
    const std::size_t count = data.code.size();
    expected_block out;
    std::vector<rans_scalar> events;
    std::vector<std::uint32_t> parameters;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t mean = normans::map_mean(data.mean[i], 0x3f800000, 0x80000000);
        const int step = row_steps.empty() ? 0 : row_steps[i / spec.dim % spec.tokens];
        events.push_back(events_of(model, model.prepare(mean, data.sigma[i], step), data.code[i]));
        for (const rans_event& event : events.back().phase) {
            if (event.kind == rans_event::interval) out.model_bits += 15 - std::log2(event.freq);
            if (event.kind == rans_event::raw) out.model_bits += event.bits;
        }
        out.escapes += events.back().phase[0].start == 0;
        parameters.push_back(mean ^ 0x9E3779B1u * (1u + data.sigma[i] + 256u * unsigned(step + 6)));
    }
    const rans_stream stream = reference_encode(events, spec.lanes);

    std::vector<std::uint8_t>& bytes = out.bytes;
    const unsigned flags = (row_steps.empty() ? 0u : 1u) | (spec.content_check ? 2u : 0) |
                           (spec.parameter_hash ? 4u : 0) | (spec.has_fingerprint ? 8u : 0);
    append(bytes, 0, 1);
    append(bytes, unsigned(Type), 1);
    const unsigned lanes = spec.lanes == 1 ? 0 : spec.lanes == 8 ? 1 : spec.lanes == 16 ? 2 : 3;
    append(bytes, lanes << 2 | flags << 4, 1);
    unsigned bits = 0;  // of the smallest window; the lowest of those that do
    int lowest = 0;
    if (!row_steps.empty()) {
        const auto ends = std::minmax_element(row_steps.begin(), row_steps.end());
        while (*ends.second - *ends.first >= 1 << bits) ++bits;
        lowest = std::max(*ends.second + 6 - (1 << bits) + 1, 0);
    }
    append(bytes, unsigned(lowest) | bits << 4, 1);
    append(bytes, count, 4);
    append(bytes, stream.words.size(), 4);
    append(bytes,
           spec.content_check
               ? plain_check(count, spec.lanes, [&](std::size_t i) { return data.code[i]; })
               : 0,
           4);
    if (spec.has_fingerprint) append(bytes, spec.fingerprint, 8);
    if (spec.parameter_hash)
        append(bytes, plain_check(count, spec.lanes, [&](std::size_t i) { return parameters[i]; }),
               4);
    std::vector<std::uint8_t> packed((row_steps.size() * bits + 7) / 8);
    for (std::size_t at = 0; at < row_steps.size() * bits; ++at)
        if ((row_steps[at / bits] + 6 - lowest) >> at % bits & 1)
            packed[at / 8] = std::uint8_t(packed[at / 8] | 1 << at % 8);
    bytes.insert(bytes.end(), packed.begin(), packed.end());
    pad(bytes);
    for (const std::uint64_t state : stream.states) append(bytes, state, 4);
    for (const std::uint16_t word : stream.words) append(bytes, word, 2);
    pad(bytes);
    return out;
}

inline expected_block expect_coded(const normans::block_spec& spec, const test_scalars& data,
                                   const std::vector<int>& row_steps = {})
{
    using normans::scalar_type;
    switch (spec.dtype) {
    case scalar_type::e5m2: return expect_coded<scalar_type::e5m2>(spec, data, row_steps);
    case scalar_type::e4m3fnuz: return expect_coded<scalar_type::e4m3fnuz>(spec, data, row_steps);
    case scalar_type::e5m2fnuz: return expect_coded<scalar_type::e5m2fnuz>(spec, data, row_steps);
    case scalar_type::bf16: return expect_coded<scalar_type::bf16>(spec, data, row_steps);
    case scalar_type::fp16: return expect_coded<scalar_type::fp16>(spec, data, row_steps);
    default: return expect_coded<scalar_type::e4m3fn>(spec, data, row_steps);
    }
}

}  // namespace normans_test
