#pragma once
// The library's version (semantic). The stream's format_version is separate: wire/header.hpp.

#define NORMANS_VERSION_MAJOR 0
#define NORMANS_VERSION_MINOR 1
#define NORMANS_VERSION_PATCH 0
