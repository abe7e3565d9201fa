# Sourced by examples/run and tests/run. normans_setup [bench] makes sure that what the build needs
# is there: as root on Debian it installs the missing packages, elsewhere it names them and fails.

# True if the compiler finds a header.
normans_has_header() {
    printf '#include <%s>\n' "$1" | c++ -std=c++17 -x c++ -fsyntax-only - >/dev/null 2>&1
}

# The Debian packages whose command or header is missing.
normans_missing_packages() {
    command -v c++ >/dev/null || echo g++
    command -v cmake >/dev/null || echo cmake
    command -v ninja >/dev/null || echo ninja-build
    command -v python3 >/dev/null || echo python3
    normans_has_header CLI/CLI.hpp || echo libcli11-dev
    normans_has_header nlohmann/json.hpp || echo nlohmann-json3-dev
    normans_has_header zstd.h || echo libzstd-dev
    normans_has_header eigen3/Eigen/Core || echo libeigen3-dev
    normans_has_header doctest/doctest.h || echo doctest-dev
    [ "${1:-}" = bench ] || return 0
    normans_has_header benchmark/benchmark.h || echo libbenchmark-dev
    normans_has_header htscodecs/rANS_static4x16.h || echo libhtscodecs-dev
}

# What some tests run on other processors with: emulators and a cross compiler. Without them those
# tests are skipped.
normans_missing_emulators() {
    source tests/emulator/packages.sh
    normans_missing_emulator_packages
    command -v qemu-aarch64-static >/dev/null || echo qemu-user-static
    command -v aarch64-linux-gnu-g++ >/dev/null || echo g++-aarch64-linux-gnu
}

normans_can_install() {
    [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null
}

# normans_install PACKAGES: quietly.
normans_install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

# Where it can: a failure only means skipped tests.
normans_setup_emulators() {
    local missing
    missing=$(normans_missing_emulators | tr '\n' ' ')
    [ -n "$missing" ] && normans_can_install || return 0
    echo "installing: $missing"
    # shellcheck disable=SC2086  # a list of words
    normans_install $missing || true
}

normans_setup() {
    local missing
    missing=$(normans_missing_packages "$@" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    if normans_can_install; then
        echo "installing: $missing"
        # shellcheck disable=SC2086  # a list of words
        normans_install $missing
        missing=$(normans_missing_packages "$@" | tr '\n' ' ')
    fi
    if [ -n "$missing" ]; then
        echo "missing; please install (Debian names): $missing" >&2
        return 1
    fi
}

# nvdisasm, for the instruction counts of tests/cuda: the toolkit's, else its wheel's. Without it
# instructions are not counted, and the tests say so.
normans_setup_nvdisasm() {
    command -v nvdisasm >/dev/null && return 0
    local venv=build/nvdisasm found
    if ! [ -d "$venv" ]; then
        { python3 -m venv "$venv" &&
          "$venv/bin/pip" install --quiet --retries 1 --timeout 15 nvidia-cuda-nvdisasm
        } >/dev/null 2>&1 || true
    fi
    found=$(find "$venv" -name nvdisasm -type f -perm -u+x 2>/dev/null | head -n 1)
    [ -z "$found" ] || export PATH="$PATH:$PWD/$(dirname "$found")"
}

# A clang++ that reads the toolkit, for P11, where the system's are older: Debian's newest, unpacked
# beside the build (220 MB), not installed. Without it that test is skipped, and says so.
normans_setup_cuda_clang() {
    local place=build/clang version newest
    for version in $(seq 22 40); do
        if command -v "clang++-$version" >/dev/null; then return 0; fi
    done
    if ! [ -x "$place/clang++" ] && command -v apt-cache >/dev/null; then
        newest=$(apt-cache search --names-only '^clang-[0-9]+$' | sed 's/^clang-\([0-9]*\) .*/\1/' |
                 sort -n | tail -n 1)
        [ "${newest:-0}" -ge 22 ] || return 0
        mkdir -p "$place"
        { (cd "$place" &&
           apt-get -qq download "clang-$newest" "libclang-cpp$newest" "libllvm$newest" \
               "libclang-common-$newest-dev" &&
           for package in *.deb; do dpkg -x "$package" . || exit 1; done &&
           rm -- *.deb &&
           ln -sf "usr/lib/llvm-$newest/bin/clang++" "clang++-$newest" &&
           printf '%s\n' '#!/bin/sh' 'here=$(dirname "$0")' \
               'LD_LIBRARY_PATH=$(echo "$here"/usr/lib/*-linux-gnu) exec "$here"/clang++-* "$@"' \
               > clang++ &&
           chmod +x clang++)
        } >/dev/null 2>&1 || true
    fi
    [ -x "$place/clang++" ] || return 0
    export NORMANS_CUDA_CLANG=$PWD/$place/clang++
}
