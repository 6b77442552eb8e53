// A thread of control with a stack of its own, and the switch between two of them.
#pragma once

#include <cstddef>

namespace emulator {

class Fiber {
  public:
    Fiber() = default;
    Fiber(const Fiber &) = delete;
    Fiber &operator=(const Fiber &) = delete;
    ~Fiber();

  private:
    friend void start_fiber(Fiber &, void (*)());
    friend void switch_fiber(Fiber &, Fiber &);
    // Where the stack was left.
    void *stack_pointer_ = nullptr;
    // Its memory; none for the one that a thread of the system runs on.
    char *stack_ = nullptr;
};

// Makes the fiber begin with `main`, which must never return. Whatever it did before is forgotten.
void start_fiber(Fiber &fiber, void (*main)());
// Leaves `from`, which is running, for `to`.
void switch_fiber(Fiber &from, Fiber &to);

}  // namespace emulator
