// Runs one fuzz body over its corpus, then over seeded mutations of it: the same inputs every time.
// The corpus is a text file, one input a line in hex. An input that ends the program is left in
// BODY.input.
//     BODY CORPUS MUTATIONS
//     BODY CORPUS unpack FOLDER    writes the inputs as files, for libFuzzer
//     BODY CORPUS pack FOLDER      makes the corpus of the files in a folder

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using bytes = std::vector<std::uint8_t>;

std::string name_of_input;
bytes current;

void keep_input(int signal)
{
    if (std::FILE* const file = std::fopen(name_of_input.c_str(), "wb")) {
        std::fwrite(current.data(), 1, current.size(), file);
        std::fclose(file);
        std::fprintf(stderr, "signal %d; the input is in %s\n", signal, name_of_input.c_str());
    }
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

void run(bytes input)
{
    current = std::move(input);
    LLVMFuzzerTestOneInput(current.data(), current.size());
}

struct random_source {
    std::uint64_t state = 1;
    std::uint32_t below(std::uint64_t limit)
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return limit == 0 ? 0 : std::uint32_t((state >> 33) % limit);
    }
};

bytes mutate(const std::vector<bytes>& corpus, random_source& random)
{
    bytes made = corpus[random.below(corpus.size())];
    constexpr std::uint8_t telling[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0x40, 0x10};
    for (std::uint32_t left = 1 + random.below(6); left > 0; --left) {
        const auto at = std::ptrdiff_t(random.below(made.size()));
        if (made.empty()) made.push_back(0);
        switch (random.below(7)) {
        case 0: made[std::size_t(at)] ^= std::uint8_t(1u << random.below(8)); break;
        case 1: made[std::size_t(at)] = telling[random.below(8)]; break;
        case 2: made[std::size_t(at)] = std::uint8_t(random.below(256)); break;
        case 3: made.insert(made.begin() + at, std::uint8_t(random.below(256))); break;
        case 4: made.erase(made.begin() + at); break;
        case 5: made.resize(random.below(made.size() + 1)); break;
        default: {
            const bytes& other = corpus[random.below(corpus.size())];
            const auto from = std::ptrdiff_t(random.below(other.size() + 1));
            made.resize(std::size_t(at));
            made.insert(made.end(), other.begin() + from, other.end());
        }
        }
    }
    return made;
}

std::vector<bytes> read_corpus(const std::string& path)
{
    std::vector<bytes> corpus;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        bytes input;
        for (std::size_t i = 0; i + 1 < line.size(); i += 2)
            input.push_back(std::uint8_t(std::stoul(line.substr(i, 2), nullptr, 16)));
        corpus.push_back(std::move(input));
    }
    return corpus;
}

void pack(const std::string& path, const std::string& folder)
{
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::ofstream out(path);
    for (const auto& one : files) {
        std::ifstream file(one, std::ios::binary);
        for (std::istreambuf_iterator<char> byte(file), end; byte != end; ++byte) {
            constexpr char digits[] = "0123456789abcdef";
            out << digits[std::uint8_t(*byte) >> 4] << digits[*byte & 15];
        }
        out << '\n';
    }
}

void unpack(const std::vector<bytes>& corpus, const std::string& folder)
{
    std::filesystem::create_directories(folder);
    for (std::size_t i = 0; i < corpus.size(); ++i) {
        std::ofstream file(folder + "/" + std::to_string(i), std::ios::binary);
        for (const std::uint8_t byte : corpus[i]) file.put(char(byte));
    }
}

}  // namespace

int main(int argc, char** argv)
{
    if (argc != 3 && argc != 4) return 2;
    const std::string task = argv[2];
    if (argc == 4 && task == "pack") {
        pack(argv[1], argv[3]);
        return 0;
    }
    const std::vector<bytes> corpus = read_corpus(argv[1]);
    if (corpus.empty()) {
        std::fprintf(stderr, "no corpus in %s\n", argv[1]);
        return 1;
    }
    if (argc == 4) {
        if (task != "unpack") return 2;
        unpack(corpus, argv[3]);
        return 0;
    }

    name_of_input = std::string(argv[0]) + ".input";
    for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS})
        std::signal(signal, keep_input);
    run({});
    for (const bytes& input : corpus) run(input);
    random_source random;
    const int mutations = std::stoi(task);
    for (int i = 0; i < mutations; ++i) run(mutate(corpus, random));
    std::printf("%zu inputs and %d mutations\n", corpus.size(), mutations);
    return 0;
}
