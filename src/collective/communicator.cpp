#include "collective/communicator.h"

#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "collective/all_reduce/add_norm_quant.h"
#include "collective/all_reduce/rank_order_sum.h"
#include "gate/chunking.h"

namespace coprime {
namespace {

// From this size on, reading every rank's rows costs more than a second exchange.
constexpr int64_t kOwnerSumBytes = 64 * 1024;

// The first row that a rank sums; rank `ranks` ends the last.
int64_t first_row(int rank, int rows, int ranks) { return int64_t{rows} * rank / ranks; }

}  // namespace

bool sums_by_owner(int rows, int64_t row_bytes, int ranks, bool windowed) {
  if (ranks <= 2 || rows < ranks || (windowed && row_class(rows) != RowClass::kBulk)) return false;
  return rows * row_bytes >= kOwnerSumBytes;
}

HostCommunicator::HostCommunicator(std::unique_ptr<Exchange> exchange, Device& device)
    : exchange_(std::move(exchange)), device_(device), schedule_(exchange_->schedule()), order_(schedule_) {
  for (const GateEntry& gate : schedule_) {
    COPRIME_CHECK(gate.row_bytes % 4 == 0 && (gate.type == DType::kF32 || gate.type == DType::kBF16),
                  "{}: rows of {} bytes of {}", gate_text(gate), gate.row_bytes, dtype_name(gate.type));
    if (gate.type != DType::kBF16) continue;
    row_.resize(std::max(row_.size(), static_cast<size_t>(gate.row_bytes / 2)));
    bf16_row_.resize(row_.size());
  }
  gate_hashes_.reserve(schedule_.size());
}

void HostCommunicator::break_off(const std::string& message) {
  exchange_->abandon(Error(ErrorKind::kInternal, message));
}

void HostCommunicator::begin_step(int rows, int next_rows) {
  if (const std::string broken = order_.begin_step(); !broken.empty()) break_off(broken);
  gate_hashes_.clear();
  exchange_->begin_step(rows, next_rows);
}

TypedView HostCommunicator::typed_slot(int entry, int rows) {
  const GateEntry& gate = order_.gate(entry);
  for (GateObserver* observer : observers_) observer->gate_asked(gate, entry, exchange_->sequence() + 1);
  if (const std::string broken = order_.ask_slot(entry, rows); !broken.empty()) break_off(broken);
  const std::span<std::byte> bytes = exchange_->out(static_cast<size_t>(rows * gate.row_bytes));
  return {bytes.data(), gate.type, rows, gate.row_bytes / dtype_bytes(gate.type)};
}

const GateEntry& HostCommunicator::begin_gate(int entry, int rows) {
  if (const std::string broken = order_.begin_gate(entry, rows); !broken.empty()) break_off(broken);
  return order_.next_gate();
}

void HostCommunicator::finish_gate() {
  order_.finish_gate();
  ++statistics_.gates;
}

void HostCommunicator::end_phase(GatePhase phase, size_t bytes) {
  if (!timed() || (phase != GatePhase::kFold && observers_.empty())) return;
  const int64_t begin_ns = std::exchange(phase_begin_ns_, now_ns());
  if (ranks() > 1) statistics_.time_ns += phase_begin_ns_ - begin_ns;
  for (GateObserver* observer : observers_) {
    observer->phase_ended(order_.next_gate(),
                          {phase, order_.next(), exchange_->sequence(), bytes, begin_ns, phase_begin_ns_});
  }
}

std::span<const size_t> HostCommunicator::incoming_from_all(size_t bytes) {
  std::fill_n(incoming_.begin(), ranks(), bytes);
  return {incoming_.data(), static_cast<size_t>(ranks())};
}

View HostCommunicator::matrix(const GateEntry& gate, std::span<const std::byte> bytes) {
  // A device reads its terms only; View knows no const.
  return make_view(const_cast<float*>(reinterpret_cast<const float*>(bytes.data())),
                   static_cast<int64_t>(bytes.size()) / gate.row_bytes, gate.row_bytes / 4);
}

void HostCommunicator::reduce(int entry, int rows, const Epilogue& epilogue) {
  const GateEntry& gate = begin_gate(entry, rows);
  COPRIME_CHECK(epilogue.residual.type == gate.type, "{} of {} meets a residual of {}", gate_text(gate),
                dtype_name(gate.type), dtype_name(epilogue.residual.type));
  begin_phases();
  if (sums_by_owner(rows, gate.row_bytes, ranks(), exchange_->windowed())) {
    reduce_by_owners(gate, rows, epilogue);
  } else {
    reduce_at_all(gate, rows, epilogue);
  }
  if (hashing_) gate_hashes_.push_back(0);
  hash_epilogue(epilogue);
  finish_gate();
}

void HostCommunicator::fold(const GateEntry& gate, std::span<const std::span<const std::byte>> terms,
                            const Epilogue& epilogue, int64_t first) {
  if (gate.type == DType::kBF16) return fold_bf16(terms, epilogue, first);
  for (size_t peer = 0; peer < terms.size(); ++peer) terms_[peer] = matrix(gate, terms[peer]);
  const int64_t count = terms_[0].rows;
  const View normed = epilogue.norm_weight == nullptr ? View{} : epilogue.normed.as_f32().row_range(first, count);
  device_.add_norm({terms_.data(), terms.size()}, epilogue.residual.as_f32().row_range(first, count),
                   epilogue.norm_weight, epilogue.eps, normed);
}

void HostCommunicator::fold_bf16(std::span<const std::span<const std::byte>> terms, const Epilogue& epilogue,
                                 int64_t first) {
  const int64_t columns = epilogue.residual.columns;
  const auto width = static_cast<size_t>(columns);
  std::array<const std::byte*, kMaxRanks> vectors;
  for (size_t peer = 0; peer < terms.size(); ++peer) vectors[peer] = terms[peer].data();
  const NormParameters norm{
      .weight = epilogue.norm_weight == nullptr ? std::span<const float>() : std::span(epilogue.norm_weight, width),
      .eps = epilogue.eps,
      .one_plus = epilogue.one_plus};
  const auto of_row = [&](const TypedView& view, int64_t row) -> std::span<uint16_t> {
    if (view.data == nullptr) return {};
    return {reinterpret_cast<uint16_t*>(view.row(row)), width};
  };
  const int64_t rows = static_cast<int64_t>(terms[0].size()) / (2 * columns);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = first + i;
    if (terms.size() == 1) {  // a sum, or a world of one
      std::memcpy(bf16_row_.data(), vectors[0] + i * columns * 2, width * 2);
    } else {
      sum_in_rank_order(DType::kBF16, {vectors.data(), terms.size()}, i * columns, columns,
                        reinterpret_cast<std::byte*>(bf16_row_.data()));
    }
    const std::span<uint8_t> codes =
        epilogue.codes == nullptr ? std::span<uint8_t>() : std::span(epilogue.codes + row * columns, width);
    float no_scale = 0;
    add_norm_quant_row({bf16_row_.data(), width}, norm, of_row(epilogue.residual, row), of_row(epilogue.normed, row),
                       codes, epilogue.scales == nullptr ? no_scale : epilogue.scales[row], row_);
  }
}

