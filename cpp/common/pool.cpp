#include "common/pool.hpp"

#include <algorithm>
#include <chrono>
#include <climits>
#include <exception>
#include <new>
#include <utility>

#include "common/ieee_arithmetic.hpp"
#include "common/pause.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#endif
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace roundwise {

namespace {

// How long a worker spins before it sleeps. A solve calls kernels with some hundred microseconds of Python between
// them, and waking many workers takes as long again. Where cores are wanted by others, workers sleep sooner: if several
// threads of Python call kernels, or if the core was taken from the worker, by another process or by a thread of another
// library. One that has slept may run at once when it wakes up; one that has spun has used up its turn.
constexpr auto awake = std::chrono::microseconds(300), awake_among_others = std::chrono::microseconds(20);

// So long after the calling thread was another one than before, or after a core was taken, cores count as wanted.
constexpr auto together = std::chrono::milliseconds(50);

// A caller that has left a kernel for less than this is taken to be between two kernels of a solve. Most gaps are
// shorter. A longer time would slow down solves that several threads do in turn: each would wait for the caller before
// it. A worker that waits for such a caller looks again after so long.
constexpr auto between = std::chrono::microseconds(200);

enum class Role { caller, worker, returning };  // `returning`: a worker that was told to
thread_local Role role = Role::caller;
thread_local const Job* called = nullptr;  // by this thread, and not done yet
thread_local void* worker_here = nullptr;   // the Pool::Worker that this thread is

// A number of the calling thread; more than Pool::seats threads share a seat.
std::atomic<unsigned> threads_that_called{0};
unsigned own_number() {
    static thread_local const unsigned number = threads_that_called.fetch_add(1);
    return number;
}

// A woken thread wakes so many others before it begins: all are awake soon, and nobody spends long on
// it.
constexpr int woken_by_each = 2;

#if !defined(_WIN32)
// Signals are for the threads of Python, so that new threads are started with all of them blocked.
class SignalsBlocked {
    sigset_t before_;

  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
};
#else
struct SignalsBlocked {
    SignalsBlocked() {}
};
#endif

#if defined(SYS_sched_setattr)
// Asks for short turns on the core (Linux 6.12 and later), unless there are few cores. A worker that wakes up beside
// a spinning thread of another library then runs at once instead of some milliseconds later. Where there are few
// cores nothing was gained by it (`make speed`, in turns).
void ask_for_short_turns() {
    if (few_cores) return;
    struct {
        std::uint32_t size, policy;
        std::uint64_t flags;
        std::int32_t nice;
        std::uint32_t priority;
        std::uint64_t runtime, deadline, period;
    } attributes{};  // struct sched_attr of the kernel, which not every C library declares
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
    if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return;  // others have no such turns
    attributes.runtime = 100000;  // nanoseconds, the shortest that Linux gives
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}
#else
void ask_for_short_turns() {}
#endif

#if defined(__linux__)
std::uint32_t* futex(std::atomic<std::uint32_t>& value) { return reinterpret_cast<std::uint32_t*>(&value); }

void wake_sleepers(std::atomic<std::uint32_t>& value, int most) {
    syscall(SYS_futex, futex(value), FUTEX_WAKE_PRIVATE, most, nullptr, nullptr, 0);
}

// Sleeps while the value is `seen`, until somebody wakes it up, or by chance less; for so long at most, if that is not 0.
void sleep_while(std::atomic<std::uint32_t>& value, std::uint32_t seen, std::chrono::nanoseconds most) {
    const timespec time{0, static_cast<long>(most.count())};
    syscall(SYS_futex, futex(value), FUTEX_WAIT_PRIVATE, seen, most.count() == 0 ? nullptr : &time, nullptr, 0);
}

// Whether a thread does not run, as its clock tells within some microseconds.
bool stands_still(pthread_t thread) {
    clockid_t clock;
    timespec before{}, after{};
    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &before) != 0) return false;
    for (int spins = 0; spins < 100; ++spins) pause();
    clock_gettime(clock, &after);
    return before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec;
}

// How often Linux has taken the core from this thread.
long times_preempted() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}
#else
long times_preempted() { return 0; }
#endif

}  // namespace

