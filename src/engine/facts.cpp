#include "engine/facts.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"

namespace coprime {
namespace {

constexpr uint64_t kBlockBytes = 4096;

uint64_t hash_text(const std::string& text) { return hash_bytes(std::as_bytes(std::span(text))); }

uint64_t headers_hash(const Checkpoint& checkpoint) {
  std::string text;
  for (const Checkpoint::Located& located : checkpoint.tensors()) {
    text += fmt::format("{} {} {} {} {}\n", located.tensor->name, located.tensor->type_name,
                        fmt::join(located.tensor->shape, "x"), located.tensor->offset, located.tensor->bytes);
  }
  return hash_text(text);
}

// The same blocks on every rank, whatever it holds of the tensors.
uint64_t blocks_hash(const Checkpoint& checkpoint, const std::function<void()>& progress) {
  uint64_t hash = 0;
  std::vector<std::byte> block;
  for (const Checkpoint::Located& located : checkpoint.tensors()) {
    block.resize(std::min(located.tensor->bytes, kBlockBytes));
    located.file->read(located.tensor->offset, block);
    hash = hash_bytes(block, hash);
    progress();
  }
  return hash;
}

uint64_t schedule_hash(const GateSchedule& schedule) {
  std::string text;
  for (const GateEntry& gate : schedule)
    text += fmt::format("{} {} {}\n", gate_text(gate), gate.row_bytes, gate.max_rows);
  return hash_text(text);
}

}  // namespace

Facts collect_facts(const Checkpoint& checkpoint, const ShardPlan& plan, const GateSchedule& schedule,
                    const std::string& settings, const std::function<void()>& progress) {
  const std::string files = "give all ranks the same model files", program = "run the same coprime on all hosts";
  const ModelShape& shape = plan.shape();
  const auto hex = [](uint64_t hash) { return fmt::format("{:016x}", hash); };
  return {
      {"program version", COPRIME_VERSION, program},
      {"architecture", shape.architecture_name, files},
      {"layers, hidden size and vocabulary", fmt::format("{}, {}, {}", shape.layers, shape.hidden, shape.vocab), files},
      {"hash of the tensors' headers", hex(headers_hash(checkpoint)), files},
      {"hash of the tensors' first blocks", hex(blocks_hash(checkpoint, progress)), files},
      {"hash of the shard plan", hex(plan.hash()), "give all ranks the same model files, and " + program},
      {"hash of the gate schedule", hex(schedule_hash(schedule)), program},
      {"settings", settings, program},
  };
}

void compare_facts(const std::string& one, const Facts& its, const std::string& other, const Facts& others) {
  for (size_t i = 0; i < std::max(its.size(), others.size()); ++i) {
    if (i >= its.size() || i >= others.size() || its[i].name != others[i].name) {
      fail(ErrorKind::kModel, "{} tells {} facts, {} tells {} others: run the same coprime on all hosts", one,
           its.size(), other, others.size());
    }
    if (its[i].value != others[i].value) {
      fail(ErrorKind::kModel, "{} and {} differ in the {}: {} against {}: {}", one, other, its[i].name, its[i].value,
           others[i].value, its[i].advice);
    }
  }
}

}  // namespace coprime
