// Threads of other libraries that spin beside ours.
//
// After a product, the threads of OpenBLAS spin for a tenth of a second, in the hope of another one, and those of
// OpenMP for some milliseconds. Linux gives them half of every core, and takes it from our threads in the middle of
// what others of ours wait for. So they are moved to one core for the time of a solve.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise {

// A thread is taken for spinning if it runs for more than a share of some nanoseconds, and is not one to be spared.
struct Watch {
    std::int64_t nanoseconds;
    double share;
    std::vector<int> spared;  // Linux's numbers of threads
};

// Moves the threads of this process that spin to one core, but for the calling one and workers of ours, if there are at
// least half as many as the calling thread may use cores; workers keep away from that core. Returns whether some were
// moved: not if another call has moved some, until these are back.
bool move_others_aside(const Watch& watch);

// Lets those that the calling thread has moved, if any, use the cores that they could use before, and spreads them.
void move_others_back();

// Around a fork: nobody moves threads meanwhile. Those that were moved are not there in the child.
void hold_others();
void release_others();
void forget_others();

}  // namespace roundwise
