#!/usr/bin/env bash
# Blocks are the same bytes whatever compiles the library.  usage: run.sh OUT_FOLDER
# Builds the codec under each compiler and set of flags, and on top of it the golden test, the
# special values' test and streams; runs all with and without flush-to-zero, and compares the hashes
# they print. Equal bytes that each build decodes are bytes that every build decodes (cases N03,
# N07). Also: no diagnostics with the project's warnings as errors (N07); the codec imports nothing
# but memory copies, and the other objects no function of libm (N05).
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=${1:?usage: run.sh OUT_FOLDER}/flag_matrix
rm -rf "$out"
mkdir -p "$out"
export root out
export LC_ALL=C

# -mfma without AVX2 lets a compiler contract the portable code's products and sums; 387 gives the
# definition intermediate results of 80 bits; -march=native takes the SIMD lanes.
# The slowest to compile first.
configurations=(
    "clang++|-std=gnu++20 -O1 -ffast-math -DNDEBUG"
)
if [ "$(uname -m)" = x86_64 ] && grep -qw fma /proc/cpuinfo; then
    configurations=(
        "g++|-std=c++17 -O2 -ffast-math -mfma"
        "clang++|-std=c++17 -O1 -march=native -ffast-math"
        "g++|-std=c++17 -O1 -march=native -ffast-math"
        "${configurations[@]}"
        "g++|-std=c++20 -O1 -mfpmath=387 -D_GLIBCXX_ASSERTIONS -DNORMANS_SCALAR_ONLY"
    )
else
    configurations+=("g++|-std=c++17 -O3 -ffast-math" "g++|-std=c++20 -O0 -D_GLIBCXX_ASSERTIONS")
    echo "skipped: -march=native, -mfma, -mfpmath=387 (no x86-64 with FMA)"
fi

# Any of these would bring the C library's rounding into the bytes.
libm='a?(sin|cos|tan)h?|exp(2|10|m1)?|log(2|10|1p|b)?|pow|erfc?|[lt]gamma|sqrt|cbrt|hypot|fma|fmod'
libm+='|remainder|ldexp|frexp|scalbl?n|ilogb|modf|nextafter|floor|ceil|trunc|fabs|fm(ax|in)'
libm+='|l?l?r(int|ound)|nearbyint|copysign'
export imports_no="^(${libm})[fl]?\$"
# And what every C++ object may need.
export imports_only='^(mem(cpy|move|set|cmp)|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_'
imports_only+='|__gxx_personality_v0|_Unwind_Resume|_ZSt9terminatev|__cxa_begin_catch)$'

# What codec/planes leaves to codec/definition.
export definitions='(en|de)code_(scaled|order0)|encode_array_steps'

run_one()
{
    local number=$1 compiler=${2%%|*} flags=${2#*|}
    local stem="$out/$number" fault=""
    local warnings="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow"
    warnings+=" -Wold-style-cast -Werror"
    local name
    for name in codec/planes codec/definition golden/golden_test matrix/special_test \
        matrix/streams_test; do
        local program=${name##*/} imported
        # shellcheck disable=SC2086
        if ! $compiler $flags $warnings -I "$root/include" -I "$root/tests" \
            -c "$root/tests/$name.cpp" -o "$stem.$program.o" 2>"$stem.$program.log" ||
            [ -s "$stem.$program.log" ]; then
            fault+=" $program: does not compile cleanly;"
            continue
        fi
        imported=$(nm -u "$stem.$program.o" | awk '$1 == "U" {print $2}' | sed 's/@.*//')
        if [ "$program" = planes ]; then
            imported=$(echo "$imported" | grep -Ev "$imports_only|$definitions")
        elif [ "$program" = definition ]; then
            imported=$(echo "$imported" | grep -Ev "$imports_only")
        else
            imported=$(echo "$imported" | grep -E "$imports_no")
        fi
        [ -n "$imported" ] && fault+=" $program imports $(echo $imported);"
        [ "${name%%/*}" = codec ] && continue
        # shellcheck disable=SC2086
        if ! $compiler $flags "$stem.$program.o" "$stem.planes.o" "$stem.definition.o" \
            -o "$stem.$program" 2>>"$stem.$program.log"; then
            fault+=" $program: does not link;"
            continue
        fi
        local mode
        for mode in "" --flush-to-zero; do
            local files=()
            [ "$program" = golden_test ] && files=("$root"/tests/golden/v0/*.txt \
                "$root"/tests/golden/v0_scaled/*.txt "$root"/tests/golden/v0_order0/*.txt)
            # shellcheck disable=SC2086
            if ! "$stem.$program" $mode "${files[@]}" >"$stem.$program.out" \
                2>>"$stem.$program.log"; then
                fault+=" $program $mode fails;"
            fi
            cut -d' ' -f1 "$stem.$program.out" >>"$stem.hashes"
        done
    done
    echo "$compiler $flags: $(paste -sd' ' "$stem.hashes" 2>/dev/null)$fault" >"$stem.result"
    cat "$stem".*.log >"$stem.log"
    [ -z "$fault" ] && rm -f "$stem".*_test "$stem".*.o
}
export -f run_one

declare -A missing=()
jobs=()
number=100
for configuration in "${configurations[@]}"; do
    compiler=${configuration%%|*}
    if command -v "$compiler" >/dev/null; then
        jobs+=("$((++number))" "$configuration")
    elif [ -z "${missing[$compiler]:-}" ]; then
        missing[$compiler]=1
        echo "skipped: $compiler not found"
    fi
done
[ ${#jobs[@]} -gt 0 ] || { echo "skipped: no compiler found"; exit 0; }
printf '%s\0' "${jobs[@]}" | xargs -0 -n 2 -P 2 bash -c 'run_one "$@"' run_one

status=0
cat "$out"/*.result
if grep -q ';$' "$out"/*.result; then
    cat "$out"/[0-9]*[0-9].log >&2
    echo "FAILED: see above"
    status=1
fi
# Of each program all hashes, flushing to zero or not, must be one.
for column in 1 3 5; do
    kinds=$(for file in "$out"/*.hashes; do
        sed -n "${column},$((column + 1))p" "$file"
    done | sort -u | wc -l)
    if [ "$kinds" -ne 1 ]; then
        echo "FAILED: $kinds different hashes"
        status=1
    fi
done
[ $status -eq 0 ] && echo "$(ls "$out"/*.result | wc -l) builds, the same bytes"
exit $status
