// Elements of the pages of keys and values, for both host devices: store_kv_head() writes them, page_value() reads one.
// Invariant: a value is rounded to nearest even once, when it is stored, with a scale after it was divided by that.
#pragma once

#include "device/device.h"

namespace coprime {

// Element `index` of a head's keys or values, as float; not yet times its token's scale.
float page_value(DType type, const std::byte* data, int64_t index);

// One KV head's part of Device::store_kv(), for one span.
void store_kv_head(const KvView& kv, const SequenceSpan& span, const HeadsView& k, const HeadsView& v, int head);

}  // namespace coprime
