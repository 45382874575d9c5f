// Elements of the pages of keys and values, for both host devices: store_kv() writes them, page_value() reads one.
// Invariant: a value is rounded to nearest even once, when it is stored.
#pragma once

#include "device/device.h"

namespace coprime {

// Element `index` of a page's keys or values, as float.
float page_value(DType type, const std::byte* data, int64_t index);

// Device::store_kv() of the host devices.
void store_kv_rows(const KvView& kv, std::span<const SequenceSpan> spans, const HeadsView& k, const HeadsView& v);

}  // namespace coprime
