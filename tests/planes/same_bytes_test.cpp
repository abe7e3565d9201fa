// Blocks by planes against blocks by the scalar definition: the same bytes, whatever the views, the
// geometry, the lanes and the number of blocks in a call; and both decode what the other wrote.

#include <doctest/doctest.h>

#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <normans/host/thread_executor.hpp>

#include "planes/random_blocks.hpp"

using namespace planes_test;

namespace {

#if !NORMANS_AVX2  // once: it takes long to compile
// NEON's kind of guess.
using other_guess = plane_backend<portable_planes, register_guess, 1, backend_id::portable>;
#endif

// How many batches: fewer where a processor is emulated.
int rounds()
{
    const char* const wanted = std::getenv("NORMANS_TEST_ROUNDS");
    return wanted != nullptr ? std::atoi(wanted) : field::sanitized ? 60 : 400;
}

struct totals {
    uint64_t blocks = 0, coded = 0, repaired = 0, row_scaled = 0, too_large = 0;
};

template <class Task>
void check_encoded(const Task& task, const std::vector<uint8_t>& expected, totals& sum)
{
    const encode_result& made = task.result;
    REQUIRE(made.code == status::ok);
    REQUIRE(made.bytes == expected.size());
    REQUIRE(std::memcmp(task.out, expected.data(), made.bytes) == 0);
    if (made.mode == block_mode::coded) {
        CHECK(made.backend == (made.lanes == 1 ? backend_id::scalar : default_backend::id));
        ++sum.coded;
    }
    ++sum.blocks;
    sum.row_scaled += made.row_scaled;
}

template <class Code>
void check_batch(random_source& random, totals& sum, bool scaled)
{
    std::vector<std::unique_ptr<random_block<Code>>> blocks = random_batch<Code>(random, scaled);
    std::vector<encode_task<Code, array_predictor>> encoding;
    std::vector<std::vector<uint8_t>> expected;
    for (auto& block : blocks) {
        encoding.push_back(block->encoding());
        expected.push_back(block->encoded_by_scalars());
        REQUIRE(!expected.back().empty());
    }
    encode_blocks(encoding.data(), encoding.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
        INFO(blocks[i]->text());
        check_encoded(encoding[i], expected[i], sum);
    }

    // Some damaged blocks among good ones: each has its own status.
    std::vector<decode_task<Code, array_predictor>> decoding;
    std::vector<bool> damaged;
    for (size_t i = 0; i < blocks.size(); ++i) {
        decoding.push_back(blocks[i]->decoding(expected[i]));
        damaged.push_back(expected[i].size() > 40 && random.below(4) == 0);
        if (damaged[i]) expected[i][16 + random.below(uint32_t(expected[i].size()) - 16)] ^= 0x10;
    }
    decode_blocks(decoding.data(), decoding.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
        INFO(blocks[i]->text());
        if (damaged[i]) {
            // A row step decides nothing where all of its row is far.
            const decode_result& read = decoding[i].result;
            if (read) CHECK((read.row_scaled && blocks[i]->exact()));
            blocks[i]->forget();
            CHECK(read.code ==
                  blocks[i]->template decoded_by<scalar_backend>(expected[i]).code);
            continue;
        }
        REQUIRE(decoding[i].result.code == status::ok);
        REQUIRE(blocks[i]->exact());
        sum.repaired += decoding[i].result.repairs;
#if !NORMANS_AVX2
        blocks[i]->forget();
        const decode_result other = blocks[i]->template decoded_by<other_guess>(expected[i]);
        REQUIRE(other.code == status::ok);
        REQUIRE(blocks[i]->exact());
#endif
    }
}

template <class Code>
totals check_batches(uint64_t seed, int rounds, bool scaled = false)
{
    random_source random{seed};
    totals sum;
    for (int i = 0; i < rounds; ++i) {
        CAPTURE(i);
        check_batch<Code>(random, sum, scaled);
    }
    return sum;
}

}  // namespace

