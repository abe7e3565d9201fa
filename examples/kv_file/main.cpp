// normans_kv: real KV caches as files. One line on stderr and exit status 2 for every error,
// 1 where verify finds a difference.

#include <cstdio>
#include <functional>
#include <map>

#include <CLI/CLI.hpp>

#include "commands.hpp"

namespace {

// Texts of other people's files may hold anything; an error stays one line.
void print_error(std::string text)
{
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    std::fprintf(stderr, "normans_kv: %s\n", text.c_str());
}

kv_file::target_choice targets_of(const std::vector<std::string>& texts)
{
    using namespace kv_file;
    target_choice choice;
    for (const target what : all_targets) {
        bool& chosen = choice.chosen[size_t(what)];
        chosen = false;
        for (const std::string& text : texts)
            chosen |= text == target_name(what) || (text == "all" && !is_quantised(what));
    }
    return choice;
}

int run(int argc, char** argv)
{
    using namespace kv_file;
    CLI::App app{"Lossless compression of KV caches in safetensors files"};
    app.require_subcommand(1);
    std::function<int()> command;

    const std::map<std::string, normans::shape_id> shapes = {
        {"gaussian", normans::shape_id::gaussian},
        {"mixture", normans::shape_id::mixture},
        {"mixture-marginal", normans::shape_id::mixture_marginal}};
    const auto add_threads = [](CLI::App* to, unsigned& threads) {
        to->add_option("--threads", threads, "who codes; 1: no thread is started (all processors)")
            ->check(CLI::Range(1, 1024));
    };
    const auto add_max_tokens = [](CLI::App* to, uint32_t& tokens) {
        to->add_option("--max-tokens", tokens, "refuse more, of a file without mu (1048576)")
            ->check(CLI::Range(1, 0x7fffffff));
    };
    const std::map<std::string, coder_choice> coders = {{"rans", coder_choice::rans},
                                                        {"tans", coder_choice::tans},
                                                        {"auto", coder_choice::both}};
    std::vector<std::string> target_texts = {"all"};
    const auto add_targets = [&](CLI::App* to) {
        to->add_option("--target", target_texts, "fp8, bf16, int8, int4, all (fp8,bf16), or a list")
            ->delimiter(',')
            ->check(CLI::IsMember({"fp8", "bf16", "int8", "int4", "all"}));
    };
    const std::map<std::string, predictor_choice> predictors = {
        {"model", predictor_choice::model},
        {"none", predictor_choice::none},
        {"lowrank", predictor_choice::lowrank},
        {"both", predictor_choice::both}};
    std::string shape_text = "gaussian", coder_text = "rans", predictor_text = "model";
    std::string base_text = "model", rank_text = "lowrank";

    calibrate_options calibrating;
    CLI::App* calibrate_app = app.add_subcommand("calibrate", "fit a profile to a cache");
    calibrate_app->add_option("CALIB", calibrating.input, "cache, .safetensors")->required();
    calibrate_app->add_option("--profile", calibrating.profile, "profile to write")->required();
    calibrate_app->add_option("--mu", calibrating.means, "file with the means, if not CALIB");
    add_targets(calibrate_app);
    calibrate_app->add_option("--shape", shape_text, "gaussian, mixture or mixture-marginal")
        ->check(CLI::IsMember(shapes));
    calibrate_app->add_option("--predictor", base_text, "model (mu), or none: means of channels")
        ->check(CLI::IsMember({"model", "none"}));
    std::string pairing_text = "half-split";
    const std::map<std::string, normans::rotary_pairing> pairings = {
        {"half-split", normans::rotary_pairing::half_split},
        {"interleaved", normans::rotary_pairing::interleaved}};
    calibrate_app
        ->add_option("--rotary-theta", calibrating.rotary_theta,
                     "of the model's rotary embedding: K's means are rotated (--predictor none)")
        ->check(CLI::Range(1.0001, 1e12));
    calibrate_app->add_option("--rotary-dim", calibrating.rotary_dim, "channels that turn (all)")
        ->check(CLI::Range(2, 0x7fffffff));
    calibrate_app->add_option("--rotary-pairing", pairing_text, "half-split or interleaved")
        ->check(CLI::IsMember(pairings));
    const std::map<std::string, unsigned> sources = {
        {"none", 0u}, {"below", normans::source_below}, {"k", normans::source_k},
        {"own", normans::source_own},
        {"all", normans::source_below | normans::source_k | normans::source_own}};
    std::vector<std::string> source_texts;
    calibrate_app
        ->add_option("--correct-by", source_texts,
                     "correct means where it pays, by: below (layer), k (of a v), own (mu), or all")
        ->delimiter(',')
        ->check(CLI::IsMember(sources));
    add_threads(calibrate_app, calibrating.threads);
    calibrate_app->callback([&] {
        calibrating.pairing = pairings.at(pairing_text);
        for (const std::string& text : source_texts) calibrating.corrections |= sources.at(text);
        calibrating.targets = targets_of(target_texts);
        calibrating.predictor = predictors.at(base_text);
        calibrating.shape = shapes.at(shape_text);
        command = [&] { return calibrate(calibrating); };
    });

    profile_rank_options ranking;
    CLI::App* rank_app = app.add_subcommand("profile-rank", "fit a profile with ranks of drafts");
    rank_app->add_option("CALIB", ranking.input, "cache, .safetensors")->required();
    rank_app->add_option("--profile", ranking.profile, "profile to write")->required();
    rank_app->add_option("--mu", ranking.means, "file with the means, if not CALIB");
    rank_app->add_option("--predictor", rank_text, "lowrank (no mu), or both: on top of mu")
        ->check(CLI::IsMember({"lowrank", "both"}));
    rank_app->add_option("--ranks", ranking.ranks, "to try (0,1,2,4,8,16,32)")
        ->delimiter(',')
        ->check(CLI::Range(0u, normans::max_rank));
    rank_app->add_option("--page-tokens", ranking.page_tokens, "block lengths to try (64,256)")
        ->delimiter(',')
        ->check(CLI::Range(1, 0x7fffffff));
    rank_app->add_option("--json", ranking.report, "totals to write");
    add_targets(rank_app);
    add_threads(rank_app, ranking.threads);
    rank_app->callback([&] {
        ranking.targets = targets_of(target_texts);
        ranking.predictor = predictors.at(rank_text);
        command = [&] { return profile_rank(ranking); };
    });

    compress_options compressing;
    CLI::App* compress_app = app.add_subcommand("compress", "code a cache");
    compress_app->add_option("IN", compressing.input, "cache, .safetensors")->required();
    compress_app->add_option("OUT", compressing.output, "coded file, .nkv")->required();
    compress_app->add_option("--profile", compressing.profile, "profile")->required();
    compress_app->add_option("--mu", compressing.means, "file with the means, if not IN");
    add_targets(compress_app);
    compress_app->add_option("--predictor", predictor_text, "model, none, lowrank or both (model)")
        ->check(CLI::IsMember(predictors));
    compress_app->add_option("--page-tokens", compressing.page_tokens, "tokens per block (64)")
        ->check(CLI::Range(1, 0x7fffffff));
    compress_app->add_option("--lanes", compressing.lanes, "1, 8, 16, 32; 0: by the block's size")
        ->check(CLI::IsMember({0, 1, 8, 16, 32}));
    compress_app->add_flag("!--no-affine", compressing.affine, "leave the means as they are");
    compress_app->add_flag("!--no-row-scale", compressing.row_scale, "no step per token");
    compress_app->add_flag("--baselines", compressing.baselines, "compare with zstd and entropy");
    compress_app->add_flag("--static", compressing.statics,
                           "compare with static tables, without predictions");
    compress_app->add_option("--coder", coder_text, "of fp8, int8 and int4: rans, tans or auto")
        ->check(CLI::IsMember(coders));
    compress_app->add_option("--bank-kib", compressing.bank_kib, "memory for tANS's tables (256)")
        ->check(CLI::Range(8, 8192));
    add_threads(compress_app, compressing.threads);
    compress_app->add_option("--json", compressing.report, "report to write");
    compress_app->callback([&] {
        compressing.targets = targets_of(target_texts);
        compressing.coder = coders.at(coder_text);
        compressing.predictor = predictors.at(predictor_text);
        command = [&] { return compress(compressing); };
    });

    decode_options decompressing;
    CLI::App* decompress_app = app.add_subcommand("decompress", "decode a coded file");
    decompress_app->add_option("OUT", decompressing.coded, "coded file, .nkv")->required();
    decompress_app->add_option("BACK", decompressing.cache, "cache to write")->required();
    decompress_app->add_option("--profile", decompressing.profile, "profile")->required();
    decompress_app->add_option("--mu", decompressing.means, "file with the means");
    add_max_tokens(decompress_app, decompressing.max_tokens);
    add_threads(decompress_app, decompressing.threads);
    decompress_app->callback([&] { command = [&] { return decompress(decompressing); }; });

    decode_options verifying;
    CLI::App* verify_app = app.add_subcommand("verify", "compare a coded file with its cache");
    verify_app->add_option("IN", verifying.cache, "cache, .safetensors")->required();
    verify_app->add_option("OUT", verifying.coded, "coded file, .nkv")->required();
    verify_app->add_option("--profile", verifying.profile, "profile")->required();
    verify_app->add_option("--mu", verifying.means, "file with the means, if not IN");
    add_max_tokens(verify_app, verifying.max_tokens);
    add_threads(verify_app, verifying.threads);
    verify_app->callback([&] { command = [&] { return verify(verifying); }; });

    std::string coded;
    CLI::App* info_app = app.add_subcommand("info", "say what a coded file holds");
    info_app->add_option("OUT", coded, "coded file, .nkv")->required();
    info_app->callback([&] { command = [&] { return info(coded); }; });

    plan_options planning;
    CLI::App* plan_app = app.add_subcommand("plan", "what coding a cache buys, by formulas");
    plan_app->add_option("--target", planning.target, "fp8 or bf16")
        ->check(CLI::IsMember({"fp8", "bf16"}));
    plan_app->add_option("--report", planning.report, "JSON of compress: its bits and speeds");
    plan_app->add_option("--json", planning.json, "numbers to write");
    const auto real = [&](const char* name, double& to, const char* text) {
        plan_app->add_option(name, to, text)->check(CLI::Range(1e-9, 1e15));
    };
    real("--bits", planning.bits, "bits a scalar, coded");
    real("--encode-gb-s", planning.encode_gb_s, "encoder, raw bytes");
    real("--decode-gb-s", planning.decode_gb_s, "decoder, raw bytes");
    real("--bytes-per-token", planning.bytes_per_token, "of the raw cache");
    real("--memory-gb", planning.memory_gb, "memory for the cache");
    real("--link-gb-s", planning.link_gb_s, "link that pages are moved over");
    const auto whole = [&](const char* name, uint32_t& to, const char* text) {
        plan_app->add_option(name, to, text)->check(CLI::Range(1u, 0x7fffffffu));
    };
    whole("--layers", planning.layers, "layers of the model");
    whole("--kv-heads", planning.kv_heads, "KV heads of a layer");
    whole("--head-dim", planning.head_dim, "channels of a head");
    whole("--page-tokens", planning.page_tokens, "tokens per page (64)");
    whole("--context", planning.context, "tokens of a sequence (4096)");
    plan_app->callback([&] { command = [&] { return plan(planning); }; });

    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
        return app.exit(help);
    } catch (const CLI::CallForAllHelp& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        print_error(error.what());
        return 2;
    }
    return command();
}

}  // namespace

int main(int argc, char** argv)
{
    try {
        return run(argc, argv);
    } catch (const std::bad_alloc&) {
        print_error("not enough memory");
    } catch (const std::exception& error) {
        print_error(error.what());
    }
    return 2;
}
