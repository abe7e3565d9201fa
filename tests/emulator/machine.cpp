// All that a static program needs of Linux, on a bare processor: it loads one program from the
// disk (a tar archive), turns on AVX-512 and answers system calls. One thread, no signals, files
// read only. Everything runs in ring 0 with addresses as they are in memory; exceptions end it.
// Compiled without vector registers, so that the program's survive a system call.

#include <cpuid.h>
#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

extern "C" {
extern const u8 exception_entries[];
extern u64 pages[];  // the page tables' last level: 2 MB each
void system_call_entry();

// The emulator takes a string instruction element by element, so by words.
void* memset(void* to, int value, std::size_t size)
{
    void* const start = to;
    std::size_t words = size / 8, bytes = size % 8;
    const u64 pattern = u8(value) * 0x0101010101010101u;
    asm volatile("rep stosq" : "+D"(to), "+c"(words) : "a"(pattern) : "memory");
    asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(value) : "memory");
    return start;
}

void* memcpy(void* to, const void* from, std::size_t size)
{
    void* const start = to;
    std::size_t words = size / 8, bytes = size % 8;
    asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return start;
}
}

namespace {

// ---- The processor and its ports

void out(u16 port, u8 value) { asm volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }

u8 in(u16 port)
{
    u8 value;
    asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

void write_msr(u32 msr, u64 value)
{
    asm volatile("wrmsr" : : "c"(msr), "a"(u32(value)), "d"(u32(value >> 32)) : "memory");
}

struct cpuid_words {
    u32 a, b, c, d;
    explicit cpuid_words(u32 leaf) { __cpuid_count(leaf, 0, a, b, c, d); }
};

// Vector registers as far as the processor has them.
void enable_vectors()
{
    constexpr u64 fsgsbase = u64(1) << 16, osxsave = u64(1) << 18;
    u64 cr4;
    asm volatile("mov %%cr4, %0" : "=r"(cr4));
    if (cpuid_words(7).b & 1) cr4 |= fsgsbase;
    const bool has_xsave = cpuid_words(1).c >> 26 & 1;
    if (has_xsave) cr4 |= osxsave;
    asm volatile("mov %0, %%cr4" : : "r"(cr4));
    if (has_xsave)  // x87, SSE, AVX and the three parts of AVX-512
        asm volatile("xsetbv" : : "c"(0), "a"(cpuid_words(13).a & 0xe7), "d"(0));
    const u32 mxcsr = 0x1f80;
    asm volatile("fninit; ldmxcsr %0" : : "m"(mxcsr));
}

// ---- What goes out: both parallel ports are the program's output, the serial port is ours

void print_to_port(u16 port, const u8* text, u64 size)
{
    constexpr u8 online = 0x0c, strobe = 0x01;
    for (u64 i = 0; i < size; ++i) {
        out(port, text[i]);
        out(port + 2, online);
        out(port + 2, online | strobe);
    }
}

constexpr u16 serial = 0x3f8;

// As fast as it goes, 8 bits.
void set_up_serial_port()
{
    out(serial + 3, 0x83);
    out(serial, 1);
    out(serial + 1, 0);
    out(serial + 3, 3);
}

void say(const char* text)
{
    for (; *text != 0; ++text) {
        while (!(in(serial + 5) & 0x20)) {}
        out(serial, u8(*text));
    }
}

void say(u64 number, unsigned base)
{
    char digits[24];
    unsigned at = 23;
    digits[at] = 0;
    do
        digits[--at] = "0123456789abcdef"[number % base];
    while ((number /= base) != 0);
    say(digits + at);
}

[[noreturn]] void power_off(u64 status)
{
    say("status ");
    say(status & 255, 10);
    say("\n");
    while (!(in(serial + 5) & 0x40)) {}
    for (const char* c = "Shutdown"; *c != 0; ++c) out(0x8900, u8(*c));
    for (;;) asm volatile("hlt");
}

[[noreturn]] void give_up(const char* reason)
{
    say("note ");
    say(reason);
    say("\n");
    power_off(127);
}

// ---- The disk

struct disk {
    enum : u16 { data = 0x1f0, count = 0x1f2, address = 0x1f3, drive = 0x1f6, command = 0x1f7 };

    static void get_sectors(u8* to, u64 sectors)
    {
        for (; sectors > 0; --sectors) {
            while ((in(command) & 0x88) != 0x08) {}
            u64 words = 256;
            asm volatile("rep insw" : "+D"(to), "+c"(words) : "d"(data) : "memory");
        }
    }

    static u64 sectors()
    {
        alignas(8) u8 identity[512];
        out(drive, 0xe0);
        out(command, 0xec);
        get_sectors(identity, 1);
        u32 result;
        memcpy(&result, identity + 120, 4);
        return result;
    }

    static void read(u8* to, u64 sectors)
    {
        for (u64 at = 0; at < sectors;) {
            const u64 n = sectors - at < 128 ? sectors - at : 128;
            out(count, u8(n));
            for (unsigned i = 0; i < 3; ++i) out(address + i, u8(at >> 8 * i));
            out(drive, 0xe0 | u8(at >> 24));
            out(command, 0x20);
            get_sectors(to + 512 * at, n);
            at += n;
        }
    }
};

// ---- Memory: first fit, by pages

constexpr u64 page = 4096;
constexpr u64 megabyte = 1 << 20;
constexpr u64 memory = NORMANS_EMULATOR_MEGABYTES * megabyte;
constexpr u64 stack_size = 8 * megabyte, guard_size = 2 * megabyte, most_heap = 64 * megabyte;
constexpr u64 failed = ~u64(0);
static_assert(memory >= 128 * megabyte && memory <= 2048 * megabyte && memory % guard_size == 0,
              "NORMANS_EMULATOR_MEGABYTES: an even number from 128 to 2048");

u8 page_in_use[memory / page];
u64 heap_start, heap_end, first_page, last_page, search_from;

constexpr u64 up(u64 size) { return (size + page - 1) & ~(page - 1); }
u8* pointer(u64 address) { return reinterpret_cast<u8*>(address); }
u64 address_of(const void* pointer) { return reinterpret_cast<u64>(pointer); }

bool may_map(u64 address, u64 size)
{
    return address % page == 0 && size <= memory && address >= first_page * page &&
           address + up(size) <= last_page * page;
}

void mark(u64 address, u64 size, bool in_use)
{
    memset(page_in_use + address / page, in_use, up(size) / page);
    if (!in_use && address / page < search_from) search_from = address / page;
}

u64 map(u64 size)
{
    const u64 wanted = up(size) / page;
    u64 run = 0;
    while (search_from < last_page && page_in_use[search_from]) ++search_from;
    for (u64 p = search_from; p < last_page; ++p) {
        run = page_in_use[p] ? 0 : run + 1;
        if (run != wanted) continue;
        const u64 address = (p + 1 - wanted) * page;
        mark(address, size, true);
        memset(pointer(address), 0, up(size));
        return address;
    }
    return failed;
}

// ---- Files: the members of the archive

struct tar_member {
    char name[100], mode[8], user[8], group[8], size_octal[12], time[12], sum[8], type, link[100],
        magic[8], user_name[32], group_name[32], major[8], minor[8], prefix[155], rest[12];

    u64 size() const
    {
        u64 result = 0;
        for (unsigned i = 0; i < 11; ++i) result = result << 3 | u64(size_octal[i] & 7);
        return result;
    }

    const u8* data() const { return reinterpret_cast<const u8*>(this + 1); }
    const tar_member* next() const { return this + 1 + (size() + 511) / 512; }
    bool is_folder() const { return type == '5'; }

    // A folder's name ends in a slash.
    bool is_called(const char* path) const
    {
        for (unsigned i = 0; i < sizeof prefix && prefix[i] != 0; ++i)
            if (*path++ != prefix[i]) return false;
        if (prefix[0] != 0 && *path++ != '/') return false;
        unsigned i = 0;
        for (; i < sizeof name && name[i] != 0 && *path != 0; ++i)
            if (*path++ != name[i]) return false;
        const bool ends = i == sizeof name || name[i] == 0;
        return *path == 0 && (ends || (name[i] == '/' && is_folder()));
    }
};
static_assert(sizeof(tar_member) == 512);

const tar_member* archive;
const char* working_folder;

const tar_member* find(const char* path)
{
    for (const tar_member* m = archive; m->name[0] != 0; m = m->next())
        if (m->is_called(path)) return m;
    return nullptr;
}

// Absolute, without "." and "..".
const tar_member* open_path(const char* path)
{
    static char full[4096];
    u64 size = 0;
    const char* const parts[] = {path[0] == '/' ? "" : working_folder, path};
    for (const char* part : parts) {
        while (*part != 0) {
            u64 length = 0;
            while (part[length] != 0 && part[length] != '/') ++length;
            if (length == 2 && part[0] == '.' && part[1] == '.') {
                while (size > 0 && full[--size] != '/') {}
            } else if (length > 0 && !(length == 1 && part[0] == '.')) {
                if (size + length + 2 > sizeof full) return nullptr;
                full[size++] = '/';
                memcpy(full + size, part, length);
                size += length;
            }
            part += length + (part[length] == '/');
        }
    }
    full[size] = 0;
    return find(full);
}

struct open_file {
    const tar_member* file;
    u64 at;
};
open_file files[64];

// ---- System calls, by their Linux numbers; errors are negative

enum : i64 {
    no_entry = -2, bad_file = -9, no_memory = -12, invalid = -22, too_many = -24, no_terminal = -25,
    read_only = -30, no_such_call = -38
};

open_file* file_of(u64 descriptor)
{
    if (descriptor >= 64 || files[descriptor].file == nullptr) return nullptr;
    return &files[descriptor];
}

i64 open(const char* path, u64 flags)
{
    if (flags & 3) return read_only;
    const tar_member* const file = open_path(path);
    if (file == nullptr) return no_entry;
    for (unsigned i = 3; i < 64; ++i) {
        if (files[i].file != nullptr) continue;
        files[i] = {file, 0};
        return i;
    }
    return too_many;
}

i64 read_at(u64 descriptor, u8* to, u64 size, u64 at)
{
    const open_file* const open = file_of(descriptor);
    if (open == nullptr) return descriptor == 0 ? 0 : i64(bad_file);
    const u64 end = open->file->size();
    if (at >= end) return 0;
    if (size > end - at) size = end - at;
    memcpy(to, open->file->data() + at, size);
    return i64(size);
}

i64 read(u64 descriptor, u8* to, u64 size)
{
    open_file* const open = file_of(descriptor);
    const i64 done = read_at(descriptor, to, size, open == nullptr ? 0 : open->at);
    if (open != nullptr && done > 0) open->at += u64(done);
    return done;
}

i64 write(u64 descriptor, const u8* from, u64 size)
{
    if (descriptor != 1 && descriptor != 2) return bad_file;
    print_to_port(descriptor == 1 ? 0x378 : 0x278, from, size);
    return i64(size);
}

struct io_vector {
    u8* data;
    u64 size;
};

template <class Function>
i64 for_each_vector(Function function, u64 descriptor, const io_vector* vectors, u64 count)
{
    i64 total = 0;
    for (u64 i = 0; i < count; ++i) {
        const i64 done = function(descriptor, vectors[i].data, vectors[i].size);
        if (done < 0) return done;
        total += done;
        if (u64(done) < vectors[i].size) break;
    }
    return total;
}

i64 seek(u64 descriptor, i64 offset, u64 whence)
{
    open_file* const open = file_of(descriptor);
    if (open == nullptr) return descriptor < 3 ? -29 : i64(bad_file);
    const i64 base = whence == 0 ? 0 : i64(whence == 1 ? open->at : open->file->size());
    if (whence > 2 || base + offset < 0) return invalid;
    open->at = u64(base + offset);
    return i64(open->at);
}

// struct stat; without a file, a pipe.
i64 status_of(const tar_member* file, u8* to)
{
    memset(to, 0, 144);
    const u32 mode = file == nullptr ? 0010600 : file->is_folder() ? 0040755 : 0100644;
    const u64 size = file == nullptr ? 0 : file->size();
    const u64 inode = file == nullptr ? 1 : address_of(file) / 512, links = 1, block = page;
    memcpy(to + 8, &inode, 8);
    memcpy(to + 16, &links, 8);
    memcpy(to + 24, &mode, 4);
    memcpy(to + 48, &size, 8);
    memcpy(to + 56, &block, 8);
    return 0;
}

i64 path_status(const char* path, u8* to)
{
    const tar_member* const file = open_path(path);
    return file == nullptr ? i64(no_entry) : status_of(file, to);
}

i64 descriptor_status(u64 descriptor, u8* to)
{
    const open_file* const open = file_of(descriptor);
    if (open == nullptr && descriptor > 2) return bad_file;
    return status_of(open == nullptr ? nullptr : open->file, to);
}

i64 map_memory(u64 address, u64 size, u64 flags)
{
    constexpr u64 fixed = 0x10, anonymous = 0x20;
    if (size == 0 || !(flags & anonymous)) return invalid;
    if (!(flags & fixed)) {
        const u64 mapped = map(size);
        return mapped == failed ? i64(no_memory) : i64(mapped);
    }
    if (!may_map(address, size)) return no_memory;
    mark(address, size, true);
    memset(pointer(address), 0, up(size));
    return i64(address);
}

i64 unmap_memory(u64 address, u64 size)
{
    if (!may_map(address, size)) return invalid;
    mark(address, size, false);
    return 0;
}

u64 set_heap_end(u64 end)
{
    if (end < heap_start || end > heap_start + most_heap) return heap_end;
    if (end > heap_end) memset(pointer(heap_end), 0, end - heap_end);
    return heap_end = end;
}

// A tick of the processor is a nanosecond.
i64 get_time(u64* to, u64 units_per_second)
{
    u32 low, high;
    asm volatile("rdtsc" : "=a"(low), "=d"(high));
    const u64 ticks = u64(high) << 32 | low, second = 1000000000;
    to[0] = ticks / second;
    to[1] = ticks % second / (second / units_per_second);
    return 0;
}

// The same bytes in every run.
i64 get_random(u8* to, u64 size)
{
    static u64 state = 1;
    for (u64 i = 0; i < size; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        to[i] = u8(state >> 56);
    }
    return i64(size);
}

i64 get_name(char* to)
{
    const char* const fields[] = {"Linux", "emulator", "6.1.0", "#1", "x86_64", ""};
    for (const char* field : fields) {
        u64 length = 0;
        while (field[length] != 0) ++length;
        memcpy(to, field, length + 1);
        to += 65;
    }
    return 0;
}

i64 get_limit(u64 which, u64* to)
{
    to[0] = to[1] = which == 3 ? stack_size : which == 7 ? 64 : failed;
    return 0;
}

i64 get_processors(u64 size, u64* to)
{
    if (size < 8) return invalid;
    to[0] = 1;
    return 8;
}

i64 get_working_folder(char* to, u64 size)
{
    u64 length = 0;
    while (working_folder[length] != 0) ++length;
    if (length + 1 > size) return -34;
    memcpy(to, working_folder, length + 1);
    return i64(length + 1);
}

i64 set_thread_pointer(u64 code, u64 address)
{
    if (code != 0x1002) return invalid;
    write_msr(0xc0000100, address);
    return 0;
}

[[noreturn]] void die(u64 signal) { power_off(128 + signal); }

i64 no_threads()
{
    say("note the machine has no threads\n");
    return -11;
}

// Once for each number: a test that fails for want of a call is better understood with it.
i64 unknown(u64 number)
{
    static bool said[512];
    if (number < 512 && !said[number]) {
        said[number] = true;
        say("note the machine has no system call ");
        say(number, 10);
        say("\n");
    }
    return no_such_call;
}

}  // namespace

extern "C" i64 system_call(u64 number, const u64* a)
{
    const auto path = [](u64 address) { return reinterpret_cast<const char*>(address); };
    const auto words = [](u64 address) { return reinterpret_cast<u64*>(address); };
    switch (number) {
    case 0: return read(a[0], pointer(a[1]), a[2]);
    case 1: return write(a[0], pointer(a[1]), a[2]);
    case 2: return open(path(a[0]), a[1]);
    case 3: if (file_of(a[0]) != nullptr) files[a[0]] = {}; return 0;
    case 4: case 6: return path_status(path(a[0]), pointer(a[1]));  // stat, lstat
    case 5: return descriptor_status(a[0], pointer(a[1]));
    case 8: return seek(a[0], i64(a[1]), a[2]);
    case 9: return map_memory(a[0], a[1], a[3]);
    case 11: return unmap_memory(a[0], a[1]);
    case 12: return i64(set_heap_end(a[0]));
    case 16: return no_terminal;  // ioctl
    case 17: return read_at(a[0], pointer(a[1]), a[2], a[3]);
    case 19: return for_each_vector(read, a[0], reinterpret_cast<io_vector*>(a[1]), a[2]);
    case 20: return for_each_vector(write, a[0], reinterpret_cast<io_vector*>(a[1]), a[2]);
    case 21: return open_path(path(a[0])) != nullptr ? 0 : i64(no_entry);  // access
    case 25: return no_memory;  // mremap
    case 39: case 186: return 1;  // getpid, gettid
    case 60: case 231: power_off(a[0]);  // exit, exit_group
    case 62: case 200: die(a[1]);  // kill, tkill
    case 63: return get_name(reinterpret_cast<char*>(a[0]));
    case 79: return get_working_folder(reinterpret_cast<char*>(a[0]), a[1]);
    case 89: case 267: return no_entry;  // readlink, readlinkat
    case 96: return get_time(words(a[0]), 1000000);  // gettimeofday
    case 97: return get_limit(a[0], words(a[1]));
    case 158: return set_thread_pointer(a[0], a[1]);
    case 204: return get_processors(a[1], words(a[2]));
    case 228: return get_time(words(a[1]), 1000000000);
    case 234: die(a[2]);  // tgkill
    case 257: return open(path(a[1]), a[2]);  // openat
    case 262:  // newfstatat
        if (path(a[1])[0] == 0) return descriptor_status(a[0], pointer(a[2]));
        return path_status(path(a[1]), pointer(a[2]));
    case 56: case 435: return no_threads();  // clone, clone3
    case 302: return a[3] == 0 ? 0 : get_limit(a[1], words(a[3]));  // prlimit64
    case 318: return get_random(pointer(a[0]), a[1]);
    case 334: return no_such_call;  // rseq
    // Nothing to do: mprotect, rt_sigaction, rt_sigprocmask, sched_yield, madvise, nanosleep,
    // fcntl, getuid, getgid, geteuid, getegid, sigaltstack, futex, clock_nanosleep,
    // set_robust_list
    case 10: case 13: case 14: case 24: case 28: case 35: case 72: case 102: case 104: case 107:
    case 108: case 131: case 202: case 230: case 273: return 0;
    case 218: return 1;  // set_tid_address
    default: return unknown(number);
    }
}

extern "C" [[noreturn]] void exception(u64 vector, u64 where)
{
    say("note exception ");
    say(vector, 10);
    say(" at 0x");
    say(where, 16);
    say("\n");
    constexpr u64 trap = 5, illegal = 4, bus = 7, arithmetic = 8, segment = 11;
    switch (vector) {
    case 0: case 16: case 19: die(arithmetic);
    case 1: case 3: die(trap);
    case 6: die(illegal);
    case 17: die(bus);
    default: die(segment);
    }
}

namespace {

void catch_exceptions()
{
    static u64 gates[64];
    for (unsigned i = 0; i < 32; ++i) {
        const u64 entry = address_of(exception_entries) + 16 * i;
        gates[2 * i] = (entry >> 16 & 0xffff) << 48 | u64(0x8e000018) << 16 | (entry & 0xffff);
        gates[2 * i + 1] = entry >> 32;
    }
    const struct [[gnu::packed]] {
        u16 limit;
        u64 address;
    } table = {sizeof gates - 1, address_of(gates)};
    asm volatile("lidt %0" : : "m"(table));
}

void accept_system_calls()
{
    write_msr(0xc0000081, u64(0x18) << 32);
    write_msr(0xc0000082, reinterpret_cast<u64>(&system_call_entry));
    write_msr(0xc0000084, 0x400);  // clears the direction flag
}

// Bochs 2.7 reads the memory operand of a masked vpexpandb or vpexpandw wrongly, and compilers
// fold loads into them. Each becomes a jump to a replacement that goes through a register, which
// may read up to the vector's end: nothing faults there. What looks like one by chance would have
// to have 30 bits right.
class expansions {
public:
    static void mend(u8* code, u64 size)
    {
        for (u8* at = code; at + 16 < code + size; ++at)
            if (*at == 0x62 && is_one(at)) replace(at);
    }

private:
    // EVEX prefix, opcode and operand: see the processor's manual.
    static bool is_one(const u8* at)
    {
        return (at[1] & 0x0f) == 0x02 && (at[2] & 0x7f) == 0x7d && (at[3] & 0x18) == 0x08 &&
               (at[3] & 7) != 0 && (at[3] & 0x60) != 0x60 && at[4] == 0x62 && at[5] < 0xc0;
    }

