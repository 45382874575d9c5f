#include "collective/cuda/gpu_communicator.h"

#include <fmt/ranges.h>

#include "base/check.h"

namespace coprime {
namespace {

NormArguments norm_arguments(const Epilogue& epilogue) {
  const TypedView& residual = epilogue.residual;
  COPRIME_CHECK(residual.stride == residual.columns, "rows of {} elements, {} apart", residual.columns,
                residual.stride);
  return {.rows = residual.rows,
          .columns = residual.columns,
          .residual = reinterpret_cast<uint16_t*>(residual.data),
          .weight = epilogue.norm_weight,
          .eps = epilogue.eps,
          .one_plus = epilogue.one_plus,
          .normed = reinterpret_cast<uint16_t*>(epilogue.normed.data),
          .codes = epilogue.codes,
          .scales = epilogue.scales};
}

NcclType nccl_type(DType type) { return type == DType::kF32 ? NcclType::kF32 : NcclType::kBF16; }

}  // namespace

GpuCommunicator::GpuCommunicator(GpuAllReduce& all_reduce, const CudaStream& stream, GateSchedule schedule,
                                 NcclCommunicator* library)
    : all_reduce_(all_reduce),
      stream_(stream),
      schedule_(std::move(schedule)),
      library_(library),
      slot_(largest_slot_bytes(schedule_)),
      sum_(largest_slot_bytes(schedule_)),
      next_entry_(static_cast<int>(schedule_.size())) {}

void GpuCommunicator::break_off(const std::string& message) {
  error_.emplace(ErrorKind::kInternal, message);
  throw *error_;
}

void GpuCommunicator::begin_step(int, int) {
  if (error_) throw *error_;
  all_reduce_.check();
  const int entries = static_cast<int>(schedule_.size());
  if (next_entry_ != 0 && next_entry_ != entries) {
    break_off(fmt::format("gate order broke: a step begins where {} of the last one is still to come",
                          gate_text(schedule_[static_cast<size_t>(next_entry_)])));
  }
  next_entry_ = 0;
  slot_rows_ = -1;
}

TypedView GpuCommunicator::typed_slot(int entry, int rows) {
  if (error_) throw *error_;
  const int entries = static_cast<int>(schedule_.size());
  COPRIME_CHECK(entry >= 0 && entry < entries, "gate {} of {}", entry, entries);
  const GateEntry& gate = schedule_[static_cast<size_t>(entry)];
  if (entry != next_entry_) {
    break_off(
        fmt::format("gate order broke: {} comes where {} is next", gate_text(gate),
                    next_entry_ == entries ? "a new step" : gate_text(schedule_[static_cast<size_t>(next_entry_)])));
  }
  COPRIME_CHECK(rows >= 0 && rows <= gate.max_rows, "{}: {} rows of at most {}", gate_text(gate), rows, gate.max_rows);
  slot_rows_ = rows;
  return {slot_.data(), gate.type, rows, gate.row_bytes / dtype_bytes(gate.type)};
}

const GateEntry& GpuCommunicator::begin_gate(int entry, int rows) {
  if (error_) throw *error_;
  if (entry != next_entry_ || rows != slot_rows_) {
    break_off(fmt::format("gate order broke: entry {} with {} rows comes after the slot of entry {} with {}", entry,
                          rows, next_entry_, slot_rows_));
  }
  return schedule_[static_cast<size_t>(entry)];
}

void GpuCommunicator::finish_gate() {
  ++next_entry_;
  slot_rows_ = -1;
}

void GpuCommunicator::reduce(int entry, int rows, const Epilogue& epilogue) {
  const GateEntry& gate = begin_gate(entry, rows);
  COPRIME_CHECK(epilogue.residual.type == gate.type, "{} of {} meets a residual of {}", gate_text(gate),
                dtype_name(gate.type), dtype_name(epilogue.residual.type));
  if (rows == 0) return finish_gate();
  const int64_t columns = gate.row_bytes / dtype_bytes(gate.type);
  const AllReduceCall call{.type = gate.type,
                           .elements = rows * columns,
                           .norm_quant = gate.type == DType::kBF16,
                           .rows = rows,
                           .columns = columns};
  const AllReduceChoice choice = all_reduce_.choose(call);
  if (choice.row == nullptr && library_ == nullptr) {
    error_.emplace(ErrorKind::kUsage, fmt::format("{} of {} bytes: no kernel takes it ({}), and no NCCL is loaded",
                                                  gate_text(gate), call.bytes(), fmt::join(choice.reasons, "; ")));
    throw *error_;
  }
  if (choice.row != nullptr && choice.row->method == AllReduceMethod::kPushNormQuant) {
    all_reduce_.sum_norm_quant(stream_.get(), norm_arguments(epilogue), slot_.data());
    return finish_gate();
  }
  if (choice.row != nullptr) {
    all_reduce_.sum(stream_.get(), *choice.row, call, slot_.data(), sum_.data());
  } else {
    library_->all_reduce(slot_.data(), sum_.data(), call.elements, nccl_type(call.type), stream_.get());
  }
  add_norm(sum_.data(), epilogue);
  finish_gate();
}

void GpuCommunicator::add_norm(const void* sums, const Epilogue& epilogue) {
  if (epilogue.residual.rows == 0) return;
  if (epilogue.residual.type == DType::kBF16) return add_norm_quant(stream_.get(), norm_arguments(epilogue), sums);
  add_norm_rows(stream_.get(), static_cast<const float*>(sums), epilogue.residual.as_f32(), epilogue.norm_weight,
                epilogue.eps, epilogue.normed.as_f32());
}

void GpuCommunicator::all_gather(int entry, int rows, std::span<const GatherPart> parts, View out,
                                 const Epilogue* epilogue) {
  const GateEntry& gate = begin_gate(entry, rows);
  COPRIME_CHECK(gate.type == DType::kF32 && static_cast<int>(parts.size()) == ranks() && out.rows == rows,
                "{}: {} parts, {} ranks; {} rows into {}", gate_text(gate), parts.size(), ranks(), rows, out.rows);
  GatherArguments gather{.rows = rows, .row_elements = gate.row_bytes / 4, .out = out.data, .stride = out.stride};
  for (size_t peer = 0; peer < parts.size(); ++peer) {
    gather.first[peer] = parts[peer].first;
    gather.count[peer] = parts[peer].count;
  }
  all_reduce_.gather(stream_.get(), gather, slot_.data());
  if (epilogue != nullptr) {
    COPRIME_CHECK(out.stride == out.columns, "rows of {} elements, {} apart", out.columns, out.stride);
    add_norm(out.data, *epilogue);
  }
  finish_gate();
}

}  // namespace coprime
