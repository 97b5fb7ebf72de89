// The OS threads that share the blocks of a launch with the calling thread.
//
// Started on first use, kept until the process ends. A helper that wakes too late finds the job closed and the
// caller never waits for it: a job costs its caller a store when the helpers spin, a futex call when they sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <time.h>
#include <vector>

namespace fh {

inline double now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Pool {
  public:
    // Runs work(context) on the calling thread and on up to `helpers` others at once; returns when all are done.
    // The work must share itself out: a helper may come late or never.
    void run(int helpers, void (*work)(void*), void* context) {
        std::unique_lock<std::mutex> only(caller_, std::try_to_lock);
        if (helpers <= 0 || !only.owns_lock()) { // another thread of the host has the helpers
            work(context);
            return;
        }
        while (int(helpers_.size()) < helpers) start_helper();
        work_ = work;
        context_ = context;
        wanted_.store(helpers, std::memory_order_relaxed);
        const uint64_t generation = (state_.load() >> 32) + 1;
        state_.store(generation << 32 | OPEN);
        for (int i = 0; i < helpers; ++i) helpers_[size_t(i)]->wake();
        work(context);
        state_.fetch_and(~OPEN);
        for (int spins = 0; state_.load(std::memory_order_acquire) & RUNNING_MASK; ++spins) {
            relax();
            if (spins > 10000) std::this_thread::yield();
        }
    }

    // The pool of this process. A fork leaves the child without the threads: it gets a new pool, and the old one
    // leaks. The pool also leaks at exit, because joining there would wait on whatever the interpreter does.
    static Pool& shared() {
        static bool registered = (pthread_atfork(nullptr, nullptr, [] { slot() = new Pool; }), true);
        (void)registered;
        return *slot();
    }

  private:
    // state_ = generation of the job << 32 | OPEN | number of helpers inside
    static constexpr uint64_t OPEN = 1ull << 31;
    static constexpr uint64_t RUNNING_MASK = OPEN - 1;
    static constexpr double SPIN_NS = 20000; // longer than the gap between two launches of a plan

    struct Helper {
        std::mutex mutex;
        std::condition_variable wakes;
        std::atomic<bool> sleeps{false};
        void wake() {
            if (!sleeps.load()) return;
            std::lock_guard<std::mutex> lock(mutex);
            wakes.notify_one();
        }
    };

    static Pool*& slot() {
        static Pool* pool = new Pool;
        return pool;
    }

    void start_helper() {
        helpers_.push_back(new Helper);
        std::thread(&Pool::serve, this, helpers_.back(), int(helpers_.size()) - 1, state_.load() >> 32).detach();
    }

    void serve(Helper* self, int number, uint64_t seen) {
        for (;;) {
            uint64_t state = state_.load();
            if (offers_work(state, number, seen)) {
                if (!state_.compare_exchange_weak(state, state + 1)) continue;
                work_(context_);
                seen = state >> 32;
                state_.fetch_sub(1, std::memory_order_release);
                continue;
            }
            wait(self, number, seen);
        }
    }

    bool offers_work(uint64_t state, int number, uint64_t seen) const {
        return (state & OPEN) && state >> 32 != seen && number < wanted_.load(std::memory_order_relaxed);
    }

    void wait(Helper* self, int number, uint64_t seen) {
        const double until = now_ns() + SPIN_NS;
        do {
            for (int i = 0; i < 32; ++i) {
                if (offers_work(state_.load(std::memory_order_acquire), number, seen)) return;
                relax();
            }
        } while (now_ns() < until);
        std::unique_lock<std::mutex> lock(self->mutex);
        self->sleeps.store(true);
        // run() publishes the job before it reads sleeps; here the order is reversed: one of the two sees the other.
        self->wakes.wait(lock, [&] { return offers_work(state_.load(), number, seen); });
        self->sleeps.store(false);
    }

    std::mutex caller_;
    std::vector<Helper*> helpers_;
    std::atomic<uint64_t> state_{0};
    std::atomic<int> wanted_{0};
    void (*work_)(void*) = nullptr;
    void* context_ = nullptr;
};

} // namespace fh