void SpinLock::lock() {
    spin_until([&] { return !taken_.exchange(true, std::memory_order_acquire); }, nap);
}

void Signal::wake(int most) {
    if (sleepers_.load() == 0) return;
#if defined(__linux__)
    wake_sleepers(value_, most);
#else
    const std::lock_guard<std::mutex> hold(mutex_);
    if (most == INT_MAX) changed_.notify_all();
    else
        for (int i = 0; i < most; ++i) changed_.notify_one();
#endif
}

void Signal::wait(std::uint32_t seen, std::chrono::microseconds most, std::atomic<bool>& asleep) {
    const auto begin = std::chrono::steady_clock::now();
    for (int spins = 0; value_.load() == seen; ++spins) {
        pause();
        if (spins % 32 != 31) continue;
        if (std::chrono::steady_clock::now() - begin > most) break;
    }
    asleep.store(true);
    sleepers_.fetch_add(1);  // before the value is compared again: whoever changes it looks afterwards
#if defined(__linux__)
    sleep_while(value_, seen, std::chrono::nanoseconds(0));
#else
    {
        std::unique_lock<std::mutex> hold(mutex_);
        if (value_.load() == seen) changed_.wait(hold);
    }
#endif
    sleepers_.fetch_sub(1);
    asleep.store(false);
}

// Workers that were started may run elsewhere; new ones are moved off this core at once: Linux often
// queues a new thread on the core of the thread that starts it, where it waits for milliseconds while
// another core is idle. It is first forbidden this core, which moves it, and then allowed all again.
void Pool::grow(int workers) {
    const std::lock_guard<std::mutex> hold(growing_);
#if defined(__linux__)
    allowed_ = callers_cores();
    cpu_set_t others = allowed_;
    const int core = sched_getcpu();
    if (core >= 0) CPU_CLR(static_cast<unsigned>(core), &others);
#endif
    while (static_cast<int>(workers_.size()) < workers) {
        Worker* self;
        try {
            workers_.push_back(std::make_unique<Worker>());
            self = workers_.back().get();
        } catch (const std::bad_alloc&) {
            break;  // the threads that are there do the work
        }
        try {
            const SignalsBlocked blocked;
            self->thread = std::thread([this, self] { work(*self); });
        } catch (const std::exception&) {  // the system has no thread, or no memory, for it
            workers_.pop_back();
            break;
        }
#if defined(__linux__)
        if (CPU_COUNT(&others) != 0) {
            pthread_setaffinity_np(self->thread.native_handle(), sizeof others, &others);
            pthread_setaffinity_np(self->thread.native_handle(), sizeof allowed_, &allowed_);
        }
#endif
    }
    count_.store(static_cast<int>(workers_.size()));
}

#if defined(__linux__)
// Those that the caller may use, but for the one that is left to others; none if Linux does not tell.
cpu_set_t Pool::callers_cores() const {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_ZERO(&cores);
    const int avoided = avoided_.load();
    if (avoided >= 0) CPU_CLR(static_cast<unsigned>(avoided), &cores);
    return cores;
}

// Lets a worker use these cores only, until it wakes up next. growing_ is held.
void Pool::keep_to(Worker& worker, const cpu_set_t& cores) {
    {
        const std::lock_guard<SpinLock> hold(worker.keeping);
        if (!worker.kept_off.load()) {
            worker.allowed = allowed_;
            worker.kept_off.store(true);
        }
    }
    pthread_setaffinity_np(worker.thread.native_handle(), sizeof cores, &cores);
}

cpu_set_t Pool::allowed_to(Worker& worker) {
    const std::lock_guard<SpinLock> hold(worker.keeping);
    return worker.allowed;
}
#endif

// Workers keep the cores that they were allowed when they were started; if the caller's have changed,
// theirs follow.
void Pool::follow_caller() {
#if defined(__linux__)
    const cpu_set_t now = callers_cores();
    const std::lock_guard<std::mutex> hold(growing_);
    if (CPU_COUNT(&now) == 0 || CPU_EQUAL(&now, &allowed_)) return;
    allowed_ = now;
    for (const auto& worker : workers_) {
        worker->kept_off.store(false);
        pthread_setaffinity_np(worker->thread.native_handle(), sizeof now, &now);
    }
#endif
}

