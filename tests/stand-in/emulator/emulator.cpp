// Runs the blocks of a launch one after the other, their threads as fibers on the calling thread.

#include "emulator.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "fiber.hpp"

namespace emulator {

thread_local Now now;

namespace {

// SplitMix64.
struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    unsigned below(unsigned count) { return unsigned((next() >> 32) * count >> 32); }
};

struct Lane {
    Fiber fiber;
    Index thread;
    void *operands = nullptr;
    // Asynchronous copies: the groups committed, oldest first, and the one that is still open.
    std::vector<std::vector<Copy>> groups;
    std::vector<Copy> open;
};

struct Warp {
    // A bit for each lane that can go on, waits for its warp, waits for the block, has returned.
    uint32_t ready = 0, meeting = 0, barrier = 0, done = 0;
    const char *name = nullptr;
    Meeting meet = nullptr;
};

// Memory for a block's shared memory, between pages that can't be touched.
class Shared {
  public:
    char *of(size_t bytes) {
        const size_t page = 4096, room = (bytes + 127) / 128 * 128, whole = (room + page - 1) / page * page;
        if (whole > mapped_) {
            unmap();
            void *at = mmap(nullptr, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at == MAP_FAILED || mprotect(static_cast<char *>(at) + page, whole, PROT_READ | PROT_WRITE) != 0) {
                return nullptr;
            }
            base_ = static_cast<char *>(at);
            mapped_ = whole;
        }
        bytes_ = bytes;
        // Its end is the end of the page: what runs over it faults.
        start_ = base_ + page + mapped_ - room;
        room_ = room;
        return start_;
    }
    void poison() { memset(start_, 0xFF, room_); }
    // What is left between the end and the page's end was not written to.
    bool whole() const {
        for (size_t i = bytes_; i < room_; i++) {
            if (start_[i] != char(0xFF)) return false;
        }
        return true;
    }
    ~Shared() { unmap(); }

