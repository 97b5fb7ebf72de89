// The runtime of the CPU device: runs recorded lists of launches, fills and copies.
//
// Owns the exported C functions of abi.h. Fibers are in block.h, OS threads in pool.h.
#include "abi.h"
#include "block.h"
#include "order.h"
#include "pool.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <link.h>
#include <mutex>
#include <string>

#define FH_API extern "C" __attribute__((visibility("default")))

namespace fh {
namespace {

// Sharing a launch pays once its work is several times what waking a helper costs.
constexpr double PARALLEL_FROM_NS = 15000;
constexpr double WORK_PER_HELPER_NS = 7000;

struct Job {
    const fh_op* op;
    const fh_settings* settings;
    long long chunk; // blocks taken at a time
    std::atomic<long long> next{0};
    std::atomic<long long> busy_ns{0}; // summed over the OS threads
    std::atomic<bool> failed{false};
    std::mutex mutex;
    std::string report;
};

// Dynamic shared memory of this OS thread.
class SharedMemory {
  public:
    void* reserve(size_t bytes) {
#ifdef FH_ASAN
        free(memory_); // exact size, so that the sanitizer sees an overrun
        memory_ = malloc(bytes ? bytes : 1);
#else
        if (bytes > capacity_) {
            free(memory_);
            capacity_ = (bytes + 255) & ~size_t(255);
            memory_ = aligned_alloc(256, capacity_);
        }
#endif
        return memory_;
    }

  private:
    void* memory_ = nullptr;
    size_t capacity_ = 0;
};

struct TlsModule {
    uintptr_t address; // any address inside the module
    size_t id = 0, bytes = 0;
};

int find_module(dl_phdr_info* info, size_t, void* data) {
    TlsModule* wanted = static_cast<TlsModule*>(data);
    bool inside = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + header.p_vaddr;
        if (header.p_type == PT_LOAD && wanted->address - start < header.p_memsz) inside = true;
        if (header.p_type == PT_TLS) bytes = header.p_memsz;
    }
    if (!inside) return 0;
    wanted->id = info->dlpi_tls_modid;
    wanted->bytes = bytes;
    return 1;
}

extern "C" void* __tls_get_addr(size_t*);

// Static __shared__ arrays are the only thread-local data of a kernel library: its whole TLS block becomes NaN.
void poison_static_shared(fh_thread_fn* thread) {
    TlsModule module{reinterpret_cast<uintptr_t>(thread)};
    dl_iterate_phdr(find_module, &module);
    if (!module.bytes) return;
    size_t index[2] = {module.id, 0};
    memset(__tls_get_addr(index), 0xFF, module.bytes);
}

void run_plain(const Job& job, long long first, long long last, Order order) {
    const fh_op& op = *job.op;
    if (order.kind == FH_FORWARD) {
        op.plain(op.args, int(first), int(last), 0, op.block, op.block, op.grid);
        return;
    }
    uint16_t threads[MAX_THREADS];
    fill_order(threads, unsigned(op.block), order);
    for (long long i = first; i < last; ++i) {
        const int block = int(block_at(i, op.grid, order));
        for (int t = 0; t < op.block; ++t)
            op.plain(op.args, block, block + 1, threads[t], threads[t] + 1, op.block, op.grid);
    }
}

void run_fibers(Job& job, long long first, long long last, Order order) {
    static thread_local Block* block = new Block; // kept with its stacks for the life of the OS thread
    static thread_local SharedMemory shared;
    const fh_op& op = *job.op;
    fh_block_size.x = op.block;
    fh_grid_size.x = op.grid;
    fh_dynamic_shared = shared.reserve(size_t(op.shared_bytes));
    for (long long i = first; i < last; ++i) {
        fh_block_index.x = int(block_at(i, op.grid, order));
        if (job.settings->poison) {
            memset(fh_dynamic_shared, 0xFF, size_t(op.shared_bytes));
            poison_static_shared(op.thread);
        }
        if (block->run(op.thread, op.args, unsigned(op.block), order)) continue;
        std::lock_guard<std::mutex> lock(job.mutex);
        if (!job.failed) job.report = block->report();
        job.failed = true;
        return;
    }
}

void run_share(void* context) {
    Job& job = *static_cast<Job*>(context);
    const Order order{job.settings->order, job.settings->seed};
    const double start = now_ns();
    for (;;) {
        const long long first = job.next.fetch_add(job.chunk);
        if (first >= job.op->grid || job.failed) break;
        const long long last = first + job.chunk < job.op->grid ? first + job.chunk : job.op->grid;
        if (job.op->plain)
            run_plain(job, first, last, order);
        else
            run_fibers(job, first, last, order);
    }
    job.busy_ns += (long long)(now_ns() - start);
}

// How many threads besides the caller's a launch is worth, by what it cost before.
int helpers_for(const fh_op& op, const fh_settings& settings) {
#ifdef FH_ASAN
    return 0; // __shared__ arrays are plain statics there: thread-local ones have no redzones
#endif
    if (op.cost_ns < PARALLEL_FROM_NS) return 0;
    int helpers = int(op.cost_ns / WORK_PER_HELPER_NS);
    if (helpers > settings.threads - 1) helpers = settings.threads - 1;
    if (helpers > op.grid - 1) helpers = op.grid - 1;
    return helpers;
}

bool run_launch(fh_op& op, const fh_settings& settings, std::string& report) {
    Job job;
    job.op = &op;
    job.settings = &settings;
    const int helpers = helpers_for(op, settings);
    job.chunk = helpers ? op.grid / ((helpers + 1) * 8) : op.grid;
    if (job.chunk < 1) job.chunk = 1;
    if (helpers)
        Pool::shared().run(helpers, run_share, &job);
    else
        run_share(&job);
    const double busy = double(job.busy_ns.load());
    op.cost_ns = op.cost_ns == 0 ? busy : op.cost_ns + 0.25 * (busy - op.cost_ns);
    if (!job.failed) return true;
    report = "kernel " + std::string(op.name) + " (" + op.file + "): " + job.report;
    return false;
}

} // namespace
} // namespace fh

FH_API void fh_sync(const fh_site* here) { fh::Block::current()->sync(here); }

FH_API int fh_sync_reduce(int predicate, int kind, const fh_site* here) {
    return fh::Block::current()->sync_reduce(predicate, kind, here);
}

FH_API unsigned long long fh_warp(unsigned mask, unsigned long long value, int kind, int source, const fh_site* here) {
    return fh::Block::current()->warp(mask, value, kind, source, here);
}

FH_API const char* fh_run(fh_op* ops, long long count, const fh_settings* settings) {
    static thread_local std::string report;
    for (long long i = 0; i < count; ++i) {
        fh_op& op = ops[i];
        if (op.kind == FH_FILL)
            memset(op.dst, 0, op.bytes);
        else if (op.kind == FH_COPY)
            memmove(op.dst, op.src, op.bytes);
        else if (!fh::run_launch(op, *settings, report))
            return report.c_str();
    }
    return nullptr;
}

FH_API const char* fh_variant() {
#ifdef FH_ASAN
    return FH_SWITCH_NAME ", sanitized";
#else
    return FH_SWITCH_NAME;
#endif
}