// Linux often wakes a thread on the core of the one that wakes it, where it waits for up to some milliseconds while
// another core is idle. On few cores that is half of the threads or more, so that those asleep are forbidden this core
// until they are awake.
void Pool::keep_sleepers_off_this_core() {
#if defined(__linux__)
    const int core = sched_getcpu();
    if (!few_cores || core < 0) return;
    const std::lock_guard<std::mutex> hold(growing_);
    cpu_set_t others = allowed_;
    CPU_CLR(static_cast<unsigned>(core), &others);
    if (CPU_COUNT(&others) == 0) return;
    for (const auto& worker : workers_)
        if (worker->asleep.load()) keep_to(*worker, others);
#endif
}

// For a caller that waits for a task which a worker has claimed. If that worker has lost its core, to another process
// or to a spinning thread of another library, it would be back some milliseconds later. So it is given the core of the
// caller, which sleeps until the task is done: that takes as long as if the caller had done the task itself.
std::atomic<std::uint32_t>* Pool::lend_core() {
#if defined(__linux__)
    const std::unique_lock<std::mutex> hold(growing_, std::try_to_lock);
    const int core = sched_getcpu();
    if (!hold.owns_lock() || core < 0) return nullptr;
    for (const auto& worker : workers_) {
        if (worker->job.load() != called || !stands_still(worker->thread.native_handle())) continue;
        cpu_set_t here;
        CPU_ZERO(&here);
        CPU_SET(static_cast<unsigned>(core), &here);
        keep_to(*worker, here);  // first: whoever sees that it has the core knows where to go afterwards
        worker->lent.store(1);
        if (worker->job.load() == called) return &worker->lent;
        worker->lent.store(0);  // it has left the job meanwhile
        return nullptr;
    }
#endif
    return nullptr;
}

// Wakes the caller up again, and goes back to other cores.
void Pool::return_core(Worker& self) {
#if defined(__linux__)
    if (self.lent.load() == 0) return;
    self.lent.store(0);
    wake_sleepers(self.lent, 1);  // first: behind the threads of another core this one may have to wait
    cpu_set_t others = allowed_to(self);
    if (const int core = sched_getcpu(); core >= 0) CPU_CLR(static_cast<unsigned>(core), &others);
    if (CPU_COUNT(&others) != 0) sched_setaffinity(0, sizeof others, &others);
#else
    static_cast<void>(self);
#endif
}

// For a worker that has done a task, and may have been lent the core for it.
void Pool::task_done() {
    if (worker_here != nullptr) return_core(*static_cast<Worker*>(worker_here));
}

// For a member that has waited for some microseconds.
void Pool::stalled() {
    task_done();
#if defined(__linux__)
    if (std::atomic<std::uint32_t>* lent = few_cores && called != nullptr ? lend_core() : nullptr) {
        sleep_while(*lent, 1, std::chrono::microseconds(500));
        return;
    }
#endif
    nap();
}

// Two members of a call, or two callers, on one core take twice as long. Linux sees no harm in that while
// threads of another library spin on all other cores, which it takes for busy, and where there are few cores it
// leaves two callers on one of them for milliseconds. So whoever finds its core taken goes to one that is not,
// where a spinning thread gives way to it. A caller for which there is none takes the core of a worker rather than
// share that of a caller: one worker is told to return then. Returns the core, or -1.
//
// Where there are many cores, callers stay: Linux finds idle cores for them, and since Linux 6.2 a thread whose
// affinity was set no longer follows a control group that is given more cores.
int Pool::take_core(Holder holder, const Absent& absent) {
#if defined(__linux__)
    const int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE) return -1;
    const auto take = [&](int core, Holder from) {
        return !CPU_ISSET(core, &absent.cores) && taken_[core].compare_exchange_strong(from, holder);
    };
    if (take(here, Holder::nobody)) return here;
    const bool calls = holder == Holder::caller;
    cpu_set_t allowed;
    if ((calls && !few_cores) || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
    for (const Holder from : {Holder::nobody, Holder::worker}) {
        if (from == Holder::worker && !calls) break;
        if (take(here, from)) return here;
        for (int step = 1; step < CPU_SETSIZE; ++step) {
            const int core = (here + step) % CPU_SETSIZE;
            if (!CPU_ISSET(core, &allowed) || taken_[core].load() != from || !take(core, from)) continue;
            cpu_set_t only;
            CPU_ZERO(&only);
            CPU_SET(core, &only);
            sched_setaffinity(0, sizeof only, &only);  // moves this thread there
            sched_setaffinity(0, sizeof allowed, &allowed);
            return core;
        }
    }
#else
    static_cast<void>(holder);
    static_cast<void>(absent);
#endif
    return -1;
}

