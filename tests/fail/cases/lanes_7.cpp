// expect: lane groups have 1, 8, 16 or 32 lanes
#include <normans/core/lanes.hpp>

#if defined(VALID)
normans::array_lanes<8>::state state;
#else
normans::array_lanes<7>::state state;
#endif