  private:
    void unmap() {
        if (base_) munmap(base_, mapped_ + 2 * 4096);
        base_ = nullptr;
        mapped_ = 0;
    }
    char *base_ = nullptr, *start_ = nullptr;
    size_t mapped_ = 0, bytes_ = 0, room_ = 0;
};

// One launch at a time per thread of the driver.
struct Machine {
    Fiber scheduler;
    std::vector<std::unique_ptr<Lane>> lanes;
    std::vector<Warp> warps;
    Shared shared;
    Random random{0};
    const Kernel *kernel = nullptr;
    void *const *arguments = nullptr;
    unsigned current = 0;
    bool failed = false;
    char message[512];
};
thread_local Machine machine;

Lane &here() { return *machine.lanes[machine.current]; }
Warp &warp_here() { return machine.warps[machine.current / LANES]; }

void arrive(const Copy &copy) {
    memcpy(copy.to, copy.from, copy.valid);
    memset(static_cast<char *>(copy.to) + copy.valid, 0, copy.bytes - copy.valid);
}

void back_to_scheduler() { switch_fiber(here().fiber, machine.scheduler); }

void thread_main() {
    machine.kernel->call(machine.arguments);
    Lane &lane = here();
    for (const auto &group : lane.groups) {
        if (!group.empty()) fail("returned while copies were still under way");
    }
    if (!lane.open.empty()) fail("returned with copies that were never committed");
    const uint32_t bit = 1u << machine.current % LANES;
    Warp &warp = warp_here();
    warp.ready &= ~bit;
    warp.done |= bit;
    back_to_scheduler();
    abort();  // Nobody goes on with a thread that has returned.
}

void run(unsigned index) {
    machine.current = index;
    now.thread = here().thread;
    now.lane = index % LANES;
    switch_fiber(machine.scheduler, here().fiber);
}

// Lets everyone go on whom the barrier held.
bool release_barrier() {
    for (const Warp &warp : machine.warps) {
        if (warp.barrier != ~0u) return false;
    }
    for (Warp &warp : machine.warps) {
        warp.ready = ~0u;
        warp.barrier = 0;
    }
    return true;
}

void say_stuck() {
    unsigned meeting = 0, barrier = 0, done = 0;
    const char *name = "";
    for (const Warp &warp : machine.warps) {
        meeting += unsigned(__builtin_popcount(warp.meeting));
        barrier += unsigned(__builtin_popcount(warp.barrier));
        done += unsigned(__builtin_popcount(warp.done));
        if (warp.meeting) name = warp.name;
    }
    snprintf(machine.message, sizeof machine.message,
             "block (%u, %u, %u) is stuck: %u threads wait at the barrier, %u for their warp at %s, %u have returned",
             now.block.x, now.block.y, now.block.z, barrier, meeting, meeting ? name : "nothing", done);
    machine.failed = true;
}

unsigned nth_bit(uint32_t bits, unsigned n) {
    while (n--) bits &= bits - 1;
    return unsigned(__builtin_ctz(bits));
}

void run_block() {
    const unsigned warps = unsigned(machine.warps.size());
    for (Warp &warp : machine.warps) warp = Warp{~0u};
    for (auto &lane : machine.lanes) {
        lane->groups.clear();
        lane->open.clear();
        start_fiber(lane->fiber, thread_main);
    }
    machine.shared.poison();
    unsigned warp = machine.random.below(warps);
    while (!machine.failed) {
        // Mostly the same warp goes on, so that it runs far ahead of the others.
        if (!machine.warps[warp].ready || machine.random.below(64) == 0) {
            const unsigned first = machine.random.below(warps);
            unsigned i = 0;
            while (i < warps && !machine.warps[(first + i) % warps].ready) i++;
            if (i == warps) {
                if (release_barrier()) continue;
                bool done = true;
                for (const Warp &each : machine.warps) done = done && each.done == ~0u;
                if (!done) say_stuck();
                return;
            }
            warp = (first + i) % warps;
        }
        const uint32_t ready = machine.warps[warp].ready;
        const unsigned pick = machine.random.below(unsigned(__builtin_popcount(ready)));
        run(warp * LANES + nth_bit(ready, pick));
    }
}

Kernel *&registered() {
    static Kernel *first = nullptr;
    return first;
}

// Says where a kernel touched what it must not, then lets the process end as it would have.
void on_fault(int signal, siginfo_t *info, void *) {
    if (machine.kernel) {
        char text[256];
        const int length = snprintf(
            text, sizeof text, "emulator: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): no access to %p\n",
            machine.kernel->name, now.block.x, now.block.y, now.block.z, now.thread.x, now.thread.y, now.thread.z,
            info->si_addr);
        if (write(2, text, size_t(length)) < 0) _exit(139);
    }
    ::signal(signal, SIG_DFL);
}

bool prepare(const uint32_t block[3], size_t shared_bytes) {
    static const bool watched = [] {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, nullptr);
        sigaction(SIGBUS, &action, nullptr);
        return true;
    }();
    (void)watched;
    const unsigned threads = block[0] * block[1] * block[2];
    if (threads == 0 || threads % LANES != 0 || threads > 1024) {
        snprintf(machine.message, sizeof machine.message, "blocks of %u threads are no whole warps", threads);
        return false;
    }
    if (machine.kernel->threads && threads != machine.kernel->threads) {
        snprintf(machine.message, sizeof machine.message, "blocks of %u threads; the kernel is made for %u", threads,
                 machine.kernel->threads);
        return false;
    }
    while (machine.lanes.size() < threads) machine.lanes.push_back(std::make_unique<Lane>());
    machine.lanes.resize(threads);
    for (unsigned i = 0; i < threads; i++) {
        machine.lanes[i]->thread = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
    }
    machine.warps.resize(threads / LANES);
    now.shared = machine.shared.of(shared_bytes);
    if (!now.shared) snprintf(machine.message, sizeof machine.message, "no memory for %zu bytes", shared_bytes);
    return now.shared != nullptr;
}

}  // namespace

void fail(const char *format, ...) {
    const int head =
        snprintf(machine.message, sizeof machine.message, "block (%u, %u, %u), thread (%u, %u, %u): ", now.block.x,
                 now.block.y, now.block.z, now.thread.x, now.thread.y, now.thread.z);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(machine.message + head, sizeof machine.message - size_t(head), format, arguments);
    va_end(arguments);
    machine.failed = true;
    back_to_scheduler();
    abort();  // The scheduler doesn't come back to a launch that failed.
}

void block_barrier() {
    const uint32_t bit = 1u << machine.current % LANES;
    Warp &warp = warp_here();
    warp.ready &= ~bit;
    warp.barrier |= bit;
    back_to_scheduler();
}