void HostCommunicator::sum(const GateEntry& gate, std::span<const std::span<const std::byte>> terms,
                           std::span<std::byte> out) {
  if (gate.type == DType::kBF16) {
    std::array<const std::byte*, kMaxRanks> vectors;
    for (size_t peer = 0; peer < terms.size(); ++peer) vectors[peer] = terms[peer].data();
    sum_in_rank_order(gate.type, {vectors.data(), terms.size()}, 0, static_cast<int64_t>(terms[0].size()) / 2,
                      out.data());
    return;
  }
  for (size_t peer = 0; peer < terms.size(); ++peer) terms_[peer] = matrix(gate, terms[peer]);
  device_.sum({terms_.data(), terms.size()},
              make_view(reinterpret_cast<float*>(out.data()), terms_[0].rows, terms_[0].columns));
}

void HostCommunicator::reduce_at_all(const GateEntry& gate, int rows, const Epilogue& epilogue) {
  const auto bytes = static_cast<size_t>(rows * gate.row_bytes);
  exchange_->publish(order_.next(), bytes, incoming_from_all(bytes));
  statistics_.bytes += bytes;
  end_phase(GatePhase::kPublish, bytes);
  if (gate.type == DType::kF32) device_.expect_add_norm(epilogue.residual.as_f32(), epilogue.norm_weight);
  const auto views = exchange_->wait();
  end_phase(GatePhase::kWait, bytes);
  fold(gate, views, epilogue, 0);
  exchange_->release();
  end_phase(GatePhase::kFold, bytes);
}

