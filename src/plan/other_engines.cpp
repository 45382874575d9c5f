#include "plan/other_engines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace coprime {
namespace {

constexpr int64_t kVocabUnit = 64;

int64_t rounded_vocab(const ModelNumbers& model) { return (model.vocab + kVocabUnit - 1) / kVocabUnit * kVocabUnit; }

}  // namespace

std::string Refusals::letters() const {
  return std::string(query_heads ? "q" : "") + (kv_heads ? "k" : "") + (width ? "i" : "") + (vocabulary ? "v" : "");
}

Refusals equal_division_refusals(const ModelNumbers& model, int64_t ranks) {
  Refusals refusals;
  refusals.query_heads = model.q_heads % ranks != 0;
  // Latent attention keeps one cache for all heads: nothing of it is cut.
  if (!model.latent())
    refusals.kv_heads = ranks > model.kv_heads ? ranks % model.kv_heads != 0 : model.kv_heads % ranks != 0;
  refusals.width = model.cut_width() % ranks != 0;
  if (model.mlp_layers > 0 && model.intermediate % ranks != 0) refusals.width = true;
  refusals.vocabulary = rounded_vocab(model) % ranks != 0;
  return refusals;
}

bool strict_division_refuses(const ModelNumbers& model, int64_t ranks) {
  return model.kv_heads % ranks != 0 || model.cut_width() % ranks != 0;
}

std::vector<std::string> refusal_reasons(const ModelNumbers& model, int64_t ranks) {
  const Refusals refusals = equal_division_refusals(model, ranks);
  std::vector<std::string> reasons;
  if (refusals.query_heads) reasons.push_back(fmt::format("{} query heads", model.q_heads));
  if (refusals.kv_heads) reasons.push_back(fmt::format("{} KV heads", model.kv_heads));
  if (refusals.width)
    reasons.push_back(
        fmt::format("{} {}", model.has_experts() ? "an expert's width of" : "an MLP width of", model.cut_width()));
  if (refusals.vocabulary) reasons.push_back(fmt::format("a vocabulary of {}", rounded_vocab(model)));
  return reasons;
}

std::string short_reasons(const ModelNumbers& model, int64_t ranks) {
  const Refusals refusals = equal_division_refusals(model, ranks);
  std::vector<std::string_view> words;
  if (refusals.query_heads) words.push_back("query heads");
  if (refusals.kv_heads) words.push_back("KV heads");
  if (refusals.width) words.push_back("width");
  if (refusals.vocabulary) words.push_back("vocabulary");
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace coprime
