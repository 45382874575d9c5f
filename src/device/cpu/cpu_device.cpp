#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "device/cpu/kernels.h"
#include "device/cpu/split_linear.h"
#include "device/cpu/worker_pool.h"
#include "device/kv_pages.h"
#include "device/packing.h"
#include "device/quant/fp8_kernels.h"
#include "device/quant/quant_kernels.h"
#include "device/quant/quant_layout.h"
#include "device/reference/reference_device.h"
#include "device/shape_checks.h"
#include "device/top_k.h"

namespace coprime {
namespace {

// A chunk of fewer rows costs more than its recurrence.
constexpr int64_t kChunkedRows = 16;
// An operation on fewer elements than this is done by the caller alone: waking the others would cost more.
constexpr int64_t kAloneElements = 1 << 14;
constexpr int64_t kAloneWeightBytes = 1 << 15;
constexpr size_t kLineBytes = 64;
constexpr int64_t kAttentionRows = 16;  // of one work item
constexpr int64_t kEvenItems = 8;       // so many items a thread are shared out evenly enough
// Long operations are counted in parts of about this size.
constexpr int64_t kCountedProducts = 1 << 26, kCountedRows = 64;

template <class Fn>
Fn kernel_for(std::span<const KernelRow<Fn>> rows, Isa isa, DType type) {
  const int index = select_kernel(rows, {isa, type});
  COPRIME_CHECK(index >= 0, "no kernel for {} on {}", dtype_name(type), isa_name(isa));
  return rows[static_cast<size_t>(index)].fn;
}

// One function for each plain type that a family of kernels has.
template <class Fn>
class ByType {
 public:
  ByType(std::span<const KernelRow<Fn>> rows, Isa isa, std::span<const DType> types) {
    for (const DType type : types) functions_[static_cast<size_t>(type)] = kernel_for(rows, isa, type);
  }
  Fn at(DType type) const { return functions_[static_cast<size_t>(type)]; }

 private:
  std::array<Fn, static_cast<size_t>(DType::kOther)> functions_{};
};
constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kKvTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};

// By type; empty rows for those whose kernels are others'.
using QuantTable = std::array<const QuantFunctions*, static_cast<size_t>(DType::kOther)>;
QuantTable quant_functions(Isa isa) {
  QuantTable table{};
  for (const DType type : kQuantTypes) {
    const int index = select_quant_kernel(quant_kernels(), {isa, cpu_features(), type});
    COPRIME_CHECK(index >= 0, "no kernel for {}", dtype_name(type));
    table[static_cast<size_t>(type)] = &quant_kernels()[static_cast<size_t>(index)].functions;
  }
  return table;
}

// Products of BF16 weights with inputs in parts: nullptr where f32 is asked for, or the CPU has no instructions for it.
const KernelRow<SplitFunctions>* split_kernel(Isa isa, const CpuOptions& options) {
  if (options.math == MathMode::kF32 || options.exact) return nullptr;
  const int index = select_kernel(split_kernels(), {isa, DType::kBF16, cpu_features(), options.math});
  return index < 0 ? nullptr : &split_kernels()[static_cast<size_t>(index)];
}

class CpuDevice final : public Device {
 public:
  CpuDevice(Isa isa, const CpuOptions& options)
      : isa_(isa),
        math_(options.math),
        counter_(options.progress),
        linear_(linear_kernels(), isa, kFloatTypes),
        split_(split_kernel(isa, options)),
        attention_(attention_kernels(), isa, kKvTypes),
        rows_(*kernel_for(row_kernels(), isa, DType::kF32)),
        delta_net_(*kernel_for(delta_net_kernels(), isa, DType::kF32)),
        quant_(quant_functions(isa)),
        fp8_(*kernel_for(fp8_kernels(), isa, DType::kFp8)),
        pool_(std::max(options.threads, 1), options.cores) {}

  std::unique_ptr<WeightSink> pack(Weight& weight, DType type, WeightUse use, float offset) override {
    return make_packing_sink(weight, type, use, offset, weights_);
  }