void warp_meeting(const char *name, Meeting meet, void *operands) {
    Warp &warp = warp_here();
    const uint32_t bit = 1u << machine.current % LANES;
    if (warp.meeting && warp.meet != meet) fail("at %s while others of its warp are at %s", name, warp.name);
    here().operands = operands;
    warp.name = name;
    warp.meet = meet;
    warp.meeting |= bit;
    if (warp.meeting == ~0u) {
        void *all[LANES];
        const unsigned first = machine.current / LANES * LANES;
        for (unsigned i = 0; i < LANES; i++) all[i] = machine.lanes[first + i]->operands;
        meet(all);
        warp.meeting = 0;
        warp.ready = ~0u;
        // Somebody else may be the first to go on.
        if (machine.random.below(2)) return;
    } else {
        warp.ready &= ~bit;
    }
    back_to_scheduler();
}

void copy_later(Copy copy) {
    check_aligned(copy.to, copy.bytes, "asynchronous copy to");
    check_aligned(copy.from, copy.bytes, "asynchronous copy from");
    // It may arrive at any time until it is waited for: mostly as late as that.
    if (machine.random.below(8) == 0) {
        arrive(copy);
    } else {
        here().open.push_back(copy);
    }
}

void copies_commit() {
    Lane &lane = here();
    lane.groups.push_back(std::move(lane.open));
    lane.open.clear();
}

void copies_wait(unsigned pending) {
    auto &groups = here().groups;
    while (groups.size() > pending) {
        for (const Copy &copy : groups.front()) arrive(copy);
        groups.erase(groups.begin());
    }
}

void add(Kernel *kernel) {
    kernel->next = registered();
    registered() = kernel;
}

}  // namespace emulator

using emulator::Kernel;

extern "C" {

const void *sapiens_emulator_find(const char *name, int arch) {
    for (const Kernel *kernel = emulator::registered(); kernel; kernel = kernel->next) {
        if (kernel->arch == arch && strcmp(kernel->name, name) == 0) return kernel;
    }
    return nullptr;
}

uint32_t sapiens_emulator_parameters(const void *kernel) { return static_cast<const Kernel *>(kernel)->parameters; }

uint32_t sapiens_emulator_parameter_size(const void *kernel, uint32_t index) {
    return static_cast<const Kernel *>(kernel)->parameter_sizes[index];
}

int sapiens_emulator_launch(const void *kernel, const uint32_t grid[3], const uint32_t block[3], size_t shared_bytes,
                            void *const *arguments, uint64_t seed, char *message, size_t message_size) {
    using namespace emulator;
    machine.kernel = static_cast<const Kernel *>(kernel);
    machine.arguments = arguments;
    machine.random.state = seed;
    machine.failed = false;
    if (prepare(block, shared_bytes)) {
        now.block_size = {block[0], block[1], block[2]};
        now.grid_size = {grid[0], grid[1], grid[2]};
        const uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
        // Blocks may run in any order: every one once, from somewhere, in steps that share no factor with their number.
        const uint64_t first = machine.random.next() % blocks;
        uint64_t step = blocks > 1 ? machine.random.next() % blocks : 1;
        auto shares_factor = [](uint64_t a, uint64_t b) {
            while (b) {
                const uint64_t rest = a % b;
                a = b;
                b = rest;
            }
            return a != 1;
        };
        while (shares_factor(blocks, step)) step++;
        for (uint64_t i = 0; i < blocks && !machine.failed; i++) {
            const uint64_t at = (first + i % blocks * (step % blocks)) % blocks;
            now.block = {unsigned(at % grid[0]), unsigned(at / grid[0] % grid[1]), unsigned(at / grid[0] / grid[1])};
            run_block();
            if (!machine.failed && !machine.shared.whole()) {
                snprintf(machine.message, sizeof machine.message, "block (%u, %u, %u) wrote past its shared memory",
                         now.block.x, now.block.y, now.block.z);
                machine.failed = true;
            }
        }
    } else {
        machine.failed = true;
    }
    if (machine.failed) snprintf(message, message_size, "kernel %s, %s", machine.kernel->name, machine.message);
    machine.kernel = nullptr;
    return machine.failed;
}

}
