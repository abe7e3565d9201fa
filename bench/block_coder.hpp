#pragma once
// Our side of a row: one workload on one backend, with memory for the blocks and for what they
// decode to. Making one throws where a page does not come back or another backend ran.

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "job.hpp"
#include "workload.hpp"

namespace bench {

/// Which code runs, as functions over tasks.
template <class Code>
struct engine {
    int backend;
    std::function<void(encode_task<Code>*, size_t)> encode;
    std::function<void(decode_task<Code>*, size_t)> decode;
};

template <class Code>
class block_coder {
public:
    block_coder(std::shared_ptr<const workload<Code>> work, engine<Code> runs)
        : work_(std::move(work)), engine_(std::move(runs)), back_(work_->bytes() / sizeof(Code))
    {
        size_t room = 0;
        for (const page<Code>& one : work_->pages) room += normans::max_encoded_bytes(one.spec);
        blocks_.resize(room);
        uint8_t* out = blocks_.data();
        for (const page<Code>& one : work_->pages) {
            const size_t most = normans::max_encoded_bytes(one.spec);
            encoding_.push_back({one.spec, one.box, one.predictor, out, most, {}});
            out += most;
        }
        encode();
        require(encode_complaint());

        expected_ = blocks_;
        Code* back = back_.data();
        for (size_t i = 0; i < encoding_.size(); ++i) {
            const page<Code>& one = work_->pages[i];
            decoding_.push_back({one.spec, expected_.data() + (encoding_[i].out - blocks_.data()),
                                 encoding_[i].result.bytes, one.predictor,
                                 {back, one.box.head_stride, one.box.token_stride}, {}});
            back += one.bytes() / sizeof(Code);
        }
        decode();
        require(decode_complaint());
    }

    block_coder(const block_coder&) = delete;  // tasks point into the buffers
    block_coder& operator=(const block_coder&) = delete;

    double bits_per_scalar() const
    {
        size_t bytes = 0;
        for (const auto& task : encoding_) bytes += task.result.bytes;
        return 8 * double(bytes) / double(work_->scalars());
    }

    double escapes_per_scalar() const
    {
        double escapes = 0;
        for (const auto& task : encoding_) escapes += task.result.escapes;
        return escapes / double(work_->scalars());
    }

    std::optional<double> repairs_per_scalar() const
    {
        double repairs = 0;
        for (const auto& task : decoding_) {
            const std::optional<uint64_t> some = repairs_of(task.result);
            if (!some) return std::nullopt;
            repairs += double(*some);
        }
        return repairs / double(work_->scalars());
    }

    pass encode_pass()
    {
        return {[this] { std::fill(blocks_.begin(), blocks_.end(), uint8_t(0xee)); },
                [this] { encode(); },
                [this] {
                    const std::string wrong = encode_complaint();
                    return wrong.empty() && !same_blocks() ? "encoded to other bytes" : wrong;
                }};
    }

    pass decode_pass()
    {
        return {[this] { std::fill(back_.begin(), back_.end(), Code(0)); },
                [this] { decode(); },
                [this] { return decode_complaint(); }};
    }

private:
    void encode()
    {
        for (size_t i = 0; i < encoding_.size(); i += work_->pages_per_call)
            engine_.encode(&encoding_[i], std::min(work_->pages_per_call, encoding_.size() - i));
    }

    void decode()
    {
        for (size_t i = 0; i < decoding_.size(); i += work_->pages_per_call)
            engine_.decode(&decoding_[i], std::min(work_->pages_per_call, decoding_.size() - i));
    }

    template <class Result>
    std::string complaint(const Result& result) const
    {
        if (!result) return normans::status_name(result.code);
        const bool coded = result.mode == normans::block_mode::coded;
        if (work_->all_coded && !coded) return "a block was not coded";
        if (coded && int(result.backend) != expected_backend())
            return std::string("fell back to ") + normans::backend_name(result.backend);
        return {};
    }

    // Of order 0 there are no portable registers.
    int expected_backend() const
    {
        using normans::backend_id;
        const bool order0 = work_->pages.front().spec.coder == normans::coder_id::order0;
        return order0 && engine_.backend == int(backend_id::portable) ? int(backend_id::scalar)
                                                                      : engine_.backend;
    }

    std::string encode_complaint() const
    {
        for (const auto& task : encoding_)
            if (std::string wrong = complaint(task.result); !wrong.empty()) return wrong;
        return {};
    }

    std::string decode_complaint() const
    {
        for (size_t i = 0; i < decoding_.size(); ++i) {
            const page<Code>& one = work_->pages[i];
            if (std::string wrong = complaint(decoding_[i].result); !wrong.empty()) return wrong;
            if (std::memcmp(decoding_[i].out.data, one.box.data, one.bytes()) != 0)
                return "decoded to other codes";
        }
        return {};
    }

    bool same_blocks() const
    {
        for (const auto& task : encoding_) {
            const size_t first = size_t(task.out - blocks_.data());
            if (std::memcmp(task.out, expected_.data() + first, task.result.bytes) != 0)
                return false;
        }
        return true;
    }

    static void require(const std::string& wrong)
    {
        if (!wrong.empty()) throw std::runtime_error(wrong);
    }

    std::shared_ptr<const workload<Code>> work_;
    engine<Code> engine_;
    std::vector<uint8_t> blocks_;
    std::vector<uint8_t> expected_;
    std::vector<Code> back_;
    std::vector<encode_task<Code>> encoding_;
    std::vector<decode_task<Code>> decoding_;
};

}  // namespace bench