  void embed(const Weight& table, std::span<const int32_t> ids, int64_t first_id, View out) override {
    check_embed(table, ids, out);
    const Component& values = linear_values(table);
    by_rows(out.rows, out.columns, [&](int64_t r) {
      const int64_t id = ids[static_cast<size_t>(r)] - first_id;
      if (id < 0 || id >= table.rows) {
        std::fill_n(out.row(r), out.columns, 0.0f);
      } else {
        unpack_row(values, table.columns, id, out.row(r));
      }
    });
  }

  void linear(View x, std::span<const LinearTask> tasks) override {
    check_linear(x, tasks);
    if (std::ranges::none_of(tasks, [](const LinearTask& task) { return task.weight->inputs.has_value(); })) {
      multiply(x, tasks);
    } else {
      for (const LinearTask& task : tasks) multiply(inputs_of(x, *task.weight), {&task, 1});
    }
    counter_.add();
  }
  OrderClass linear_order() const override { return split_ == nullptr ? OrderClass::kSequentialFma : split_->order; }

  void rms_norm(View x, const float* weight, float eps, View y) override {
    check_same_shape(x, y);
    by_rows(x.rows, x.columns, [&](int64_t r) { rows_.rms_norm(x.row(r), x.columns, weight, eps, y.row(r)); });
  }

  void add_norm(std::span<const View> terms, View residual, const float* weight, float eps, View normed) override {
    check_add_norm(terms, residual, weight, normed);
    by_rows(residual.rows, residual.columns, [&](int64_t r) {
      float* const row = residual.row(r);
      if (!terms.empty()) {
        rows_.add_norm(terms, r, residual.columns, row, weight, eps, weight == nullptr ? nullptr : normed.row(r));
      } else if (weight != nullptr) {
        rows_.rms_norm(row, residual.columns, weight, eps, normed.row(r));
      }
    });
  }

