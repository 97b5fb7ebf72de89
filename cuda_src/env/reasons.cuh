// Why an executed action differs from the drawn one: bits of override_reason.
#pragma once
#define REASON_PENDING 1        // an order is under way: the row holds
#define REASON_CONFIDENCE 2     // confidence gate
#define REASON_FRD 4            // forward-return gate
#define REASON_MIN_HOLD 8       // minimum hold
#define REASON_TRAIL_STOP 16    // trail stop
#define REASON_DRAWDOWN_STOP 32 // hard stop on unrealised R
#define REASON_HEAT_CAP 64      // heat cap
