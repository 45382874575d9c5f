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
      order_(schedule_) {}

void GpuCommunicator::break_off(const std::string& message) {
  error_.emplace(ErrorKind::kInternal, message);
  throw *error_;
}

void GpuCommunicator::begin_step(int, int) {
  if (error_) throw *error_;
  all_reduce_.check();
  if (const std::string broken = order_.begin_step(); !broken.empty()) break_off(broken);
}

TypedView GpuCommunicator::typed_slot(int entry, int rows) {
  if (error_) throw *error_;
  if (const std::string broken = order_.ask_slot(entry, rows); !broken.empty()) break_off(broken);
  const GateEntry& gate = order_.next_gate();
  return {slot_.data(), gate.type, rows, gate.row_bytes / dtype_bytes(gate.type)};
}

const GateEntry& GpuCommunicator::begin_gate(int entry, int rows) {
  if (error_) throw *error_;
  if (const std::string broken = order_.begin_gate(entry, rows); !broken.empty()) break_off(broken);
  return order_.next_gate();
}

void GpuCommunicator::reduce(int entry, int rows, const Epilogue& epilogue) {
  const GateEntry& gate = begin_gate(entry, rows);
  COPRIME_CHECK(epilogue.residual.type == gate.type, "{} of {} meets a residual of {}", gate_text(gate),
                dtype_name(gate.type), dtype_name(epilogue.residual.type));
  if (rows == 0) return order_.finish_gate();
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
    return order_.finish_gate();
  }
  if (choice.row != nullptr) {
    all_reduce_.sum(stream_.get(), *choice.row, call, slot_.data(), sum_.data());
  } else {
    library_->all_reduce(slot_.data(), sum_.data(), call.elements, nccl_type(call.type), stream_.get());
  }
  add_norm(sum_.data(), epilogue);
  order_.finish_gate();
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
  order_.finish_gate();
}

}  // namespace coprime
