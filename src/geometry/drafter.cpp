#include "geometry/drafter.h"

#include "base/error.h"

namespace coprime {

Counts pad_drafter(const ModelShape& drafter, int64_t target_kv_elements, int ranks, int64_t mlp_unit) {
  Counts counts = ShardPlan(drafter, {.ranks = ranks, .mlp_unit = mlp_unit}).padded();
  const int64_t kv_heads = target_kv_elements / drafter.head_dim;
  if (target_kv_elements % drafter.head_dim != 0 || kv_heads % ranks != 0 || kv_heads < drafter.kv_heads) {
    fail(ErrorKind::kModel,
         "the target keeps {} KV elements a token; no count of KV heads of {} that is at least {} and a multiple of {} "
         "ranks "
         "has as many; use the drafter unpadded, or another",
         target_kv_elements, drafter.head_dim, drafter.kv_heads, ranks);
  }
  counts.kv_heads = static_cast<int>(kv_heads);
  counts.q_heads = drafter.gqa() * counts.kv_heads;
  return counts;
}

}  // namespace coprime
