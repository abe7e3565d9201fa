// bench_banks CACHE.safetensors PROFILE [REPETITIONS]: tANS over banks of fp8 rows, for budgets of
// memory, beside rANS: what a plan says it loses, what the coded blocks lose, and their speed.
//   loss    the blocks' states and words over the Gaussian's cross-entropy, in real arithmetic,
//           under each block's own row steps; planned: bank_choice.loss, for the usual range
//   rANS    by the widest backend; tANS by AVX2 where that has it, else one lane after the other
// Exit status 1 if a block does not come back.

#include <normans/host/float_bank.hpp>

#include "../examples/kv_file/model_bits.hpp"
#include "block_coder.hpp"
#include "measure.hpp"
#include "real.hpp"
#include "synthetic.hpp"

namespace {

using namespace bench;
using bank = normans::type_bank_in<std::vector>;

struct line {
    std::string work, coder;
    size_t bank_bytes;
    double planned_bits, bits, loss;
    size_t first_job;
};

// Sizes of the blocks of a workload, from an encoder of its own.
struct sizes {
    double bits = 0;     // states and words
    double entropy = 0;

    explicit sizes(const workload<uint8_t>& work, int backend)
    {
        std::vector<uint8_t> out;
        for (const page<uint8_t>& one : work.pages) {
            out.resize(normans::max_encoded_bytes(one.spec));
            encode_task<uint8_t> task{one.spec, one.box, one.predictor, out.data(), out.size(), {}};
            encode_blocks(&task, 1, backend);
            normans::block_header header;
            if (!task.result || read_block_header(out.data(), out.size(), header) !=
                                    normans::status::ok)
                throw std::runtime_error(work.name + ": a page cannot be coded");
            const normans::block_layout at = layout_of(header, one.spec.tokens);
            bits += 8 * double(at.words - at.states + 2 * uint64_t(header.payload_words));
            const kv_file::model_cost cost(one.spec.dtype, one.spec.shape, one.spec.sigma_offset,
                                           {});
            normans::detail::box_walker walker(one.spec, 0);
            for (size_t i = 0; i < one.count; ++i, walker.next()) {
                const normans::scalar_position& position = walker.position();
                const normans::prediction p = one.predictor(position);
                const int step =
                    row_step_of(one.spec, out.data(), task.result.bytes, position.token);
                entropy += cost.bits(normans::detail::element(one.box, position),
                                     double(p.mean), p.sigma_index, step);
            }
        }
        bits /= double(work.scalars());
        entropy /= double(work.scalars());
    }
};

class pareto {
public:
    void add(workload<uint8_t> work)
    {
        for (page<uint8_t>& one : work.pages)
            if (one.spec.shape == normans::shape_id::mixture_marginal) {  // tANS has none
                one.spec.shape = normans::shape_id::mixture;
                one.spec.marginal = nullptr;
            }
        const int widest = widest_backend();
        add_rows(work, "rANS, " + name_of(widest), 0, 0, widest, widest);
        const normans::block_spec& spec = work.pages.front().spec;
        for (const uint32_t kib : {64u, 256u, 1024u, 2048u, 8192u}) {
            const normans::bank_choice choice =
                normans::plan_type_bank(spec.dtype, size_t(kib) * 1024, spec.shape);
            if (!choice.fits) continue;
            const auto rows = std::make_shared<const bank>(spec.dtype, choice.plan);
            workload<uint8_t> banked = work;
            banked.owners.push_back(rows);
            for (page<uint8_t>& one : banked.pages) {
                if (one.spec.shape != choice.plan.shape)
                    throw std::runtime_error(work.name + ": pages of several shapes");
                one.spec.coder = normans::coder_id::tans;
                one.spec.bank = &rows->bank;
            }
            const int avx2 = int(normans::backend_id::avx2);
            add_rows(banked, "tANS, " + std::to_string(kib) + " KiB", choice.bytes,
                     choice.loss / 65536.0, widest > avx2 ? avx2 : widest, widest);
        }
    }

    void print(int repetitions) const
    {
        const auto measured = measure(jobs_, repetitions, 0.1);
        const auto rate = [&](size_t i) { return median(measured.at(jobs_[i].name).per_cycle); };
        std::printf("%-16s %-18s %9s %8s %8s %8s %8s %8s\n", "e4m3fn", "coder", "bank KiB",
                    "planned", "bits", "loss %", "decode", "encode");
        for (const line& one : lines_)
            std::printf("%-16s %-18s %9.0f %8.4f %8.4f %8.2f %8.4f %8.4f\n", one.work.c_str(),
                        one.coder.c_str(), double(one.bank_bytes) / 1024, one.planned_bits,
                        one.bits, 100 * one.loss, rate(one.first_job + 1), rate(one.first_job));
        std::printf("planned: bits per scalar; decode, encode: scalars per cycle\n");
    }

private:
    static std::string name_of(int backend)
    {
        return normans::backend_name(normans::backend_id(backend));
    }

    static int widest_backend()
    {
        using normans::backend_id;
        for (const backend_id id : {backend_id::avx512, backend_id::avx2, backend_id::portable})
            if (runs_here(int(id))) return int(id);
        return 0;
    }

    // `ran`: what the results must say.
    void add_rows(const workload<uint8_t>& work, const std::string& coder, size_t bank_bytes,
                  double planned, int ran, int asked)
    {
        const sizes size(work, asked);
        lines_.push_back({work.name, coder, bank_bytes, planned, size.bits,
                          size.bits / size.entropy - 1, jobs_.size()});
        const auto shared = std::make_shared<const workload<uint8_t>>(work);
        const auto blocks = std::make_shared<block_coder<uint8_t>>(
            shared, engine<uint8_t>{
                        ran,
                        [=](encode_task<uint8_t>* t, size_t n) { encode_blocks(t, n, asked); },
                        [=](decode_task<uint8_t>* t, size_t n) { decode_blocks(t, n, asked); }});
        owners_.push_back(blocks);
        for (const char* direction : {"encode", "decode"}) {
            job row{direction + ("/" + work.name) + "/" + coder, work.scalars(), 1, 0, {}, {},
                    {}, {}, {}, {}};
            row.passes.push_back(direction[0] == 'e' ? blocks->encode_pass()
                                                     : blocks->decode_pass());
            jobs_.push_back(std::move(row));
        }
    }

    std::vector<line> lines_;
    std::vector<job> jobs_;
    std::vector<std::shared_ptr<const void>> owners_;  // of what the jobs' passes use
};

}  // namespace

int main(int count, char** arguments)
{
    if (count < 3) {
        std::fprintf(stderr, "usage: bench_banks CACHE.safetensors PROFILE [REPETITIONS]\n");
        return 1;
    }
    try {
        pareto table;
        table.add(make_real<uint8_t>(real_cache(arguments[1], arguments[2]), "real", 256, 32));
        for (const double bits : {1.7, 2.5, 3.5, 6.0}) {
            synthetic wanted;
            wanted.name = "synthetic-" + std::to_string(bits).substr(0, 3);
            wanted.bits = bits;
            wanted.heads = 3;
            wanted.tokens = 256;
            wanted.lanes = 32;
            wanted.pages = wanted.pages_per_call = 4;
            wanted.row_factors = false;
            table.add(make_synthetic<uint8_t>(wanted));
        }
        table.print(count > 3 ? std::atoi(arguments[3]) : 3);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_banks: %s\n", error.what());
        return 1;
    }
}
