// The threads of one block as lazy fibers.
//
// Threads run one after another on one stack; only when one parks at a barrier or a warp operation does the next
// stack start. So a block whose threads never meet costs a loop, and one that meets costs a switch a thread.
//
// Invariant: exactly one fiber of a Block runs at a time, on the OS thread that called run(). Nothing here is shared
// between OS threads; each has a Block of its own.
#pragma once

#include "abi.h"
#include "builtins.h"
#include "context.h"
#include "order.h"
#include "text.h"

#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define FH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FH_ASAN 1
#endif
#endif
#ifdef FH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace fh {

constexpr unsigned WARP = 32;
#ifdef FH_ASAN
constexpr size_t STACK_BYTES = 256 * 1024; // redzones make frames several times larger
#else
constexpr size_t STACK_BYTES = 64 * 1024; // the builder refuses frames above half of this
#endif

class Block {
  public:
    // Zeroed memory is a valid Block; pages of threads that never exist are never touched.
    static Block* create() { return static_cast<Block*>(calloc(1, sizeof(Block))); }

    // Runs every thread of one block to its end. False after a fault, which report() describes.
    bool run(fh_thread_fn* thread, const void* args, unsigned threads, Order order);
    const char* report() const { return report_.c_str(); }

    void sync(const fh_site* here);
    int sync_reduce(int predicate, int kind, const fh_site* here);
    uint64_t warp(uint32_t mask, uint64_t value, int kind, int source, const fh_site* here);

    static Block*& current() {
        static __thread __attribute__((tls_model("initial-exec"))) Block* block = nullptr;
        return block;
    }

  private:
    enum State : uint8_t { RUNNING, AT_BARRIER, AT_WARP, EXITED };

    static void entry();
    void leave(void** saved, unsigned self, bool dying);
    void park(unsigned self);
    void arrive(const fh_site* here);
    void complete_barrier();
    void finish_warp(uint32_t mask, unsigned self);
    void thread_exits(unsigned t);
    unsigned take_stack();
    void push_ready(unsigned t) { ready_[(ready_head_ + ready_count_++) & (MAX_THREADS - 1)] = uint16_t(t); }
    void become(unsigned t) {
        running_ = t;
        fh_thread_index.x = int(t);
    }
    void fail(const char* what);
    void tell_who_waits();
    void tell_group(unsigned first, bool* told);

    fh_thread_fn* thread_;
    const void* args_;
    unsigned threads_; // of this block
    unsigned next_;    // threads started so far, an index into order_
    unsigned exited_;
    unsigned running_;
    bool failed_;
    Text report_;
    void* main_context_;

    // The barrier that is filling up.
    unsigned waiting_;
    const fh_site* barrier_site_;
    bool barrier_mixed_; // threads wait at different places
    int reduce_partial_;
    int reduce_result_; // of the last full barrier; read before the next can fill

    // Ring of threads that may continue.
    unsigned ready_head_ = 0, ready_count_;
    uint16_t ready_[MAX_THREADS];

    uint16_t order_[MAX_THREADS];
    unsigned ordered_threads_;
    Order ordered_by_;

    // Per thread; arrays and not an array of structs, so that a barrier touches few cache lines.
    State state_[MAX_THREADS];
    const fh_site* site_[MAX_THREADS];
    void* context_[MAX_THREADS];
    uint16_t stack_of_[MAX_THREADS];
    uint32_t warp_mask_[MAX_THREADS];
    uint64_t warp_value_[MAX_THREADS];
    uint64_t warp_result_[MAX_THREADS];
    int warp_source_[MAX_THREADS];
    int warp_kind_[MAX_THREADS];
    uint32_t warp_arrived_[MAX_THREADS / WARP];

    // Stacks are kept for the life of the OS thread.
    char* stacks_[MAX_THREADS];
    uint16_t free_stacks_[MAX_THREADS];
    unsigned stack_count_ = 0, free_count_;
    unsigned entry_stack_; // the one the next fresh fiber starts on

#ifdef FH_ASAN
    const void* main_bottom_;
    size_t main_size_;
#endif
};

inline bool Block::run(fh_thread_fn* thread, const void* args, unsigned threads, Order order) {
    thread_ = thread;
    args_ = args;
    if (ordered_threads_ != threads || !(ordered_by_ == order)) {
        fill_order(order_, threads, order);
        ordered_threads_ = threads;
        ordered_by_ = order;
    }
    threads_ = threads;
    next_ = exited_ = waiting_ = ready_head_ = ready_count_ = 0;
    if (failed_) { // fibers of the last block were abandoned with their stacks
        free_count_ = 0;
        for (unsigned s = 0; s < stack_count_; ++s) free_stacks_[free_count_++] = uint16_t(s);
    }
    failed_ = false;
    memset(warp_arrived_, 0, sizeof(uint32_t) * ((threads + WARP - 1) / WARP));
    current() = this;
    leave(&main_context_, 0, false);
    return !failed_;
}