// Every rank sends each owner the owner's rows, and each owner sends all ranks their sum. The sum of a row is ((t0 +
// t1) + t2) + ... either way, and is stored in the gate's type before it is added to the residual: the same bits as
// reduce_at_all.
void HostCommunicator::reduce_by_owners(const GateEntry& gate, int rows, const Epilogue& epilogue) {
  std::array<size_t, kMaxRanks> ends;
  for (int owner = 0; owner < ranks(); ++owner) {
    ends[static_cast<size_t>(owner)] = static_cast<size_t>(first_row(owner + 1, rows, ranks()) * gate.row_bytes);
  }
  const int64_t own_rows = first_row(rank() + 1, rows, ranks()) - first_row(rank(), rows, ranks());
  const auto own_bytes = static_cast<size_t>(own_rows * gate.row_bytes);
  const auto all_bytes = static_cast<size_t>(rows * gate.row_bytes);
  exchange_->scatter(order_.next(), {ends.data(), static_cast<size_t>(ranks())}, incoming_from_all(own_bytes));
  statistics_.bytes += 2 * own_bytes;
  end_phase(GatePhase::kPublish, all_bytes);
  auto views = exchange_->wait();
  end_phase(GatePhase::kWait, all_bytes);
  sum(gate, views, exchange_->out(own_bytes));
  exchange_->release();
  end_phase(GatePhase::kFold, all_bytes);

  for (int owner = 0; owner < ranks(); ++owner) {
    const int64_t count = first_row(owner + 1, rows, ranks()) - first_row(owner, rows, ranks());
    incoming_[static_cast<size_t>(owner)] = static_cast<size_t>(count * gate.row_bytes);
  }
  exchange_->publish(order_.next(), own_bytes, {incoming_.data(), static_cast<size_t>(ranks())});
  end_phase(GatePhase::kPublish, own_bytes);
  views = exchange_->wait();
  end_phase(GatePhase::kWait, own_bytes);
  for (int owner = 0; owner < ranks(); ++owner)
    fold(gate, views.subspan(static_cast<size_t>(owner), 1), epilogue, first_row(owner, rows, ranks()));
  exchange_->release();
  end_phase(GatePhase::kFold, own_bytes);
}

void HostCommunicator::all_gather(int entry, int rows, std::span<const GatherPart> parts, View out,
                                  const Epilogue* epilogue) {
  const GateEntry& gate = begin_gate(entry, rows);
  COPRIME_CHECK(gate.type == DType::kF32, "{}: {} is not gathered", gate_text(gate), dtype_name(gate.type));
  COPRIME_CHECK(static_cast<int>(parts.size()) == ranks() && out.rows == rows, "{} parts, {} ranks; {} rows into {}",
                parts.size(), ranks(), rows, out.rows);
  // What a rank sends: from its slot's start to the end of its part of the last row.
  const auto part_bytes = [&](const GatherPart& part) -> size_t {
    COPRIME_CHECK(part.first >= 0 && part.count >= 0 && part.count * 4 <= gate.row_bytes &&
                      part.first + part.count <= out.columns,
                  "{}: columns {}+{} of {}", gate_text(gate), part.first, part.count, out.columns);
    return rows == 0 || part.count == 0 ? 0 : static_cast<size_t>((rows - 1) * gate.row_bytes + part.count * 4);
  };
  begin_phases();
  for (size_t peer = 0; peer < parts.size(); ++peer) incoming_[peer] = part_bytes(parts[peer]);
  const size_t own_bytes = incoming_[static_cast<size_t>(rank())];
  exchange_->publish(entry, own_bytes, {incoming_.data(), parts.size()});
  statistics_.bytes += own_bytes;
  end_phase(GatePhase::kPublish, own_bytes);
  const auto views = exchange_->wait();
  end_phase(GatePhase::kWait, own_bytes);
  for (size_t peer = 0; peer < views.size(); ++peer) {
    const GatherPart& part = parts[peer];
    if (part.count == 0) continue;
    for (int row = 0; row < rows; ++row) {
      std::memcpy(out.row(row) + part.first, views[peer].data() + row * gate.row_bytes,
                  static_cast<size_t>(part.count) * 4);
    }
  }
  exchange_->release();
  end_phase(GatePhase::kFold, own_bytes);
  if (hashing_) gate_hashes_.push_back(0);
  hash_also(out);
  finish_gate();
  if (epilogue == nullptr) return;
  device_.add_norm({&out, 1}, epilogue->residual.as_f32(), epilogue->norm_weight, epilogue->eps,
                   epilogue->normed.as_f32());
  if (epilogue->norm_weight != nullptr) hash_also(epilogue->normed);
}

void HostCommunicator::hash_also(const TypedView& rows) {
  if (!hashing_ || rows.data == nullptr) return;
  uint64_t& hash = gate_hashes_.back();
  const auto bytes = static_cast<size_t>(rows.columns * dtype_bytes(rows.type));
  for (int64_t row = 0; row < rows.rows; ++row) hash = hash_bytes({rows.row(row), bytes}, hash);
}

void HostCommunicator::hash_epilogue(const Epilogue& epilogue) {
  hash_also(epilogue.residual);
  if (epilogue.norm_weight == nullptr) return;
  hash_also(epilogue.normed);
  if (epilogue.codes == nullptr) return;
  hash_also({epilogue.codes, DType::kU8, epilogue.residual.rows, epilogue.residual.columns});
  hash_also({epilogue.scales, DType::kF32, 1, epilogue.residual.rows});
}

}  // namespace coprime
