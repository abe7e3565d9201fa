// A small kernel with the habits of the codec (a shared table, words that starved lanes take,
// staging, tails), right or with one of 14 mistakes, most really made. The harness must notice
// each and nothing in the right one. usage: simt_mistakes NUMBER (0: none)
//  1 last slot of a shared table not written       8 no __syncwarp before staging is read
//  2 no block barrier after the table is filled    9 tail store overruns
//  3 one lane returns early                       10 misaligned 32-bit store
//  4 padding lanes decode too                     11 no __syncwarp before staging is reused
//  5 a ballot inside a divergent branch           12 wrong shuffle mask
//  6 rank mask off by one                         13 non-atomic shared counter
//  7 unchecked read of the input                  14 no block barrier between reads and writes
// 7 and 10 show under ASan and UBSan, 8, 11, 13 and 14 under TSan, the others in any build.

#include "device.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::uint32_t threads = 64, count = 45, steps = 2;  // per warp: a tail of 13

struct shared_memory {
    std::uint32_t table[64];
    std::uint32_t staging[threads];
    std::uint32_t starved_lanes;
};

bool starves(std::uint32_t lane, std::uint32_t step) { return (lane * 7 + step) % 3 == 0; }
std::uint32_t table_entry(std::uint32_t i) { return i * i * 2654435761u + 17; }

struct kernel {
    int mistake;
    const std::uint16_t* words;
    std::uint32_t word_count;
    std::uint8_t* out;       // count bytes for each warp, the warp's part aligned to 4
    std::uint32_t stride;    // between the parts
    std::uint32_t* counted;  // what all lanes took together

    void operator()() const
    {
        auto& shared = device_test::shared_variable<shared_memory>();
        const std::uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
        if (!(mistake == 1 && thread == 63)) shared.table[thread] = table_entry(thread);
        if (thread == 0) shared.starved_lanes = 0;
        if (mistake != 2) __syncthreads();
        if (mistake == 3 && lane == 31) return;

        std::uint32_t next = 0, x = thread * 77 + 5;
        for (std::uint32_t step = 0; step < steps; ++step) {
            const std::uint32_t item = step * 32 + lane;
            const bool active = mistake == 4 || item < count;
            const bool starved = active && starves(lane, step);
            unsigned ballot = 0;
            if (mistake != 5) ballot = __ballot_sync(~0u, starved);
            else if (starved) ballot = __ballot_sync(~0u, starved);
            const unsigned below = mistake == 6 ? (2u << lane) - 1 : (1u << lane) - 1;
            const std::uint32_t at = next + unsigned(__popc(ballot & below));
            if (starved) {
                const bool there = at < word_count || mistake == 7;
                x = x << 16 | (there ? words[at] : 0u);
                if (mistake == 13) ++shared.starved_lanes;
                else atomicAdd(&shared.starved_lanes, 1u);
            }
            next += unsigned(__popc(ballot));
            const std::uint32_t value = x ^ shared.table[(thread + step) % 64];

            // Bytes change hands, four to a word.
            shared.staging[thread] = value;
            if (mistake == 8) __any_sync(~0u, 1);
            else __syncwarp();
            const std::uint32_t other = shared.staging[warp * 32 + 31 - lane];
            if (mistake != 11) __syncwarp();
            std::uint32_t word = other & 255;
            for (int i = 1; i < 4; ++i)
                word |= (__shfl_sync(mistake == 12 ? 0xffffu : ~0u, other, int(lane / 4 * 4) + i) &
                         255)
                        << 8 * i;
            store(out + warp * stride, item, word, other);
        }
        __syncthreads();
        if (thread == 0) *counted = shared.starved_lanes;

        const std::uint32_t neighbour = shared.table[(thread + 1) % threads];
        if (mistake != 14) __syncthreads();
        shared.table[thread] = neighbour;
        __syncthreads();
    }

    void store(std::uint8_t* to, std::uint32_t item, std::uint32_t word, std::uint32_t other) const
    {
        const bool whole = item / 4 * 4 + 4 <= count || (mistake == 9 && item / 4 * 4 < count);
        if (whole && item % 4 == 0)
            *reinterpret_cast<std::uint32_t*>(to + item + (mistake == 10 ? 1 : 0)) = word;
        if (!whole && item < count) to[item] = std::uint8_t(other);
    }
};

// What the right kernel stores, item by item; `taken`: how many words.
std::vector<std::uint8_t> expected(const std::vector<std::uint16_t>& words, std::uint32_t stride,
                                   std::uint32_t& taken)
{
    std::vector<std::uint8_t> out(2 * stride, 0xee);
    taken = 0;
    for (std::uint32_t warp = 0; warp < 2; ++warp) {
        std::uint32_t next = 0, x[32], value[32];
        for (std::uint32_t lane = 0; lane < 32; ++lane) x[lane] = (warp * 32 + lane) * 77 + 5;
        for (std::uint32_t step = 0; step < steps; ++step) {
            for (std::uint32_t lane = 0; lane < 32; ++lane) {
                if (step * 32 + lane < count && starves(lane, step)) {
                    x[lane] = x[lane] << 16 | (next < words.size() ? words[next] : 0u);
                    ++next, ++taken;
                }
                value[lane] = x[lane] ^ table_entry((warp * 32 + lane + step) % 64);
            }
            for (std::uint32_t lane = 0; lane < 32 && step * 32 + lane < count; ++lane)
                out[warp * stride + step * 32 + lane] = std::uint8_t(value[31 - lane]);
        }
    }
    return out;
}

}  // namespace

int main(int arguments, char** argument)
{
    if (arguments != 2) return 2;
    const int mistake = std::atoi(argument[1]);
    std::vector<std::uint16_t> words;
    for (std::uint32_t i = 0; i < 10; ++i) words.push_back(std::uint16_t(i * 9973 + 3));  // few
    constexpr std::uint32_t stride = 64;
    std::uint32_t taken = 0;
    const std::vector<std::uint8_t> right = expected(words, stride, taken);

    for (unsigned seed = 0; seed < 6; ++seed) {
        device_test::how().which = seed == 0   ? simt::order::up
                                   : seed == 1 ? simt::order::down
                                               : simt::order::random;
        device_test::how().seed = seed;
        const device_test::device_array<std::uint16_t> in(words);
        const device_test::device_array<std::uint8_t> out(2 * stride, 0xee);
        const device_test::device_array<std::uint32_t> counted(1);
        const std::string fault = device_test::launch(
            kernel{mistake, in.data(), std::uint32_t(words.size()), out.data(), stride,
                   counted.data()},
            1, threads);
        if (!fault.empty()) {
            std::printf("noticed: %s\n", fault.c_str());
            return 1;
        }
        if (out.copy() != right || counted.copy()[0] != taken) {
            std::printf("noticed: wrong results\n");
            return 1;
        }
    }
    std::printf("nothing noticed\n");
    return 0;
}
