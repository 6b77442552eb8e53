// The device as a kernel sees it, on the processor: every thread of a block is a fiber, and they run in a random order.
//
// A kernel's file is compiled as plain C++ with this header. Whatever a real device leaves open is used against the
// kernel: which warp and which lane runs next, when an asynchronous copy arrives, what shared memory holds at first.
// Whatever it forbids (a barrier that some threads never reach, a misaligned access, lanes that disagree about what
// they do together) ends the launch with a message. What can't be seen here: speed, and races of two lanes between
// the same two meetings that happen to give the right value in every order tried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace emulator {

struct Index {
    unsigned x, y, z;
};

constexpr unsigned LANES = 32;

// An asynchronous copy into shared memory that has not arrived yet.
struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
    // The bytes that are read; the rest becomes zero.
    unsigned valid;
};

// What every thread can ask. The scheduler keeps it up to date.
struct Now {
    Index thread, block, block_size, grid_size;
    unsigned lane;
    char *shared;
};
extern thread_local Now now;

// Ends the launch; the message says what the kernel did.
[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char *format, ...);

// Meeting of the whole block.
void block_barrier();

// Meeting of a warp: `meet` is called once, with what each lane brought, when all 32 lanes are there.
using Meeting = void (*)(void *operands[LANES]);
void warp_meeting(const char *name, Meeting meet, void *operands);

void copy_later(Copy copy);
void copies_commit();
// Until all but the last `pending` groups have arrived.
void copies_wait(unsigned pending);

// Fails unless the address is a multiple of `bytes`.
inline void check_aligned(const void *address, unsigned bytes, const char *what) {
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
        fail("%s at %p, which is no multiple of %u", what, address, bytes);
    }
}

// A kernel that can be launched by its name.
struct Kernel {
    const char *name;
    int arch;
    void (*call)(void *const *arguments);
    unsigned threads;
    uint32_t parameters;
    const uint32_t *parameter_sizes;
    Kernel *next;
};
void add(Kernel *kernel);

template <class Arguments>
struct Registration {
    Kernel kernel;
    uint32_t size = sizeof(Arguments);
    Registration(const char *name, int arch, unsigned threads, void (*call)(void *const *)) {
        static_assert(std::is_trivially_copyable_v<Arguments>, "arguments are copied as bytes");
        kernel = {name, arch, call, threads, 1, &size, nullptr};
        add(&kernel);
    }
};

}  // namespace emulator
