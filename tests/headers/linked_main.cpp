#include "linked.hpp"

int main()
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
#endif
    const auto mine = make_block();
    return !mine.empty() && mine == block_of_unit_one() && mine == block_of_unit_two() ? 0 : 1;
}
