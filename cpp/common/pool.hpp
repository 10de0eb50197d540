// The threads that kernels share in this process: started when a kernel first asks for them, asleep
// while there is nothing to do.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/parallel.hpp"

#if defined(__linux__)
#include <sched.h>
#else
#include <condition_variable>
#endif

namespace roundwise {

// Held for a few instructions at a time.
class SpinLock {
    std::atomic<bool> taken_{false};

  public:
    void lock();
    void unlock() { taken_.store(false, std::memory_order_release); }
};

// A number that threads sleep on until it changes.
class Signal {
    std::atomic<std::uint32_t> value_{0}, sleepers_{0};
#if !defined(__linux__)
    std::mutex mutex_;
    std::condition_variable changed_;
#endif

  public:
    std::uint32_t value() const { return value_.load(); }
    void change() { value_.fetch_add(1); }

    // Wakes up to `most` of those that sleep.
    void wake(int most);

    // Returns when the value is another one than `seen`, or by chance: spins for as long as `most`, as the next
    // kernel of a solve usually follows within microseconds, then sleeps, which it tells in `asleep`.
    void wait(std::uint32_t seen, std::chrono::microseconds most, std::atomic<bool>& asleep);
};

// One call of run_members. It takes members until its caller's part is done: by then all tasks are
// claimed.
struct Job {
    MemberBody body;
    void* context;
    int wanted;                   // members, the caller included
    int joined = 1;               // guarded by the pool's lock
    std::atomic<int> running{0};  // workers in its body
    Job* next = nullptr;
};

// At most as many threads run at the same time as the call that asks for most of them was granted,
// callers included: calls of several threads share the cores instead of each taking all. A caller that
// has just left a kernel is counted, too: it runs Python, and calls the next one soon. Where another
// caller comes, a worker returns to the pool between two tasks (`wanted_back`).
class Pool {
    enum class State { idle, busy, ended };
    enum class Holder : char { nobody, worker, caller };
    struct Worker {
        std::thread thread;
        std::atomic<State> state{State::idle};
        std::atomic<int> id{0};  // Linux's number of the thread
        std::atomic<bool> asleep{false};
        std::atomic<Job*> job{nullptr};
        std::atomic<std::uint32_t> lent{0};  // 1 while it has the core of a caller that waits for its task
        std::atomic<bool> kept_off{false};   // a core, until it wakes up
#if defined(__linux__)
        SpinLock keeping;   // guards `allowed`
        cpu_set_t allowed;  // the cores that it may use then
#endif
    };

    // Of one caller: when it left its last kernel, and the core that it had there.
    struct Seat {
        std::atomic<std::chrono::steady_clock::time_point> left{};
        std::atomic<int> core{-1};
    };
    struct Absent {
        int count;
#if defined(__linux__)
        cpu_set_t cores;
#endif
    };

    SpinLock lock_;        // guards jobs_, active_, callers_, leaving_, stopping_ and what a Job says of it
    Job* jobs_ = nullptr;  // that may take more members
    int active_ = 0;       // callers and workers that run
    int callers_ = 0;      // those of them that called
    int leaving_ = 0;      // workers that were told to return and have not yet
    std::atomic<int> surplus_{0};  // workers to tell so
    bool stopping_ = false;
    Signal signal_;
    std::mutex growing_;  // guards workers_
    std::vector<std::unique_ptr<Worker>> workers_;
    std::atomic<int> count_{0};  // of workers_
    std::atomic<int> avoided_{-1};      // a core that is left to other libraries, if not negative
    std::atomic<bool> resting_{false};  // workers sleep rather than spin
    std::atomic<const void*> last_caller_{nullptr};
    std::atomic<std::chrono::steady_clock::time_point> callers_changed_{};  // when another thread called last
    static constexpr int seats = 64;
    Seat seats_[seats];
#if defined(__linux__)
    cpu_set_t allowed_;                      // the cores that workers may use; guarded by growing_
    std::atomic<Holder> taken_[CPU_SETSIZE]{};  // the cores that those who run are on

    cpu_set_t callers_cores() const;
    void keep_to(Worker& worker, const cpu_set_t& cores);
    static cpu_set_t allowed_to(Worker& worker);
#endif

    void grow(int workers);
    void follow_caller();
    void keep_sleepers_off_this_core();
    std::atomic<std::uint32_t>* lend_core();
    void return_core(Worker& self);
    void forget_ended();
    void work(Worker& self);
    Job* join(Worker& self, const Absent& absent, int& member, bool& more, bool& later);
    void leave(Job& job, Worker& self);
    void count_surplus();
    Absent absent_callers() const;
    int take_core(Holder holder, const Absent& absent);
    void give_back_core(int core, Holder holder);

  public:
    void run(int threads, MemberBody body, void* context);
    bool wanted_back();
    void stalled();
    void task_done();
    bool has_worker(int id);
    void avoid(int core) { avoided_.store(core); }
    void rest();

    // Around a fork: threads do not survive it, so that those asleep are ended before. Those that run a
    // kernel for another thread go on in the parent.
    void before_fork();
    void after_fork();
};

}  // namespace roundwise
