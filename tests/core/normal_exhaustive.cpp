// The model over all means.  usage: normal_exhaustive [--all-octaves]
// 8-bit types: for every bf16 mean and every sigma index of an octave, the intervals of all codes
// and the escape tile the total, find gives each code its interval, and its first and last slot
// lead back to it, from a good guess and from bad ones. 16-bit types: all binades of the mean with
// 64 mantissas each and the special means, over all groups that have slots; every code codable.
// --all-octaves takes every sigma index of the 8-bit types (minutes); its output is recorded in
// normal_all_octaves.txt. The hashes are over every (start, freq).

#include <cstdio>
#include <cstring>

#include <normans/core/normal.hpp>
#include <normans/host/guess.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

struct outcome {
    uint64_t models = 0, far = 0, intervals = 0, wrong = 0;
    running_hash hash;
};

bool same(const interval& x, const interval& y)
{
    return x.start == y.start && x.freq == y.freq && x.code == y.code && x.raw_bits == y.raw_bits &&
           x.escaped == y.escaped && x.corrupt == y.corrupt;
}

template <scalar_type Type>
class checker {
public:
    checker(shape_id shape, int offset)
        : model_{shape_of(shape), offset, nullptr}, guess_(model_.shape), rng_(uint64_t(offset))
    {
    }

    outcome seen;

    void check(uint32_t mean, uint32_t sigma_index, int row_step)
    {
        const scalar_model m =
            model_.prepare(map_mean(mean, one_bits, minus_zero_bits), sigma_index, row_step);
        ++seen.models;
        const uint64_t before = seen.wrong;
        if (m.is_far) check_far(m);
        else check_groups(m);
        if (seen.wrong != before && printed_++ < 5)
            std::fprintf(stderr, "%s: wrong at mean %08x, sigma index %u, row step %d\n",
                         scalar_name(Type), mean, sigma_index, row_step);
    }

private:
    static constexpr scalar_format format = format_of(Type);
    static constexpr uint32_t code_count = 2 * format.code_sign();

    void expect(bool good) { seen.wrong += !good; }

    void check_far(const scalar_model& m)
    {
        ++seen.far;
        const uint32_t escape_slots = model_.shape.escape_slots, total = rans_format::total;
        const uint32_t code = nearest_code(format, m.mean);
        const interval own = model_.find(m, code);
        const interval other = model_.find(m, code ^ format.code_sign());
        expect(own.start == escape_slots && own.start + own.freq == other.start);
        expect(other.start + other.freq == total && !own.escaped && !other.escaped);
        expect(own.code == code && other.code == (code ^ format.code_sign()));
        for (const interval& one : {own, other})
            for (const uint32_t slot : {one.start, one.start + one.freq - 1})
                expect(same(model_.locate_far(m, slot), one));
        for (int i = 0; i < 4; ++i) {
            const uint32_t any = rng_.below(code_count);
            if (any != own.code && any != other.code) expect(model_.find(m, any).escaped);
        }
    }

    void check_groups(const scalar_model& m)
    {
        const uint32_t escape_slots = model_.shape.escape_slots;
        const int lowest = -1 - m.last_group, highest = m.last_group + 1;
        expect(model_.cdf(m, lowest) == escape_slots);
        const uint32_t top = model_.cdf(m, highest);
        expect(top <= rans_format::total && top + 3 >= rans_format::total);
        // Groups with slots lie together; beyond them C does not change.
        int first = lowest, last = highest;
        if (format.code_bits == 16) {
            first = last_boundary(m, lowest, highest, escape_slots);
            last = last_boundary(m, lowest, highest, top - 1) + 1;
        }
        uint32_t start = model_.cdf(m, first);
        expect(start == escape_slots);
        const bool try_bad = rng_.below(16) == 0;
        for (int i = first; i < last; ++i) {
            const uint32_t end = model_.cdf(m, i + 1);
            expect(end >= start);
            check_group(m, i, start, end - start, try_bad);
            start = end;
        }
        expect(start == top);
        for (uint32_t slot = top; slot < rans_format::total; ++slot)
            expect(model_.locate(m, slot, guess_(model_, m, slot)).corrupt);
        check_outside(m, first, last);
    }