// Bottom of every fiber: runs threads that have not started until one parks (another fiber then starts the rest).
inline void Block::entry() {
    Block* self = current();
#ifdef FH_ASAN
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!self->main_bottom_) {
        self->main_bottom_ = bottom;
        self->main_size_ = size;
    }
#endif
    const unsigned stack = self->entry_stack_;
    while (self->next_ < self->threads_ && !self->failed_) {
        const unsigned t = self->order_[self->next_++];
        self->become(t);
        self->state_[t] = RUNNING;
        self->stack_of_[t] = uint16_t(stack);
        self->thread_(self->args_);
        self->thread_exits(t);
    }
    self->free_stacks_[self->free_count_++] = uint16_t(stack);
    void* nobody;
    self->leave(&nobody, 0, true);
    __builtin_trap(); // a dying fiber is never entered again
}

// Leaves the running context for whatever runs next: a thread not yet started, one that is ready, or run() itself.
inline void Block::leave(void** saved, unsigned self, bool dying) {
    void* target = main_context_;
    [[maybe_unused]] int stack = -1; // of the target; -1: the OS thread's own
    if (failed_) {
        // the other fibers are abandoned
    } else if (next_ < threads_) {
        entry_stack_ = take_stack();
        stack = int(entry_stack_);
        // Tops are staggered: equal offsets in every stack would fall into the same few cache sets.
        const size_t stagger = 64 + (entry_stack_ % 24) * 128;
#ifdef FH_ASAN
        // The last frame of the fiber that died here never returned: its red zones would meet those who come now.
        __asan_unpoison_memory_region(stacks_[entry_stack_], STACK_BYTES);
#endif
        target = prepare_stack(stacks_[entry_stack_], STACK_BYTES - stagger, &Block::entry);
    } else if (ready_count_) {
        const unsigned t = ready_[ready_head_];
        ready_head_ = (ready_head_ + 1) & (MAX_THREADS - 1);
        --ready_count_;
        if (t == self && !dying) return;
        target = context_[t];
        stack = stack_of_[t];
    } else if (exited_ < threads_) { // all that are left wait for one that will not come
        fail(waiting_ ? "divergent barrier" : "deadlocked warp operation");
    }
#ifdef FH_ASAN
    void* fake = nullptr;
    if (stack < 0)
        __sanitizer_start_switch_fiber(dying ? nullptr : &fake, main_bottom_, main_size_);
    else
        __sanitizer_start_switch_fiber(dying ? nullptr : &fake, stacks_[stack], STACK_BYTES);
    switch_context(saved, target);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    switch_context(saved, target);
#endif
}

inline void Block::park(unsigned self) {
    leave(&context_[self], self, false);
    become(self);
}

inline void Block::arrive(const fh_site* here) {
    const unsigned t = running_;
    site_[t] = here;
    state_[t] = AT_BARRIER;
    if (waiting_ == 0) {
        barrier_site_ = here;
        barrier_mixed_ = false;
    } else if (barrier_site_ != here) {
        barrier_mixed_ = true;
    }
    if (++waiting_ + exited_ == threads_) complete_barrier();
}

inline void Block::complete_barrier() {
    if (exited_ || barrier_mixed_) {
        fail("divergent barrier");
        return;
    }
    // Everyone waits here, so nobody is ready: the ring is empty and restarts in the order of the schedule.
    waiting_ = 0;
    ready_head_ = 0;
    ready_count_ = threads_;
    reduce_result_ = reduce_partial_;
    memcpy(ready_, order_, threads_ * sizeof(ready_[0]));
}

inline void Block::sync(const fh_site* here) {
    const unsigned t = running_;
#ifndef FH_ASAN
    // The common case, a thread neither first nor last to arrive while another is ready, goes straight there.
    if (__builtin_expect(waiting_ != 0 && barrier_site_ == here && waiting_ + 1 + exited_ != threads_ &&
                             ready_count_ != 0 && next_ == threads_,
                         1)) {
        ++waiting_;
        site_[t] = here;
        state_[t] = AT_BARRIER;
        const unsigned other = ready_[ready_head_];
        ready_head_ = (ready_head_ + 1) & (MAX_THREADS - 1);
        --ready_count_;
        switch_context(&context_[t], context_[other]);
        become(t);
        return;
    }
#endif
    arrive(here);
    park(t);
}

inline int Block::sync_reduce(int predicate, int kind, const fh_site* here) {
    if (waiting_ == 0) reduce_partial_ = kind == FH_AND;
    const int p = predicate != 0;
    if (kind == FH_COUNT) reduce_partial_ += p;
    if (kind == FH_AND) reduce_partial_ &= p;
    if (kind == FH_OR) reduce_partial_ |= p;
    const unsigned t = running_;
    arrive(here);
    park(t);
    return reduce_result_;
}

