#include "linked.hpp"

std::vector<std::uint8_t> block_of_unit_two() { return make_block(); }
