// fit/calibration.hpp: what the fits recover, and what they leave alone.

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include <normans/fit/calibration.hpp>

using namespace normans;

namespace {

constexpr scalar_format e4m3 = format_of(scalar_type::e4m3fn);
constexpr scalar_format bf16 = format_of(scalar_type::bf16);

float value_of(scalar_format format, uint32_t code)
{
    return bits_to_float(value_bits(format, code));
}

calibration_sample sample_of(scalar_format format, double value, float mean)
{
    const uint32_t code = nearest_code(format, float_to_bits(float(value)));
    return {double(value_of(format, code)), mean, code};
}

using tokens = std::vector<std::vector<calibration_sample>>;

template <class Statistics>
void feed(Statistics& statistics, const tokens& rows)
{
    for (const auto& row : rows) statistics.add_token(row.data());
}

std::vector<channel_fit> fit_once(scalar_type dtype, float scale, residual_kind kind,
                                  const tokens& rows)
{
    tensor_statistics statistics(dtype, scale, kind, rows.front().size());
    feed(statistics, rows);
    return statistics.fit();
}

// value = slope * mean + shift + sigma * noise, the same in every channel.
tokens make_tokens(size_t count, size_t channels, double slope, double shift, double sigma,
                   unsigned seed = 1)
{
    std::mt19937 source(seed);
    std::normal_distribution<double> normal;
    tokens rows(count, std::vector<calibration_sample>(channels));
    for (auto& row : rows)
        for (calibration_sample& sample : row) {
            const float mean = float(4 * normal(source));
            sample = sample_of(bf16, slope * double(mean) + shift + sigma * normal(source), mean);
        }
    return rows;
}

}  // namespace

TEST_CASE("least squares finds slope, shift and deviation")
{
    const tokens rows = make_tokens(4000, 3, 0.9, 0.25, 0.5);
    for (const channel_fit& fit :
         fit_once(scalar_type::bf16, 1, residual_kind::of_codes, rows)) {
        CHECK(fit.a == doctest::Approx(0.9).epsilon(0.02));
        CHECK(fit.b == doctest::Approx(0.25).epsilon(0.1));
        CHECK(fit.affine_sigma == doctest::Approx(0.5).epsilon(0.03));
        CHECK(fit.plain_sigma == doctest::Approx(std::sqrt(0.25 + 0.0625 + 0.16)).epsilon(0.05));
        CHECK_FALSE(fit.plain_exact);
    }
}

TEST_CASE("a map that the samples do not prove stays the identity")
{
    size_t identities = 0;
    const tokens rows = make_tokens(64, 200, 1, 0, 0.5);
    tensor_profile tensor;
    tensor.dtype = scalar_type::bf16;
    set_channels(tensor, fit_once(scalar_type::bf16, 1, residual_kind::of_codes, rows));
    for (size_t c = 0; c < 200; ++c)
        identities += tensor.affine_a[c] == 1 && float_to_bits(tensor.affine_b[c]) == sign_bit;
    CHECK(identities > 160);
}

TEST_CASE("the scale is folded in")
{
    const float scale = 0.125f;
    CHECK(fold_scale({}, 0.3f).a == inverse_scale(0.3f));
    CHECK(float_to_bits(fold_scale({}, 0.3f).b) == sign_bit);
    channel_fit fit;
    fit.a = 0.5;
    fit.b = 3;
    CHECK(fold_scale(fit, scale).a == 4);
    CHECK(fold_scale(fit, scale).b == 3);
    fit.b = 1e-42;  // a subnormal float
    CHECK(fold_scale(fit, scale).a == 8);
    fit.a = 1e40;
    CHECK(fold_scale(fit, scale).a == 8);
}

TEST_CASE("merged statistics are those of all samples")
{
    const tokens rows = make_tokens(100, 4, 0.9, 0.25, 0.5);
    const tokens head(rows.begin(), rows.begin() + 37), tail(rows.begin() + 37, rows.end());
    const auto type = scalar_type::bf16;
    const auto kind = residual_kind::of_codes;
    tensor_statistics all(type, 1, kind, 4), left(type, 1, kind, 4), right(type, 1, kind, 4);
    feed(all, rows);
    feed(left, head);
    feed(right, tail);
    REQUIRE(left.merge(right) == status::ok);
    const auto reference = all.fit(), merged = left.fit();
    for (size_t c = 0; c < 4; ++c) {
        CHECK(merged[c].a == doctest::Approx(reference[c].a).epsilon(1e-12));
        CHECK(merged[c].affine_sigma == doctest::Approx(reference[c].affine_sigma).epsilon(1e-12));
    }
    sigma_likelihood one(type, shape_id::mixture, 1, all, reference), two(one), three(one);
    feed(one, rows);
    feed(two, head);
    feed(three, tail);
    REQUIRE(two.merge(three) == status::ok);
    CHECK(two.fit()[2].affine_sigma == doctest::Approx(one.fit()[2].affine_sigma).epsilon(1e-9));

    CHECK(left.merge(tensor_statistics(type, 1, kind, 5)) == status::bad_argument);
    CHECK(left.merge(tensor_statistics(type, 2, kind, 4)) == status::bad_argument);
    CHECK(left.merge(tensor_statistics(type, 1, kind, reference)) == status::bad_argument);
}

