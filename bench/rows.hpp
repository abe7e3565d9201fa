#pragma once
// Which rows there are.

#include "catalogue.hpp"
#include "order0.hpp"
#include "quantised.hpp"
#include "real.hpp"
#include "synthetic.hpp"
#include "tans.hpp"

namespace bench {

/// e4m3fn at 2.5 bits with the rest as `change` leaves it.
template <class Function>
synthetic changed(const std::string& name, Function change)
{
    synthetic wanted;
    wanted.name = name;
    change(wanted);
    return wanted;
}

/// 131,072 scalars in blocks of 64 channels.
inline synthetic pages_of_size(const std::string& name, uint32_t scalars, uint32_t lanes,
                               size_t per_call)
{
    return changed(name, [=](synthetic& s) {
        s.tokens = scalars / s.dim;
        s.lanes = lanes;
        s.pages = 131072 / scalars;
        s.pages_per_call = per_call;
    });
}

/// Pages like those of the real cache, without row steps.
inline synthetic plain_pages(normans::scalar_type type, const std::string& bits)
{
    return changed("synthetic-" + bits, [&](synthetic& s) {
        s.type = type;
        s.bits = std::stod(bits);
        s.heads = 3;
        s.tokens = 256;
        s.lanes = 32;
        s.pages = 4;
        s.pages_per_call = 4;
        s.row_factors = false;
    });
}

inline void add_real(catalogue& rows, const real_cache& cache)
{
    const auto fp8 = rows.add(make_real<uint8_t>(cache, "real", 256, 32));
    const auto bf16 = rows.add(make_real<uint16_t>(cache, "real", 256, 32));
    rows.add(make_real<uint8_t>(cache, "page-64", 64, 8));
    rows.add(make_real<uint16_t>(cache, "page-64", 64, 8));
    rows.add_peer<zstd_codec>(fp8);
    rows.add_peer<zstd_codec>(bf16);
    rows.add_copy(fp8);
    rows.add_copy(bf16);
    rows.add_two_threads(fp8);
}

/// Static tables beside htscodecs': one a page, one for all pages, one in a block so long that
/// neither its table nor its states matter.
inline void add_order0(catalogue& rows, const real_cache& cache)
{
    const workload<uint8_t> pages = make_real<uint8_t>(cache, "real", 256, 32);
    rows.add_beside(with_tables(pages, "real", table_use::own), "real");
    rows.add_beside(with_tables(pages, "real-shared", table_use::shared), "real");
    rows.add(with_tables(in_one_block(pages, "long"), "long", table_use::own));
}

inline void add_small_pages(catalogue& rows)
{
    rows.add(make_synthetic<uint8_t>(pages_of_size("page-2048", 2048, 32, 1)));
    rows.add(make_synthetic<uint8_t>(pages_of_size("four-2048", 2048, 8, 4)));
}

inline void add_types(catalogue& rows)
{
    using normans::scalar_type;
    for (const char* bits : {"1.7", "3.5", "6"})
        rows.add(make_synthetic<uint8_t>(plain_pages(scalar_type::e4m3fn, bits)));
    for (const scalar_type type : {scalar_type::e5m2, scalar_type::e4m3fnuz, scalar_type::e5m2fnuz})
        rows.add(make_synthetic<uint8_t>(plain_pages(type, "2.5")));
    rows.add(make_synthetic<uint16_t>(plain_pages(scalar_type::fp16, "6")));
}

inline void add_quantised(catalogue& rows)
{
    const auto add = [&](normans::scalar_type type, const char* bits) {
        const auto work = rows.add(quantised_at(type, bits));
        add_tans(rows, *work, type == normans::scalar_type::int8);
    };
    for (const char* bits : {"2", "3", "4", "5"}) add(normans::scalar_type::int8, bits);
    for (const char* bits : {"2", "3"}) add(normans::scalar_type::int4, bits);
    for (const char* bits : {"2", "3"}) rows.add(quantised_at(normans::scalar_type::e2m1, bits));
    rows.add(quantised_plain("view-mean-fp32-no-affine"));
    rows.add_callable(quantised_plain("view-callable"));
}

inline void add_shapes(catalogue& rows)
{
    for (uint32_t size = 256; size <= 65536; size *= 2)
        rows.add(make_synthetic<uint8_t>(
            pages_of_size("size-" + std::to_string(size), size, 0, 1)));
    for (const uint32_t dim : {64u, 80u, 96u, 128u, 192u, 576u})
        rows.add(make_synthetic<uint8_t>(changed("width-" + std::to_string(dim), [=](auto& s) {
            s.dim = dim;
            s.tokens = 49152 / dim;
            s.lanes = 32;
            s.pages = 4;
            s.pages_per_call = 4;
        })));
    for (size_t pages = 1; pages <= 16; pages *= 2)
        rows.add(make_synthetic<uint8_t>(
            pages_of_size("pages-" + std::to_string(pages), 2048, 8, pages)));
    for (const char* cells : {"0.125", "0.25", "0.5", "1", "2", "4"})
        rows.add(make_synthetic<uint8_t>(changed(std::string("sigma-cells-") + cells, [=](auto& s) {
            s.sigma_cells = std::stod(cells);
        })));
}

/// All of one workload, each in one way other than view-base.
inline void add_views(catalogue& rows)
{
    using normans::any_means;
    const auto view = [&](const char* name, auto change) {
        rows.add(make_synthetic<uint8_t>(changed(std::string("view-") + name, change)));
    };
    view("base", [](synthetic&) {});  // means in bf16, sigmas per channel, affine, row steps
    view("mean-fp32", [](synthetic& s) { s.means = any_means::fp32; });
    view("mean-fp8", [](synthetic& s) { s.means = normans::scalar_type::e4m3fn; });
    view("sigma-scalar", [](synthetic& s) { s.sigmas = sigma_kind::scalar; });
    using kind = normans::any_sigmas::kind;
    for (const kind type : {kind::deviation, kind::variance})
        view(type == kind::deviation ? "sigma-deviation" : "sigma-variance", [=](synthetic& s) {
            s.sigmas = sigma_kind::scalar;
            s.sigma_type = type;
        });
    view("sigma-one", [](synthetic& s) { s.sigmas = sigma_kind::one; });
    view("no-affine", [](synthetic& s) { s.affine = false; });
    view("no-row-scale", [](synthetic& s) { s.row_scale = false; });
    const auto for_callable = [](synthetic& s) {
        s.means = any_means::fp32;
        s.affine = false;
    };
    view("mean-fp32-no-affine", for_callable);  // what the callable reads, as views
    rows.add_callable(make_synthetic<uint8_t>(changed("view-callable", for_callable)));
}

inline void add_rows(catalogue& rows, const real_cache& cache, bool quick)
{
    using normans::scalar_type;
    add_real(rows, cache);
    add_order0(rows, cache);
    add_small_pages(rows);
    rows.add(make_synthetic<uint8_t>(plain_pages(scalar_type::e4m3fn, "2.5")));
    rows.add(make_synthetic<uint16_t>(plain_pages(scalar_type::bf16, "6")));
    if (quick) return;
    add_types(rows);
    add_quantised(rows);
    add_shapes(rows);
    add_views(rows);
}

/// For counting instructions: few, since an emulator runs them.
inline void add_rows_to_count(catalogue& rows, const real_cache& cache)
{
    rows.add(make_real<uint8_t>(cache, "real", 256, 32));
    rows.add(make_real<uint16_t>(cache, "real", 256, 32));
}

}  // namespace bench
