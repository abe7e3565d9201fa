#!/usr/bin/env bash
# Blocks are the same bytes whatever compiles the library.  usage: run.sh OUT_FOLDER
# Builds the golden test and the special values' test under each compiler and set of flags, runs
# both with and without flush-to-zero, and compares the hashes they print. Also: no diagnostics with
# the project's warnings as errors, and no function of libm among what the objects import.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=${1:?usage: run.sh OUT_FOLDER}/flag_matrix
rm -rf "$out"
mkdir -p "$out"
export root out
export LC_ALL=C

# -mfma without AVX2 lets a compiler contract the portable code's products and sums; 387 gives it
# intermediate results of 80 bits; -march=native takes the SIMD lanes, -mno-fma takes them away.
configurations=(
    "g++|-std=c++17 -O0"
    "g++|-std=c++20 -O2 -DNDEBUG"
    "clang++|-std=c++17 -O0"
    "clang++|-std=c++20 -O2 -DNDEBUG"
    "clang++|-std=gnu++17 -O2 -ffast-math"
)
if [ "$(uname -m)" = x86_64 ] && grep -qw fma /proc/cpuinfo; then
    configurations+=(
        "g++|-std=c++17 -O3 -ffast-math -mfma"
        "g++|-std=c++17 -O3 -march=native -ffast-math"
        "g++|-std=c++17 -O2 -march=native -mno-fma"
        "g++|-std=c++17 -O2 -mfpmath=387"
        "clang++|-std=c++17 -O2 -march=native -ffast-math"
    )
else
    configurations+=("g++|-std=c++17 -O3 -ffast-math")
    echo "skipped: -march=native, -mfma, -mno-fma, -mfpmath=387 (no x86-64 with FMA)"
fi

# Any of these would bring the C library's rounding into the bytes.
libm='a?(sin|cos|tan)h?|exp(2|10|m1)?|log(2|10|1p|b)?|pow|erfc?|[lt]gamma|sqrt|cbrt|hypot|fma|fmod'
libm+='|remainder|ldexp|frexp|scalbl?n|ilogb|modf|nextafter|floor|ceil|trunc|fabs|fm(ax|in)'
libm+='|l?l?r(int|ound)|nearbyint|copysign'
export imports="^(${libm})[fl]?\$"

run_one()
{
    local number=$1 compiler=${2%%|*} flags=${2#*|}
    local stem="$out/$number" program fault=""
    local warnings="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow"
    warnings+=" -Wold-style-cast -Werror"
    for program in golden special; do
        local source="$root/tests/golden/golden_test.cpp"
        [ $program = special ] && source="$root/tests/matrix/special_test.cpp"
        # shellcheck disable=SC2086
        if ! $compiler $flags $warnings -I "$root/include" -c "$source" \
            -o "$stem.$program.o" 2>"$stem.$program.log" ||
            [ -s "$stem.$program.log" ] ||
            ! $compiler $flags "$stem.$program.o" -o "$stem.$program" 2>>"$stem.$program.log"; then
            fault+=" $program: does not compile cleanly;"
            continue
        fi
        local used
        used=$(nm -u "$stem.$program.o" | awk '{print $NF}' | sed 's/@.*//' | grep -E "$imports")
        [ -n "$used" ] && fault+=" $program imports $(echo $used);"
        local mode
        for mode in "" --flush-to-zero; do
            local files=()
            [ $program = golden ] && files=("$root"/tests/golden/v0/*.txt)
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
    [ -z "$fault" ] && rm -f "$stem".golden "$stem".special "$stem".*.o
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
for column in 1 3; do
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
