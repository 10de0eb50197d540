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
        cpu_set_t allowed;
    };

    std::mutex mutex_;
    pid_t owner_ = 0;  // the caller that moved some, until it moves them back
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
            if (static_cast<double>(after - before[i]) > least && !spared) found.push_back(threads_[i]);
        }
        return found;
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
        const int aside = cores_.back() == sched_getcpu() ? cores_.front() : cores_.back();
        moved_.clear();
        for (const pid_t thread : found) {
            Moved one{thread, {}};
            if (sched_getaffinity(thread, sizeof one.allowed, &one.allowed) != 0) continue;
            allow_only(thread, aside);
            moved_.push_back(one);
        }
        avoid_core(aside);
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
        for (std::size_t i = 0; i < moved_.size(); ++i) {
            if (cores_[next % cores_.size()] == here) ++next;
            allow_only(moved_[i].thread, cores_[next++ % cores_.size()]);
            sched_setaffinity(moved_[i].thread, sizeof moved_[i].allowed, &moved_[i].allowed);
        }
        owner_ = 0;
    }
};

Others others;

}  // namespace

bool move_others_aside(const Watch& watch) { return others.move_aside(watch); }
void move_others_back() { others.move_back(); }

#else

bool move_others_aside(const Watch&) { return false; }
void move_others_back() {}

#endif

}  // namespace roundwise
