#pragma once
// Whole files in, whole files out. An output appears under its name only when it is complete: it is
// written under a temporary name beside it and renamed; on any failure the temporary goes away.

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include "errors.hpp"

namespace kv_file {

inline std::vector<std::uint8_t> read_file(const std::string& path)
{
    struct closer {
        std::FILE* file;
        ~closer()
        {
            if (file != nullptr) std::fclose(file);
        }
    };
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) fail(path, ": is a directory");
    const closer in{std::fopen(path.c_str(), "rb")};
    if (in.file == nullptr) fail(path, ": ", std::strerror(errno));
    std::vector<std::uint8_t> bytes;
    std::size_t size = std::size_t(std::filesystem::file_size(path, error));
    if (!error) bytes.reserve(size + 1);  // + 1: the end is seen without growing
    for (;;) {
        const std::size_t before = bytes.size();
        const std::size_t room = bytes.capacity() > before ? bytes.capacity() - before : 65536;
        bytes.resize(before + room);
        const std::size_t got = std::fread(bytes.data() + before, 1, room, in.file);
        bytes.resize(before + got);
        if (got == 0) break;
    }
    if (std::ferror(in.file) != 0) fail(path, ": cannot be read");
    return bytes;
}

class output_file {
public:
    explicit output_file(std::string path)
        : path_(std::move(path)), temporary_(path_ + ".part-" + std::to_string(::getpid()))
    {
        std::error_code error;
        const auto kind = std::filesystem::status(path_, error);
        if (std::filesystem::exists(kind) && !std::filesystem::is_regular_file(kind))
            fail(path_, ": exists and is not a regular file");
        file_ = std::fopen(temporary_.c_str(), "wbx");
        if (file_ == nullptr) fail(path_, ": cannot be written: ", std::strerror(errno));
    }

    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;

    ~output_file()
    {
        if (file_ != nullptr) std::fclose(file_);
        if (!temporary_.empty()) std::remove(temporary_.c_str());
    }

    void write(const void* data, std::size_t bytes)
    {
        if (bytes != 0 && std::fwrite(data, 1, bytes, file_) != bytes)
            fail(path_, ": cannot be written: ", std::strerror(errno));
    }

    /// All is written: give it its name.
    void commit()
    {
        const int closed = std::fclose(file_);
        file_ = nullptr;
        if (closed != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0)
            fail(path_, ": cannot be written: ", std::strerror(errno));
        temporary_.clear();
    }

private:
    std::string path_;
    std::string temporary_;
    std::FILE* file_ = nullptr;
};

}  // namespace kv_file