TEST_CASE("8-bit blocks have the scalar definition's bytes")
{
    const totals sum = check_batches<uint8_t>(1, rounds());
    CHECK(sum.coded * 3 > sum.blocks);
    CHECK(sum.row_scaled > 0);
    CHECK(sum.repaired > 0);
}

TEST_CASE("16-bit blocks have the scalar definition's bytes")
{
    const totals sum = check_batches<uint16_t>(2, rounds());
    CHECK(sum.coded * 3 > sum.blocks);
    CHECK(sum.row_scaled > 0);
    CHECK(sum.repaired > 0);
}

TEST_CASE("blocks of int8, int4 and e2m1 have the scalar definition's bytes")
{
    const totals sum = check_batches<uint8_t>(7, rounds(), true);
    CHECK(sum.coded * 3 > sum.blocks);
    CHECK(sum.row_scaled > 0);
    CHECK(sum.repaired > 0);
}

namespace {

uint64_t asked_outside = 0;  // of a box

// The same predictions from a callable.
struct called {
    array_predictor views;
    box shape;

    prediction operator()(const scalar_position& at) const
    {
        const uint32_t row = at.head * shape.tokens + at.token;
        if (at.head < shape.heads && at.token < shape.tokens && at.channel < shape.dim &&
            at.index == row * shape.dim + at.channel)
            return views(at);
        ++asked_outside;
        return {0, 0};
    }
};

called called_of(const block_spec& spec, const array_predictor& views)
{
    return {views, {spec.heads, spec.tokens, spec.dim}};
}

void check_called(random_source& random, totals& sum, bool scaled)
{
    auto blocks = random_batch<uint8_t>(random, scaled);
    std::vector<encode_task<uint8_t, called>> encoding;
    std::vector<decode_task<uint8_t, called>> decoding;
    for (auto& block : blocks) {
        const auto views = block->encoding();
        encoding.push_back({views.spec, views.codes, called_of(views.spec, views.predictor),
                            views.out, views.capacity, {}});
    }
    encode_blocks(encoding.data(), encoding.size());
    std::vector<std::vector<uint8_t>> expected;
    for (size_t i = 0; i < blocks.size(); ++i) {
        INFO(blocks[i]->text());
        expected.push_back(blocks[i]->encoded_by_scalars());
        check_encoded(encoding[i], expected[i], sum);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
        const auto views = blocks[i]->decoding(expected[i]);
        decoding.push_back({views.spec, views.block, views.bytes,
                            called_of(views.spec, views.predictor), views.out, {}});
    }
    decode_blocks(decoding.data(), decoding.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
        INFO(blocks[i]->text());
        const decode_result& read = decoding[i].result;
        REQUIRE(read.code == status::ok);
        REQUIRE(blocks[i]->exact());
        CHECK(read.backend == encoding[i].result.backend);
        sum.repaired += read.repairs;
    }
}

}  // namespace

TEST_CASE("8-bit blocks by callables have the scalar definition's bytes")
{
    random_source random{8};
    totals sum;
    for (int i = 0; i < rounds() / 2; ++i) {
        CAPTURE(i);
        check_called(random, sum, i % 3 != 0);
    }
    CHECK(asked_outside == 0);
    CHECK(sum.coded * 3 > sum.blocks);
    CHECK(sum.row_scaled > 0);
    CHECK(sum.repaired > 0);
}

