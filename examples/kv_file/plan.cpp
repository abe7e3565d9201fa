// normans_kv plan: what coding a cache buys, from numbers that are given or were measured. Every
// line says its formula; nothing is assumed that is not printed.

#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "files.hpp"

namespace kv_file {
namespace {

struct inputs {
    double raw_bits = 0;  // of a scalar
    double bits = 0;
    double bytes_per_token = 0;
    double encode = 0, decode = 0;  // bytes of raw data per second; 0: unknown
    std::string origin = "given";   // of bits and rates
};

// A coded size and speeds as `compress --json` reports them.
void take_report(const std::string& path, const std::string& what, inputs& from)
{
    const std::vector<uint8_t> bytes = read_file(path);
    const auto json = nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, false);
    if (!json.is_object()) fail(path, ": is no JSON report");
    const auto targets = json.find("targets");
    if (targets == json.end() || !targets->is_object() || !targets->contains(what))
        fail(path, ": reports no target ", what);
    const auto& target = (*targets)[what];
    const auto number = [&](const char* key) {
        if (!target.is_object() || !target.contains(key) || !target[key].is_number())
            fail(path, ": no number ", key, " for ", what);
        return double(target[key]);
    };
    from.bits = number("bits_per_scalar");
    from.encode = number("encode_mb_s") * 1e6;
    from.decode = number("decode_mb_s") * 1e6;
    from.origin = "measured, " + path;
}

inputs inputs_of(const plan_options& options)
{
    inputs from;
    from.raw_bits = options.target == "bf16" ? 16 : 8;
    if (!options.report.empty()) take_report(options.report, options.target, from);
    if (options.bits > 0) from.bits = options.bits;
    if (options.encode_gb_s > 0) from.encode = options.encode_gb_s * 1e9;
    if (options.decode_gb_s > 0) from.decode = options.decode_gb_s * 1e9;
    if (!(from.bits > 0)) fail("say --bits, or --report with what compress measured");
    const double channels = double(options.layers) * options.kv_heads * options.head_dim;
    from.bytes_per_token =
        options.bytes_per_token > 0 ? options.bytes_per_token : 2 * channels * from.raw_bits / 8;
    if (!(from.bytes_per_token > 0))
        fail("say --bytes-per-token, or --layers, --kv-heads and --head-dim");
    return from;
}

// A table for people; the same numbers for programs.
class plan_table {
public:
    void row(const char* key, const std::string& name, double raw, double coded, int digits,
             const std::string& formula)
    {
        if (json_.empty()) std::printf("%-34s %16s %16s  %s\n", "", "raw", "coded", "formula");
        std::printf("%-34s %16.*f %16.*f  %s\n", name.c_str(), digits, raw, digits, coded,
                    formula.c_str());
        json_[key] = {{"raw", raw}, {"coded", coded}};
    }
    void line(const char* key, const std::string& name, double value, const std::string& formula)
    {
        std::printf("%-34s %16s %16.3f  %s\n", name.c_str(), "", value, formula.c_str());
        json_[key] = value;
    }
    const nlohmann::ordered_json& json() const { return json_; }

private:
    nlohmann::ordered_json json_;
};

std::string text_of(double value)
{
    char text[40];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

// Moving one sequence one way: `rate` is the coder's, in raw bytes per second.
void add_transfer(plan_table& table, const std::string& way, double sequence, double share,
                  double link, double rate, const char* coder)
{
    const double alone = share * sequence / link;
    const double coding = rate > 0 ? sequence / rate : 0;
    const std::string coded_formula =
        rate > 0 ? "coded: the slower of link and " + std::string(coder) + ", overlapped"
                 : "coded: link alone, the " + std::string(coder) + "'s rate is unknown";
    table.row((way + "_seconds").c_str(), way + " a sequence, s", sequence / link,
              std::fmax(alone, coding), 6, "bytes / link; " + coded_formula);
    if (!(rate > 0)) return;
    table.line((way + "_break_even_gb_s").c_str(), way + ": break-even link, GB/s", rate / 1e9,
               "the " + std::string(coder) + "'s rate: below it coded pages move faster");
    table.line((way + "_break_even_serial_gb_s").c_str(), "  one after the other",
               rate * (1 - share) / 1e9, "rate x (1 - coded / raw), if nothing overlaps");
}

}  // namespace

int plan(const plan_options& options)
{
    const inputs from = inputs_of(options);
    const double share = from.bits / from.raw_bits;
    const double page = from.bytes_per_token * options.page_tokens;
    const double pages_of_sequence = std::ceil(double(options.context) / options.page_tokens);

    std::printf("%s, %s of %s bits a scalar (%s), pages of %u tokens; GB are 10^9 bytes\n",
                options.target.c_str(), text_of(from.bits).c_str(), text_of(from.raw_bits).c_str(),
                from.origin.c_str(), options.page_tokens);
    plan_table table;
    table.row("bytes_per_token", "bytes a token", from.bytes_per_token,
              from.bytes_per_token * share, 1,
              options.bytes_per_token > 0 ? "given; coded: x bits / raw bits"
                                          : "2 x layers x heads x dim x bytes; coded: x bits / raw "
                                            "bits");
    table.row("bytes_per_page", "bytes a page", page, page * share, 0, "x page tokens");
    if (options.memory_gb > 0) {
        const double memory = options.memory_gb * 1e9;
        const double raw = std::floor(memory / page), coded = std::floor(memory / (page * share));
        table.row("tokens", "tokens in " + text_of(options.memory_gb) + " GB",
                  raw * options.page_tokens, coded * options.page_tokens, 0,
                  "whole pages in memory x page tokens");
        const double sequences = std::floor(raw / pages_of_sequence);
        const double more = std::floor(coded / pages_of_sequence);
        table.row("sequences", "sequences of " + std::to_string(options.context) + " tokens",
                  sequences, more, 0, "whole pages / pages a sequence");
        if (sequences > 0)
            table.line("batch_factor", "batch, where memory limits it", more / sequences,
                       "coded sequences / raw sequences");
    }
    const double sequence = pages_of_sequence * page;
    if (options.link_gb_s > 0) {
        const double link = options.link_gb_s * 1e9;
        add_transfer(table, "store", sequence, share, link, from.encode, "encoder");
        add_transfer(table, "restore", sequence, share, link, from.decode, "decoder");
    }
    if (!options.json.empty()) {
        const std::string text = table.json().dump(2) + "\n";
        output_file out(options.json);
        out.write(text.data(), text.size());
        out.commit();
    }
    return 0;
}

}  // namespace kv_file
