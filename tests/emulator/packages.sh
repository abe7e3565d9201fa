# Sourced by tests/emulator/run and by whoever installs what it needs.

# The Debian packages that tests/emulator/run needs and that are missing.
normans_missing_emulator_packages() {
    command -v c++ >/dev/null || echo g++
    command -v bochs >/dev/null || echo bochs
    compgen -G "/usr/lib/*/bochs/plugins/libbx_term_gui.so" >/dev/null || echo bochs-term
}