    // The highest boundary with C <= c.
    int last_boundary(const scalar_model& m, int low, int high, uint32_t c) const
    {
        while (high - low > 1) {
            const int middle = low + (high - low) / 2;
            if (model_.cdf(m, middle) <= c) low = middle;
            else high = middle;
        }
        return low;
    }

    void check_group(const scalar_model& m, int i, uint32_t start, uint32_t freq, bool try_bad)
    {
        const uint32_t group = uint32_t(i < 0 ? -1 - i : i) << m.group_bits;
        const uint32_t code = i < 0 ? group | format.code_sign() : group;
        const uint32_t low_bits = (1u << m.group_bits) - 1;
        const interval expected{start, freq, code, m.group_bits, false, false};
        for (const uint32_t low : {0u, low_bits}) {
            const interval found = model_.find(m, code | low);
            expect(freq == 0 ? same(found, model_.escape()) : same(found, expected));
        }
        if (freq == 0) return;
        ++seen.intervals;
        seen.hash.add(uint64_t(start) << 32 | freq);
        for (const uint32_t slot : {start, start + freq - 1}) {
            expect(same(model_.locate(m, slot, guess_(model_, m, slot)), expected));
            if (!try_bad) continue;
            for (const int bad : {-1 - m.last_group, m.last_group + 1, 0,
                                  rng_.between(-1 - m.last_group, m.last_group + 1)})
                expect(same(model_.locate(m, slot, bad), expected));
        }
    }

    // Codes outside first..last: escaped. Few codes of 16 bits, all of 8.
    void check_outside(const scalar_model& m, int first, int last)
    {
        const uint32_t step = format.code_bits == 8 ? 1 : 509;
        for (uint32_t code = rng_.below(step); code < code_count; code += step) {
            const uint32_t magnitude = code & (format.code_sign() - 1);
            const int group = int(magnitude >> m.group_bits);
            const int i = code & format.code_sign() ? -1 - group : group;
            if (magnitude > format.largest_finite || i < first || i >= last)
                expect(same(model_.find(m, code), model_.escape()));
        }
    }

    normal_model<Type> model_;
    piecewise_guess guess_;
    test_rng rng_;
    int printed_ = 0;
};

void print(const char* what, const outcome& seen)
{
    std::printf("%-58s %9llu models %9llu far %11llu intervals  %016llx  %llu wrong\n", what,
                static_cast<unsigned long long>(seen.models),
                static_cast<unsigned long long>(seen.far),
                static_cast<unsigned long long>(seen.intervals),
                static_cast<unsigned long long>(seen.hash.value()),
                static_cast<unsigned long long>(seen.wrong));
    std::fflush(stdout);
}

// Every bf16 mean, or every `stride`-th, under sigma indices first..last.
template <scalar_type Type>
uint64_t all_means(shape_id shape, int offset, uint32_t first, uint32_t last, int row_step,
                   uint32_t stride)
{
    checker<Type> check(shape, offset);
    for (uint32_t k = first; k <= last; ++k)
        for (uint32_t mean = k % stride; mean < 65536; mean += stride)
            check.check(mean << 16, k, row_step);
    char what[96];
    std::snprintf(what, sizeof what, "%s shape %u offset %d sigma %u..%u row step %d every %u",
                  scalar_name(Type), unsigned(shape), offset, first, last, row_step, stride);
    print(what, check.seen);
    return check.seen.wrong;
}