TEST_CASE("a block without room leaves the others of its call alone")
{
    random_source random{6};
    totals sum;
    for (int i = 0; i < rounds() / 4; ++i) {
        CAPTURE(i);
        auto blocks = random_batch<uint8_t>(random, i % 2 == 1);
        std::vector<encode_task<uint8_t, array_predictor>> tasks;
        std::vector<encode_result> expected;
        std::vector<std::vector<uint8_t>> bytes;
        for (auto& block : blocks) {
            const size_t bound = max_encoded_bytes(block->spec);
            const size_t room = random.below(3) == 0 ? random.below(uint32_t(bound)) : bound;
            tasks.push_back(block->encoding());
            tasks.back().capacity = room;
            bytes.emplace_back(bound);
            expected.push_back(block->template encoded_by<scalar_backend>(bytes.back(), room));
        }
        encode_blocks(tasks.data(), tasks.size());
        for (size_t k = 0; k < blocks.size(); ++k) {
            INFO(blocks[k]->text());
            const encode_result& made = tasks[k].result;
            REQUIRE(made.code == expected[k].code);
            REQUIRE(made.bytes == expected[k].bytes);
            REQUIRE(made.mode == expected[k].mode);
            ++sum.blocks;
            sum.too_large += !made;
            if (made) REQUIRE(std::memcmp(tasks[k].out, bytes[k].data(), made.bytes) == 0);
        }
    }
    CHECK(sum.too_large > 0);
    CHECK(sum.too_large < sum.blocks);
}

TEST_CASE("every length up to two steps and every tail")
{
    random_source random{3};
    for (const uint32_t lanes : {8u, 16u, 32u}) {
        for (uint32_t count = 1; count <= 2 * lanes + 1; ++count) {
            for (const bool scaled : {false, true}) {
                CAPTURE(lanes);
                CAPTURE(count);
                random_block<uint8_t> block(random, {1, 1, count}, lanes, scaled);
                const std::vector<uint8_t> expected = block.encoded_by_scalars();
                encode_task<uint8_t, array_predictor> task = block.encoding();
                encode_blocks(&task, 1);
                REQUIRE(task.result.bytes == expected.size());
                REQUIRE(std::memcmp(task.out, expected.data(), expected.size()) == 0);
                decode_task<uint8_t, array_predictor> back = block.decoding(expected);
                decode_blocks(&back, 1);
                REQUIRE(back.result.code == status::ok);
                REQUIRE(block.exact());
            }
        }
    }
}

TEST_CASE("an executor's threads give the same blocks, and no jobs are none")
{
    random_source random{4};
    std::vector<std::unique_ptr<random_block<uint8_t>>> blocks;
    std::vector<encode_task<uint8_t, array_predictor>> tasks, threaded;
    for (int i = 0; i < 200; ++i) {
        blocks.push_back(std::make_unique<random_block<uint8_t>>(random, box{1, 3, 64}, 8u));
        tasks.push_back(blocks.back()->encoding());
    }
    encode_blocks(tasks.data(), tasks.size());
    std::vector<std::vector<uint8_t>> outputs;
    for (auto& block : blocks) {
        outputs.emplace_back(max_encoded_bytes(block->spec));
        threaded.push_back(block->encoding());
        threaded.back().out = outputs.back().data();
    }
    encode_blocks(threaded.data(), threaded.size(), thread_executor{3});
    for (size_t i = 0; i < tasks.size(); ++i) {
        REQUIRE(threaded[i].result.bytes == tasks[i].result.bytes);
        REQUIRE(std::memcmp(threaded[i].out, tasks[i].out, tasks[i].result.bytes) == 0);
    }
    encode_blocks(tasks.data(), 0, thread_executor{3});
    decode_blocks(static_cast<decode_task<uint8_t, array_predictor>*>(nullptr), 0);
}

TEST_CASE("the host's rounding mode changes nothing and comes back")
{
    random_source random{5};
    for (int i = 0; i < 20; ++i) {
        random_block<uint16_t> block(random, {1, 4, 80}, 32);
        const std::vector<uint8_t> expected = block.encoded_by_scalars();
        encode_task<uint16_t, array_predictor> task = block.encoding();
        std::fesetround(FE_UPWARD);
        encode_blocks(&task, 1);
        const int after = std::fegetround();
        std::fesetround(FE_TONEAREST);
        CHECK(after == FE_UPWARD);
        REQUIRE(task.result.bytes == expected.size());
        REQUIRE(std::memcmp(task.out, expected.data(), expected.size()) == 0);
    }
}
