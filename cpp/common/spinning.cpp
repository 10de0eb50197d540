#include "common/spinning.hpp"

#include "common/parallel.hpp"

#if defined(__linux__)
#include <dirent.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#endif

namespace roundwise {

#if defined(__linux__)

namespace {

std::int64_t nanoseconds(clockid_t clock) {
    timespec now{};
    if (clock_gettime(clock, &now) != 0) return -1;
    return std::int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

// The clock that goes while a thread runs, made from its number as pthread_getcpuclockid does it; -1 if it has ended.
std::int64_t ran(pid_t thread) { return nanoseconds(static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3 | 6)); }

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

std::vector<int> members(const cpu_set_t& cores) {
    std::vector<int> found;
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &cores)) found.push_back(core);
    return found;
}

void allow_only(pid_t thread, int core) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    sched_setaffinity(thread, sizeof only, &only);  // fails if the thread has ended, which is as well
}

class Others {
    struct Moved {
        pid_t thread;
        std::int64_t ran;  // nanoseconds, when it was moved
        cpu_set_t allowed;
    };

    std::mutex mutex_;
    pid_t owner_ = 0;  // the caller that moved some, until it moves them back
    int aside_ = 0;    // the core that they were moved to
    std::vector<Moved> moved_;
    std::vector<int> cores_;  // that the caller may use

    // To list threads takes longer than all the rest, so the list is kept until their number changes, another thread
    // calls, or one of them is gone.
    nlink_t counted_ = 0;
    pid_t caller_ = 0;
    std::vector<pid_t> threads_;

    void list(pid_t caller) {
        struct stat tasks {};
        if (stat("/proc/self/task", &tasks) != 0 || (tasks.st_nlink == counted_ && caller == caller_)) return;
        threads_.clear();
        DIR* folder = opendir("/proc/self/task");
        if (folder == nullptr) return;
        while (const dirent* entry = readdir(folder)) {
            const auto thread = static_cast<pid_t>(std::atoi(entry->d_name));
            if (thread > 0 && thread != caller && !is_worker(thread)) threads_.push_back(thread);
        }
        closedir(folder);
        caller_ = caller;
        counted_ = tasks.st_nlink;
    }

    std::vector<pid_t> running(pid_t caller, const Watch& watch) {
        list(caller);
        std::vector<std::int64_t> before;
        for (const pid_t thread : threads_) before.push_back(ran(thread));
        const std::int64_t begin = nanoseconds(CLOCK_MONOTONIC);
        while (nanoseconds(CLOCK_MONOTONIC) - begin < watch.nanoseconds) continue;
        const double least = watch.share * static_cast<double>(watch.nanoseconds);
        std::vector<pid_t> found;
        for (std::size_t i = 0; i < threads_.size(); ++i) {
            const std::int64_t after = ran(threads_[i]);
            if (after < 0) counted_ = 0;
            const bool spared = std::find(watch.spared.begin(), watch.spared.end(), threads_[i]) != watch.spared.end();
            const bool runs = before[i] >= 0 && static_cast<double>(after - before[i]) > least;
            if (runs && !spared && !is_worker(threads_[i])) found.push_back(threads_[i]);
        }
        return found;
    }

    // Whether it is still the thread that was moved: a number may be given to another one when a thread has ended. One
    // of another process has no clock here, a new one of this process has run for less, or may use other cores.
    bool is_there(const Moved& one) const {
        cpu_set_t allowed;
        if (ran(one.thread) < one.ran || sched_getaffinity(one.thread, sizeof allowed, &allowed) != 0) return false;
        return CPU_COUNT(&allowed) == 1 && CPU_ISSET(aside_, &allowed);
    }

  public:
    bool move_aside(const Watch& watch) {
        const std::lock_guard<std::mutex> hold(mutex_);
        const pid_t caller = this_thread();
        cpu_set_t allowed;
        if (owner_ != 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
        cores_ = members(allowed);
        const std::vector<pid_t> found = running(caller, watch);
        if (cores_.size() < 2 || 2 * found.size() < cores_.size()) return false;
        aside_ = cores_.back() == sched_getcpu() ? cores_.front() : cores_.back();
        moved_.clear();
        for (const pid_t thread : found) {
            Moved one{thread, ran(thread), {}};
            if (one.ran < 0 || sched_getaffinity(thread, sizeof one.allowed, &one.allowed) != 0) continue;
            allow_only(thread, aside_);
            moved_.push_back(one);
        }
        avoid_core(aside_);
        owner_ = caller;
        return true;
    }

    // Those that still spin all run on one core. Linux would leave them there for milliseconds, so each is moved to
    // another core, but not to that of the calling thread. Those that sleep by now wake up on whatever core is idle,
    // so that ours must not spin on all others.
    void move_back() {
        const std::lock_guard<std::mutex> hold(mutex_);
        if (owner_ != this_thread()) return;
        use_all_cores();
        rest_workers();
        const int here = sched_getcpu();
        std::size_t next = 0;
        for (const Moved& one : moved_) {
            if (!is_there(one)) continue;
            if (cores_[next % cores_.size()] == here) ++next;
            allow_only(one.thread, cores_[next++ % cores_.size()]);
            sched_setaffinity(one.thread, sizeof one.allowed, &one.allowed);
        }
        owner_ = 0;
    }

    void hold() { mutex_.lock(); }
    void release() { mutex_.unlock(); }
    void forget() {  // in a child, by the thread that holds the mutex
        owner_ = 0;
        counted_ = 0;
        mutex_.unlock();
    }
};

Others others;

}  // namespace

bool move_others_aside(const Watch& watch) { return others.move_aside(watch); }
void move_others_back() { others.move_back(); }
void hold_others() { others.hold(); }
void release_others() { others.release(); }
void forget_others() { others.forget(); }

#else

bool move_others_aside(const Watch&) { return false; }
void move_others_back() {}
void hold_others() {}
void release_others() {}
void forget_others() {}

#endif

}  // namespace roundwise
