// The runtime of the CPU device: runs recorded lists of launches, products, fills and copies.
//
// Owns the exported C functions of abi.h. Fibers are in block.h, OS threads in pool.h.
#include "abi.h"
#include "block.h"
#include "order.h"
#include "pool.h"
#include "product.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <link.h>

#define FH_API extern "C" __attribute__((visibility("default")))

namespace fh {
namespace {

// Sharing a launch pays once its work is several times what waking a helper costs.
constexpr double PARALLEL_FROM_NS = 15000;
constexpr double WORK_PER_HELPER_NS = 7000;

struct Job {
    const fh_op* op;
    const fh_settings* settings;
    Text* report;
    const Cut* cut;        // of a product
    long long blocks;      // in all
    long long chunk;       // taken at a time
    long long next = 0;    // block to take; shared
    long long busy_ns = 0; // summed over the OS threads; shared
    int failed = 0;        // shared; the thread that sets it first writes the report
};

// What an OS thread keeps for the rest of its life. By pointer: thread-local space of this library is scarce.
struct Lane {
    Block* block;
    void* shared_memory; // dynamic
    size_t shared_capacity;
    Scratch packing;
    Text* report; // what fh_run returned last
};
__thread Lane lane = {};

void* reserve_shared(size_t bytes) {
#ifdef FH_ASAN
    free(lane.shared_memory); // exact size, so that the sanitizer sees an overrun
    lane.shared_memory = malloc(bytes ? bytes : 1);
#else
    if (bytes > lane.shared_capacity) {
        free(lane.shared_memory);
        lane.shared_capacity = (bytes + 255) & ~size_t(255);
        lane.shared_memory = aligned_alloc(256, lane.shared_capacity);
    }
#endif
    return lane.shared_memory;
}

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
    const fh_op& op = *job.op;
    if (!lane.block) lane.block = Block::create();
    fh_block_size.x = op.block;
    fh_grid_size.x = op.grid;
    fh_dynamic_shared = reserve_shared(size_t(op.shared_bytes));
    for (long long i = first; i < last; ++i) {
        fh_block_index.x = int(block_at(i, op.grid, order));
        if (job.settings->poison) {
            memset(fh_dynamic_shared, 0xFF, size_t(op.shared_bytes));
            poison_static_shared(op.thread);
        }
        if (lane.block->run(op.thread, op.args, unsigned(op.block), order)) continue;
        if (!__atomic_exchange_n(&job.failed, 1, __ATOMIC_SEQ_CST))
            job.report->add("kernel %s (%s): %s", op.name, op.file, lane.block->report());
        return;
    }
}

void run_product(const Job& job, long long first, long long last) {
    for (long long i = first; i < last; ++i) {
        if (job.cut->of.is_double)
            run_block<double>(*job.cut, long(i), lane.packing);
        else
            run_block<float>(*job.cut, long(i), lane.packing);
    }
}

void run_share(void* context) {
    Job& job = *static_cast<Job*>(context);
    const Order order{job.settings->order, job.settings->seed};
    const double start = now_ns();
    for (;;) {
        const long long first = __atomic_fetch_add(&job.next, job.chunk, __ATOMIC_RELAXED);
        if (first >= job.blocks || load(job.failed)) break;
        const long long last = first + job.chunk < job.blocks ? first + job.chunk : job.blocks;
        if (job.cut)
            run_product(job, first, last);
        else if (job.op->plain)
            run_plain(job, first, last, order);
        else
            run_fibers(job, first, last, order);
    }
    __atomic_fetch_add(&job.busy_ns, (long long)(now_ns() - start), __ATOMIC_RELAXED);
}

// How many threads besides the caller's an operation is worth, by what it cost before.
int helpers_for(const fh_op& op, long long blocks, const fh_settings& settings) {
#ifdef FH_ASAN
    return 0; // __shared__ arrays are plain statics there: thread-local ones have no redzones
#endif
    if (op.cost_ns < PARALLEL_FROM_NS) return 0;
    int helpers = int(op.cost_ns / WORK_PER_HELPER_NS);
    if (helpers > settings.threads - 1) helpers = settings.threads - 1;
    if (helpers > blocks - 1) helpers = int(blocks) - 1;
    return helpers;
}

// A launch, or the product that `cut` cuts.
bool run_blocks(fh_op& op, const Cut* cut, const fh_settings& settings, Text& report) {
    const long long blocks = cut ? cut->blocks : op.grid;
    const int helpers = helpers_for(op, blocks, settings);
    long long chunk = helpers ? blocks / ((helpers + 1) * 8) : blocks;
    if (chunk < 1) chunk = 1;
    Job job{&op, &settings, &report, cut, blocks, chunk};
    if (helpers)
        Pool::shared().run(helpers, run_share, &job);
    else
        run_share(&job);
    const double busy = double(job.busy_ns);
    op.cost_ns = op.cost_ns == 0 ? busy : op.cost_ns + 0.25 * (busy - op.cost_ns);
    return !job.failed;
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
    if (!fh::lane.report) fh::lane.report = static_cast<fh::Text*>(calloc(1, sizeof(fh::Text)));
    fh::Text& report = *fh::lane.report;
    report.clear();
    for (long long i = 0; i < count; ++i) {
        fh_op& op = ops[i];
        if (op.when && !*op.when) continue;
        if (op.kind == FH_FILL) {
            memset(op.dst, 0, op.bytes);
        } else if (op.kind == FH_COPY) {
            memmove(op.dst, op.src, op.bytes);
        } else if (op.kind == FH_PRODUCT) {
            const fh::Cut cut = fh::cut(*static_cast<const fh_product*>(op.args));
            fh::run_blocks(op, &cut, *settings, report);
        } else if (!fh::run_blocks(op, nullptr, *settings, report)) {
            return report.c_str();
        }
    }
    return nullptr;
}

FH_API const char* fh_key() { return FH_KEY; }
