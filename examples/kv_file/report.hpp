#pragma once
// What a run measured, as a table for people and as JSON for programs. Sums of bytes, bits and
// seconds are kept; ratios and rates are made when they are shown.

#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <unistd.h>

namespace kv_file {

struct measurement {
    double scalars = 0;
    double raw_bytes = 0;
    double coded_bytes = 0;
    double model_bits = 0;
    double encode_seconds = 0;
    double decode_seconds = 0;
    double escapes = 0;
    double blocks[4] = {};  // by block_mode
    double row_scaled_blocks = 0;
    bool exact = true;
    double bytewise_bits = 0;  // baselines, if asked for
    double zstd19_bytes = 0;

    /// int8 and int4: the scales' part of the numbers above.
    struct scale_part {
        double raw_bytes = 0;
        double coded_bytes = 0;
        double model_bits = 0;
    } scales;
    // Side information, beside the codes' bits: row steps as blocks store them, and drafts.
    double row_step_bits = 0;
    double draft_bytes = 0;
    double drafted_pages = 0;

    /// fp8 (by tans or auto), int8 and int4: the codes alone by the coders that were tried.
    struct coder_part {
        double coded_bytes = 0;
        double encode_seconds = 0;
        double decode_seconds = 0;
        double chosen = 0;  // tensors
    } coders[2];

    /// The same by static tables, if asked for: tables, and scales as they are, included.
    struct static_part {
        double coded_bytes = 0;
        double encode_seconds = 0;
        double decode_seconds = 0;
    } statics;

    void add(const measurement& other)
    {
        scalars += other.scalars;
        raw_bytes += other.raw_bytes;
        coded_bytes += other.coded_bytes;
        model_bits += other.model_bits;
        encode_seconds += other.encode_seconds;
        decode_seconds += other.decode_seconds;
        escapes += other.escapes;
        for (int mode = 0; mode < 4; ++mode) blocks[mode] += other.blocks[mode];
        row_scaled_blocks += other.row_scaled_blocks;
        exact = exact && other.exact;
        bytewise_bits += other.bytewise_bits;
        zstd19_bytes += other.zstd19_bytes;
        scales.raw_bytes += other.scales.raw_bytes;
        scales.coded_bytes += other.scales.coded_bytes;
        scales.model_bits += other.scales.model_bits;
        row_step_bits += other.row_step_bits;
        draft_bytes += other.draft_bytes;
        drafted_pages += other.drafted_pages;
        statics.coded_bytes += other.statics.coded_bytes;
        statics.encode_seconds += other.statics.encode_seconds;
        statics.decode_seconds += other.statics.decode_seconds;
        for (int c = 0; c < 2; ++c) {
            coders[c].coded_bytes += other.coders[c].coded_bytes;
            coders[c].encode_seconds += other.coders[c].encode_seconds;
            coders[c].decode_seconds += other.coders[c].decode_seconds;
            coders[c].chosen += other.coders[c].chosen;
        }
    }

    static double over(double a, double b) { return b > 0 ? a / b : 0; }
    double bits_per_scalar() const { return over(8 * coded_bytes, scalars); }
    double model_bits_per_scalar() const { return over(model_bits, scalars); }
    double side_bits() const { return row_step_bits + 8 * draft_bytes; }
    double ideal_bits_per_scalar() const { return over(model_bits + side_bits(), scalars); }
    double excess() const { return over(bits_per_scalar(), ideal_bits_per_scalar()) - 1; }
    double ratio() const { return over(raw_bytes, coded_bytes); }
    double encode_mb_s() const { return over(raw_bytes / 1e6, encode_seconds); }
    double decode_mb_s() const { return over(raw_bytes / 1e6, decode_seconds); }

