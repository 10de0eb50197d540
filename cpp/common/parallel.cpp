#include "common/parallel.hpp"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif
#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace roundwise {

namespace {

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Moves a new thread to another core. Linux often queues it on the core of the thread that starts it,
// where it waits for milliseconds while another core is idle. The new thread is first forbidden this
// core, which moves it, and then allowed all cores again. (If it has already ended, the system may
// apply both calls to the calling thread, which does no harm.)
void leave_this_core(std::thread& thread) {
#if defined(__linux__)
    const int core = sched_getcpu();
    cpu_set_t allowed;
    if (core < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    cpu_set_t others = allowed;
    CPU_CLR(static_cast<unsigned>(core), &others);
    if (CPU_COUNT(&others) == 0) return;
    pthread_setaffinity_np(thread.native_handle(), sizeof others, &others);
    pthread_setaffinity_np(thread.native_handle(), sizeof allowed, &allowed);
#else
    static_cast<void>(thread);
#endif
}

// Threads that live for one call. Starting one costs some 100 microseconds. A pool would save this,
// but its waiting threads would compete with those of a BLAS library.
class Team {
    std::vector<std::thread> members_;

  public:
    explicit Team(std::int64_t size) {
        if (size > 0) members_.reserve(static_cast<std::size_t>(size));
    }
    ~Team() {
        for (std::thread& member : members_) member.join();
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    // Returns false if the system refuses to start a thread.
    template <class... Arguments> bool start(Arguments... arguments) {
        try {
            members_.emplace_back(arguments...);
        } catch (const std::system_error&) {
            return false;
        }
        leave_this_core(members_.back());
        return true;
    }
};

}  // namespace

void wait_for(const int& flag) {
    for (int spins = 0; __atomic_load_n(&flag, __ATOMIC_ACQUIRE) == 0; ++spins) {
        if (spins < 4000)
            pause();
        else
            std::this_thread::yield();  // the thread that sets the flag may need this core
    }
}

void run_members(int threads, MemberBody body, void* context) {
    Team others(threads - 1);
    for (int member = 1; member < threads; ++member)
        if (!others.start(body, context, member)) break;  // the threads already started do the work
    body(context, 0);
}

void split_range(std::int64_t count, std::int64_t grain, int threads, RangeBody body,
                 void* context) {
    const std::int64_t grains = (count + grain - 1) / grain;
    const std::int64_t parts = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, grains));
    const auto bound = [=](std::int64_t part) { return std::min(count, grains * part / parts * grain); };
    Team others(parts - 1);
    for (std::int64_t part = 1; part < parts; ++part)
        if (!others.start(body, context, bound(part), bound(part + 1)))
            body(context, bound(part), bound(part + 1));
    body(context, 0, bound(1));
}

}  // namespace roundwise
