#pragma once
// array_lanes with what the block loop (block_steps.hpp) asks of a group beside the step: moving
// numbers in and out, sums, and the models of a step's scalars. One block at a time, one lane after
// the other: the definition that every backend is compared with, and the path of one-lane blocks.
// Blocks of fewer lanes than Width leave the upper ones idle.

#include "../block/row_scale.hpp"
#include "../core/lanes.hpp"
#include "block_job.hpp"
#include "float_mode.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t Width>
struct scalar_lanes : array_lanes<Width> {
    using base = array_lanes<Width>;
    using typename base::mask;
    using typename base::models;
    using typename base::state;
    using typename base::values;
    using float_mode = no_float_mode;
    static constexpr uint32_t blocks = 1;

    static mask no_lanes() { return 0; }
    static mask active_lanes(uint32_t, uint32_t here) { return base::first_lanes(here); }
    static uint32_t lanes_of(mask m, uint32_t, uint32_t) { return m; }

    template <class Cursor>
    struct cursors {
        Cursor* block;
        cursors(Cursor* cursor, uint32_t, uint32_t) : block(cursor) {}
    };
    static constexpr uint32_t idle_bytes = 1;  // never used
    static void refill(state& x, const cursors<word_reader>& words)
    {
        base::refill(x, *words.block);
    }
    static void spill(state& x, mask full, const cursors<word_writer>& words)
    {
        base::spill(x, full, *words.block);
    }

    template <class T>
    struct places {
        T* first;
        uint32_t lanes;
        template <class Function>
        places(uint32_t count, Function of_block) : first(of_block(0)), lanes(count)
        {
        }
    };

    static void load_state(state& x, const uint32_t* lane)
    {
        for (uint32_t i = 0; i < Width; ++i) x[i] = lane[i];
    }
    static void store_state(uint32_t* lane, const state& x)
    {
        for (uint32_t i = 0; i < Width; ++i) lane[i] = x[i];
    }
    static values load(const uint32_t* lane)
    {
        return base::each([&](uint32_t i) { return lane[i]; });
    }
    static void store(uint32_t* lane, const values& x)
    {
        for (uint32_t i = 0; i < Width; ++i) lane[i] = x[i];
    }

    template <class Code>
    static values load_codes(const places<Code>& from, ptrdiff_t offset)
    {
        return base::each([&](uint32_t i) {
            return i < from.lanes ? uint32_t(from.first[offset + ptrdiff_t(i)]) : 0;
        });
    }
    template <class Code>
    static void store_codes(const places<Code>& to, ptrdiff_t offset, const values& x,
                            uint32_t lanes)
    {
        for (uint32_t i = 0; i < lanes; ++i) to.first[offset + ptrdiff_t(i)] = Code(x[i]);
    }

    template <class>
    struct sums {
        running_sums lane[Width];
        void add(const values& x, mask active)
        {
            for (uint32_t i = 0; i < Width; ++i)
                if (active >> i & 1) lane[i].add(x[i]);
        }
        void store(uint32_t* a, uint32_t* b) const
        {
            for (uint32_t i = 0; i < Width; ++i) {
                a[i] = lane[i].a;
                b[i] = lane[i].b;
            }
        }
    };

    struct row_sums {
        row_statistics row;
        explicit row_sums(uint32_t) {}
        const row_statistics& of(uint32_t) { return row; }
    };

    template <class Model>
    static void add_row(row_sums& sums, const Model& model, const models& m, const values& codes,
                        mask active)
    {
        for (uint32_t i = 0; i < Width; ++i)
            if (active >> i & 1) sums.row.add(model, m[i], codes[i]);
    }
};

namespace detail {

/// See plane_inputs.
template <class Lanes, class Model, class Job>
class scalar_inputs {
public:
    using models = typename Lanes::models;

    scalar_inputs(const no_float_mode&, const block_spec&, const Model& model, const Job* jobs,
                  uint32_t, uint32_t, float)
        : model_(model), job_(*jobs)
    {
    }

    void measure(bool on) { measuring_ = on; }
    uint32_t repairs(uint32_t) const { return 0; }
    prediction predicted(const Job& job, const scalar_position& at) const
    {
        return job.predictor(at);
    }

    uint32_t prepare(box_walker walker, uint32_t here)
    {
        for (uint32_t i = 0; i < here; ++i, walker.next()) {
            const prediction one = job_.predictor(walker.position());
            const int step = job_.row_steps(walker.position().token);
            models_[i] = model_.prepare_sloped(clean_mean(one), one.sigma_index,
                                               measuring_ ? statistics_scale : row_slope(step));
        }
        return 1;
    }
    const models& step(uint32_t) const { return models_; }

private:
    const Model& model_;
    const Job& job_;
    models models_{};
    bool measuring_ = false;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