// All lanes of the mask meet here; the last to arrive computes everyone's result.
inline uint64_t Block::warp(uint32_t mask, uint64_t value, int kind, int source, const fh_site* here) {
    const unsigned t = running_, base = t & ~(WARP - 1), lane = t - base, warp = t / WARP;
    const unsigned lanes = threads_ - base;
    if (lanes < WARP) mask &= (1u << lanes) - 1;
    warp_value_[t] = value;
    warp_source_[t] = source;
    warp_kind_[t] = kind;
    warp_mask_[t] = mask;
    site_[t] = here;
    state_[t] = AT_WARP;
    if (!(mask >> lane & 1)) {
        fail("a thread is not in the mask of its own warp operation");
        park(t);
    }
    warp_arrived_[warp] |= 1u << lane;
    if ((warp_arrived_[warp] & mask) == mask) {
        finish_warp(mask, t);
        if (!failed_) {
            state_[t] = RUNNING;
            return warp_result_[t];
        }
    }
    park(t);
    return warp_result_[t];
}

inline void Block::finish_warp(uint32_t mask, unsigned self) {
    const unsigned base = self & ~(WARP - 1);
    uint32_t ballot = 0;
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const unsigned t = base + lane;
        if (warp_mask_[t] != mask || warp_kind_[t] != warp_kind_[self] || site_[t] != site_[self]) {
            fail("mismatched warp operations");
            return;
        }
        ballot |= uint32_t(warp_value_[t] != 0) << lane;
    }
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const unsigned t = base + lane;
        const unsigned source = unsigned(warp_source_[t]) & (WARP - 1);
        if (warp_kind_[t] != FH_WARP_SHUFFLE)
            warp_result_[t] = ballot;
        else // reading a lane outside the mask is undefined on a GPU: all ones (NaN) here, so that it shows
            warp_result_[t] = mask >> source & 1 ? warp_value_[base + source] : ~0ull;
    }
    warp_arrived_[self / WARP] &= ~mask;
    const uint8_t* lanes = lane_order(ordered_by_);
    for (unsigned i = 0; i < WARP; ++i) {
        const unsigned t = base + lanes[i];
        if (mask >> lanes[i] & 1 && t != self) {
            state_[t] = RUNNING;
            push_ready(t);
        }
    }
}

inline void Block::thread_exits(unsigned t) {
    state_[t] = EXITED;
    ++exited_;
    if (waiting_ && waiting_ + exited_ == threads_) complete_barrier();
}

inline unsigned Block::take_stack() {
    if (free_count_) return free_stacks_[--free_count_];
    void* memory = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        fputs("foxhunt: no memory for the stack of a kernel thread\n", stderr);
        abort();
    }
    mprotect(memory, 4096, PROT_NONE); // guard page; may fail where the process has many mappings, and that is fine
    stacks_[stack_count_] = static_cast<char*>(memory);
    return stack_count_++;
}

inline void Block::fail(const char* what) {
    if (failed_) return; // the first fault is the cause
    failed_ = true;
    report_.clear();
    report_.add("block %d: %s: ", fh_block_index.x, what);
    tell_who_waits();
}

// "threads 0-15 wait at __syncthreads, f.cu:12; threads 16-63 have exited"
inline void Block::tell_who_waits() {
    bool told[MAX_THREADS] = {};
    int groups = 0;
    for (unsigned i = 0; i < next_; ++i) told[order_[i]] = true; // started; turned round below
    for (unsigned t = 0; t < threads_; ++t) told[t] = !told[t] || state_[t] == RUNNING;
    for (unsigned first = 0; first < threads_; ++first) {
        if (told[first]) continue;
        if (groups++) report_.add("; ");
        if (groups > 6) {
            report_.add("...");
            return;
        }
        tell_group(first, told);
    }
}

// Adds the threads that are where `first` is, as ranges, and marks them told.
inline void Block::tell_group(unsigned first, bool* told) {
    auto alike = [&](unsigned t) {
        return t < threads_ && !told[t] && state_[t] == state_[first] &&
               (state_[t] == EXITED || site_[t] == site_[first]) &&
               (state_[t] != AT_WARP || warp_mask_[t] == warp_mask_[first]);
    };
    const char* before = "threads ";
    bool members[MAX_THREADS] = {};
    for (unsigned t = first; t < threads_; ++t) members[t] = alike(t);
    for (unsigned t = first; t < threads_; ++t) {
        if (!members[t]) continue;
        unsigned last = t;
        while (last + 1 < threads_ && members[last + 1]) ++last;
        report_.add(last > t ? "%s%u-%u" : "%s%u", before, t, last);
        before = ",";
        for (; t <= last; ++t) told[t] = true;
    }
    if (state_[first] == EXITED) {
        report_.add(" have exited");
        return;
    }
    if (state_[first] == AT_BARRIER) report_.add(" wait at __syncthreads");
    if (state_[first] == AT_WARP) report_.add(" wait at a warp operation (mask 0x%08x)", warp_mask_[first]);
    report_.add(", %s:%d", site_[first]->file, site_[first]->line);
}

} // namespace fh
