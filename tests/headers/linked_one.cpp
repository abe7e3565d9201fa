#include "linked.hpp"

std::vector<std::uint8_t> block_of_unit_one() { return make_block(); }