// Leaves it to a caller that has taken it from a worker.
void Pool::give_back_core(int core, Holder holder) {
#if defined(__linux__)
    if (core >= 0) taken_[core].compare_exchange_strong(holder, Holder::nobody);
#else
    static_cast<void>(core);
    static_cast<void>(holder);
#endif
}

// The callers that have left a kernel a moment ago. A caller clears its own seat before it asks.
Pool::Absent Pool::absent_callers() const {
    Absent absent{};
    if (threads_that_called.load() <= 1) return absent;
    const auto now = std::chrono::steady_clock::now();
    for (const Seat& seat : seats_) {
        if (now - seat.left.load() >= between) continue;
        ++absent.count;
#if defined(__linux__)
        if (const int core = seat.core.load(); core >= 0) CPU_SET(static_cast<unsigned>(core), &absent.cores);
#endif
    }
    return absent;
}

// Counts the workers that are too many: as many as exceed the largest grant, but no more than there are workers.
// lock_ is held.
void Pool::count_surplus() {
    int granted = 0;
    for (const Job* job = jobs_; job != nullptr; job = job->next) granted = std::max(granted, job->wanted);
    const int running = active_ - leaving_;
    surplus_.store(std::max(0, std::min(running - granted, running - callers_)));
}

// For a member of a job, between two tasks: whether it is a worker that should return, as more threads run than
// were granted. The job's own caller does what is left.
bool Pool::wanted_back() {
    task_done();
    if (role == Role::returning) return true;
    if (surplus_.load(std::memory_order_relaxed) == 0 || role == Role::caller) return false;
    const std::lock_guard<SpinLock> hold(lock_);
    if (surplus_.load() == 0) return false;
    role = Role::returning;
    ++leaving_;
    count_surplus();
    return true;
}

// `later` tells that there is a job to join unless callers that are between two kernels call again.
Job* Pool::join(Worker& self, const Absent& absent, int& member, bool& more, bool& later) {
    const std::lock_guard<SpinLock> hold(lock_);
    if (stopping_) {
        self.state.store(State::ended);
        return nullptr;
    }
    for (Job* job = jobs_; job != nullptr; job = job->next) {
        if (job->joined >= job->wanted || active_ >= job->wanted) continue;
        if (active_ + absent.count >= job->wanted) {
            later = true;
            continue;
        }
        member = job->joined++;
        more = job->joined < job->wanted;
        job->running.fetch_add(1);
        ++active_;
        self.state.store(State::busy);
        self.job.store(job);
        return job;
    }
    return nullptr;
}

void Pool::leave(Job& job, Worker& self) {
    const std::lock_guard<SpinLock> hold(lock_);
    --active_;
    if (role == Role::returning) {
        --leaving_;
        --job.joined;  // another may take its place: numbers of members other than 0 may repeat in such a job
    }
    role = Role::worker;
    count_surplus();
    self.state.store(State::idle);
    self.job.store(nullptr);
    job.running.fetch_sub(1);  // the caller may return, and the job be gone, from here on
}

