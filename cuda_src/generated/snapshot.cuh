// The market snapshot as it lies on disk, in host memory and on the device.
// Generated from foxhunt_cli/data/record.py (python -m foxhunt_cli.data.record); do not edit.
#pragma once

#define SNAPSHOT_LEVELS 10
#define SNAPSHOT_REGIME_COUNT 6
#define SNAPSHOT_BYTES 216

struct Snapshot {
    float bid_px[10];  // byte 0: bid prices, best first [ticks from the reference price]
    float bid_sz[10];  // byte 40: bid sizes [lots]; 0 = the level is absent
    float ask_px[10];  // byte 80: ask prices, best first [ticks from the reference price]
    float ask_sz[10];  // byte 120: ask sizes [lots]; 0 = the level is absent
    float prev_mid;  // byte 160: mid of the snapshot before, in the same session [ticks]; its own mid at a session's first
    float trade_signed_vol;  // byte 164: trades since the snapshot before, buyer-initiated positive [lots]
    unsigned int trade_count;  // byte 168: number of those trades
    unsigned int padding;  // byte 172: zero
    unsigned long long ts_ns;  // byte 176: time of the snapshot [ns since 1970, UTC]
    unsigned long long prev_ts_ns;  // byte 184: time of the snapshot before, in the same session [ns]
    float regime[6];  // byte 192: volatility 10 s, 600 s [ticks/sqrt s], their log ratio, trades/s, spread [ticks], session 0..1
};

static_assert(sizeof(Snapshot) == SNAPSHOT_BYTES, "the record is 216 bytes on disk and on the host");
static_assert(sizeof(float) == 4 && sizeof(unsigned int) == 4 && sizeof(unsigned long long) == 8, "widths");