  void expect_add_norm(View residual, const float* weight) override {
    if (residual.rows != 1) return;  // many rows do not stay in the first caches
    const auto bytes = static_cast<size_t>(residual.columns) * sizeof(float);
    for (size_t at = 0; at < bytes; at += kLineBytes) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(residual.data) + at, 1);
      if (weight == nullptr) continue;
      __builtin_prefetch(reinterpret_cast<const std::byte*>(weight) + at);
    }
  }

  void zero(View out) override {
    by_rows(out.rows, out.columns, [&](int64_t r) { std::fill_n(out.row(r), out.columns, 0.0f); });
  }

  void sum(std::span<const View> terms, View out) override {
    check_sum(terms, out);
    by_rows(out.rows, out.columns, [&](int64_t r) { rows_.sum(terms, r, out.columns, out.row(r)); });
  }

  void norm_rope(HeadsView x, const float* weight, float eps, View cosines, View sines) override {
    check_norm_rope(x, cosines, sines);
    by_rows(x.rows, int64_t{x.heads} * x.head_dim, [&](int64_t r) {
      for (int h = 0; h < x.heads; ++h) {
        float* head = x.head(r, h);
        if (weight != nullptr) rows_.rms_norm(head, x.head_dim, weight, eps, head);
        if (cosines.columns > 0) rows_.rotate(head, cosines.columns, cosines.row(r), sines.row(r));
      }
    });
  }

  void store_kv(const KvView& kv, std::span<const SequenceSpan> spans, HeadsView k, HeadsView v) override {
    check_store_kv(kv, spans, k, v);
    const auto one_head = [&](int64_t item, int) {
      store_kv_head(kv, spans[static_cast<size_t>(item / kv.kv_heads)], k, v, static_cast<int>(item % kv.kv_heads));
    };
    for_each_item(static_cast<int64_t>(spans.size()) * kv.kv_heads, 2 * k.rows * kv.kv_heads * kv.head_dim, one_head);
    counter_.add();
  }

  void attend(const KvView& kv, std::span<const SequenceSpan> spans, HeadsView q, float scale, View out) override {
    check_attend(kv, spans, q, out);
    if (q.heads > 0) attend_items(kv, spans, q, scale, out);
    counter_.add();
  }
  OrderClass attention_order() const override { return OrderClass::kLanes; }

  void sigmoid_gate(View x, HeadsView gate) override {
    check_sigmoid_gate(x, gate);
    by_rows(x.rows, x.columns, [&](int64_t r) {
      for (int h = 0; h < gate.heads; ++h)
        rows_.sigmoid_gate(x.row(r) + int64_t{h} * gate.head_dim, gate.head(r, h), gate.head_dim);
    });
  }

  void swiglu(View gate, View up) override {
    check_same_shape(gate, up);
    by_rows(gate.rows, gate.columns, [&](int64_t r) { rows_.swiglu(gate.row(r), up.row(r), gate.columns); });
  }

  void short_convolution(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans,
                         const float* weight, View u, View out) override {
    check_short_convolution(state, shape, spans, u, out);
    const int64_t channels = shape.channels(), blocks = (channels + kConvolutionChannels - 1) / kConvolutionChannels;
    const auto convolve = [&](int64_t item, int) {
      const SequenceSpan& span = spans[static_cast<size_t>(item / blocks)];
      if (span.num_rows == 0 && span.state_in == span.state_out) return;
      ConvolutionWork work;
      work.taps = shape.taps;
      work.channels = channels;
      work.first = item % blocks * kConvolutionChannels;
      work.last = std::min(channels, work.first + kConvolutionChannels);
      work.span = &span;
      work.weight = weight;
      work.state_in = span.state_in < 0 ? nullptr : state.convolution + span.state_in * state.convolution_stride;
      work.state_out = span.state_out < 0 ? nullptr : state.convolution + span.state_out * state.convolution_stride;
      work.u = u;
      work.out = out;
      delta_net_.convolution(work);
    };
    for_each_item(static_cast<int64_t>(spans.size()) * blocks, u.rows * u.columns, convolve);
    counter_.add();
  }

  void delta_rule(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans, View qkv,
                  View b, View a, const float* a_log, const float* dt_bias, DeltaNetForm form, View out) override {
    check_delta_rule(state, shape, spans, qkv, b, a, out);
    const int64_t cells = int64_t{shape.key_dim} * shape.value_dim;
    // A span that keeps no state works on a spare one, after the kernel's own.
    const int64_t kernel_floats = delta_rule_scratch(shape), floats = (kernel_floats + cells + 15) / 16 * 16;
    reserve_scratch(floats);
    const auto one_head = [&](int64_t item, int thread) {
      const SequenceSpan& span = spans[static_cast<size_t>(item / shape.value_heads)];
      DeltaRuleWork work;
      work.shape = shape;
      work.span = &span;
      work.head = static_cast<int>(item % shape.value_heads);
      if (span.num_rows == 0 && span.state_in == span.state_out) return;
      work.qkv = qkv, work.b = b, work.a = a, work.out = out;
      work.a_log = a_log[work.head];
      work.dt_bias = dt_bias[work.head];
      work.scratch = scratch_.as<float>() + thread * floats;
      work.done = counter_;
      const auto slot = [&](int index) { return state.recurrent + index * state.recurrent_stride + work.head * cells; };
      work.state_in = span.state_in < 0 ? nullptr : slot(span.state_in);
      work.state_out = span.state_out < 0 ? work.scratch + kernel_floats : slot(span.state_out);
      const bool chunked = form == DeltaNetForm::kChunked && span.num_rows >= kChunkedRows;
      (chunked ? delta_net_.chunked : delta_net_.recurrent)(work);
    };
    const int64_t items = static_cast<int64_t>(spans.size()) * shape.value_heads;
    for_each_item(items, std::max(qkv.rows, int64_t{1}) * shape.value_heads * cells, one_head);
    counter_.add();
  }

  void gated_norm(View x, View gate, int head_dim, const float* weight, float eps) override {
    check_gated_norm(x, gate, head_dim);
    by_rows(x.rows, x.columns, [&](int64_t r) {
      for (int64_t begin = 0; begin < x.columns; begin += head_dim) {
        rows_.gated_norm(x.row(r) + begin, gate.row(r) + begin, head_dim, weight, eps);
      }
    });
  }

  int top_k(std::span<const float> logits, int32_t first_id, std::span<Candidate> best) override {
    counter_.add();
    return select_top_k(logits, first_id, best, rows_.find_above);
  }

  std::string description() const override {
    return fmt::format("cpu {}, {} thread{}", isa_name(isa_), pool_.threads(), pool_.threads() == 1 ? "" : "s");
  }

 private:
  // An operation of `rows` rows, each alone: contiguous parts to the threads.
  template <class Row>
  void by_rows(int64_t rows, int64_t columns, const Row& row) {
    if (rows == 1 || rows * columns < kAloneElements) {
      for (int64_t r = 0; r < rows; ++r) row(r);
    } else {
      const int threads = pool_.threads();
      pool_.run([&](int thread) {
        const int64_t end = rows * (thread + 1) / threads;
        for (int64_t r = rows * thread / threads; r < end; ++r) {
          row(r);
          if (r % kCountedRows == 0) counter_.add();
        }
      });
    }
    counter_.add();
  }

  template <class Item>
  void for_each_item(int64_t items, int64_t elements, const Item& item) {
    if (elements < kAloneElements) {
      for (int64_t i = 0; i < items; ++i) item(i, 0);
    } else {
      pool_.for_each(items, [&](int64_t i, int thread) {
        item(i, thread);
        counter_.add();
      });
    }
  }

  // x, or its columns where the weight holds them.
  View inputs_of(View x, const Weight& weight) {
    if (!weight.inputs) return x;
    const auto bytes = static_cast<size_t>(x.rows * weight.columns) * sizeof(float);
    if (held_.size() < bytes) held_ = Buffer(bytes);
    const View held = make_view(held_.as<float>(), x.rows, weight.columns);
    by_rows(x.rows, weight.columns, [&](int64_t r) { place_inputs(weight, x.row(r), held.row(r)); });
    return held;
  }

  // Of weights that hold exactly x's columns.
  void multiply(View x, std::span<const LinearTask> tasks) {
    int64_t bytes = 0;
    bool quantised = false;
    for (const LinearTask& task : tasks) {
      const DType type = linear_values(*task.weight).type;
      bytes += tiles_of(task.weight->rows) * tile_bytes(type, x.columns);
      if (in_parts(type)) split(x);
      if (!is_block(type)) continue;
      quantised = true;
      if (math_ != MathMode::kF32 && type != DType::kFp8) quantise(x, type);
    }
    if (quantised && math_ == MathMode::kF32) reserve_scratch(kTileRows * x.columns);
    if (bytes * x.rows < kAloneWeightBytes) {
      multiply_part(x, tasks, 0, bytes, 0);
    } else {
      const int threads = pool_.threads();
      pool_.run([&](int thread) {
        multiply_part(x, tasks, bytes * thread / threads, bytes * (thread + 1) / threads, thread);
      });
    }
    for (Integers& integers : integers_) integers.made = false;
    parts_made_ = false;
  }

  bool in_parts(DType type) const { return split_ != nullptr && type == DType::kBF16; }

  // x in parts, once for all tasks.
  void split(View x) {
    if (std::exchange(parts_made_, true)) return;
    parts_ = {.rows = x.rows, .columns = x.columns, .parts = math_ == MathMode::kFast ? 1 : 2, .form = split_->fn.form};
    if (parts_bytes_.size() < static_cast<size_t>(parts_.bytes())) {
      parts_bytes_ = Buffer(static_cast<size_t>(parts_.bytes()));
    }
    parts_.data = parts_bytes_.data();
    const int64_t group = parts_.group_rows(), groups = (x.rows + group - 1) / group;
    const auto part = [&](int64_t first, int64_t last) {
      split_inputs({x, parts_, first * group, std::min(last * group, x.rows)});
    };
    if (groups == 1 || x.rows * x.columns < kAloneElements) {
      part(0, groups);
    } else {
      const int threads = pool_.threads();
      pool_.run([&](int thread) { part(groups * thread / threads, groups * (thread + 1) / threads); });
    }
  }

  // x as integers, once for each form that the kernels of the tasks ask for.
  void quantise(View x, DType type) {
    const QuantFunctions& kernel = quant_of(type);
    const ActivationForm form = kernel.form(math_, x.rows);
    Integers& integers = integers_[static_cast<size_t>(form)];
    if (std::exchange(integers.made, true)) return;
    integers.rows = {.rows = x.rows, .blocks = x.columns / kQuantBlock, .form = form};
    const auto bytes = static_cast<size_t>(x.rows * integers.rows.row_bytes());
    if (integers.bytes.size() < bytes) integers.bytes = Buffer(bytes);
    integers.rows.data = integers.bytes.data();
    const auto part = [&](int64_t first, int64_t last) {
      kernel.quantise({.x = x, .math = math_, .out = integers.rows, .first = first, .last = last});
    };
    if (x.rows == 1 || x.rows * x.columns < kAloneElements) {
      part(0, x.rows);
    } else {
      const int threads = pool_.threads();
      pool_.run([&](int thread) { part(x.rows * thread / threads, x.rows * (thread + 1) / threads); });
    }
  }

  // The tiles whose first byte, counted through the weights of all tasks, lies in [begin, end).
  void multiply_part(View x, std::span<const LinearTask> tasks, int64_t begin, int64_t end, int thread) const {
    int64_t offset = 0;
    for (const LinearTask& task : tasks) {
      const Weight& weight = *task.weight;
      const Component& values = linear_values(weight);
      const int64_t tiles = tiles_of(weight.rows), bytes = tile_bytes(values.type, x.columns);
      LinearWork work;
      // With no columns every tile is empty: the first part takes them all.
      work.first_tile = bytes == 0 ? 0 : std::clamp((begin - offset + bytes - 1) / bytes, int64_t{0}, tiles);
      work.last_tile =
          bytes == 0 ? (begin == 0 ? tiles : 0) : std::clamp((end - offset + bytes - 1) / bytes, int64_t{0}, tiles);
      offset += tiles * bytes;
      if (work.first_tile >= work.last_tile) continue;
      work.weight = values.bytes.data();
      work.bias = linear_bias(weight);
      work.rows = weight.rows;
      if (in_parts(values.type)) {
        multiply_split(work, x, task.y);
      } else if (!is_block(values.type)) {
        multiply_blocks(linear_.at(values.type), work, x, task.y);
      } else if (math_ == MathMode::kF32) {
        multiply_widened(values, work, x, task.y, scratch_.as<float>() + thread * kTileRows * x.columns);
      } else if (values.type == DType::kFp8) {
        multiply_blocks(fp8_.multiply, work, x, task.y);
      } else {
        multiply_integers(quant_of(values.type), work, x, task.y);
      }
    }
  }

  // One tile after the other as F32: `tile` has room for it.
  void multiply_widened(const Component& values, const LinearWork& work, View x, View y, float* tile) const {
    const int64_t bytes = tile_bytes(values.type, x.columns);
    const auto widen = values.type == DType::kFp8 ? fp8_.widen : quant_of(values.type).widen;
    for (int64_t t = work.first_tile; t < work.last_tile; ++t) {
      widen({.tile = work.weight + t * bytes, .first = 0, .count = x.columns, .out = tile});
      const int64_t row = t * kTileRows, rows = std::min<int64_t>(kTileRows, work.rows - row);
      LinearWork part;
      part.weight = reinterpret_cast<const std::byte*>(tile);
      part.bias = work.bias == nullptr ? nullptr : work.bias + row;
      part.rows = rows;
      part.first_tile = 0;
      part.last_tile = 1;
      multiply_blocks(linear_.at(DType::kF32), part, x, y.column_range(row, rows));
    }
  }

  // Tiles of one call, so that its end can be counted: a multiple of what kernels take at a time.
  static int64_t counted_tiles(View x) {
    const int64_t products = std::max(kTileRows * x.columns * x.rows, int64_t{1});  // of a tile
    return std::max(kCountedProducts / products, int64_t{1}) * 4;
  }

  void multiply_split(const LinearWork& work, View x, View y) const {
    const int64_t tiles = counted_tiles(x);
    SplitWork part{.weight = work.weight, .bias = work.bias, .rows = work.rows, .x = parts_, .y = y};
    for (int64_t tile = work.first_tile; tile < work.last_tile; tile = part.last_tile) {
      part.first_tile = tile;
      part.last_tile = std::min(tile + tiles, work.last_tile);
      split_->fn.multiply(part);
      counter_.add();
    }
  }

  void multiply_integers(const QuantFunctions& kernel, const LinearWork& work, View x, View y) const {
    const int64_t tiles = counted_tiles(x);
    QuantWork part{.weight = work.weight, .bias = work.bias, .rows = work.rows, .y = y};
    part.x = integers_[static_cast<size_t>(kernel.form(math_, x.rows))].rows;
    for (int64_t tile = work.first_tile; tile < work.last_tile; tile = part.last_tile) {
      part.first_tile = tile;
      part.last_tile = std::min(tile + tiles, work.last_tile);
      kernel.multiply(part);
      counter_.add();
    }
  }

  const QuantFunctions& quant_of(DType type) const { return *quant_[static_cast<size_t>(type)]; }

  // A kernel's call is short enough for its end to be counted: some milliseconds. Each element of y is computed alone,
  // so that no cut changes a bit.
  void multiply_blocks(LinearFn kernel, LinearWork work, View x, View y) const {
    const int64_t row_products = std::max(kTileRows * x.columns, int64_t{1});  // of a tile and a row of x
    const int64_t rows = std::clamp(kCountedProducts / row_products, kCountedRows, std::max(x.rows, kCountedRows));
    for (int64_t row = 0; row < x.rows; row += rows) {
      work.x = x.row_range(row, std::min(rows, x.rows - row));
      work.y = y.row_range(row, work.x.rows);
      const int64_t tiles = std::max(kCountedProducts / (row_products * work.x.rows), int64_t{1});
      const int64_t last = work.last_tile;
      for (LinearWork part = work; part.first_tile < last; part.first_tile = part.last_tile) {
        part.last_tile = std::min(part.first_tile + tiles, last);
        kernel(part);
        counter_.add();
      }
    }
  }

  // Work items: a block of a span's rows, and the query heads of a KV head (or a part of them). Later ones, which see
  // more tokens, first. Where they are too few to share out, each partial of the tokens is an item, and is kept until
  // all are there.
  void attend_items(const KvView& kv, std::span<const SequenceSpan> spans, const HeadsView& q, float scale, View out) {
    const int group = q.heads / kv.kv_heads;
    const int heads = std::min(group, kAttentionQueries), parts = (group + heads - 1) / heads;
    const int64_t block = std::clamp<int64_t>(kAttentionQueries / heads, 1, kAttentionRows);
    int64_t blocks = 0, tokens = 0, longest = 0;
    for (const SequenceSpan& span : spans) {
      blocks += (span.num_rows + block - 1) / block;
      tokens += span.num_rows * (span.start + span.num_rows);
      longest = std::max(longest, span.start + span.num_rows);
    }
    const int64_t partials = partials_of(longest);
    const bool split = partials > 1 && q.rows <= kAttentionRows && pool_.threads() > 1 &&
                       blocks * kv.kv_heads * parts < kEvenItems * pool_.threads();
    const int64_t shares = split ? partials : 1, items = blocks * kv.kv_heads * parts * shares;
    if (split) reserve_partials(q.rows * q.heads * partials * partial_floats(q.head_dim));
    const int64_t scratch_floats = (attention_scratch(q.head_dim) + 15) / 16 * 16;
    reserve_scratch(scratch_floats);
    const AttentionFn kernels = attention_.at(kv.type);
    const auto attend_item = [&](int64_t index, int thread) {
      int64_t item = items - 1 - index;
      AttentionWork work;
      work.kv = &kv;
      work.q = q;
      work.out = out;
      work.scale = scale;
      work.scratch = scratch_.as<float>() + thread * scratch_floats;
      const int64_t share = item % shares;
      item /= shares;
      const auto part = static_cast<int>(item % parts);
      item /= parts;
      work.kv_head = static_cast<int>(item % kv.kv_heads);
      item /= kv.kv_heads;
      work.first_head = work.kv_head * group + part * heads;
      work.last_head = std::min(work.first_head + heads, (work.kv_head + 1) * group);
      for (const SequenceSpan& span : spans) {
        const int64_t span_blocks = (span.num_rows + block - 1) / block;
        if (item < span_blocks) {
          work.span = &span;
          work.first_row = item * block;
          work.last_row = std::min(span.num_rows, work.first_row + block);
          const int64_t seen = partials_of(span.start + work.last_row);
          work.first_partial = split ? share : 0;
          work.last_partial = split ? std::min(share + 1, seen) : seen;
          work.partials = split ? partials_.as<float>() : nullptr;
          work.most_partials = partials;
          if (work.first_partial < work.last_partial) kernels->attend(work);
          return;
        }
        item -= span_blocks;
      }
    };
    for_each_item(items, tokens * q.heads * q.head_dim, attend_item);
    if (split) merge_partials(*kernels, spans, q, partials, out);
  }

  static int64_t partials_of(int64_t tokens) { return (tokens + kPartialTokens - 1) / kPartialTokens; }

  void merge_partials(const AttentionKernels& kernels, std::span<const SequenceSpan> spans, const HeadsView& q,
                      int64_t most, View out) {
    const int64_t floats = partial_floats(q.head_dim);
    for (const SequenceSpan& span : spans) {
      const int64_t queries = span.num_rows * q.heads, longest = partials_of(span.start + span.num_rows);
      for_each_item(queries, queries * longest * floats, [&](int64_t query, int) {
        const int64_t row = query / q.heads, head = query % q.heads;
        kernels.merge(partials_.as<float>() + ((span.first_row + row) * q.heads + head) * most * floats,
                      partials_of(span.start + row + 1), q.head_dim, out.row(span.first_row + row) + head * q.head_dim);
      });
    }
  }

  // A context grows by a partial at a time: by powers of two, so that few steps allocate.
  void reserve_partials(int64_t floats) {
    const auto bytes = std::bit_ceil(static_cast<size_t>(floats) * sizeof(float));
    if (partials_.size() < bytes) partials_ = Buffer(bytes);
  }

  // Grows when a larger shape comes: the first step of a model allocates, no later one does.
  void reserve_scratch(int64_t floats_a_thread) {
    const auto bytes = static_cast<size_t>(floats_a_thread * pool_.threads()) * sizeof(float);
    if (scratch_.size() < bytes) scratch_ = Buffer(bytes);
  }

  // A step's input as integers in one form.
  struct Integers {
    bool made = false;  // of the x of this call
    QuantActivations rows;
    Buffer bytes;
  };

  Isa isa_;
  MathMode math_;
  WorkCounter counter_;
  ByType<LinearFn> linear_;
  const KernelRow<SplitFunctions>* const split_;
  ByType<AttentionFn> attention_;
  const RowKernels& rows_;
  const DeltaNetKernels& delta_net_;
  const QuantTable quant_;
  const Fp8Functions& fp8_;
  std::array<Integers, 3> integers_;  // by ActivationForm
  bool parts_made_ = false;           // of the x of this call
  SplitInputs parts_;
  Buffer parts_bytes_;
  BufferArena weights_;
  Buffer scratch_, held_, partials_;
  WorkerPool pool_;  // last: its threads use the rest
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  const Isa isa = best_isa(options.isa);
  if (isa == Isa::kReference) return make_reference_device(options.math, options.progress);
  return std::make_unique<CpuDevice>(isa, options);
}

}  // namespace coprime