TEST_CASE("tokens that are off as a whole weigh less in the second pass")
{
    tokens rows = make_tokens(400, 64, 1, 0, 0.5);
    std::mt19937 source(5);
    std::normal_distribution<double> normal;
    for (size_t t = 0; t < rows.size(); t += 10)  // the attention sink's like: ten times as far off
        for (calibration_sample& sample : rows[t])
            sample = sample_of(bf16, double(sample.mean) + 1 + 5 * normal(source), sample.mean);
    const auto first = fit_once(scalar_type::bf16, 1, residual_kind::of_codes, rows);
    tensor_statistics second(scalar_type::bf16, 1, residual_kind::of_codes, first);
    CHECK(second.spread(rows[0].data()) > 5 * second.spread(rows[1].data()));
    feed(second, rows);
    double before = 0, after = 0;
    for (size_t c = 0; c < 64; ++c) {
        before += std::abs(first[c].b);
        after += std::abs(second.fit()[c].b);
        CHECK(second.fit()[c].plain_sigma == first[c].plain_sigma);
    }
    CHECK(after < before / 2);
}

TEST_CASE("dead and exact channels get sigma 0, others the smallest sigma")
{
    tokens rows(50, std::vector<calibration_sample>(4));
    for (size_t t = 0; t < rows.size(); ++t) {
        const float moving = float(t) / 4;
        rows[t][0] = {0, t % 3 == 0 ? -0.0f : 0.0f, t % 2 == 0 ? 0u : 0x8000u};  // dead
        rows[t][1] = sample_of(bf16, double(moving), moving);                    // exact
        rows[t][2] = sample_of(bf16, 0, moving);  // dead, but its mean does not know: a = 0
        rows[t][3] = {double(moving), moving, 0x1234};  // value right, code not the nearest
    }
    const auto first = fit_once(scalar_type::bf16, 1, residual_kind::of_codes, rows);
    tensor_statistics second(scalar_type::bf16, 1, residual_kind::of_codes, first);
    feed(second, rows);
    tensor_profile tensor;
    tensor.dtype = scalar_type::bf16;
    set_channels(tensor, second.fit());
    CHECK(tensor.plain_sigma[0] == sigma_zero);
    CHECK(tensor.affine_sigma[0] == sigma_zero);
    CHECK(tensor.plain_sigma[1] == sigma_zero);
    CHECK(tensor.affine_sigma[1] == sigma_zero);
    CHECK(tensor.plain_sigma[2] != sigma_zero);
    CHECK(tensor.affine_sigma[2] == sigma_zero);
    CHECK(tensor.affine_a[2] == 0);
    CHECK(tensor.plain_sigma[3] == 0);
    CHECK(tensor.affine_sigma[3] == 0);
}

TEST_CASE("values and means that are no numbers are left out")
{
    tokens rows = make_tokens(200, 2, 0.9, 0.25, 0.5);
    const auto clean = fit_once(scalar_type::bf16, 1, residual_kind::of_codes, rows);
    const double infinity = std::numeric_limits<double>::infinity();
    rows.push_back({{std::nan(""), 1.0f, 0x7fc0}, {infinity, 1.0f, 0x7f80}});
    rows.push_back({{1.0, std::nanf(""), 0x3f80}, {1.0, float(infinity), 0x3f80}});
    const auto fits = fit_once(scalar_type::bf16, 1, residual_kind::of_codes, rows);
    for (size_t c = 0; c < 2; ++c) {
        CHECK(fits[c].a == clean[c].a);
        CHECK(fits[c].affine_sigma == clean[c].affine_sigma);
    }
    const tokens none(3, std::vector<calibration_sample>(1, {std::nan(""), 0, 0}));
    const auto empty = fit_once(scalar_type::e4m3fn, 1, residual_kind::of_codes, none);
    CHECK(empty[0].a == 1);
    CHECK_FALSE(empty[0].plain_exact);
}

TEST_CASE("maximum likelihood sees through the rounding")
{
    // Cells around 20 are 2 wide: the rounded residuals say far more than sigma = 0.3.
    std::mt19937 source(7);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<float> means(17, 31);
    for (const double sigma : {0.3, 1.0, 5.0}) {
        tokens rows(3000, std::vector<calibration_sample>(1));
        for (auto& row : rows) {
            const float mean = means(source);
            row[0] = sample_of(e4m3, double(mean) + sigma * normal(source), mean);
        }
        tensor_statistics statistics(scalar_type::e4m3fn, 1, residual_kind::of_codes, 1);
        feed(statistics, rows);
        sigma_likelihood likelihood(scalar_type::e4m3fn, shape_id::gaussian, 1, statistics,
                                    statistics.fit());
        feed(likelihood, rows);
        CHECK(likelihood.fit()[0].plain_sigma == doctest::Approx(sigma).epsilon(0.05));
        if (sigma < 0.5) CHECK(statistics.fit()[0].plain_sigma > 1.5 * sigma);
    }
}

TEST_CASE("the sigma offset holds all sigmas where it can")
{
    sigma_range range;
    CHECK(choose_sigma_offset(scalar_type::e4m3fn, range) == -8);
    CHECK(choose_sigma_offset(scalar_type::e5m2, range) == -16);
    CHECK(choose_sigma_offset(scalar_type::bf16, range) == default_sigma_offset);
    range.add(0);
    range.add(std::nan(""));
    range.add(0.002);
    range.add(1000);
    const int offset = choose_sigma_offset(scalar_type::bf16, range);
    CHECK(offset == -9);
    CHECK(sigma_index(deviation{0.002f}, offset) < 8);
    range.add(1e-20);  // more than the grid: the largest counts
    CHECK(sigma_index(deviation{1000.0f}, choose_sigma_offset(scalar_type::bf16, range)) >= 247);
    range.add(1e38);
    CHECK(choose_sigma_offset(scalar_type::bf16, range) == max_sigma_offset);
    sigma_range tiny;
    tiny.add(1e-38);
    CHECK(choose_sigma_offset(scalar_type::bf16, tiny) == min_sigma_offset);
}
