// SPDX-License-Identifier: Apache-2.0
/* The stage `limit` as it stands, on a board of its own, called as the interposer calls it.
   Needs native/board/buckets.c and tickets.c besides. */
#include "stages/limit.c"
#include "calls.h"

struct penstock_here penstock_here;
uint64_t penstock_now_ns(void) { return now_ns(); }
const char *penstock_path(struct penstock_call *call) { return call->path; }
bool penstock_is_sealed(void) { return false; }

static struct penstock_limits_control *limits;
static uint64_t carry[PENSTOCK_BUCKETS_MAX];

static void begin(void) {
  limits = shared(sizeof *limits);
  here.usage = shared(sizeof *here.usage);
  here.thread = thread_id;
  here.control = limits;
  penstock_limits_begin(limits, 0);
}

static void set_rate(double per_s, double burst_s) {
  static struct {
    struct penstock_limits_spec head;
    struct penstock_bucket_spec bucket;
  } spec;
  double units = per_s * PENSTOCK_CALL_UNITS, burst = units * burst_s;
  spec.head = (struct penstock_limits_spec){
    .version = PENSTOCK_LIMITS_VERSION, .count = 1, .under = PENSTOCK_UNDER_RECORD, .lease_ns = 1ull << 60};
  spec.head.weight[PENSTOCK_OP_STAT] = PENSTOCK_CALL_UNITS;
  spec.bucket = (struct penstock_bucket_spec){
    .name = "calls",
    .ops = {1ull << PENSTOCK_OP_STAT},
    .rate_per_s_1024 = (uint64_t)(units * 1024),
    .burst = burst < PENSTOCK_CALL_UNITS ? PENSTOCK_CALL_UNITS : (uint64_t)burst,
    .most = (uint64_t)(units * 10) + 4096 * PENSTOCK_CALL_UNITS,
  };
  penstock_limits_apply(limits, &spec, PENSTOCK_UNDER_RECORD, now_ns(), carry);
}

static void take(void) {
  static _Thread_local struct penstock_call call = {
    .op = PENSTOCK_OP_STAT, .under = PENSTOCK_UNDER_RECORD, .fd = 5, .fd2 = -1};
  before(&call);
}
