#pragma once
// From workloads to rows: each workload on every backend in both directions, and htscodecs beside
// every 8-bit one. Names are paths: decode/rans/e4m3fn/avx2/real, encode/htscodecs/e4m3fn/real.

#include <algorithm>

#include "backends.hpp"
#include "peers.hpp"

namespace bench {

template <class Code>
using shared_workload = std::shared_ptr<const workload<Code>>;

class catalogue {
public:
    catalogue() : backends_(backends_here()) {}

    const std::vector<job>& jobs() const { return jobs_; }

    /// Workloads whose predictor is made of views; returns what it was given, for more rows.
    template <class Code>
    shared_workload<Code> add(workload<Code> work)
    {
        const auto shared = std::make_shared<const workload<Code>>(std::move(work));
        const std::string peer = add_htscodecs(shared);
        for (const backend& one : backends_)
            add_coders(shared, one.name, one.views<Code>(), 1, peer);
        return shared;
    }

    /// Another way to code what has a row of htscodecs already, under `peer`'s name.
    void add_beside(workload<uint8_t> work, const std::string& peer)
    {
        const auto shared = std::make_shared<const workload<uint8_t>>(std::move(work));
        const std::string name = "/htscodecs/" + shared->type + "/" + peer;
        for (const backend& one : backends_)
            add_coders(shared, one.name, one.views<uint8_t>(), 1, name);
    }

    void add_callable(workload<uint8_t> work)
    {
        const auto shared = std::make_shared<const workload<uint8_t>>(std::move(work));
        const std::string peer = add_htscodecs(shared);
        for (const backend& one : backends_)
            add_coders(shared, one.name, one.callable(), 1, peer);
    }

    /// On the backends with these names only, without peers.
    void add_on(workload<uint8_t> work, const std::vector<std::string>& names)
    {
        const auto shared = std::make_shared<const workload<uint8_t>>(std::move(work));
        for (const backend& one : backends_)
            if (std::find(names.begin(), names.end(), one.name) != names.end())
                add_coders(shared, one.name, one.views<uint8_t>(), 1, {});
    }

    /// A decoder apart from the backends, of what the first of them encodes.
    void add_decoder(workload<uint8_t> work, const std::string& name,
                     void (*decode)(decode_task<uint8_t>*, size_t))
    {
        engine<uint8_t> runs = backends_.front().views<uint8_t>();
        const int id = runs.backend;
        runs.decode = [=](decode_task<uint8_t>* tasks, size_t n) {
            decode(tasks, n);
            for (size_t i = 0; i < n; ++i)  // lane after lane, as it shall
                if (tasks[i].result.backend == normans::backend_id::scalar)
                    tasks[i].result.backend = normans::backend_id(id);
        };
        add_coders(std::make_shared<const workload<uint8_t>>(std::move(work)), name, runs, 1, {},
                   false);
    }

    /// The workload on each of two threads at once, against the same on one.
    template <class Code>
    void add_two_threads(const shared_workload<Code>& work)
    {
        for (const backend& one : backends_)
            add_coders(work, one.name, one.views<Code>(), 2, {});
    }

    /// Rows of a codec of bytes; returns its bits per scalar.
    template <class Codec, class Code>
    double add_peer(const shared_workload<Code>& work)
    {
        const auto coder = std::make_shared<peer_coder<Codec>>(work);
        owners_.push_back(coder);
        const double bits = 8 * coder->bytes() / double(work->scalars());
        const std::string name = peer_name(Codec::name, *work);
        add_peer_job("encode" + name, *work, bits, coder->encode_pass());
        add_peer_job("decode" + name, *work, bits, coder->decode_pass());
        return bits;
    }

    /// A copy has no direction.
    template <class Code>
    void add_copy(const shared_workload<Code>& work)
    {
        const auto coder = std::make_shared<peer_coder<copy_codec>>(work);
        owners_.push_back(coder);
        add_peer_job("copy" + peer_name(copy_codec::name, *work), *work, 8.0 * sizeof(Code),
                     coder->decode_pass());
    }

private:
    template <class Code>
    static std::string peer_name(const std::string& peer, const workload<Code>& work)
    {
        return "/" + peer + "/" + work.type + "/" + work.name;
    }

    template <class Code>
    void add_peer_job(const std::string& name, const workload<Code>& work, double bits, pass runs)
    {
        const double each = work.bytes_per_scalar();
        jobs_.push_back({name, work.scalars(), each, bits, {}, {}, {}, {}, {}, {runs}});
    }

    // Returns the name to compare with: none for 16-bit codes, and none where htscodecs finds pages
    // too small and stores them as they are.
    std::string add_htscodecs(const shared_workload<uint8_t>& work)
    {
        const bool codes = add_peer<htscodecs_codec>(work) < 8 * work->bytes_per_scalar();
        return codes ? peer_name(htscodecs_codec::name, *work) : "";
    }
    std::string add_htscodecs(const shared_workload<uint16_t>&) { return {}; }

    template <class Code>
    void add_coders(const shared_workload<Code>& work, const std::string& backend,
                    const engine<Code>& runs, size_t threads, const std::string& peer,
                    bool encodes = true)
    {
        const char* const coders[] = {"/rans/", "/tans/", "/order0/"};
        const std::string alone = coders[size_t(work->pages.front().spec.coder)] + work->type +
                                  "/" + backend + "/" + work->name;
        const std::string name = threads == 1 ? alone : alone + "-2-threads";
        const double each = work->bytes_per_scalar();
        job encode{"encode" + name, work->scalars(), each, 0, {}, {}, {}, {}, {}, {}, {}};
        job decode{"decode" + name, work->scalars(), each, 0, {}, {}, {}, {}, {}, {}, {}};
        encode.ideal_bits = decode.ideal_bits = work->ideal_bits;
        try {
            for (size_t t = 0; t < threads; ++t) {
                const auto coder = std::make_shared<block_coder<Code>>(work, runs);
                owners_.push_back(coder);
                encode.passes.push_back(coder->encode_pass());
                decode.passes.push_back(coder->decode_pass());
                encode.bits_per_scalar = decode.bits_per_scalar = coder->bits_per_scalar();
                encode.escapes_per_scalar = coder->escapes_per_scalar();
                decode.repairs_per_scalar = coder->repairs_per_scalar();
                if (work->entropy != 0)
                    decode.over_entropy = coder->bits_per_scalar() / work->entropy - 1;
            }
        } catch (const std::runtime_error& error) {
            throw std::runtime_error(name.substr(1) + ": " + error.what());
        }
        if (!peer.empty()) {
            encode.htscodecs = "encode" + peer;
            decode.htscodecs = "decode" + peer;
        }
        if (threads > 1) {
            encode.one_thread = "encode" + alone;
            decode.one_thread = "decode" + alone;
        }
        if (encodes) jobs_.push_back(std::move(encode));
        jobs_.push_back(std::move(decode));
    }

    std::vector<backend> backends_;
    std::vector<job> jobs_;
    std::vector<std::shared_ptr<const void>> owners_;  // of what the jobs' passes use
};

}  // namespace bench