    nlohmann::ordered_json to_json(bool baselines) const
    {
        nlohmann::ordered_json json = {
            {"scalars", std::uint64_t(scalars)},
            {"raw_bytes", std::uint64_t(raw_bytes)},
            {"coded_bytes", std::uint64_t(coded_bytes)},
            {"bits_per_scalar", bits_per_scalar()},
            {"model_bits_per_scalar", model_bits_per_scalar()},
            {"ratio", ratio()},
            {"exact", exact},
            {"encode_mb_s", encode_mb_s()},
            {"decode_mb_s", decode_mb_s()},
            {"escapes", std::uint64_t(escapes)},
            {"blocks",
             {{"coded", std::uint64_t(blocks[0])},
              {"raw", std::uint64_t(blocks[1])},
              {"constant", std::uint64_t(blocks[2])},
              {"predicted", std::uint64_t(blocks[3])},
              {"row_scaled", std::uint64_t(row_scaled_blocks)}}}};
        json["side_information"] = {{"draft_bytes", std::uint64_t(draft_bytes)},
                                    {"drafted_pages", std::uint64_t(drafted_pages)},
                                    {"row_step_bytes", row_step_bits / 8},
                                    {"bits_per_scalar", over(side_bits(), scalars)}};
        json["ideal_bits_per_scalar"] = ideal_bits_per_scalar();
        json["excess"] = excess();
        if (scales.raw_bytes > 0) {
            json["scales"] = {{"raw_bytes", std::uint64_t(scales.raw_bytes)},
                              {"coded_bytes", std::uint64_t(scales.coded_bytes)},
                              {"bits_per_scalar", over(8 * scales.coded_bytes, scalars)},
                              {"model_bits_per_scalar", over(scales.model_bits, scalars)},
                              {"ratio", over(scales.raw_bytes, scales.coded_bytes)}};
            json["row_step_bits_per_scalar"] = over(row_step_bits, scalars);
        }
        for (int c = 0; c < 2; ++c) {
            if (!(coders[c].coded_bytes > 0)) continue;
            const double raw = (raw_bytes - scales.raw_bytes) / 1e6;
            json["coders"][c == 0 ? "rans" : "tans"] = {
                {"coded_bytes", std::uint64_t(coders[c].coded_bytes)},
                {"bits_per_scalar", over(8 * coders[c].coded_bytes, scalars)},
                {"encode_mb_s", over(raw, coders[c].encode_seconds)},
                {"decode_mb_s", over(raw, coders[c].decode_seconds)},
                {"tensors", std::uint64_t(coders[c].chosen)}};
        }
        if (statics.coded_bytes > 0)
            json["static_order0"] = {
                {"coded_bytes", std::uint64_t(statics.coded_bytes)},
                {"bits_per_scalar", over(8 * statics.coded_bytes, scalars)},
                {"ratio", over(raw_bytes, statics.coded_bytes)},
                {"encode_mb_s", over(raw_bytes / 1e6, statics.encode_seconds)},
                {"decode_mb_s", over(raw_bytes / 1e6, statics.decode_seconds)}};
        if (baselines) {
            json["bytewise_entropy_bits_per_scalar"] = over(bytewise_bits, scalars);
            json["bytewise_entropy_ratio"] = over(raw_bytes, bytewise_bits / 8);
            json["zstd19_bits_per_scalar"] = over(8 * zstd19_bytes, scalars);
            json["zstd19_ratio"] = over(raw_bytes, zstd19_bytes);
        }
        return json;
    }
};

inline void print_table_head()
{
    std::printf("%-11s %-6s %11s %11s %8s %8s %7s %6s %9s %9s\n", "tensor", "target", "raw bytes",
                "coded bytes", "bits", "model", "ratio", "exact", "enc MB/s", "dec MB/s");
}

inline void print_row(const std::string& name, const char* target, const measurement& m)
{
    std::printf("%-11s %-6s %11.0f %11.0f %8.4f %8.4f %6.2fx %6s %9.1f %9.1f\n", name.c_str(),
                target, m.raw_bytes, m.coded_bytes, m.bits_per_scalar(), m.model_bits_per_scalar(),
                m.ratio(), m.exact ? "yes" : "NO", m.encode_mb_s(), m.decode_mb_s());
}

/// Of a quantised target the scales' part of its row; bits are of a scalar, not of a scale.
inline void print_scales(const measurement& m)
{
    std::printf("%-11s %-6s %11.0f %11.0f %8.4f %8.4f %6.2fx\n", "  of it", "scales",
                m.scales.raw_bytes, m.scales.coded_bytes,
                measurement::over(8 * m.scales.coded_bytes, m.scalars),
                measurement::over(m.scales.model_bits, m.scalars),
                measurement::over(m.scales.raw_bytes, m.scales.coded_bytes));
}

/// Two lines: side information, and what model and side information take in real arithmetic.
inline void print_ideal(const char* target, const measurement& m)
{
    std::printf("side information, %s: %.0f bytes of drafts (%.0f pages have one), %.0f bytes of "
                "row steps, %.4f bits a scalar\n",
                target, m.draft_bytes, m.drafted_pages, m.row_step_bits / 8,
                measurement::over(m.side_bits(), m.scalars));
    std::printf("ideal, %s: %.4f bits with side information, in real arithmetic; coded %.2f %% "
                "above\n",
                target, m.ideal_bits_per_scalar(), 100 * m.excess());
}

/// A bar on stderr, if that is a terminal.
class progress_bar {
public:
    explicit progress_bar(double total) : total_(total), shown_(::isatty(STDERR_FILENO) != 0) {}
    progress_bar(const progress_bar&) = delete;
    progress_bar& operator=(const progress_bar&) = delete;
    ~progress_bar()
    {
        if (shown_) std::fprintf(stderr, "\r\033[K");
    }

    void advance(double amount)
    {
        done_ += amount;
        const int percent = total_ > 0 ? int(100 * done_ / total_) : 100;
        if (!shown_ || percent == percent_) return;
        percent_ = percent;
        const std::string bar(std::size_t(percent / 2), '#');
        std::fprintf(stderr, "\r[%-50s] %3d %%", bar.c_str(), percent);
    }

private:
    double total_;
    double done_ = 0;
    int percent_ = -1;
    bool shown_;
};

}  // namespace kv_file