template <scalar_type Type>
uint64_t binades(shape_id shape, int offset, uint32_t sigma_index, int row_step)
{
    checker<Type> check(shape, offset);
    test_rng rng(sigma_index);
    for (uint32_t field = 0; field < 255; ++field)
        for (uint32_t part = 0; part < 64; part += thin > 1 ? 16 : 1)
            for (const uint32_t sign : {0u, sign_bit})
                check.check(sign | field << 23 | part << 17 | rng.bits(17), sigma_index, row_step);
    for (const uint32_t mean : {0u, 1u, 0x007fffffu, 0x00800000u, 0x00ffffffu, 0x01000000u,
                                0x7f7fffffu, infinity_bits, 0x7f800001u, quiet_nan_bits})
        for (const uint32_t sign : {0u, sign_bit}) check.check(sign | mean, sigma_index, row_step);
    char what[96];
    std::snprintf(what, sizeof what, "%s shape %u offset %d sigma %u row step %d, all binades",
                  scalar_name(Type), unsigned(shape), offset, sigma_index, row_step);
    print(what, check.seen);
    return check.seen.wrong;
}

template <scalar_type Type>
uint64_t all_octaves()
{
    uint64_t wrong = 0;
    for (uint32_t first = 0; first < 255; first += 8)
        wrong += all_means<Type>(shape_id::gaussian, default_sigma_offset, first,
                                 first + 7 < 254 ? first + 7 : 254, 0, 1);
    return wrong;
}

template <scalar_type Type>
uint64_t sixteen_bits()
{
    uint64_t wrong = 0;
    for (const uint32_t k : {0u, 100u, 128u, 254u})
        wrong += binades<Type>(shape_id::gaussian, default_sigma_offset, k, 0);
    wrong += binades<Type>(shape_id::mixture, default_sigma_offset, 118, -6);
    wrong += binades<Type>(shape_id::mixture_marginal, default_sigma_offset, 121, 9);
    wrong += binades<Type>(shape_id::gaussian, min_sigma_offset, 3, 0);
    wrong += binades<Type>(shape_id::gaussian, max_sigma_offset, 254, 5);
    return wrong;
}

}  // namespace

int main(int count, char** arguments)
{
    using scalar = scalar_type;
    constexpr int offset = default_sigma_offset;
    uint64_t wrong = 0;
    if (count == 2 && std::strcmp(arguments[1], "--all-octaves") == 0) {
        wrong += all_octaves<scalar::e4m3fn>();
        wrong += all_octaves<scalar::e5m2>();
        wrong += all_octaves<scalar::e4m3fnuz>();
        wrong += all_octaves<scalar::e5m2fnuz>();
    } else {
        // sigma = 2^-2 .. 2^-1.1, where KV caches live, and 2^-11, below all cells.
        wrong += all_means<scalar::e4m3fn>(shape_id::gaussian, offset, 112, 119, 0, thin);
        wrong += all_means<scalar::e4m3fn>(shape_id::gaussian, offset, 40, 40, 0, thin);
        wrong += all_means<scalar::e5m2>(shape_id::gaussian, offset, 114, 115, 0, thin);
        wrong += all_means<scalar::e4m3fnuz>(shape_id::gaussian, offset, 116, 117, 0, thin);
        wrong += all_means<scalar::e5m2fnuz>(shape_id::gaussian, offset, 118, 119, 0, thin);
        wrong += all_means<scalar::e4m3fn>(shape_id::mixture, offset, 112, 119, 0, 5 * thin);
        wrong +=
            all_means<scalar::e4m3fn>(shape_id::mixture_marginal, offset, 112, 119, 0, 5 * thin);
        for (int row_step = min_row_step; row_step <= max_row_step; ++row_step)
            wrong += all_means<scalar::e4m3fn>(shape_id::gaussian, offset, 112, 119, row_step,
                                               29 * thin);
        wrong += sixteen_bits<scalar::bf16>();
        wrong += sixteen_bits<scalar::fp16>();
    }
    std::printf("%llu wrong\n", static_cast<unsigned long long>(wrong));
    return wrong == 0 ? 0 : 1;
}
