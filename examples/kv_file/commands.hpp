#pragma once
// The commands, as main() calls them: options in, exit status out. Errors are thrown.

#include <thread>

#include "cache.hpp"

namespace kv_file {

/// As many as the machine runs at once, 1 where it does not say.
inline unsigned all_threads()
{
    const unsigned found = std::thread::hardware_concurrency();
    return found == 0 ? 1 : found;
}

struct calibrate_options {
    std::string input;
    std::string profile;
    std::string means;  // empty: in the input
    target_choice targets;
    normans::shape_id shape = normans::shape_id::gaussian;
    predictor_choice predictor = predictor_choice::model;  // or none
    double rotary_theta = 0;   // above 0: K's means are rotated
    uint32_t rotary_dim = 0;   // 0: all channels of a head
    normans::rotary_pairing pairing = normans::rotary_pairing::half_split;
    unsigned corrections = 0;  // cross_layer_source bits that may be used
    unsigned threads = all_threads();
};

struct profile_rank_options {
    std::string input;
    std::string profile;
    std::string means;  // of both; empty: in the input
    std::string report;
    target_choice targets;
    predictor_choice predictor = predictor_choice::lowrank;  // or both
    std::vector<uint32_t> ranks = {0, 1, 2, 4, 8, 16, 32};
    std::vector<uint32_t> page_tokens = {64, 256};
    unsigned threads = all_threads();
};

/// Who codes fp8, int8 and int4.
enum class coder_choice : uint8_t { rans, tans, both };

constexpr const char* coder_name(coder_choice choice)
{
    constexpr const char* names[] = {"rans", "tans", "auto"};
    return names[size_t(choice)];
}

struct compress_options {
    std::string input;
    std::string output;
    std::string profile;
    std::string means;
    std::string report;
    target_choice targets;
    predictor_choice predictor = predictor_choice::model;
    uint32_t page_tokens = 0;  // 0: what the profile's ranks are for, or 64
    uint32_t lanes = 0;
    coder_choice coder = coder_choice::rans;
    uint32_t bank_kib = 256;  // of tANS, for each target
    unsigned threads = all_threads();
    bool affine = true;
    bool row_scale = true;
    bool baselines = false;
    bool statics = false;  // static tables beside it
};

struct decode_options {
    std::string coded;
    std::string cache;  // decompress: to be written; verify: to be compared with
    std::string profile;
    std::string means;
    uint32_t max_tokens = 1 << 20;  // where no means say how many there are
    unsigned threads = all_threads();
};

struct plan_options {
    std::string target = "bf16";  // or fp8
    std::string report;           // of compress; overridden by what is given
    double bits = 0;              // a scalar, coded; here and below 0: unknown
    double encode_gb_s = 0;
    double decode_gb_s = 0;
    double bytes_per_token = 0;
    uint32_t layers = 0;
    uint32_t kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t page_tokens = 64;
    uint32_t context = 4096;  // tokens of a sequence
    double memory_gb = 0;
    double link_gb_s = 0;
    std::string json;
};

int calibrate(const calibrate_options& options);
int profile_rank(const profile_rank_options& options);
int compress(const compress_options& options);
int decompress(const decode_options& options);
int verify(const decode_options& options);
int info(const std::string& path);
int plan(const plan_options& options);

}  // namespace kv_file