    static void replace(u8* at)
    {
        const unsigned kind = at[5] >> 6, base = at[5] & 7, target = at[5] >> 3 & 7;
        const bool has_index = base == 4, is_relative = kind == 0 && base == 5;
        const bool has_offset = kind == 2 || is_relative ||
                                (kind == 0 && has_index && (at[6] & 7) == 5);
        const unsigned offset_at = has_index ? 7 : 6;
        const unsigned element = at[2] & 0x80 ? 2 : 1;
        u32 offset = 0;
        if (has_offset) memcpy(&offset, at + offset_at, 4);
        if (kind == 1) offset = u32(std::int8_t(at[offset_at])) * element;
        const u8* const next = at + offset_at + (has_offset ? 4 : kind == 1 ? 1 : 0);

        const u8 helper = target == 0 ? 1 : 0;  // another register than the target
        if (end + 64 > replacements + sizeof replacements) give_up("too many expansions");
        u8* const start = end;
        save_or_restore(0x7f, helper);
        // vmovdqu64, the operand, helper
        put({0x62, u8((at[1] & 0x60) | 0x91), 0xfe, u8((at[3] & 0x60) | 0x08), 0x6f});
        put({u8((kind == 1 ? 0x80 : at[5] & 0xc0) | helper << 3 | base)});
        if (has_index) put({at[6]});
        if (is_relative) offset += u32(address_of(next) - address_of(end + 4));
        if (has_offset || kind == 1) put_word(offset);
        // the expansion, helper, target
        put({0x62, u8(at[1] | 0x60), at[2], at[3], 0x62, u8(0xc0 | target << 3 | helper)});
        save_or_restore(0x6f, helper);
        put_jump(next);

        u8* const rest = end;
        end = at;
        put_jump(start);
        end = rest;
    }

