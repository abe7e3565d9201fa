#pragma once
// The safetensors format: u64 length of a JSON header, the header, then the tensors' bytes. A file
// is read whole and its header believed in nothing: every tensor must have a known dtype, a shape
// whose size is that of its bytes, and the tensors must cover the rest of the file without gap or
// overlap. Tensors may start at odd addresses, so codes and floats are read byte by byte.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "files.hpp"

namespace kv_file {

struct tensor_info {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0;  // from the end of the header
    std::uint64_t end = 0;
};

/// Bytes per element, 0 if the dtype is not known here.
inline std::uint64_t dtype_bytes(const std::string& dtype)
{
    static const std::map<std::string, std::uint64_t> sizes = {
        {"BOOL", 1},        {"U8", 1},          {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
        {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"F8_E8M0", 1},
        {"U16", 2},         {"I16", 2},         {"F16", 2}, {"BF16", 2},
        {"U32", 4},         {"I32", 4},         {"F32", 4},
        {"U64", 8},         {"I64", 8},         {"F64", 8}, {"C64", 8}};
    const auto found = sizes.find(dtype);
    return found == sizes.end() ? 0 : found->second;
}

class safetensors_file {
public:
    explicit safetensors_file(const std::string& path) : path_(path), bytes_(read_file(path))
    {
        if (bytes_.size() < 8) broken("shorter than a header");
        std::uint64_t length = 0;
        for (unsigned i = 0; i < 8; ++i) length |= std::uint64_t(bytes_[i]) << 8 * i;
        if (length > bytes_.size() - 8) broken("the header is longer than the file");
        data_ = std::size_t(8 + length);
        parse_header();
    }

    const std::string& path() const { return path_; }
    const std::map<std::string, tensor_info>& tensors() const { return tensors_; }

    const tensor_info* find(const std::string& name) const
    {
        const auto found = tensors_.find(name);
        return found == tensors_.end() ? nullptr : &found->second;
    }

    const std::uint8_t* data(const tensor_info& tensor) const
    {
        return bytes_.data() + data_ + tensor.begin;
    }

    /// A value of the metadata, empty if there is none.
    std::string metadata(const std::string& key) const
    {
        const auto found = metadata_.find(key);
        return found == metadata_.end() ? std::string() : found->second;
    }

private:
    template <class... Parts>
    [[noreturn]] void broken(const Parts&... parts) const
    {
        fail(path_, ": not a sound safetensors file: ", parts...);
    }

    void parse_header()
    {
        using json = nlohmann::json;
        std::set<std::string> keys;
        bool twice = false;
        const auto watch = [&](int depth, json::parse_event_t event, json& value) {
            if (event == json::parse_event_t::key && depth == 1)
                twice |= !keys.insert(value.get<std::string>()).second;
            return true;
        };
        const json header = json::parse(bytes_.begin() + 8, bytes_.begin() + std::ptrdiff_t(data_),
                                        watch, false);
        if (!header.is_object()) broken("the header is no JSON object");
        if (twice) broken("a name occurs twice");
        for (const auto& [name, value] : header.items()) {
            if (name == "__metadata__") read_metadata(value);
            else tensors_.emplace(name, read_tensor(name, value));
        }
        check_coverage();
    }

    void read_metadata(const nlohmann::json& value)
    {
        if (!value.is_object()) broken("the metadata is no object");
        for (const auto& [key, text] : value.items()) {
            if (!text.is_string()) broken("the metadata holds more than texts");
            metadata_.emplace(key, text.get<std::string>());
        }
    }

    tensor_info read_tensor(const std::string& name, const nlohmann::json& value) const
    {
        const auto counts = [](const nlohmann::json& list) {
            return list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& item) {
                       return item.is_number_unsigned();
                   });
        };
        if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
            !value["dtype"].is_string() || !value.contains("shape") || !counts(value["shape"]) ||
            !value.contains("data_offsets") || !counts(value["data_offsets"]) ||
            value["data_offsets"].size() != 2)
            broken(name, " is not described as a tensor");
        tensor_info tensor{value["dtype"].get<std::string>(),
                           value["shape"].get<std::vector<std::uint64_t>>(),
                           value["data_offsets"][0].get<std::uint64_t>(),
                           value["data_offsets"][1].get<std::uint64_t>()};
        std::uint64_t bytes = dtype_bytes(tensor.dtype);
        if (bytes == 0) broken(name, " has the unknown dtype ", tensor.dtype);
        bool empty = false;
        for (const std::uint64_t extent : tensor.shape) {
            empty |= extent == 0;
            if (extent != 0 && bytes > bytes_.size() / extent) bytes = bytes_.size() + 1;
            else if (extent != 0) bytes *= extent;
        }
        if (empty) bytes = 0;
        if (tensor.begin > tensor.end || tensor.end > bytes_.size() - data_ ||
            tensor.end - tensor.begin != bytes)
            broken("the bytes of ", name, " do not match its shape or lie outside the file");
        return tensor;
    }

    void check_coverage() const
    {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
        for (const auto& [name, tensor] : tensors_) spans.emplace_back(tensor.begin, tensor.end);
        std::sort(spans.begin(), spans.end());
        std::uint64_t at = 0;
        for (const auto& [begin, end] : spans) {
            if (begin != at) broken("tensors overlap or leave a gap");
            at = end;
        }
        if (at != bytes_.size() - data_) broken("its length is not what the header says");
    }

    std::string path_;
    std::vector<std::uint8_t> bytes_;
    std::size_t data_ = 0;
    std::map<std::string, tensor_info> tensors_;
    std::map<std::string, std::string> metadata_;
};

/// A tensor to be written: little-endian bytes.
struct tensor_bytes {
    std::string name;
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::vector<std::uint8_t> bytes;
};

/// Writes the tensors with wide elements first, so that all are aligned.
inline void write_safetensors(const std::string& path, std::vector<tensor_bytes> tensors,
                              const std::map<std::string, std::string>& metadata)
{
    std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
        return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
    });
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::uint64_t at = 0;
    for (const tensor_bytes& tensor : tensors) {
        header[tensor.name] = {{"dtype", tensor.dtype},
                               {"shape", tensor.shape},
                               {"data_offsets", {at, at + tensor.bytes.size()}}};
        at += tensor.bytes.size();
    }
    std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::uint8_t length[8];
    for (unsigned i = 0; i < 8; ++i) length[i] = std::uint8_t(text.size() >> 8 * i);

    output_file out(path);
    out.write(length, sizeof length);
    out.write(text.data(), text.size());
    for (const tensor_bytes& tensor : tensors) out.write(tensor.bytes.data(), tensor.bytes.size());
    out.commit();
}

}  // namespace kv_file
