# Sourced by examples/run and tests/run. normans_setup makes sure that what the build needs is
# there: as root on Debian it installs the missing packages, elsewhere it names them and fails.

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
    normans_has_header doctest/doctest.h || echo doctest-dev
}

normans_setup() {
    local missing
    missing=$(normans_missing_packages | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null; then
        echo "installing: $missing"
        export DEBIAN_FRONTEND=noninteractive
        # shellcheck disable=SC2086  # a list of words
        apt-get -qq update && apt-get -qq install -y --no-install-recommends $missing >/dev/null
        missing=$(normans_missing_packages | tr '\n' ' ')
    fi
    if [ -n "$missing" ]; then
        echo "missing; please install (Debian names): $missing" >&2
        return 1
    fi
}