    static void put(std::initializer_list<u8> bytes)
    {
        for (const u8 byte : bytes) *end++ = byte;
    }

    static void put_word(u32 word)
    {
        memcpy(end, &word, 4);
        end += 4;
    }

    static void put_jump(const u8* to)
    {
        put({0xe9});
        put_word(u32(address_of(to) - address_of(end + 4)));
    }

    // vmovdqu64 between the register and memory at a fixed address
    static void save_or_restore(u8 opcode, u8 reg)
    {
        put({0x62, 0xf1, 0xfe, 0x48, opcode, u8(reg << 3 | 4), 0x25});
        put_word(u32(address_of(saved)));
    }

    static inline u8 saved[64];
    static inline u8 replacements[1 << 16];
    static inline u8* end = replacements;
};

struct program {
    u64 entry, headers, header_count, end;
};

// A position-independent program goes where the others are linked to.
program load(const tar_member* file)
{
    constexpr u64 base = 0x400000;
    const u8* const image = file->data();
    Elf64_Ehdr head;
    if (file->size() < sizeof head) give_up("the program is too short");
    memcpy(&head, image, sizeof head);
    if (head.e_ident[0] != 0x7f || head.e_ident[1] != 'E' || head.e_machine != EM_X86_64)
        give_up("the program is not x86-64 ELF");
    const u64 bias = head.e_type == ET_DYN ? base : 0;
    program result = {bias + head.e_entry, 0, head.e_phnum, base};
    for (unsigned i = 0; i < head.e_phnum; ++i) {
        Elf64_Phdr part;
        memcpy(&part, image + head.e_phoff + i * sizeof part, sizeof part);
        if (part.p_type == PT_INTERP) give_up("the program is not statically linked");
        if (part.p_type != PT_LOAD) continue;
        const u64 address = bias + part.p_vaddr, end = address + part.p_memsz;
        if (address < base || end + most_heap > address_of(archive))
            give_up("the program does not fit into memory");
        memcpy(pointer(address), image + part.p_offset, part.p_filesz);
        memset(pointer(address + part.p_filesz), 0, part.p_memsz - part.p_filesz);
        if (part.p_flags & PF_X) expansions::mend(pointer(address), part.p_filesz);
        if (part.p_offset <= head.e_phoff && head.e_phoff < part.p_offset + part.p_filesz)
            result.headers = address + head.e_phoff - part.p_offset;
        if (end > result.end) result.end = end;
    }
    return result;
}

struct strings {
    const char* at;
    u64 left;

