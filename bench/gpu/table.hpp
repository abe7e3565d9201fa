#pragma once
// The table of a run: written as JSON and Markdown after every row, so that a run that is cut short
// loses nothing.

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace bench {

struct gpu_row {
    std::string name;
    double scalars = 0;       // in one call
    double microseconds = 0;  // of one call; 0: not measured
    double gb_s = 0;          // of decoded bytes
    double bits = 0;          // per scalar, coded; 0: not coded
    double traffic = 0;       // bytes read and written, over what a device copy moves meanwhile
};

class gpu_table {
public:
    gpu_table(std::string folder, std::string device, std::string date, bool measured)
        : folder_(std::move(folder)), device_(std::move(device)), date_(std::move(date)),
          measured_(measured)
    {
    }

    void add(const gpu_row& row)
    {
        rows_.push_back(row);
        std::printf("%s\n", line_of(row).c_str());
        write();
    }
    void leave_out(const std::string& name, const std::string& reason)
    {
        left_out_.push_back(name + ": " + reason);
        std::printf("not run: %s\n", left_out_.back().c_str());
        write();
    }
    /// Runs f(). What it throws is in the table, and costs none but its own rows.
    template <class Function>
    void part(const std::string& name, const Function& f)
    {
        try {
            f();
        } catch (const std::exception& error) {
            failed_ = true;
            leave_out(name, std::string("FAILED, ") + error.what());
        }
    }
    bool failed() const { return failed_; }

private:
    static std::string number(double x, const char* format)
    {
        char text[32];
        std::snprintf(text, sizeof text, format, x);
        return x == 0 ? "-" : text;
    }
    static std::string line_of(const gpu_row& row)
    {
        return "| " + row.name + " | " + number(row.gb_s, "%.1f") + " | " +
               number(row.microseconds, "%.1f") + " | " + number(row.bits, "%.3f") + " | " +
               number(row.traffic * 100, "%.0f %%") + " |";
    }

    void write() const
    {
        std::string text = device_ + ", " + date_ + "\n\n";
        if (!measured_)
            text += "No GPU: every row was coded and verified, no speed was measured.\n\n";
        text += "GB/s of decoded bytes; traffic: bytes read and written (codes, means, blocks), "
                "over what a device-to-device copy moves in the same time.\n\n"
                "| row | GB/s | us a call | bits | traffic |\n"
                "| --- | ---: | ---: | ---: | ---: |\n";
        std::string json = "{\"device\": \"" + device_ + "\", \"date\": \"" + date_ +
                           "\", \"measured\": " + (measured_ ? "true" : "false") + ", \"rows\": [";
        for (const gpu_row& row : rows_) {
            text += line_of(row) + "\n";
            json += std::string(&row == rows_.data() ? "" : ",") + "\n  {\"name\": \"" + row.name +
                    "\", \"scalars\": " + value(row.scalars) + ", \"microseconds\": " +
                    value(row.microseconds) + ", \"gb_s\": " + value(row.gb_s) +
                    ", \"bits_per_scalar\": " + value(row.bits) + ", \"traffic\": " +
                    value(row.traffic) + "}";
        }
        json += "\n], \"not_run\": [";
        for (const std::string& one : left_out_) {
            text += "\nnot run: " + one + "\n";
            json += std::string(&one == left_out_.data() ? "" : ", ") + "\"" + one + "\"";
        }
        replace("table.md", text);
        replace("table.json", json + "]}\n");
    }
    static std::string value(double x)
    {
        char text[32];
        std::snprintf(text, sizeof text, "%.6g", x);
        return x == 0 ? "null" : text;
    }
    void replace(const std::string& name, const std::string& text) const
    {
        const std::string path = folder_ + "/" + name, next = path + ".next";
        std::FILE* file = std::fopen(next.c_str(), "w");
        const bool written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
        if (file == nullptr || std::fclose(file) != 0 || !written ||
            std::rename(next.c_str(), path.c_str()) != 0)
            std::fprintf(stderr, "cannot write %s\n", path.c_str());
    }

    std::string folder_, device_, date_;
    bool measured_, failed_ = false;
    std::vector<gpu_row> rows_;
    std::vector<std::string> left_out_;
};

}  // namespace bench