void Pool::work(Worker& self) {
    const IeeeArithmetic ieee;
    role = Role::worker;
    worker_here = &self;
    ask_for_short_turns();
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "roundwise");  // as `top -H` shows it
    self.id.store(static_cast<int>(syscall(SYS_gettid)));
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // nanoseconds: short sleeps (pause.hpp) stay short
#endif
    long preempted = times_preempted();
    std::chrono::steady_clock::time_point crowded{};
    for (;;) {
        const std::uint32_t seen = signal_.value();
        int member = 0;
        bool more = false, later = false;
        const Absent absent = absent_callers();
        Job* job = join(self, absent, member, more, later);
        if (self.state.load() == State::ended) return;
        if (job == nullptr && later) {
            std::this_thread::sleep_for(between);
            continue;
        }
        if (job == nullptr) {
            const auto now = std::chrono::steady_clock::now();
            if (const long times = times_preempted(); times != preempted) {
                preempted = times;
                crowded = now;
            }
            const bool wanted = now - callers_changed_.load() < together || now - crowded < together;
            const auto spinning = wanted ? awake_among_others : awake;
            signal_.wait(seen, resting_.load() ? std::chrono::microseconds(0) : spinning, self.asleep);
#if defined(__linux__)
            if (self.kept_off.exchange(false)) {
                const cpu_set_t cores = allowed_to(self);
                sched_setaffinity(0, sizeof cores, &cores);
            }
#endif
            continue;
        }
        if (more) signal_.wake(woken_by_each);
        const int core = take_core(Holder::worker, absent);
        job->body(job->context, member);
        give_back_core(core, Holder::worker);
        leave(*job, self);
        return_core(self);
    }
}

void Pool::run(int threads, MemberBody body, void* context) {
    static thread_local const char me = 0;  // its address tells threads apart
    if (avoided_.load() >= 0 && threads > 1) --threads;
    if (last_caller_.exchange(&me) != &me) callers_changed_.store(std::chrono::steady_clock::now());
    if (count_.load() < threads - 1) grow(threads - 1);
    else follow_caller();
    resting_.store(false);
    Job job{body, context, threads};
    const Job* const before = std::exchange(called, &job);
    Seat& seat = seats_[own_number() % seats];
    seat.left.store({});
    const Absent absent = absent_callers();
    const int core = take_core(Holder::caller, absent);
    bool room;
    {
        const std::lock_guard<SpinLock> hold(lock_);
        ++callers_;
        room = ++active_ < threads;  // a worker that is woken waits for callers who may be back
        job.next = jobs_;
        jobs_ = &job;
        count_surplus();
    }
    if (room) {
        signal_.change();
        keep_sleepers_off_this_core();
        signal_.wake(woken_by_each);
    }
    body(context, 0);
    give_back_core(core, Holder::caller);
    seat.core.store(core);
    seat.left.store(std::chrono::steady_clock::now());  // before others are told that there is room
    bool others;
    {
        const std::lock_guard<SpinLock> hold(lock_);
        Job** link = &jobs_;
        while (*link != &job) link = &(*link)->next;
        *link = job.next;
        --active_;
        --callers_;
        count_surplus();
        others = jobs_ != nullptr;
    }
    if (others) {  // there is room for their members
        signal_.change();
        signal_.wake(woken_by_each);
    }
    spin_until([&] { return job.running.load() == 0; }, [&] { stalled(); });
    called = before;
}

void Pool::rest() {
    resting_.store(true);
    signal_.change();  // those that spin look for a job once more, and sleep
}

bool Pool::has_worker(int id) {
    const std::lock_guard<std::mutex> hold(growing_);
    for (const auto& worker : workers_)
        if (worker->id.load() == id) return true;
    return false;
}

void Pool::before_fork() {
    growing_.lock();
    {
        const std::lock_guard<SpinLock> hold(lock_);
        stopping_ = true;
    }
    signal_.change();
    signal_.wake(INT_MAX);
    for (auto& worker : workers_)
        while (worker->state.load() == State::idle) std::this_thread::yield();
    forget_ended();
}

void Pool::forget_ended() {
    const auto ended = [](const std::unique_ptr<Worker>& worker) {
        if (worker->state.load() != State::ended) return false;
        worker->thread.join();
        return true;
    };
    workers_.erase(std::remove_if(workers_.begin(), workers_.end(), ended), workers_.end());
    count_.store(static_cast<int>(workers_.size()));
}

void Pool::after_fork() {
    {
        const std::lock_guard<SpinLock> hold(lock_);
        stopping_ = false;
    }
    forget_ended();  // those that were busy when the fork began, and came back meanwhile
    growing_.unlock();
}

}  // namespace roundwise
