#pragma once
// Singular values and vectors of a block, by Eigen: the only header that needs it (3.3 or later, to
// be had apart from this library). For encoders.

#include <Eigen/Eigenvalues>

#include "factors.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// The `most` largest components of values[token * channels + channel], which are finite: the block
/// in units of the channels' scales, its base taken off. By the eigenvectors of the smaller Gram
/// matrix: exact to about 2^-26 of the largest singular value, which is more than int8 keeps.
inline block_components decompose_block(const double* values, uint32_t tokens, uint32_t channels,
                                        uint32_t most = max_rank)
{
    block_components found;
    found.tokens = tokens;
    found.channels = channels;
    const bool by_token = tokens <= channels;
    const uint32_t side = by_token ? tokens : channels, other = by_token ? channels : tokens;
    if (side == 0) return found;
    const size_t step = by_token ? channels : 1, along = by_token ? 1 : channels;
    Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(side, side);
    for (size_t x = 0; x < other; ++x)
        for (uint32_t j = 0; j < side; ++j) {
            const double at = values[j * step + x * along];
            // The solver reads the lower triangle.
            for (uint32_t i = j; i < side; ++i) gram(i, j) += at * values[i * step + x * along];
        }
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(gram);
    if (solver.info() != Eigen::Success) return found;
    const double largest = solver.eigenvalues()(side - 1);
    for (uint32_t k = 0; k < side && k < most; ++k) {
        const double square = solver.eigenvalues()(side - 1 - k);
        if (!(square > 1e-14 * largest)) break;
        const double singular = std::sqrt(square);
        std::vector<double> vector(side), image(other);
        for (uint32_t i = 0; i < side; ++i) vector[i] = solver.eigenvectors()(i, side - 1 - k);
        for (size_t x = 0; x < other; ++x)
            for (uint32_t i = 0; i < side; ++i)
                image[x] += values[i * step + x * along] * vector[i] / singular;
        found.singular.push_back(singular);
        found.left.push_back(by_token ? vector : image);
        found.right.push_back(by_token ? image : vector);
    }
    return found;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
