// Fibers for x86-64. The system's own (ucontext) enter the kernel at every switch to save the signal mask, which
// takes fifty times as long.

#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

extern "C" void sapiens_switch_stack(void **save, void *load);

// Registers that a callee must keep go onto the old stack and come from the new one.
asm(R"(
.text
.globl sapiens_switch_stack
.hidden sapiens_switch_stack
.type sapiens_switch_stack, @function
sapiens_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size sapiens_switch_stack, . - sapiens_switch_stack
)");

namespace emulator {

namespace {
constexpr size_t PAGE = 4096, STACK = 64 * 1024;
}

Fiber::~Fiber() {
    if (stack_) munmap(stack_, PAGE + STACK);
}

void start_fiber(Fiber &fiber, void (*main)()) {
    if (!fiber.stack_) {
        // The first page stays closed: a stack that overflows faults.
        void *at = mmap(nullptr, PAGE + STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED || mprotect(static_cast<char *>(at) + PAGE, STACK, PROT_READ | PROT_WRITE) != 0) abort();
        fiber.stack_ = static_cast<char *>(at);
    }
    // As if `main` had been called: its return address is eight bytes below a multiple of sixteen.
    auto *top = reinterpret_cast<uintptr_t *>(fiber.stack_ + PAGE + STACK);
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(main);
    for (int i = 0; i < 6; i++) *--top = 0;
    fiber.stack_pointer_ = top;
}

void switch_fiber(Fiber &from, Fiber &to) { sapiens_switch_stack(&from.stack_pointer_, to.stack_pointer_); }

}  // namespace emulator
