#pragma once
// Where a plane's 32 lanes lie in memory: four runs of eight adjacent elements each, since a plane
// serves one block of 32 lanes, two of 16 or four of 8. Runs move along together.

#include "../config.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <class T>
struct lane_places {
    T* const* run;
    ptrdiff_t offset;
    bool whole;  // the runs are one

    NORMANS_INLINE T* operator[](int i) const { return run[i] + offset; }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