    explicit strings(const char* member)
    {
        const tar_member* const file = find(member);
        at = reinterpret_cast<const char*>(file->data());
        left = file->size();
    }

    const char* next()
    {
        if (left == 0) return nullptr;
        const char* const result = at;
        while (left > 0 && (--left, *at++) != 0) {}
        return result;
    }
};

// The stack as a program finds it: arguments, environment, facts.
u64 fill_stack(const program& loaded)
{
    static u8 random[16];
    get_random(random, sizeof random);
    u64* const bottom = reinterpret_cast<u64*>(memory - megabyte);
    u64* to = bottom + 1;
    strings arguments("arguments"), environment("environment");
    while (const char* one = arguments.next()) *to++ = address_of(one);
    bottom[0] = u64(to - bottom - 1);
    *to++ = 0;
    while (const char* one = environment.next()) *to++ = address_of(one);
    *to++ = 0;
    const u64 facts[][2] = {
        {AT_PHDR, loaded.headers}, {AT_PHENT, sizeof(Elf64_Phdr)}, {AT_PHNUM, loaded.header_count},
        {AT_PAGESZ, page}, {AT_ENTRY, loaded.entry}, {AT_CLKTCK, 100}, {AT_SECURE, 0},
        {AT_HWCAP, cpuid_words(1).d}, {AT_HWCAP2, (cpuid_words(7).b & 1) << 1},
        {AT_RANDOM, address_of(random)}, {AT_NULL, 0}};
    for (const auto& fact : facts) {
        *to++ = fact[0];
        *to++ = fact[1];
    }
    return address_of(bottom);
}

}  // namespace

extern "C" [[noreturn]] void machine_main()
{
    set_up_serial_port();
    catch_exceptions();
    enable_vectors();
    accept_system_calls();

    const u64 sectors = disk::sectors();
    const u64 guard_at = memory - stack_size - guard_size;
    pages[guard_at / guard_size] = 0;
    const u64 archive_at = (guard_at - 512 * sectors) & ~(page - 1);
    if (512 * sectors > memory / 2) give_up("the program and its files do not fit into memory");
    disk::read(pointer(archive_at), sectors);
    archive = reinterpret_cast<const tar_member*>(archive_at);
    working_folder = strings("folder").next();

    const program loaded = load(find("program"));
    heap_start = heap_end = up(loaded.end);
    first_page = search_from = (heap_start + most_heap) / page;
    last_page = archive_at / page;

    asm volatile(
        "mov %0, %%rsp\n"
        "xor %%edx, %%edx\n"
        "xor %%ebp, %%ebp\n"
        "jmp *%1"
        :
        : "r"(fill_stack(loaded)), "r"(loaded.entry)
        : "memory");
    __builtin_unreachable();
}
