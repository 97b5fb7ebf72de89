// The OS threads that share the blocks of a launch with the calling thread.
//
// Started on first use, kept until the process ends. A helper that wakes too late finds the job closed and the
// caller never waits for it: a job costs its caller a store when the helpers spin, a futex call when they sleep.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

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

// Compiler builtins and pthreads, not <atomic> and <thread>: nothing here needs the C++ library at link time.
template <class T> T load(const T& value) { return __atomic_load_n(&value, __ATOMIC_SEQ_CST); }
template <class T> void store(T& value, T to) { __atomic_store_n(&value, to, __ATOMIC_SEQ_CST); }

class Pool {
  public:
    static constexpr int MAX_HELPERS = 255;

    // Runs work(context) on the calling thread and on up to `helpers` others at once; returns when all are done.
    // The work must share itself out: a helper may come late or never.
    void run(int helpers, void (*work)(void*), void* context) {
        if (helpers <= 0 || pthread_mutex_trylock(&caller_)) { // another thread of the host has the helpers
            work(context);
            return;
        }
        while (started_ < helpers && start_helper()) {
        }
        work_ = work;
        context_ = context;
        store(wanted_, helpers);
        store(state_, ((load(state_) >> 32) + 1) << 32 | OPEN);
        for (int i = 0; i < helpers && i < started_; ++i) helpers_[i].wake();
        work(context);
        __atomic_fetch_and(&state_, ~OPEN, __ATOMIC_SEQ_CST);
        for (int spins = 0; load(state_) & RUNNING_MASK; ++spins) {
            relax();
            if (spins > 10000) sched_yield();
        }
        pthread_mutex_unlock(&caller_);
    }

    // The pool of this process. A fork leaves the child without the threads: it gets a new pool, and the old one
    // leaks. The pool also leaks at exit, because joining there would wait on whatever the interpreter does.
    static Pool& shared() {
        Pool* pool = load(slot());
        if (pool) return *pool;
        Pool* made = create();
        if (__atomic_compare_exchange_n(&slot(), &pool, made, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            pthread_atfork(nullptr, nullptr, [] { store(slot(), create()); });
            return *made;
        }
        free(made);
        return *pool;
    }

  private:
    // state_ = generation of the job << 32 | OPEN | number of helpers inside
    static constexpr uint64_t OPEN = 1ull << 31;
    static constexpr uint64_t RUNNING_MASK = OPEN - 1;
    static constexpr double SPIN_NS = 50000; // longer than the small launches of a plan that one thread runs alone

    struct Helper {
        Pool* pool;
        int number;
        uint64_t seen; // generation of the last job it worked on
        int sleeps;
        pthread_mutex_t mutex;
        pthread_cond_t wakes;

        void wake() {
            if (!load(sleeps)) return;
            pthread_mutex_lock(&mutex);
            pthread_cond_signal(&wakes);
            pthread_mutex_unlock(&mutex);
        }
    };

    // Zeroed memory is a valid pool: pthread's initialisers are zeros on Linux.
    static Pool* create() { return static_cast<Pool*>(calloc(1, sizeof(Pool))); }

    static Pool*& slot() {
        static Pool* pool = nullptr;
        return pool;
    }

    bool start_helper() {
        if (started_ == MAX_HELPERS) return false;
        Helper& helper = helpers_[started_];
        helper.pool = this;
        helper.number = started_;
        helper.seen = load(state_) >> 32;
        pthread_t thread;
        if (pthread_create(&thread, nullptr, serve, &helper)) return false; // fewer helpers then, same results
        pthread_detach(thread);
        ++started_;
        return true;
    }

    static void* serve(void* argument) {
        Helper& self = *static_cast<Helper*>(argument);
        Pool& pool = *self.pool;
        for (;;) {
            uint64_t state = load(pool.state_);
            if (!pool.offers_work(state, self)) {
                pool.wait(self);
                continue;
            }
            if (!__atomic_compare_exchange_n(&pool.state_, &state, state + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
                continue;
            pool.work_(pool.context_);
            self.seen = state >> 32;
            __atomic_fetch_sub(&pool.state_, 1, __ATOMIC_SEQ_CST);
        }
    }

    bool offers_work(uint64_t state, const Helper& helper) const {
        return (state & OPEN) && state >> 32 != helper.seen && helper.number < load(wanted_);
    }

    void wait(Helper& self) {
        const double until = now_ns() + SPIN_NS;
        do {
            for (int i = 0; i < 32; ++i) {
                if (offers_work(load(state_), self)) return;
                relax();
            }
        } while (now_ns() < until);
        pthread_mutex_lock(&self.mutex);
        store(self.sleeps, 1);
        // run() publishes the job before it reads sleeps; here the order is reversed: one of the two sees the other.
        while (!offers_work(load(state_), self)) pthread_cond_wait(&self.wakes, &self.mutex);
        store(self.sleeps, 0);
        pthread_mutex_unlock(&self.mutex);
    }

    pthread_mutex_t caller_;
    uint64_t state_;
    int wanted_;
    int started_;
    void (*work_)(void*);
    void* context_;
    Helper helpers_[MAX_HELPERS];
};

} // namespace fh
