#pragma once
// Others on the same codes in the same pages: htscodecs (static order 0, 32-way, so one table per
// page and no predictions), zstd at level 1, and a plain copy.

#include <cstring>
#include <stdexcept>

#include <htscodecs/rANS_static4x16.h>
#include <zstd.h>

#include "job.hpp"
#include "workload.hpp"

namespace bench {

struct htscodecs_codec {
    static constexpr const char* name = "htscodecs";
    static constexpr int order = RANS_ORDER_X32;

    size_t bound(size_t n) const { return rans_compress_bound_4x16(unsigned(n), order); }

    /// Bytes written; 0 if it failed.
    size_t encode(const uint8_t* in, size_t n, uint8_t* out, size_t capacity) const
    {
        auto bytes = unsigned(capacity);
        auto* codes = const_cast<uint8_t*>(in);  // its API has no const
        return rans_compress_to_4x16(codes, unsigned(n), out, &bytes, order) ? bytes : 0;
    }
    bool decode(const uint8_t* in, size_t bytes, uint8_t* out, size_t n) const
    {
        auto written = unsigned(n);
        auto* block = const_cast<uint8_t*>(in);
        return rans_uncompress_to_4x16(block, unsigned(bytes), out, &written) && written == n;
    }
};

struct zstd_codec {
    static constexpr const char* name = "zstd-1";
    std::shared_ptr<ZSTD_CCtx> encoder{ZSTD_createCCtx(), ZSTD_freeCCtx};
    std::shared_ptr<ZSTD_DCtx> decoder{ZSTD_createDCtx(), ZSTD_freeDCtx};

    size_t bound(size_t n) const { return ZSTD_compressBound(n); }
    size_t encode(const uint8_t* in, size_t n, uint8_t* out, size_t capacity) const
    {
        const size_t bytes = ZSTD_compressCCtx(encoder.get(), out, capacity, in, n, 1);
        return ZSTD_isError(bytes) ? 0 : bytes;
    }
    bool decode(const uint8_t* in, size_t bytes, uint8_t* out, size_t n) const
    {
        return ZSTD_decompressDCtx(decoder.get(), out, n, in, bytes) == n;
    }
};

struct copy_codec {
    static constexpr const char* name = "memcpy";

    size_t bound(size_t n) const { return n; }
    size_t encode(const uint8_t* in, size_t n, uint8_t* out, size_t) const
    {
        std::memcpy(out, in, n);
        return n;
    }
    bool decode(const uint8_t* in, size_t bytes, uint8_t* out, size_t) const
    {
        std::memcpy(out, in, bytes);
        return true;
    }
};

/// One workload's pages under a codec of bytes.
template <class Codec>
class peer_coder {
public:
    template <class Code>
    explicit peer_coder(const std::shared_ptr<const workload<Code>>& work) : owner_(work)
    {
        size_t room = 0, total = 0;
        for (const page<Code>& one : work->pages) {
            const size_t n = one.bytes(), most = codec_.bound(n);
            pages_.push_back({reinterpret_cast<const uint8_t*>(one.box.data), n, total, room, most,
                              0});
            total += n;
            room += most;
        }
        blocks_.resize(room);
        back_.resize(total);
        encode();
        decode();
        if (const std::string wrong = complaint(); !wrong.empty()) throw std::runtime_error(wrong);
    }

    peer_coder(const peer_coder&) = delete;  // its passes point to it
    peer_coder& operator=(const peer_coder&) = delete;

    double bytes() const
    {
        double sum = 0;
        for (const byte_page& one : pages_) sum += double(one.bytes);
        return sum;
    }

    pass encode_pass()
    {
        return {[] {}, [this] { encode(); }, [this] { decode(); return complaint(); }};
    }
    pass decode_pass()
    {
        return {[this] { std::memset(back_.data(), 0, back_.size()); }, [this] { decode(); },
                [this] { return complaint(); }};
    }

private:
    struct byte_page {
        const uint8_t* codes;
        size_t size;
        size_t first;  // in back_
        size_t out;    // in blocks_
        size_t capacity;
        size_t bytes;
    };

    void encode()
    {
        for (byte_page& one : pages_)
            one.bytes = codec_.encode(one.codes, one.size, &blocks_[one.out], one.capacity);
    }
    void decode()
    {
        good_ = true;
        for (const byte_page& one : pages_)
            good_ &= codec_.decode(&blocks_[one.out], one.bytes, &back_[one.first], one.size);
    }

    std::string complaint() const
    {
        if (!good_) return "coding failed";
        for (const byte_page& one : pages_)
            if (std::memcmp(&back_[one.first], one.codes, one.size) != 0)
                return "decoded to other codes";
        return {};
    }

    Codec codec_;
    std::shared_ptr<const void> owner_;
    std::vector<byte_page> pages_;
    std::vector<uint8_t> blocks_;
    std::vector<uint8_t> back_;
    bool good_ = false;
};

}  // namespace bench
